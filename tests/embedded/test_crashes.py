"""Dying before and after every write of every operation: what was acknowledged is there, and the next one goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import OffsetRange
from tests.embedded.deaths import crashes, opened
from tests.embedded.samples import cluster_in, contents, numbered, read
from tests.embedded.stores import DiedError, WatchedStore, dying

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore


def unnamed_parts(store: ObjectStore, cluster: EmbeddedCluster) -> set[str]:
    """Return the parts that no head names: a sweep takes them, nobody ever reads them."""
    named = set()
    for name, topic in cluster.topics().items():
        log = cluster.log(name)
        for partition in range(topic.partitions):
            head = log.read_head(partition)
            named |= {entry.key for entry in log.iter_local_entries(head, OffsetRange(0, 1 << 40))} if head else set()
    return {listed.key for listed in store.list("topics/")} - named


def two_orders(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders", partitions=2)


def append(cluster: EmbeddedCluster) -> None:
    with cluster.producer() as producer:
        for partition in (0, 1):
            for value in "ab":
                producer.send("orders", value, partition=partition)


def test_an_append_that_died_is_there_whole_or_not_at_all_and_the_next_goes_on() -> None:
    left = 0
    for store in crashes(two_orders, append):
        left += 1
        cluster = opened(store)
        before = {partition: contents(cluster.log("orders"), partition) for partition in (0, 1)}
        assert all(rows in ([], [(0, b"a"), (1, b"b")]) for rows in before.values())
        append(cluster)
        for partition, rows in before.items():
            after = contents(cluster.log("orders"), partition)
            assert after[: len(rows)] == rows
            assert [offset for offset, _ in after] == list(range(len(rows) + 2))
        cluster.delete_topic("orders")
        assert list(store.list("heads/")) == []
    assert left >= 8


def append_twice(cluster: EmbeddedCluster) -> None:
    append(cluster)
    append(cluster)


def test_what_was_acknowledged_before_the_crash_stays() -> None:
    for store in crashes(lambda cluster: (two_orders(cluster), append(cluster)), append_twice):
        log = opened(store).log("orders")
        for partition in (0, 1):
            rows = contents(log, partition)
            assert rows[:2] == [(0, b"a"), (1, b"b")]
            assert len(rows) in {2, 4, 6}


def create(cluster: EmbeddedCluster) -> None:
    cluster.create_namespace("shop:eu", {"retention.ms": "1d"})
    cluster.create_topic("shop:eu:orders", partitions=3)


def test_a_creation_that_died_is_done_again_by_the_next() -> None:
    for store in crashes(lambda _cluster: None, create):
        cluster = opened(store)
        cluster.create_namespace("shop:eu", {"retention.ms": "1d"})
        if "shop:eu:orders" not in cluster.topics():
            cluster.create_topic("shop:eu:orders", partitions=3)
        assert cluster.namespaces() == ["shop", "shop:eu"]
        assert cluster.topic("shop:eu:orders").partitions == 3


def many_topics(cluster: EmbeddedCluster) -> None:
    for number in range(70):
        cluster.create_topic(f"t{number}")


@pytest.mark.thorough
def test_a_snapshot_that_died_loses_no_commit() -> None:
    for store in crashes(lambda _cluster: None, many_topics):
        names = list(opened(store).topics())
        assert sorted(names) == sorted(f"t{number}" for number in range(len(names)))
        opened(store).create_topic("next")
        assert len(opened(store).topics()) == len(names) + 1


def filled(cluster: EmbeddedCluster) -> None:
    two_orders(cluster)
    append_twice(cluster)
    cluster.create_topic("other")


def test_a_deletion_that_died_is_finished_by_the_next() -> None:
    left = 0
    for store in crashes(filled, lambda cluster: cluster.delete_topic("orders")):
        left += 1
        cluster = opened(store)
        if "orders" in cluster.topics():
            assert len(contents(cluster.log("orders"))) == 4
            cluster.delete_topic("orders")
        cluster.finish_deletions()
        assert list(cluster.topics()) == ["other"]
        assert [key for kind in ("topics/", "heads/", "pages/") for key in store.list(kind)] == []
        assert dict(cluster.catalog.read().deletions) == {}
        cluster.create_topic("orders")
        assert read(cluster.log("orders")) == []
    assert left > 15


@pytest.mark.thorough
def test_a_publication_that_died_is_repeated_without_a_record_twice() -> None:
    def publish(cluster: EmbeddedCluster) -> None:
        sink = cluster.sink("orders")
        for start in (0, 3, 6):
            staged = [
                sink.stage(partition, [numbered(start, 3, partition=partition)], at=OffsetRange(start, start + 3))
                for partition in (0, 1)
            ]
            sink.publish(staged)

    for store in crashes(two_orders, publish):
        cluster = opened(store)
        publish(cluster)
        for partition in (0, 1):
            assert read(cluster.log("orders"), partition) == numbered(0, 9, partition=partition).to_pylist()


def test_nothing_that_a_crash_left_is_ever_read() -> None:
    orphans = 0
    for store in crashes(two_orders, append):
        cluster = opened(store)
        orphans += len(unnamed_parts(store, cluster))
        seen = WatchedStore(store)
        reading = opened(seen)
        for partition in (0, 1):
            contents(reading.log("orders"), partition)
        assert unnamed_parts(store, cluster) & {key for _, key in seen.calls} == set()
    assert orphans > 0


def test_creating_a_cluster_that_died_is_done_by_the_next() -> None:
    for done in (False, True):
        inner = MemoryStore()
        with pytest.raises(DiedError):
            cluster_in(dying(inner, 0, done=done))
        assert cluster_in(inner).cluster_id == "00000000-0000-4000-8000-000000000001"
