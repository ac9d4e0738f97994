"""What has expired goes, whole segments at a time: the head first, then the objects."""

from __future__ import annotations

import gzip

import pytest

from reconciler.embedded.maintenance.survey import MaintenanceResult
from reconciler.errors import MissingObjectError
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import OffsetRange
from tests.embedded.maintenance.tiny_segments import (
    ALL,
    DAY,
    TOPIC,
    TWO_PARTS,
    append,
    append_parts,
    clocked,
    head_of,
    held,
    named_in,
    parts_in,
    with_topic,
)
from tests.embedded.samples import NOW, cluster_in, contents
from tests.embedded.stores import WatchedStore


def test_old_segments_go_and_the_open_one_stays() -> None:
    cluster, clock = clocked()
    with_topic(cluster, retention_ms="1d", segment_bytes=TWO_PARTS)
    append_parts(cluster, 5)
    clock.now_ms += DAY
    assert cluster.upkeep().retain().partitions == 0
    clock.now_ms += 1
    done = cluster.upkeep().retain()
    assert (done.partitions, done.records) == (1, 8)
    head = head_of(cluster)
    assert (head.start, head.local_start, head.end) == (8, 8, 10)
    assert [row["offset"] for row in held(cluster)] == [8, 9]
    assert parts_in(cluster.store) == named_in(cluster)
    clock.now_ms += 100 * DAY
    assert cluster.upkeep().retain() == MaintenanceResult()


def test_what_is_left_is_at_most_retention_bytes_of_each_partition() -> None:
    cluster, _ = clocked()
    with_topic(cluster, partitions=2, retention_ms="-1", retention_bytes="9000", segment_bytes=TWO_PARTS)
    append_parts(cluster, 9, partition=0)
    append_parts(cluster, 2, partition=1)
    assert cluster.upkeep().retain().partitions == 1
    assert 4_500 < head_of(cluster, 0).stored_bytes <= 9_000
    assert head_of(cluster, 1).start == 0


def test_compact_alone_deletes_nothing_and_both_delete() -> None:
    cluster, clock = clocked()
    with_topic(cluster, cleanup_policy="compact", retention_ms="1", segment_bytes=TWO_PARTS)
    append_parts(cluster, 5)
    clock.now_ms += DAY
    assert cluster.upkeep().retain() == MaintenanceResult()
    cluster.alter_topic(TOPIC, {"cleanup.policy": "compact,delete"})
    assert cluster.upkeep().retain().records == 8


def test_a_changed_config_is_seen_although_nothing_was_written() -> None:
    cluster, clock = clocked()
    with_topic(cluster, retention_ms="-1", segment_bytes=TWO_PARTS)
    append_parts(cluster, 5)
    clock.now_ms += DAY
    assert cluster.upkeep().retain() == MaintenanceResult()
    cluster.alter_topic(TOPIC, {"retention.ms": "1000"})
    assert cluster.upkeep().retain().partitions == 1


def test_an_open_transaction_keeps_what_lies_at_it_and_above() -> None:
    cluster, clock = clocked()
    with_topic(cluster, retention_ms="1", segment_bytes=TWO_PARTS)
    append_parts(cluster, 4)
    with cluster.producer("t") as producer:
        producer.init_transactions()
        producer.begin()
        producer.send(TOPIC, "open", partition=0)
        producer.flush()
        append_parts(cluster, 6)
        clock.now_ms += 1_000
        assert cluster.upkeep().retain().records == 8
        assert head_of(cluster).start == 8
        producer.commit()
    assert contents(cluster.log(TOPIC))[0] == (8, b"open")


@pytest.mark.parametrize("parts", [65, 200, pytest.param(1_300, marks=pytest.mark.soak)])
def test_pages_that_have_emptied_go_and_what_is_left_is_read_as_before(parts: int) -> None:
    store = WatchedStore(MemoryStore())
    cluster, clock = clocked(store)
    with_topic(cluster, retention_ms="1d", segment_bytes=TWO_PARTS)
    for number in range(parts):
        append(cluster, (None, str(number)), at_ms=NOW + number)
    assert head_of(cluster).pages
    before = contents(cluster.log(TOPIC))
    cut = parts // 2
    clock.now_ms = NOW + DAY + cut + 1
    cluster.upkeep().retain()
    head = head_of(cluster)
    assert head.start in {cut, cut + 1}
    assert contents(cluster.log(TOPIC)) == before[head.start :]
    live = {entry.key for entry in cluster.log(TOPIC).iter_local_entries(head, OffsetRange(head.start, head.end))}
    assert parts_in(store) == live
    clock.now_ms = NOW + DAY + parts + 1
    cluster.upkeep().retain()
    assert list(store.list("pages/")) == []
    assert len(contents(cluster.log(TOPIC))) <= 2


