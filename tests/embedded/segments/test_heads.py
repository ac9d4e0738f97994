"""Heads: pages, the gate, deletion, and what is said when objects were removed or damaged behind our back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from reconciler.archives.pages import iter_all_entries, iter_all_pages, read_page
from reconciler.embedded.catalog.topics import delete_topic
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.check.damage import Kind
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.segments import head as head_module
from reconciler.embedded.segments.gate import remove_partition
from reconciler.embedded.segments.head import NOBODY, PRODUCERS, Head, PageWriter, head_register, read_head
from reconciler.embedded.tiered.topic_deletion import finish_deletions
from reconciler.errors import MissingObjectError, UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.providers.embedded import measures
from reconciler.providers.embedded.measures import measure_topics
from reconciler.records.hashes import compute_digest
from reconciler.records.log import Digest, OffsetRange
from reconciler.resources.address import Address
from tests.embedded.deaths import opened
from tests.embedded.maintenance.tiny_segments import TOPIC, append, clocked, swept_later, with_topic
from tests.embedded.samples import NOW, cluster_in, contents, ids, numbered, read
from tests.embedded.stores import WatchedStore

if TYPE_CHECKING:
    from reconciler.embedded.clients.topic_log import EmbeddedLog
    from reconciler.objectstore.base import ObjectStore


@pytest.fixture
def orders(cluster: EmbeddedCluster) -> str:
    cluster.create_topic("orders", partitions=2)
    return cluster.topic("orders").id


def produce(cluster: EmbeddedCluster, *values: str) -> None:
    with cluster.producer() as producer:
        for value in values:
            producer.send("orders", value, partition=0)


def keys(store: ObjectStore, prefix: str) -> list[str]:
    return [listed.key for listed in store.list(prefix)]


def head(store: ObjectStore, topic_id: str) -> Head:
    found = read_head(store, topic_id, 0)
    assert found is not None
    return found


def overwrite(store: ObjectStore, key: str, body: bytes) -> None:
    store.delete([key])
    store.swap(key, body, expected=None)


# -- the format


def test_a_head_reads_back_as_it_was(store: ObjectStore, cluster: EmbeddedCluster, orders: str) -> None:
    produce(cluster, "a", "b")
    found = head(store, orders)
    assert Head.from_json(orjson.loads(orjson.dumps(found.to_json()))) == found
    assert (found.writer, found.end, found.epochs, found.records) == (PRODUCERS, 2, ((0, 0),), 2)


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"topic_id": "id", "fetched": 0},
        {"epochs": [], "fetched": 0},
        {"topic_id": "id", "epochs": [[1]], "fetched": 0},
        {"topic_id": "id", "epochs": [[1, 0, 2]], "fetched": 0},
        {"topic_id": "id", "epochs": 3, "fetched": 0},
        {"topic_id": "id", "epochs": [], "fetched": "far"},
    ],
    ids=["empty", "no-epochs", "no-id", "half", "too-long", "number", "text"],
)
def test_a_head_whose_source_was_edited_is_refused_by_its_name(
    store: ObjectStore, cluster: EmbeddedCluster, orders: str, source: dict[str, Any]
) -> None:
    produce(cluster, "a")
    (key,) = keys(store, f"heads/{orders}/")
    overwrite(store, key, orjson.dumps({**orjson.loads(store.get(key).body), "source": source}))
    with pytest.raises(UserError, match="cannot be read") as refused:
        read_head(store, orders, 0)
    assert key in refused.value.message
    assert refused.value.hint


def test_a_head_has_a_place_for_what_follows(store: ObjectStore, cluster: EmbeddedCluster, orders: str) -> None:
    produce(cluster, "a")
    held = head_register(store, orders, 0).read()
    assert held is not None
    assert {"producers", "transactions", "source", "epochs", "local_start", "pages"} < set(held.value)
    assert {"producer", "txn", "epoch", "digest"} < set(held.value["entries"][0])


def test_the_last_stable_offset_is_the_first_of_what_is_open() -> None:
    opened = Head(PRODUCERS, end=9, transactions={"a": {"base": 7}, "b": {"base": 4}})
    assert (opened.bounds.stable, opened.bounds.end) == (4, 9)


def test_what_is_not_stable_is_not_read(store: ObjectStore, cluster: EmbeddedCluster, orders: str) -> None:
    produce(cluster, "a", "b", "c")
    register = head_register(store, orders, 0)
    held = register.read()
    assert held is not None
    register.swap(held, held.value | {"transactions": {"t": {"epoch": 1, "base": 2}}})
    assert contents(cluster.log("orders")) == [(0, b"a"), (1, b"b")]
    assert cluster.log("orders").read_bounds()[0].stable == 2


# -- pages


@pytest.fixture
def paged(cluster: EmbeddedCluster, orders: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic with 60 appends of two records each, most of them in pages."""
    monkeypatch.setattr(head_module, "TAIL", 8)
    monkeypatch.setattr(head_module, "BRANCHES", 2)
    sink = cluster.sink("orders")
    for start in range(0, 120, 2):
        at = OffsetRange(start, start + 2)
        sink.publish([sink.stage(0, [numbered(start, 2)], at=at)])
    return orders


