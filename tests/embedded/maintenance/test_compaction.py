"""The newest record of each key stays, at its offset; tombstones go by the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from reconciler.embedded.maintenance import compaction
from reconciler.embedded.maintenance.chores import Chore, ChoreTask
from reconciler.embedded.maintenance.compaction import NewestOffsets
from reconciler.embedded.maintenance.survey import MaintenanceResult
from reconciler.embedded.segments import parts
from reconciler.embedded.segments.head import Partition
from reconciler.embedded.segments.retention import raise_start, read_cleanup_policy
from reconciler.embedded.tiered.object_rewrites import PartitionRewrite, publish_local
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.maintenance.tiny_segments import (
    DAY,
    TOPIC,
    TWO_PARTS,
    Clock,
    append,
    clocked,
    head_of,
    held,
    named_in,
    pairs_of,
    parts_in,
    with_topic,
)
from tests.embedded.samples import NOW
from tests.embedded.stores import WatchedStore

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster

EAGER = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0", "segment_bytes": TWO_PARTS}


def eager(**configs: str) -> tuple[EmbeddedCluster, Clock]:
    cluster, clock = clocked()
    with_topic(cluster, **{**EAGER, **configs})
    return cluster, clock


def closing(cluster: EmbeddedCluster) -> None:
    """Append what is never compacted: it closes what lies before it."""
    append(cluster, ("z", "open"))
    append(cluster, ("z", "open"))


def shown(cluster: EmbeddedCluster) -> list[tuple[int, str, str | None]]:
    return [
        (offset, (key or b"").decode(), None if value is None else value.decode())
        for offset, key, value in pairs_of(held(cluster))
        if key != b"z"
    ]


def test_of_each_key_the_newest_stays_where_it_was() -> None:
    cluster, _ = eager()
    append(cluster, ("a", "1"), ("b", "2"), ("a", "3"))
    append(cluster, ("c", "4"), ("b", "5"))
    append(cluster, ("a", "6"), ("d", "7"))
    append(cluster, ("d", "8"), ("e", "9"))
    closing(cluster)
    done = cluster.upkeep().compact()
    assert (done.partitions, done.records) == (1, 4)
    assert shown(cluster) == [(3, "c", "4"), (4, "b", "5"), (5, "a", "6"), (7, "d", "8"), (8, "e", "9")]
    head = head_of(cluster)
    assert (head.start, head.end, head.compacted_to) == (0, 11, 9)
    assert parts_in(cluster.store) == named_in(cluster)
    assert cluster.upkeep().compact() == MaintenanceResult()


def test_the_open_segment_is_untouched_and_supersedes_nothing() -> None:
    cluster, _ = eager()
    append(cluster, ("a", "1"), ("a", "2"))
    append(cluster, ("b", "3"))
    append(cluster, ("b", "4"), ("b", "5"))
    append(cluster, ("a", "6"))
    cluster.upkeep().compact()
    assert shown(cluster) == [(1, "a", "2"), (2, "b", "3"), (3, "b", "4"), (4, "b", "5"), (5, "a", "6")]


def test_a_part_in_which_nothing_stays_goes_and_the_end_is_known() -> None:
    cluster, _ = eager()
    append(cluster, ("a", "1"), ("b", "1"))
    append(cluster, ("a", "2"), ("b", "2"))
    append(cluster, ("a", "3"), ("b", "3"))
    append(cluster, ("a", "4"), ("b", "4"))
    closing(cluster)
    cluster.upkeep().compact()
    assert shown(cluster) == [(6, "a", "4"), (7, "b", "4")]
    assert head_of(cluster).end == 10
    append(cluster, ("c", "next"))
    assert shown(cluster)[-1] == (10, "c", "next")


def test_records_without_a_key_stay_and_empty_keys_are_keys() -> None:
    cluster, _ = clocked()
    with_topic(cluster, segment_bytes=TWO_PARTS, min_cleanable_dirty_ratio="0")
    append(cluster, (None, "1"), ("", "2"))
    append(cluster, (None, None), ("", "3"))
    closing(cluster)
    cluster.alter_topic(TOPIC, {"cleanup.policy": "compact", "delete.retention.ms": "0"})
    for _ in range(3):
        cluster.upkeep().compact()
    assert pairs_of(held(cluster))[:3] == [(0, None, b"1"), (2, None, None), (3, b"", b"3")]


def test_a_tombstone_deletes_and_stays_until_its_time_is_over() -> None:
    cluster, clock = eager(delete_retention_ms="1d")
    append(cluster, ("a", "1"), ("b", "2"))
    append(cluster, ("a", None))
    closing(cluster)
    clock.now_ms += 100 * DAY
    cluster.upkeep().compact()
    # It counts from the first cleaning, not from when it was written.
    assert shown(cluster) == [(1, "b", "2"), (2, "a", None)]
    assert head_of(cluster).entries[0].horizon_ms == clock.now_ms + DAY
    clock.now_ms += DAY - 1
    assert cluster.upkeep().compact() == MaintenanceResult()
    clock.now_ms += 1
    assert cluster.upkeep().compact().records == 1
    assert shown(cluster) == [(1, "b", "2")]
    assert head_of(cluster).entries[0].horizon_ms is None


def test_cleaning_again_does_not_lengthen_the_life_of_a_tombstone() -> None:
    cluster, clock = eager(delete_retention_ms="1d", segment_bytes="1900")
    append(cluster, ("a", None))
    append(cluster, ("b", "1"))
    append(cluster, ("z", "open"))
    cluster.upkeep().compact()
    due = head_of(cluster).entries[0].horizon_ms
    for number in range(5):
        clock.now_ms += 1_000
        append(cluster, ("b", str(number)))
        append(cluster, ("c", None))
        append(cluster, ("z", "open"))
        cluster.upkeep().compact()
        assert head_of(cluster).entries[0].horizon_ms == due
    clock.now_ms = (due or 0) + 1
    cluster.upkeep().compact()
    assert "a" not in {key for _, key, _ in shown(cluster)}
    assert ("c", None) in {(key, value) for _, key, value in shown(cluster)}


def test_a_tombstone_beyond_what_fits_into_memory_stays_until_what_it_deletes_is_gone() -> None:
    cluster, _ = eager(delete_retention_ms="0")
    append(cluster, ("deleted", "1"), ("a", "1"))
    append(cluster, *((key, "1") for key in "bcdefg"), ("deleted", None), ("h", "1"))
    closing(cluster)
    closing(cluster)
    passes = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compaction, "MAX_LEARNED_KEYS", 4)
        patched.setattr(parts, "_BATCH_ROWS", 2)
        for _ in range(6):
            cluster.upkeep().compact()
            passes.append([value for _, key, value in shown(cluster) if key == "deleted"])
    assert passes == [["1", None], ["1", None], [None], [], [], []]


def test_it_begins_when_more_than_the_dirty_ratio_is_dirty() -> None:
    cluster, _ = eager(min_cleanable_dirty_ratio="0.6", segment_bytes="1900")
    for number in range(10):
        append(cluster, (f"k{number}", "x"))
    append(cluster, ("z", "open"))
    assert cluster.upkeep().compact().partitions == 1
    dirty = 0
    while cluster.upkeep().compact() == MaintenanceResult():
        append(cluster, (f"n{dirty}", "x"))
        dirty += 1
    # Ten are clean; what was open became dirty too.
    assert 14 < dirty < 18


def test_young_records_are_left_alone_for_the_shortest_lag() -> None:
    cluster, clock = eager(min_compaction_lag_ms="1h")
    append(cluster, ("a", "1"), ("a", "2"), at_ms=NOW)
    append(cluster, ("b", "1"), ("b", "2"), at_ms=NOW)
    append(cluster, ("c", "1"), ("c", "2"), at_ms=NOW + 1_000)
    append(cluster, ("d", "1"), ("d", "2"), at_ms=NOW + 1_000)
    closing(cluster)
    clock.now_ms += 3_599_999
    assert cluster.upkeep().compact() == MaintenanceResult()
    clock.now_ms += 1
    assert cluster.upkeep().compact().records == 2
    assert [key for _, key, _ in shown(cluster)] == ["a", "b", "c", "c", "d", "d"]


def test_after_the_longest_lag_the_ratio_does_not_matter() -> None:
    cluster, clock = eager(min_cleanable_dirty_ratio="1", max_compaction_lag_ms="1h")
    append(cluster, ("a", "1"), ("a", "2"))
    append(cluster, ("b", "1"), ("b", "2"))
    closing(cluster)
    assert cluster.upkeep().compact() == MaintenanceResult()
    clock.now_ms += 3_600_001
    assert cluster.upkeep().compact().records == 2


def test_what_is_open_longer_than_the_longest_lag_closes_with_the_next_record() -> None:
    cluster, clock = eager(max_compaction_lag_ms="1h", segment_bytes="1GiB")
    append(cluster, ("a", "1"), ("a", "2"))
    clock.now_ms += 3_600_001
    append(cluster, ("z", "open"))
    assert cluster.upkeep().compact().records == 1


def test_nothing_of_an_open_transaction_is_compacted_or_counts() -> None:
    cluster, _ = eager()
    append(cluster, ("a", "1"), ("b", "1"))
    append(cluster, ("b", "2"))
    with cluster.producer("t") as producer:
        producer.init_transactions()
        producer.begin()
        producer.send(TOPIC, "open", key="a", partition=0)
        producer.flush()
        append(cluster, ("b", "3"))
        closing(cluster)
        closing(cluster)
        cluster.upkeep().compact()
        assert shown(cluster) == [(0, "a", "1"), (2, "b", "2")]
        producer.commit()
    cluster.upkeep().compact()
    assert shown(cluster) == [(3, "a", "open"), (4, "b", "3")]


def test_only_so_many_keys_are_held_and_the_rest_waits() -> None:
    cluster, clock = eager(segment_bytes="20000")
    for number in range(60):
        append(cluster, *[(f"k{(number * 7 + row) % 40}", f"{number}-{row}") for row in range(4)])
    closing(cluster)
    before = pairs_of(held(cluster))
    partition = Partition(TOPIC, cluster.topic(TOPIC).id, 0)
    task = ChoreTask(cluster.store, cluster.catalog, cluster.cluster_id, "compact", clock.now_ms)
    passes, to = 0, []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compaction, "MAX_LEARNED_KEYS", 10)
        patched.setattr("reconciler.embedded.maintenance.compaction._BUFFERED_ROWS", 4)
        while True:
            found = list(task([Chore(partition, 0)]))
            if not found:
                break
            (one,) = found
            assert isinstance(one, PartitionRewrite)
            assert publish_local(cluster.store, one, put_ms=clock.now_ms, now_ms=clock) is not None
            passes += 1
            to.append(head_of(cluster).compacted_to)
    assert passes > 5
    assert to == sorted(set(to))
    newest = {key: (offset, key, value) for offset, key, value in before if offset < to[-1]}
    kept = [row for row in pairs_of(held(cluster)) if row[0] < to[-1]]
    assert kept == sorted(newest.values())


def test_a_clean_part_that_loses_nothing_is_not_written_again() -> None:
    store = WatchedStore(MemoryStore())
    cluster, _ = clocked(store)
    with_topic(cluster, **{**EAGER, "segment_bytes": "1900"})
    for number in range(20):
        append(cluster, (f"k{number}", "x"))
    closing(cluster)
    cluster.upkeep().compact()
    append(cluster, ("k7", "y"))
    closing(cluster)
    store.calls.clear()
    cluster.upkeep().compact()
    assert store.count("put", "topics/") <= 4
    assert [row for row in shown(cluster) if row[1] == "k7"] == [(22, "k7", "y")]


def test_small_neighbours_become_one_file() -> None:
    cluster, _ = eager(segment_bytes="20000")
    for number in range(200):
        append(cluster, (f"k{number % 10}", str(number)))
    cluster.upkeep().roll()
    before = len(head_of(cluster).entries)
    cluster.upkeep().compact()
    head = head_of(cluster)
    assert len(head.entries) + sum(page.entries for page in head.pages) < before
    assert {entry.digest.records for entry in head.entries if entry.is_segment} == {10}


def test_a_part_that_the_start_of_the_log_cuts_is_cleaned_with_the_rest() -> None:
    cluster, _ = eager()
    append(cluster, ("a", "1"), ("b", "2"), ("c", "3"))
    append(cluster, ("b", "4"), ("d", "5"))
    closing(cluster)
    partition = Partition(TOPIC, cluster.topic(TOPIC).id, 0)
    raise_start(
        cluster.store, partition, 1, read_cleanup_policy(cluster.catalog.read(), TOPIC, cluster.cluster_id).limits
    )
    assert cluster.upkeep().compact().partitions == 1
    assert shown(cluster) == [(2, "c", "3"), (3, "b", "4"), (4, "d", "5")]
    head = head_of(cluster)
    assert (head.start, head.compacted_to) == (1, 5)
    assert head.entries[0].base == 2
    assert parts_in(cluster.store) == named_in(cluster)
    assert cluster.upkeep().compact() == MaintenanceResult()


def test_newest_offsets_are_those_of_a_dictionary() -> None:
    rng = np.random.default_rng(7)
    newest, known = NewestOffsets(), dict[bytes, int]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("reconciler.embedded.maintenance.compaction._BUFFERED_ROWS", 500)
        for start in range(0, 5_000, 100):
            keys = [b"k%d" % number for number in rng.integers(0, 900, 100)]
            known.update(zip(keys, range(start, start + 100), strict=True))
            newest.add(pa.array(keys, pa.binary()), np.arange(start, start + 100))
    asked = [b"k%d" % number for number in range(1_000)]
    assert newest.find_offsets(pa.array(asked, pa.binary())).tolist() == [known.get(key, -1) for key in asked]
    assert newest.find_offsets(pa.array([], pa.binary())).tolist() == []
    assert NewestOffsets().find_offsets(pa.array([b"a"], pa.binary())).tolist() == [-1]


def test_hashes_that_share_a_half_are_told_apart() -> None:
    newest = NewestOffsets()
    high = np.full(4, 5, np.uint64)
    newest.add_hashes(high, np.array([1, 2, 3, 2], np.uint64), np.array([10, 20, 30, 40]))
    asked = np.array([3, 2, 1, 0, 9], np.uint64)
    assert newest.find_offsets_by_hash(np.full(5, 5, np.uint64), asked).tolist() == [30, 40, 10, -1, -1]
