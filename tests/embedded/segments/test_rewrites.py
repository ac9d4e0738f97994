"""Keys of namespaces: what is written lies under the nearest tier's, and what is there is brought under it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from reconciler.archives.pages import iter_all_entries
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.segments import head as head_module
from reconciler.embedded.segments import rewrites
from reconciler.embedded.segments.admission import read_append_rules
from reconciler.embedded.segments.head import Partition, read_head
from reconciler.embedded.segments.parts import PartWriter
from reconciler.embedded.segments.rewrites import Replacement
from reconciler.embedded.tiered import object_rewrites
from reconciler.embedded.tiered.object_rewrites import PartitionRewrite, publish_local
from reconciler.errors import UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import OffsetRange
from tests.embedded.maintenance.tiny_segments import DAY, Clock, clocked
from tests.embedded.samples import NOW, cluster_in, contents, ids, numbered, read
from tests.embedded.stores import DiedError, KeyedStore, WatchedStore, dying

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster


def produce(cluster: EmbeddedCluster, topic: str, *values: str, partition: int = 0) -> None:
    for value in values:
        with cluster.producer() as producer:
            producer.send(topic, value, partition=partition)


@pytest.fixture
def store() -> KeyedStore:
    return KeyedStore()


@pytest.fixture
def cluster(store: KeyedStore) -> EmbeddedCluster:
    """A cluster with a key on `eu`, another on `us`, a third on `eu:secret`, none on `plain`."""
    cluster = cluster_in(store)
    cluster.create_namespace("eu", kms_key_id="key-eu")
    cluster.create_namespace("eu:north")
    cluster.create_namespace("eu:secret", kms_key_id="key-secret")
    cluster.create_namespace("us", kms_key_id="key-us")
    cluster.create_namespace("plain")
    return cluster


@pytest.mark.fact("F-K-020")
def test_objects_lie_under_the_key_of_the_nearest_tier(cluster: EmbeddedCluster, store: KeyedStore) -> None:
    for namespace in ("eu:", "eu:north:", "eu:secret:", "us:", "plain:", ""):
        cluster.create_topic(f"{namespace}orders")
        produce(cluster, f"{namespace}orders", "a")
    assert {key.rpartition("/")[0]: kms for key, kms in store.parts().items()} == {
        "topics/eu/orders_0": "key-eu",
        "topics/eu/north/orders_0": "key-eu",
        "topics/eu/secret/orders_0": "key-secret",
        "topics/us/orders_0": "key-us",
        "topics/plain/orders_0": None,
        "topics/orders_0": None,
    }


@pytest.mark.fact("F-K-020")
def test_copies_lie_under_the_key_of_where_they_go(cluster: EmbeddedCluster, store: KeyedStore) -> None:
    cluster.create_topic("us:orders")
    cluster.sink("us:orders").publish([cluster.sink("us:orders").stage(0, [numbered(0, 5)], at=None)])
    for target in ("eu:secret:copy", "plain:copy"):
        cluster.create_topic(target)
        sink = cluster.sink(target)
        sink.publish([sink.stage_copy(0, cluster.log("us:orders"), OffsetRange(0, 5))])
        assert read(cluster.log(target)) == read(cluster.log("us:orders"))
    assert store.keys_below("eu/secret") == {"key-secret"}
    assert store.keys_below("plain") == {None}


@pytest.mark.fact("F-K-014", "F-K-020")
def test_a_topic_that_moves_to_another_key_is_marked_and_then_written_anew(
    cluster: EmbeddedCluster, store: KeyedStore
) -> None:
    cluster.create_topic("eu:orders", partitions=2)
    produce(cluster, "eu:orders", "a", "b")
    before, log = cluster.topic("eu:orders"), cluster.log("eu:orders")
    cluster.move_topic("eu:orders", "us:orders")
    catalog = cluster.catalog.read()
    assert list(catalog.rewrites) == [before.id]
    produce(cluster, "us:orders", "c")
    assert store.keys_below() == {"key-eu", "key-us"}
    assert contents(log) == contents(cluster.log("us:orders")) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert cluster.finish_rewrites() == 1
    assert cluster.finish_rewrites() == 0
    assert dict(cluster.catalog.read().rewrites) == {}
    assert {key.rpartition("/")[0]: kms for key, kms in store.parts().items()} == {"topics/us/orders_0": "key-us"}
    assert contents(log) == contents(cluster.log("us:orders")) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert cluster.topic("us:orders").id == before.id


def test_a_move_below_one_key_writes_nothing_anew(cluster: EmbeddedCluster, store: KeyedStore) -> None:
    cluster.create_topic("eu:orders")
    produce(cluster, "eu:orders", "a")
    parts = store.parts()
    cluster.move_topic("eu:orders", "eu:north:orders")
    assert cluster.finish_rewrites() == 0
    assert store.parts() == parts


@pytest.mark.fact("F-K-020")
def test_a_key_that_changes_reaches_every_topic_that_has_no_nearer_one(
    cluster: EmbeddedCluster, store: KeyedStore
) -> None:
    for name in ("eu:a", "eu:north:b", "eu:secret:c", "us:d"):
        cluster.create_topic(name)
        produce(cluster, name, "x")
    cluster.encrypt_namespace("eu", "key-new")
    assert sorted(entry.name for entry in cluster.catalog.read().rewrites.values()) == ["eu:a", "eu:north:b"]
    assert cluster.finish_rewrites() == 2
    assert set(store.parts().values()) == {"key-new", "key-secret", "key-us"}
    cluster.encrypt_namespace("eu:secret", None)
    assert cluster.finish_rewrites() == 1
    assert store.keys_below("eu") == {"key-new"}
    cluster.encrypt_namespace("eu", None)
    assert cluster.finish_rewrites() == 3
    assert set(store.parts().values()) == {None, "key-us"}


def test_a_key_that_changes_to_and_fro_leaves_nothing_under_the_one_between(
    cluster: EmbeddedCluster, store: KeyedStore
) -> None:
    cluster.create_topic("plain:orders")
    produce(cluster, "plain:orders", "a")
    cluster.encrypt_namespace("plain", "key-between")
    produce(cluster, "plain:orders", "b")
    cluster.encrypt_namespace("plain", None)
    produce(cluster, "plain:orders", "c")
    cluster.finish_rewrites()
    assert set(store.parts().values()) == {None}
    assert [value for _, value in contents(cluster.log("plain:orders"))] == [b"a", b"b", b"c"]


def test_a_deleted_topic_is_not_written_anew(cluster: EmbeddedCluster, store: KeyedStore) -> None:
    cluster.create_topic("eu:orders")
    produce(cluster, "eu:orders", "a")
    cluster.move_topic("eu:orders", "us:orders")
    cluster.delete_topic("us:orders")
    assert dict(cluster.catalog.read().rewrites) == {}
    assert cluster.finish_rewrites() == 0
    assert store.parts() == {}


def test_pages_and_pages_of_pages_are_written_anew(
    cluster: EmbeddedCluster, store: KeyedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_module, "TAIL", 2)
    monkeypatch.setattr(object_rewrites, "TAIL", 2)
    monkeypatch.setattr(rewrites, "TAIL", 2)
    monkeypatch.setattr(head_module, "BRANCHES", 2)
    cluster.create_topic("eu:orders")
    produce(cluster, "eu:orders", *[f"v{number}" for number in range(23)])
    before = contents(cluster.log("eu:orders"))
    cluster.move_topic("eu:orders", "us:orders")
    assert cluster.finish_rewrites() == 1
    assert set(store.parts().values()) == {"key-us"}
    assert len(store.parts()) == 23
    assert contents(cluster.log("us:orders")) == before
    head = read_head(store, cluster.topic("us:orders").id, 0)
    assert head is not None
    assert head.pages
    assert [entry.kms_key_id for entry in iter_all_entries(store, head)] == ["key-us"] * 23


def test_what_retention_left_of_a_page_is_written_anew() -> None:
    store, clock = KeyedStore(), Clock()
    cluster, _ = clocked(store, clock)
    cluster.create_namespace("eu", kms_key_id="key-eu")
    cluster.create_namespace("us", kms_key_id="key-us")
    cluster.create_topic("eu:orders", configs={"segment.bytes": "4500", "retention.ms": str(DAY)})
    produce(cluster, "eu:orders", *[f"old{number}" for number in range(50)])
    clock.now_ms += 2 * DAY
    produce(cluster, "eu:orders", *[f"new{number}" for number in range(50)])
    cluster.upkeep().retain()
    head = read_head(store, cluster.topic("eu:orders").id, 0)
    assert head is not None
    assert head.pages[0].base < head.start == 50
    before = contents(cluster.log("eu:orders"))
    cluster.move_topic("eu:orders", "us:orders")
    assert cluster.finish_rewrites() == 1
    assert set(store.parts().values()) == {"key-us"}
    assert contents(cluster.log("us:orders")) == before


def test_a_reader_on_its_way_sees_every_record_while_they_are_written_anew(
    cluster: EmbeddedCluster, store: KeyedStore
) -> None:
    cluster.create_topic("eu:orders")
    produce(cluster, "eu:orders", *"abcdef")
    reading = cluster.log("eu:orders").read(0, OffsetRange(0, 6))
    found = [next(reading)]
    cluster.move_topic("eu:orders", "us:orders")
    assert cluster.finish_rewrites() == 1
    assert store.keys_below() == {"key-us"}
    found.extend(reading)
    assert [value for batch in found for value in batch.column("value").to_pylist()] == [b"%c" % c for c in b"abcdef"]


@pytest.mark.parametrize("is_first", [True, False])
def test_an_append_in_flight_ends_under_the_key_that_holds_when_it_is_published(*, is_first: bool) -> None:
    inner = KeyedStore()
    other = cluster_in(inner)
    other.create_namespace("eu", kms_key_id="key-old")
    other.create_topic("eu:orders")
    if not is_first:
        produce(other, "eu:orders", "before")

    def change(what: str, key: str) -> None:
        if what == "put" and key.startswith("topics/"):
            other.encrypt_namespace("eu", "key-new")
            assert other.finish_rewrites() == 1

    writer = cluster_in(WatchedStore(inner, after=change))
    produce(writer, "eu:orders", "in flight")
    assert other.finish_rewrites() == int(is_first)
    assert [value for _, value in contents(other.log("eu:orders"))][-1] == b"in flight"
    head = read_head(inner, other.topic("eu:orders").id, 0)
    assert head is not None
    assert {inner.key_of[entry.key] for entry in head.entries} == {"key-new"}
    assert {entry.kms_key_id for entry in head.entries} == {head.kms_key_id} == {"key-new"}


def test_a_transaction_that_ends_while_its_parts_are_copied_stays_ended(store: KeyedStore) -> None:
    watched = WatchedStore(store)
    cluster = cluster_in(watched)
    cluster.create_namespace("eu", kms_key_id="key-eu")
    cluster.create_namespace("us", kms_key_id="key-us")
    cluster.create_topic("eu:orders")
    producer = cluster.producer("pay")
    producer.init_transactions()
    producer.begin()
    producer.send("eu:orders", "paid", partition=0)
    producer.flush()
    cluster.move_topic("eu:orders", "us:orders")

    def commit(what: str, _key: str) -> None:
        if what == "copy_from":
            watched.after = lambda _what, _key: None
            producer.commit()

    watched.after = commit
    assert cluster.finish_rewrites() == 1
    assert set(store.parts().values()) == {"key-us"}
    assert contents(cluster.log("us:orders")) == [(0, b"paid")]
    assert not list(check_cluster(store).findings)


def test_an_append_that_died_under_an_old_key_is_found_by_the_next() -> None:
    inner = KeyedStore()
    other = cluster_in(inner)
    other.create_namespace("eu", kms_key_id="key-old")
    other.create_topic("eu:orders")

    def change(what: str, key: str) -> None:
        if what == "put" and key.startswith("topics/"):
            other.encrypt_namespace("eu", "key-new")
            assert other.finish_rewrites() == 1
        if what == "swap" and key.startswith("heads/"):
            raise DiedError

    with pytest.raises(DiedError):
        produce(cluster_in(WatchedStore(inner, after=change)), "eu:orders", "unacknowledged")
    assert inner.keys_below() == {"key-old"}
    produce(other, "eu:orders", "next")
    assert other.finish_rewrites() == 1
    assert inner.keys_below() == {"key-new"}
    assert len(contents(other.log("eu:orders"))) == 2


def test_a_store_that_cannot_encrypt_refuses_a_key() -> None:
    cluster = cluster_in(MemoryStore())
    with pytest.raises(UserError, match="cannot encrypt objects under key secret"):
        cluster.create_namespace("eu", kms_key_id="secret")
    cluster.create_namespace("eu")
    with pytest.raises(UserError, match="cannot encrypt"):
        cluster.encrypt_namespace("eu", "secret")
    cluster.encrypt_namespace("eu", None)


def crashes(
    prepare: Callable[[EmbeddedCluster], object], operation: Callable[[EmbeddedCluster], object]
) -> Iterator[KeyedStore]:
    """Yield a store for every point at which the operation can die, as it is left behind."""
    for done in (False, True):
        for at in itertools.count():
            inner = KeyedStore()
            prepare(cluster_in(inner))
            try:
                operation(again(dying(inner, at, done=done)))
            except DiedError:
                yield inner
            else:
                assert at > 0
                break


def again(store: KeyedStore | WatchedStore) -> EmbeddedCluster:
    new_id = ids()
    cluster = cluster_in(store, now_ms=NOW)
    cluster._new_id = lambda: "again-" + new_id()
    return cluster


def written(cluster: EmbeddedCluster) -> None:
    cluster.create_namespace("eu", kms_key_id="key-eu")
    cluster.create_namespace("us", kms_key_id="key-us")
    cluster.create_topic("eu:orders", partitions=2)
    produce(cluster, "eu:orders", "a", "b", "c", "d", "e")
    produce(cluster, "eu:orders", "z", partition=1)


def moved(cluster: EmbeddedCluster) -> None:
    if "eu:orders" in cluster.topics():
        cluster.move_topic("eu:orders", "us:orders")
    cluster.finish_rewrites()


@pytest.mark.thorough
@pytest.mark.fact("F-K-014")
def test_a_move_that_died_anywhere_is_finished_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_module, "TAIL", 2)
    monkeypatch.setattr(object_rewrites, "TAIL", 2)
    monkeypatch.setattr(rewrites, "TAIL", 2)
    left = 0
    for store in crashes(written, moved):
        left += 1
        cluster = again(store)
        name = next(iter(cluster.topics()))
        expected = [(offset, value.encode()) for offset, value in enumerate("abcde")]
        assert contents(cluster.log(name)) == expected
        produce(cluster, name, "f")
        moved(cluster)
        log = cluster.log("us:orders")
        assert contents(log) == [*expected, (5, b"f")]
        assert contents(log, 1) == [(0, b"z")]
        heads = [head for partition in (0, 1) if (head := log.read_head(partition)) is not None]
        named = {entry.key for head in heads for entry in iter_all_entries(store, head)}
        assert {store.key_of[key] for key in named} == {"key-us"}
        assert {head.kms_key_id for head in heads} == {"key-us"}
        assert dict(cluster.catalog.read().rewrites) == {}
    assert left > 20


def test_a_segment_rolled_under_an_old_key_is_not_published(cluster: EmbeddedCluster, store: KeyedStore) -> None:
    cluster.create_topic("eu:orders")
    produce(cluster, "eu:orders", *"abc")
    old = read_append_rules(cluster.catalog.read(), "eu:orders")
    cluster.encrypt_namespace("eu", "key-new")
    assert cluster.finish_rewrites() == 1
    partition = Partition("eu:orders", cluster.topic("eu:orders").id, 0)
    for rules, is_published in ((old, False), (read_append_rules(cluster.catalog.read(), "eu:orders"), True)):
        head = read_head(store, partition.topic_id, 0)
        assert head is not None
        rolled = PartWriter.of(store, rules, 0).write_one(cluster.log("eu:orders").read(0, OffsetRange(0, 3)))
        assert rolled is not None
        written = PartitionRewrite(partition, (Replacement.of(head.entries, [rolled]),))
        gained = publish_local(store, written, put_ms=store.read_clock_ms(), now_ms=store.read_clock_ms)
        assert (gained is not None) == is_published
        assert store.keys_below() == {"key-new"}
    assert len(store.parts()) == 1
    assert len(contents(cluster.log("eu:orders"))) == 3


def shop(cluster: EmbeddedCluster) -> None:
    cluster.create_namespace("shop:eu", kms_key_id="key-eu")
    for name in ("shop:orders", "shop:eu:refunds", "other"):
        cluster.create_topic(name, partitions=2)
        for partition in (0, 1):
            produce(cluster, name, "a", "b", partition=partition)


@pytest.mark.thorough
@pytest.mark.fact("F-K-012", "F-K-013")
def test_a_recursive_delete_that_died_anywhere_is_whole_or_not_begun_and_finished_by_the_next() -> None:
    left = 0
    for store in crashes(shop, lambda cluster: cluster.delete_namespace("shop", recursive=True)):
        left += 1
        cluster = again(store)
        assert list(cluster.topics()) in (["other"], ["other", "shop:eu:refunds", "shop:orders"])
        assert cluster.namespaces() == (["shop", "shop:eu"] if "shop:orders" in cluster.topics() else [])
        if cluster.namespaces():
            assert contents(cluster.log("shop:eu:refunds"), 1) == [(0, b"a"), (1, b"b")]
            cluster.delete_namespace("shop", recursive=True)
        cluster.create_namespace("shop:eu")
        cluster.create_topic("shop:orders")
        produce(cluster, "shop:orders", "new")
        cluster.finish_deletions()
        assert {key.split("/")[1] for key in store.parts()} == {"other_0", "other_1", "shop"}
        assert len(store.parts("shop")) == 1
        assert contents(cluster.log("shop:orders")) == [(0, b"new")]
        assert dict(cluster.catalog.read().deletions) == {}
    assert left > 20


def test_one_damaged_head_keeps_no_other_topic_from_being_done(cluster: EmbeddedCluster, store: KeyedStore) -> None:
    for name in ("eu:a", "eu:b", "eu:c"):
        cluster.create_topic(name)
        produce(cluster, name, "x")
    heads = {name: f"heads/{cluster.topic(name).id}/00000.json" for name in cluster.topics()}
    whole = {name: store.get(key) for name, key in heads.items()}
    cluster.encrypt_namespace("eu", "key-new")
    store.put(heads["eu:b"], b"{")
    with pytest.raises(UserError, match="cannot be read"):
        cluster.finish_rewrites()
    assert [entry.name for entry in cluster.catalog.read().rewrites.values()] == ["eu:b"]
    assert [store.keys_below(f"eu/{name}_0") for name in "abc"] == [{"key-new"}, {"key-eu"}, {"key-new"}]
    with pytest.raises(UserError, match="cannot be read"):
        cluster.delete_namespace("eu", recursive=True)
    assert [entry.name for entry in cluster.catalog.read().deletions.values()] == ["eu:b"]
    assert list(store.parts()) == list(store.parts("eu/b_0"))
    before = whole["eu:b"]
    assert before is not None
    store.put(heads["eu:b"], before.body)
    assert cluster.finish_deletions() == 1
    assert store.parts() == {}


def test_a_rewrite_that_is_stopped_stays_marked_and_goes_on(cluster: EmbeddedCluster, store: KeyedStore) -> None:
    cluster.create_topic("eu:orders")
    produce(cluster, "eu:orders", *"abc")
    cluster.encrypt_namespace("eu", "key-new")
    assert cluster.finish_rewrites(lambda: True) == 0
    assert store.keys_below() == {"key-eu"}
    assert cluster.finish_rewrites() == 1
    assert store.keys_below() == {"key-new"}