def test_older_entries_go_to_pages_and_are_read_from_there(
    store: ObjectStore, cluster: EmbeddedCluster, paged: str
) -> None:
    found = head(store, paged)
    named = list(iter_all_pages(store, found))
    leaves = [page for page in named if page.level == 0]
    assert len(leaves) > 5
    assert leaves[0].base == 0
    assert [page.base for page in leaves[1:]] == [page.last + 1 for page in leaves[:-1]]
    assert (found.records, found.end) == (120, 120)
    assert sorted(keys(store, "pages/")) == sorted(page.key for page in named)
    log = cluster.log("orders")
    assert read(log) == numbered(0, 120).to_pylist()
    for start, stop in ((0, 1), (5, 30), (50, 120), (119, 120)):
        assert read(log, 0, start, stop) == numbered(start, stop - start).to_pylist()
        digest = sum(log.read_digests(0, OffsetRange(start, stop)), Digest())
        assert digest == compute_digest(numbered(start, stop - start), base=0)
    assert log.find_offset_at(0, NOW + 33) == 33


def test_only_the_pages_of_a_range_are_read(store: ObjectStore, paged: str) -> None:
    watched = WatchedStore(store)
    first = head(store, paged).pages[0]
    read(cluster_in(watched).log("orders"), 0, 0, 1)
    assert watched.count("get", "pages/") == 1 + first.level
    watched.calls.clear()
    end = head(store, paged).end
    read(cluster_in(watched).log("orders"), 0, end - 1, end)
    assert watched.count("get", "pages/") == 0


def test_a_lost_race_writes_neither_parts_nor_page_again(
    store: ObjectStore, cluster: EmbeddedCluster, paged: str
) -> None:
    intruders = [cluster.sink("orders") for _ in range(3)]

    def intrude(what: str, key: str) -> None:
        if what == "swap" and key.startswith("heads/") and intruders:
            sink = intruders.pop()
            sink.publish([sink.stage(0, [numbered(0, 1)], at=None)])

    watched = WatchedStore(store, before=intrude)
    parts = len(keys(store, "topics/"))
    produce(cluster_in(watched), *["mine"] * 5)
    assert watched.count("put", "topics/") == 1
    assert watched.count("put", "pages/") <= 1
    assert len(keys(store, "topics/")) == parts + 4
    assert head(store, paged).end == 120 + 3 + 5
    assert [value for _, value in contents(cluster.log("orders"))][-5:] == [b"mine"] * 5


def test_deleting_finds_the_keys_in_pages(store: ObjectStore, cluster: EmbeddedCluster, paged: str) -> None:
    assert len(keys(store, "topics/")) == 60
    assert paged
    cluster.delete_topic("orders")
    assert keys(store, "topics/") == keys(store, "pages/") == keys(store, "heads/") == []


