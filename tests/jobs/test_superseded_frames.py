"""Compacted logs compared as a DataFrame join: each step on small frames, and the whole beside what memory does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from reconciler.jobs import ordered
from reconciler.jobs.comparison import DisputedPartition, pair_partitions
from reconciler.jobs.superseded import explain_in_spark, find_differences, find_newest, mark_explained, sum_by_partition
from reconciler.jobs.verify import compare_logs
from reconciler.objectstore.directory import DirectoryStore
from reconciler.records.log import OffsetRange
from tests.embedded.maintenance.tiny_segments import TOPIC, Clock, append, clocked, head_of, with_topic
from tests.engines import here, on

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from reconciler.embedded.cluster import EmbeddedCluster

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

HASH = "struct<a: bigint, b: bigint>"
RECORDS = (
    f"side int, partition int, offset bigint, record {HASH}, key {HASH}, "
    "is_common boolean, may_be_gone boolean, is_tombstone boolean"
)
COMPACTED = {"cleanup_policy": "compact", "segment_bytes": "4500", "min_cleanable_dirty_ratio": "0"}


def record(side: int, offset: int, key: int | None, content: int = 0, **more: Any) -> tuple[Any, ...]:
    """Return a row of a log: its key's hash, its own, and whether the other log may lack it."""
    said = {"partition": 0, "is_common": True, "may_be_gone": True, "is_tombstone": False, **more}
    hashes = ((content, offset), None if key is None else (key, key))
    return (side, said["partition"], offset, *hashes, said["is_common"], said["may_be_gone"], said["is_tombstone"])


def frame(spark: SparkSession, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(list(rows), RECORDS)


def test_what_only_one_log_has_is_explained_by_a_later_record_of_its_key(spark: SparkSession) -> None:
    records = frame(
        spark,
        [
            *(record(side, 9, 1) for side in (0, 1)),
            record(0, 1, 1),
            record(1, 2, 2, is_tombstone=True),
            record(1, 3, 3),
            record(0, 4, 3, is_common=False),
            record(0, 5, None, may_be_gone=False),
            record(1, 6, 1, may_be_gone=False),
            *(record(side, 7, 1, content=side) for side in (0, 1)),
            *(record(side, 7, 1, partition=2) for side in (0, 1)),
            record(0, 8, 4, partition=1),
        ],
    )
    found = mark_explained(find_differences(records), find_newest(records))
    assert sorted(tuple(row) for row in found.collect()) == [
        (0, 1, True),
        (0, 2, True),
        (0, 3, True),
        (0, 5, False),
        (0, 6, False),
        (0, 7, False),
        (1, 8, False),
    ]


def test_each_partition_has_one_row_with_the_first_difference_of_either_numbering(spark: SparkSession) -> None:
    rows = [(0, 5, True), (0, 7, False), (0, 6, False), (1, 1, True), (2, -4, False), (2, -3, False)]
    found = sum_by_partition(spark.createDataFrame(rows, "partition int, offset bigint, is_superseded boolean"))
    assert sorted(tuple(row) for row in found.collect()) == [(0, 1, 6, None), (1, 1, None, None), (2, 0, None, 2)]


@pytest.fixture
def both(tmp_path: Path) -> tuple[EmbeddedCluster, EmbeddedCluster]:
    """A topic of three partitions and its mirror, each of them compacted at another time."""
    clock, chosen = Clock(), np.random.default_rng(1)
    west, east = (clocked(DirectoryStore(tmp_path / name), clock)[0] for name in ("west", "east"))
    for cluster in (west, east):
        with_topic(cluster, partitions=3, **COMPACTED)
    for compacting in (east, west, None):
        for partition in range(3):
            for number in range(25):
                value = None if chosen.random() < 0.2 else str(number)
                append(west, (f"k{chosen.integers(30)}", value), ("same", value), partition=partition)
        copy(west, east)
        if compacting is not None:
            assert not compacting.upkeep().compact().failed
    return west, east


def copy(west: EmbeddedCluster, east: EmbeddedCluster) -> None:
    sink, source = east.sink(TOPIC), west.log(TOPIC)
    bounds = source.read_bounds()
    for partition, end in sink.read_ends().items():
        sink.publish([sink.stage_copy(partition, source, OffsetRange(end, bounds[partition].stable))])


@pytest.mark.parametrize("trouble", ["none", "another record", "a lost record", "few held"])
def test_a_join_explains_what_memory_explains(
    spark: SparkSession, both: tuple[EmbeddedCluster, EmbeddedCluster], monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    west, east = both
    if trouble == "another record":
        append(west, ("x", "one"), partition=1)
        append(east, ("x", "two"), partition=1)
    elif trouble == "a lost record":
        append(west, ("only", "here"), partition=2)
        end = head_of(east, 2).end
        east.sink(TOPIC).publish([east.sink(TOPIC).stage(2, [], at=OffsetRange(end, end + 1))])
    elif trouble == "few held":
        monkeypatch.setattr(ordered, "_MAX_HELD", 3)
    logs = west.log(TOPIC), east.log(TOPIC)
    doubts = [
        DisputedPartition(logs, pair, logs) for pair in pair_partitions(logs[0].read_bounds(), logs[1].read_bounds())
    ]
    found, wanted = explain_in_spark(spark, doubts), ordered.explain_differences(here(), doubts)
    assert {number: each.first_difference for number, each in found.items()} == {
        number: each.first_difference for number, each in wanted.items()
    }
    for number, each in wanted.items():
        if each.first_difference is None:
            assert found[number] == each
            assert each.superseded > 0
    assert compare_logs(on(spark), *logs).partitions == compare_logs(here(), *logs).partitions
    assert compare_logs(on(spark), *logs).is_equal == (trouble in {"none", "few held"})