def test_the_head_is_raised_before_anything_is_deleted() -> None:
    store = WatchedStore(MemoryStore())
    cluster, clock = clocked(store)
    with_topic(cluster, retention_ms="1", segment_bytes=TWO_PARTS)
    append_parts(cluster, 5)
    clock.now_ms += DAY
    store.calls.clear()
    cluster.upkeep().retain()
    writes = [(what, key.partition("/")[0]) for what, key in store.calls if what in {"put", "swap", "delete"}]
    assert writes == [("swap", "heads"), *[("delete", "topics")] * 4]


def test_a_second_pass_reads_no_head() -> None:
    store = WatchedStore(MemoryStore())
    cluster, clock = clocked(store)
    with_topic(cluster, partitions=40, retention_ms="1d", segment_bytes=TWO_PARTS)
    for partition in range(40):
        append_parts(cluster, 3, partition=partition, at_ms=NOW + partition)
    cluster.upkeep().retain()
    store.calls.clear()
    cluster.upkeep().retain()
    assert store.count("get", "heads/") == 0
    assert len(store.calls) == 3
    # When the oldest record of one partition expires, that one is looked at.
    clock.now_ms = NOW + DAY + 1
    store.calls.clear()
    assert cluster.upkeep().retain().partitions == 1
    assert {key for what, key in store.calls if what == "get" and key.startswith("heads/")} == {
        f"heads/{cluster.topic(TOPIC).id}/00000.json"
    }


def flipped(body: bytes) -> bytes:
    return body[:10] + b"\xff" + body[11:]


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{}",
        b"\x1f\x8bnonsense",
        flipped(gzip.compress(b'{"format": "reconciler.runner/1", "rows": {}}', mtime=0)),
        gzip.compress(b'{"format": "reconciler.runner/1", "rows": []}', mtime=0),
    ],
    ids=["nothing", "no rows", "no gzip", "a changed byte", "rows that are no table"],
)
def test_what_a_pass_remembers_may_be_lost(damage: bytes) -> None:
    cluster, clock = clocked()
    with_topic(cluster, retention_ms="1d", segment_bytes=TWO_PARTS)
    append_parts(cluster, 5)
    cluster.upkeep().retain()
    cluster.store.put("runner/retention.json.gz", damage)
    clock.now_ms += DAY + 1
    assert cluster.upkeep().retain().records == 8


def test_a_partition_that_cannot_be_read_stops_no_other() -> None:
    cluster, clock = clocked()
    with_topic(cluster, partitions=2, retention_ms="1", segment_bytes=TWO_PARTS)
    for number in range(100):
        append(cluster, (None, str(number)), partition=0)
    append_parts(cluster, 5, partition=1)
    cluster.store.delete([head_of(cluster, 0).pages[0].key])
    clock.now_ms += DAY
    done = cluster.upkeep().retain()
    assert (done.partitions, done.failed) == (1, 1)
    (error,) = done.errors
    assert isinstance(error, MissingObjectError)
    assert error.message.startswith("orders, partition 0: the records at offsets 0 to ")


def test_a_topic_that_is_being_deleted_is_left_alone() -> None:
    store = MemoryStore()
    cluster, clock = clocked(store)
    with_topic(cluster, retention_ms="1", segment_bytes=TWO_PARTS)
    append_parts(cluster, 5)
    clock.now_ms += DAY
    upkeep = cluster.upkeep()
    cluster_in(store).delete_topic(TOPIC)
    assert upkeep.retain() == MaintenanceResult()
    assert list(store.list("topics/")) == []


def test_a_reader_under_way_goes_on_where_the_log_now_begins() -> None:
    cluster, clock = clocked()
    with_topic(cluster, retention_ms="1", segment_bytes=TWO_PARTS)
    append_parts(cluster, 7)
    batches = cluster.log(TOPIC).read(0, ALL)
    seen = next(batches).column("offset").to_pylist()
    clock.now_ms += DAY
    cluster.upkeep().retain()
    seen += [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert seen == [0, 1, 12, 13]