def test_a_page_that_is_gone_says_which_offsets_lay_in_it(
    store: ObjectStore, cluster: EmbeddedCluster, paged: str
) -> None:
    page = [page for page in iter_all_pages(store, head(store, paged)) if page.level == 0][1]
    store.delete([page.key])
    log = cluster.log("orders")
    assert read(log, 0, 0, page.base) == numbered(0, page.base).to_pylist()
    with pytest.raises(MissingObjectError, match=rf"orders, partition 0: .* offsets {page.base} to {page.last} cannot"):
        read(log)


@pytest.mark.thorough
def test_a_damaged_page_is_said_by_name(store: ObjectStore, cluster: EmbeddedCluster, paged: str) -> None:
    for page in iter_all_pages(store, head(store, paged)):
        kept = store.get(page.key)
        assert kept is not None
        for body in (b"", b"{", b"[]", b'{"format": "reconciler.page/2"}', b'{"format": "reconciler.page/1"}'):
            overwrite(store, page.key, body)
            with pytest.raises(UserError, match=page.key):
                read(cluster.log("orders"))
        overwrite(store, page.key, kept.body)


def test_a_head_stays_small_however_many_parts_it_has(
    store: ObjectStore, cluster: EmbeddedCluster, orders: str
) -> None:
    produce(cluster, "a")
    register = head_register(store, orders, 0)
    held, grown = register.read(), head(store, orders)
    assert held is not None
    spill = PageWriter(store, orders, 0)
    for number in range(1, 10_000):
        entry = replace(grown.entries[-1], base=number, last=number, max_ts=NOW + number)
        grown = spill.spill_entries(grown.with_appended([entry], end=number + 1))
    register.swap(held, grown.to_json())
    assert len(grown.entries) <= 64
    assert len(grown.pages) <= 3 * 32
    assert (grown.records, grown.end, len(list(iter_all_entries(store, grown)))) == (10_000,) * 3
    watched = WatchedStore(store)
    log = cluster_in(watched).log("orders")
    for offset in (0, 5_000, 9_990):
        watched.calls.clear()
        assert [row["offset"] for row in read(log, 0, offset, offset + 1)] == [offset]
        assert watched.count("get", "pages/") <= 3
    cluster.delete_topic("orders")
    assert keys(store, "pages/") == []


# -- objects removed or damaged behind our back


def test_a_part_that_is_gone_says_which_offsets_lay_in_it(
    store: ObjectStore, cluster: EmbeddedCluster, orders: str
) -> None:
    for value in "abc":
        produce(cluster, value, value)
    store.delete([head(store, orders).entries[1].key])
    reading = cluster.log("orders").read(0, OffsetRange(0, 6))
    assert next(reading).num_rows == 2
    with pytest.raises(MissingObjectError, match=r"orders, partition 0: the records at offsets 2 to 3 cannot be read"):
        next(reading)
    assert [row["offset"] for row in read(cluster.log("orders"), 0, 4)] == [4, 5]


def test_a_part_that_was_replaced_meanwhile_is_read_from_its_new_place(
    store: ObjectStore, cluster: EmbeddedCluster, orders: str
) -> None:
    for value in "abc":
        produce(cluster, value, value)
    reading = cluster.log("orders").read(0, OffsetRange(0, 6))
    first = next(reading)
    register = head_register(store, orders, 0)
    held = register.read()
    assert held is not None
    old = held.value["entries"][1]["key"]
    store.copy_from("topics/orders_0/rolled.parquet", store, old)
    held.value["entries"][1]["key"] = "topics/orders_0/rolled.parquet"
    register.swap(held, held.value)
    store.delete([old])
    assert [batch.num_rows for batch in [first, *reading]] == [2, 2, 2]


@pytest.mark.parametrize("cut", [0, 10, -20])
def test_a_damaged_part_is_said_by_name(store: ObjectStore, cluster: EmbeddedCluster, orders: str, cut: int) -> None:
    produce(cluster, "a")
    key = head(store, orders).entries[0].key
    stored = store.get(key)
    assert stored is not None
    overwrite(store, key, stored.body[:cut])
    with pytest.raises(UserError, match=key):
        read(cluster.log("orders"))


def test_a_part_of_other_records_is_not_taken_for_ours(
    store: ObjectStore, cluster: EmbeddedCluster, orders: str
) -> None:
    produce(cluster, "a")
    produce(cluster, "b", "c")
    first, second = head(store, orders).entries
    store.delete([first.key])
    store.copy_from(first.key, store, second.key)
    with pytest.raises(UserError, match=f"{first.key}"):
        read(cluster.log("orders"))


def test_a_damaged_head_is_said_by_name(store: ObjectStore, cluster: EmbeddedCluster, orders: str) -> None:
    produce(cluster, "a")
    key = f"heads/{orders}/00000.json"
    stored = store.get(key)
    assert stored is not None
    whole: dict[str, Any] = orjson.loads(stored.body)
    without = [
        orjson.dumps({name: kept for name, kept in whole.items() if name != gone}) for gone in ("end", "entries")
    ]
    for body in (b"", stored.body[:50], *without):
        overwrite(store, key, body)
        with pytest.raises(UserError, match=key):
            read(cluster.log("orders"))
        with pytest.raises(UserError, match=key):
            produce(cluster, "b")


def test_a_head_of_a_newer_format_is_refused(store: ObjectStore, cluster: EmbeddedCluster, orders: str) -> None:
    produce(cluster, "a")
    key = f"heads/{orders}/00000.json"
    stored = store.get(key)
    assert stored is not None
    overwrite(store, key, stored.body.replace(b"reconciler.head/3", b"reconciler.head/4"))
    with pytest.raises(UserError, match="newer version of reconciler"):
        produce(cluster, "b")


# -- the gate


def seal(store: ObjectStore, topic_id: str, writer: str = NOBODY) -> None:
    register = head_register(store, topic_id, 0)
    held = register.read()
    assert held is not None
    register.swap(held, held.value | {"writer": writer}, epoch=held.epoch + 1)


def test_an_append_cannot_slip_past_a_sealed_head(store: ObjectStore, cluster: EmbeddedCluster, orders: str) -> None:
    produce(cluster, "a")
    sealed = False

    def seal_once(what: str, key: str) -> None:
        nonlocal sealed
        if what == "swap" and key.startswith("heads/") and not sealed:
            sealed = True
            seal(store, orders)

    with pytest.raises(UserError, match="accepts no records now"):
        produce(cluster_in(WatchedStore(store, before=seal_once)), "b")
    assert contents(cluster.log("orders")) == [(0, b"a")]


def test_entries_carry_the_epoch_they_were_written_under(
    store: ObjectStore, cluster: EmbeddedCluster, orders: str
) -> None:
    produce(cluster, "a")
    seal(store, orders, PRODUCERS)
    produce(cluster, "b")
    assert [entry.epoch for entry in head(store, orders).entries] == [0, 1]


def test_the_first_append_reads_the_catalog_after_the_head_is_there(store: ObjectStore) -> None:
    watched = WatchedStore(store)
    cluster = cluster_in(watched)
    cluster.create_topic("orders")
    watched.calls.clear()
    for settles in (True, False, False):
        produce(cluster_in(watched), "x")
        after_read = watched.calls[watched.calls.index(("get", f"heads/{cluster.topic('orders').id}/00000.json")) :]
        assert (("get", "catalog/head.json") in after_read[:-1]) is settles
        assert watched.count("swap", "heads/") == 1 + settles
        watched.calls.clear()


def test_a_first_append_to_a_topic_deleted_meanwhile_is_not_acknowledged_and_leaves_nothing(
    store: ObjectStore, cluster: EmbeddedCluster, orders: str
) -> None:
    def delete_before_the_swap(what: str, key: str) -> None:
        if what == "swap" and key.startswith("heads/") and "orders" in cluster.topics():
            cluster.delete_topic("orders")

    with pytest.raises(UserError, match="orders was deleted or unmounted"):
        produce(cluster_in(WatchedStore(store, before=delete_before_the_swap)), "a")
    assert orders
    assert keys(store, "heads/") == keys(store, "topics/") == []


def test_an_append_to_a_topic_deleted_meanwhile_is_refused(
    store: ObjectStore, cluster: EmbeddedCluster, orders: str
) -> None:
    produce(cluster, "a")
    produce(cluster, "b")

    def delete_before_the_swap(what: str, key: str) -> None:
        if what == "swap" and key.startswith("heads/") and "orders" in cluster.topics():
            cluster.delete_topic("orders")

    with pytest.raises(UserError, match="orders was deleted or unmounted"):
        produce(cluster_in(WatchedStore(store, before=delete_before_the_swap)), "c")
    assert orders
    assert keys(store, "heads/") == []


def test_a_catalog_that_cannot_be_read_is_no_reason_to_delete_what_was_appended(store: ObjectStore) -> None:
    cluster = cluster_in(store)
    cluster.create_topic("orders")
    catalog = store.get("catalog/head.json")
    assert catalog is not None

    def damage(what: str, key: str) -> None:
        if what == "swap" and key.startswith("heads/"):
            overwrite(store, "catalog/head.json", b"{")

    with pytest.raises(UserError, match=r"catalog/head\.json cannot be read"):
        produce(cluster_in(WatchedStore(store, after=damage)), "a")
    overwrite(store, "catalog/head.json", catalog.body)
    assert contents(cluster.log("orders")) == [(0, b"a")]


# -- deletion


def test_deletion_is_marked_first_and_finished_by_whoever_comes_next(
    store: ObjectStore, cluster: EmbeddedCluster, orders: str
) -> None:
    produce(cluster, "a")
    cluster.catalog.commit(lambda draft: delete_topic(draft, "orders", cluster_id=""))
    assert list(cluster.catalog.read().deletions) == [orders]
    assert keys(store, "topics/") != []
    assert finish_deletions(store, cluster.catalog) == 1
    assert finish_deletions(store, cluster.catalog) == 0
    assert keys(store, "topics/") == keys(store, "heads/") == []
    assert dict(cluster.catalog.read().deletions) == {}


def test_a_deletion_goes_on_where_an_earlier_one_had_deleted_a_page(
    store: ObjectStore, cluster: EmbeddedCluster, paged: str
) -> None:
    page = next(iter_all_pages(store, head(store, paged)))
    store.delete([entry.key for entry in read_page(store, page)])
    store.delete([page.key])
    cluster.delete_topic("orders")
    assert keys(store, "topics/") == keys(store, "pages/") == keys(store, "heads/") == []


def test_deleting_many_topics_lists_all_heads_once(store: ObjectStore) -> None:
    watched = WatchedStore(store)
    cluster = cluster_in(watched)
    cluster.create_namespace("shop")
    for number in range(101):
        cluster.create_topic(f"shop:t{number}")
    cluster.create_topic("orders")
    produce(cluster, "stays")
    with cluster.producer() as producer:
        producer.send("shop:t7", "goes")
    watched.calls.clear()
    cluster.delete_namespace("shop")
    assert watched.count("list") == 1
    assert contents(cluster.log("orders")) == [(0, b"stays")]
    assert len(keys(store, "topics/")) == 1


def test_removing_a_partition_twice_or_one_never_written_is_harmless(
    store: ObjectStore, cluster: EmbeddedCluster, orders: str
) -> None:
    produce(cluster, "a")
    for partition in (0, 0, 1):
        remove_partition(store, orders, partition)
    assert keys(store, "topics/") == keys(store, "heads/") == []


# -- a writer that knows the head


def test_who_writes_alone_reads_the_head_once_and_swaps_again_and_again(store: ObjectStore) -> None:
    watched = WatchedStore(store)
    cluster = cluster_in(watched)
    cluster.create_topic("orders")
    producer = cluster.producer()
    for value in "abcd":
        producer.send("orders", value)
        producer.flush()
    assert watched.count("get", "heads/") == 1
    assert watched.count("swap", "heads/") == 4 + 1, "the first append settles the head"
    assert [value for _, value in contents(cluster.log("orders"))] == [b"a", b"b", b"c", b"d"]


def test_a_head_that_was_known_is_read_again_where_another_wrote(store: ObjectStore) -> None:
    cluster = cluster_in(store)
    cluster.create_topic("orders")
    known, other = cluster.producer(), cluster_in(store).producer()
    for value in ("a", "b", "c"):
        for producer in (known, other):
            producer.send("orders", value)
            producer.flush()
    assert [value for _, value in contents(cluster.log("orders"))] == [b"a", b"a", b"b", b"b", b"c", b"c"]


def test_a_writer_with_a_known_head_learns_that_its_topic_is_gone(store: ObjectStore) -> None:
    watched = WatchedStore(store)
    cluster = cluster_in(watched)
    cluster.create_topic("orders")
    producer = cluster.producer()
    producer.send("orders", "a")
    producer.flush()

    def delete_once(what: str, key: str) -> None:
        if what == "put" and key.startswith("topics/") and "orders" in cluster.topics():
            cluster.delete_topic("orders")
            cluster.finish_deletions()

    watched.before = delete_once
    producer.send("orders", "b")
    with pytest.raises(UserError, match="orders was deleted or unmounted"):
        producer.flush()
    assert keys(store, "heads/") == []


# -- a head that contradicts itself

CONTRADICTIONS: dict[str, tuple[Any, str]] = {
    "end lowered": (lambda head: head.update(end=2), "it ends at 2 and names offset 2"),
    "start above end": (lambda head: head.update(start=9), "it begins at offset 9 and ends at 3"),
    "start below nothing": (lambda head: head.update(start=-1), "it begins at offset -1"),
    "compacted beyond the end": (lambda head: head.update(compacted_to=4), "compacted to offset 4 and ends at 3"),
    "parts turned around": (lambda head: head["entries"].reverse(), "has offsets 1 to 1, after offset 2"),
    "a part that ends before it begins": (
        lambda head: head["entries"][0].update(last=-1),
        "has offsets 0 to -1, after offset -1",
    ),
}


@pytest.mark.parametrize(("change", "says"), CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_a_head_that_contradicts_itself_is_neither_read_nor_written(change: Any, says: str) -> None:
    store = MemoryStore()
    cluster = cluster_in(store)
    cluster.create_topic("orders", partitions=2)
    for value in "abc":
        produce(cluster, value)
    (key,) = keys(store, "heads/")
    stored = store.get(key)
    assert stored is not None
    value = orjson.loads(stored.body)
    change(value)
    overwrite(store, key, orjson.dumps(value))
    topic_id = cluster.topic("orders").id
    for act in (
        lambda: contents(cluster.log("orders")),
        lambda: produce(cluster, "d"),
        lambda: produce(cluster_in(store), "d"),
    ):
        with pytest.raises(UserError, match=says) as error:
            act()
        assert f"{key} cannot be read: the head of partition 0 of topic id {topic_id}" in error.value.message
    cluster.delete_topic("orders")
    assert keys(store, "heads/") == []


def test_an_end_that_was_raised_looks_like_a_gap(store: ObjectStore, cluster: EmbeddedCluster, orders: str) -> None:
    produce(cluster, "a")
    register = head_register(store, orders, 0)
    held = register.read()
    assert held is not None
    register.swap(held, held.value | {"end": 5})
    produce(cluster, "b")
    assert contents(cluster.log("orders")) == [(0, b"a"), (5, b"b")]


# A plan measures many topics: it looks at partitions that were written to, and asks nothing of those that were not.


TOPICS = [f"t{number:02}" for number in range(12)]


def written(*topics: str) -> WatchedStore:
    """Return a store where twelve topics are of two partitions each, some of them with one record in both."""
    store = MemoryStore()
    cluster = cluster_in(store)
    for topic in TOPICS:
        cluster.create_topic(topic, partitions=2)
    with cluster.producer() as producer:
        for topic in topics:
            for partition in range(2):
                producer.send(topic, "x", partition=partition)
    return WatchedStore(store)


def records_in(store: WatchedStore, topics: list[str]) -> dict[str, int]:
    cluster = EmbeddedCluster.open(store, now_ms=lambda: NOW, new_id=ids())
    found = measure_topics(cluster, [Address(f"topic/west/{topic}") for topic in topics])
    return {address.rpartition("/")[2]: measure.records for address, measure in found.items()}


def test_partitions_never_written_to_count_as_empty_however_many_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "MEASURED_PARTITIONS", 4)
    store = written("t09", "t11")
    assert records_in(store, TOPICS) == {topic: 2 if topic in {"t09", "t11"} else 0 for topic in TOPICS}
    heads = [(call, key) for call, key in store.calls if key.startswith("heads/")]
    assert [key for call, key in heads if call == "list" and key == "heads/"] == ["heads/"]
    assert len(heads) == 1 + 2 * (1 + 2), "one listing of all, and of each topic with records its own and two heads"


def test_beyond_what_is_looked_at_only_topics_with_records_stay_unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "MEASURED_PARTITIONS", 3)
    assert records_in(written("t00", "t11"), TOPICS) == {"t00": 2, **dict.fromkeys(TOPICS[1:-1], 0)}


def test_of_one_topic_only_its_own_heads_are_listed() -> None:
    store = written("t05")
    assert records_in(store, ["t05"]) == {"t05": 2}
    assert all(key != "heads/" for _, key in store.calls)
    assert records_in(store, ["missing"]) == {}


# Parts whose bytes are not those that were written: whoever reads them learns what is lost, and where it lay.


PAYLOAD = b"".join(b"%d," % number for number in range(4000))


def flipped(body: bytes, at: int, count: int = 8) -> bytes:
    return body[:at] + bytes(byte ^ 0xFF for byte in body[at : at + count]) + body[at + count :]


@pytest.mark.parametrize("damage", ["a page", "the footer", "all of it", "cut short"])
@pytest.mark.parametrize(
    "ask",
    [lambda log: list(log.read(1, OffsetRange(0, 3))), lambda log: log.find_offset_at(1, 0)],
    ids=["read", "search by time"],
)
def test_a_damaged_part_is_told_with_topic_partition_offsets_and_object(
    damage: str, ask: Callable[[EmbeddedLog], object]
) -> None:
    store = MemoryStore()
    cluster = cluster_in(store)
    cluster.create_topic("shop.orders", partitions=2)
    with cluster.producer() as producer:
        for _ in range(3):
            producer.send("shop.orders", PAYLOAD, partition=1)
    (key,) = [listed.key for listed in store.list("topics/")]
    body = (store.get(key) or pytest.fail("it is there")).body
    harmed = {
        "a page": flipped(body, 4, 40),
        "the footer": flipped(body, len(body) - 60, 40),
        "all of it": flipped(body, 0, len(body)),
        "cut short": body[: len(body) // 2],
    }[damage]
    store.delete([key])
    store.put(key, harmed)
    log = opened(store).log("shop.orders")
    with pytest.raises(UserError) as raised:
        ask(log)
    message = raised.value.message
    assert message.startswith("shop.orders, partition 1: the records at offsets 0 to 2 cannot be read: memory://"), (
        message
    )
    assert f"object {key} is damaged: " in message
    assert "\n" not in message
    assert "Restore" in raised.value.hint


@pytest.mark.parametrize("name", ["heads/.DS_Store", "heads/{topic}/00000.json.bak", "heads/{topic}/0.json"])
def test_what_lies_among_heads_and_is_none_is_left_alone(name: str) -> None:
    cluster, clock = clocked()
    with_topic(cluster, cleanup_policy="compact")
    append(cluster, ("a", "1"))
    store = cluster.store
    foreign = name.format(topic=cluster.topic(TOPIC).id)
    store.put(foreign, b"x")
    assert len(list(cluster.consume(TOPIC))) == 1
    upkeep = cluster.upkeep()
    for job in (upkeep.retain, upkeep.roll, upkeep.compact):
        assert job().errors == []
    swept_later(store, clock)
    assert [finding.kind for finding in check_cluster(store).findings] == [Kind.FOREIGN]
    assert cluster.delete_topic(TOPIC)
    assert [listed.key for listed in store.list("heads/")] == [foreign]
