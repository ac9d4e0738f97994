"""Logs compared: what differs, and where it begins to."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from reconciler.errors import UserError
from reconciler.jobs.verify import compare_logs
from reconciler.records.log import OffsetRange
from reconciler.records.schema import RECORD_SCHEMA
from tests.embedded.samples import numbered
from tests.engines import here, on
from tests.jobs.doubles import TOPIC, fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.jobs.comparison import Comparison
    from reconciler.jobs.progress import JobProgress

Check = Callable[[], "Comparison"]


@pytest.fixture(params=["kept", "read here", pytest.param("read in Spark", marks=pytest.mark.spark)])
def check(request: pytest.FixtureRequest, west: EmbeddedCluster, east: EmbeddedCluster) -> Check:
    """Compare the topic of both clusters, in every way there is."""
    engine = on(request.getfixturevalue("spark")) if request.param == "read in Spark" else here()
    return lambda: compare_logs(engine, west.log(TOPIC), east.log(TOPIC), deep=request.param != "kept")


@pytest.fixture(autouse=True)
def topics(west: EmbeddedCluster, east: EmbeddedCluster) -> None:
    for cluster in (west, east):
        cluster.create_topic(TOPIC, partitions=2)


def put(cluster: EmbeddedCluster, batch: pa.RecordBatch, start: int, stop: int, partition: int = 0) -> None:
    sink = cluster.sink(TOPIC)
    at = OffsetRange(start, stop)
    assert sink.publish([sink.stage(partition, [batch], at=at)]) == {partition: at}


def altered(batch: pa.RecordBatch, offset: int, **changes: Any) -> pa.RecordBatch:
    rows = [row | (changes if row["offset"] == offset else {}) for row in batch.to_pylist()]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def test_the_same_records_in_other_parts_are_equal(check: Check, west: EmbeddedCluster, east: EmbeddedCluster) -> None:
    put(west, numbered(0, 100), 0, 100)
    for start in range(0, 100, 20):
        put(east, numbered(start, 20), start, start + 20)
    comparison = check()
    assert comparison.is_equal
    assert comparison.differing == ()
    both = comparison.partitions[0]
    assert both.left == both.right
    assert both.left is not None
    assert (both.left.start, both.left.end, both.left.records) == (0, 100, 100)
    assert both.left.digest.records == 100


@pytest.mark.parametrize(
    "changes",
    [
        {"value": b"other"},
        {"value": None},
        {"value": b""},
        {"key": b"other"},
        {"timestamp_ms": 5},
        {"headers": [{"key": "n", "value": None}]},
    ],
    ids=lambda changes: f"{next(iter(changes.items()))}",
)
def test_a_record_that_is_not_the_same_is_found(
    check: Check, west: EmbeddedCluster, east: EmbeddedCluster, changes: dict[str, Any]
) -> None:
    put(west, numbered(0, 100), 0, 100)
    put(east, altered(numbered(0, 100), 77, **changes), 0, 100)
    comparison = check()
    (differing,) = comparison.differing
    assert (differing.partition, differing.differences, differing.first_difference) == (0, ("digest",), 77)


def test_two_records_that_changed_places_are_found(check: Check, west: EmbeddedCluster, east: EmbeddedCluster) -> None:
    batch = numbered(0, 10)
    moved = batch.take([0, 1, 2, 4, 3, *range(5, 10)]).set_column(1, RECORD_SCHEMA.field(1), batch.column(1))
    put(west, batch, 0, 10)
    put(east, moved, 0, 10)
    assert check().partitions[0].first_difference == 3


def test_a_log_that_is_behind_differs_only_in_its_end(
    check: Check, west: EmbeddedCluster, east: EmbeddedCluster
) -> None:
    put(west, numbered(0, 100), 0, 100)
    put(east, numbered(0, 60), 0, 60)
    both = check().partitions[0]
    assert both.differences == ("end",)
    assert both.first_difference is None
    assert both.left is not None
    assert both.right is not None
    assert (both.left.records, both.right.records) == (100, 60)


def test_a_log_that_is_behind_and_wrong_says_both(check: Check, west: EmbeddedCluster, east: EmbeddedCluster) -> None:
    put(west, numbered(0, 100), 0, 100)
    put(east, altered(numbered(0, 60), 41, value=b"x"), 0, 60)
    both = check().partitions[0]
    assert (both.differences, both.first_difference) == (("end", "digest"), 41)


def test_a_record_that_only_one_has_is_found(check: Check, west: EmbeddedCluster, east: EmbeddedCluster) -> None:
    put(west, numbered(0, 10), 0, 10)
    put(east, numbered(0, 10).take([0, 1, 2, 3, 5, 6, 7, 8, 9]), 0, 10)
    both = check().partitions[0]
    assert (both.differences, both.first_difference) == (("records", "digest"), 4)


def test_a_partition_that_only_one_has_is_a_difference(
    check: Check, west: EmbeddedCluster, east: EmbeddedCluster
) -> None:
    west.alter_topic(TOPIC, partitions=3)
    put(west, numbered(0, 4, partition=2), 0, 4, partition=2)
    comparison = check()
    (differing,) = comparison.differing
    assert (differing.partition, differing.differences, differing.right) == (2, ("partition",), None)
    assert differing.left is not None
    assert differing.left.records == 4
    assert east.topic(TOPIC).partitions == 2


def test_empty_logs_are_equal(check: Check) -> None:
    comparison = check()
    assert comparison.is_equal
    assert [both.partition for both in comparison.partitions] == [0, 1]


@pytest.mark.thorough
def test_where_they_begin_to_differ_is_found_in_a_long_log(
    check: Check, west: EmbeddedCluster, east: EmbeddedCluster
) -> None:
    batch = numbered(0, 20_000)
    put(west, batch, 0, 20_000)
    put(east, altered(batch, 13_131, value=b"x"), 0, 20_000)
    assert check().partitions[0].first_difference == 13_131


def test_a_damaged_record_behind_a_kept_digest_is_found_only_by_reading(
    west: EmbeddedCluster, east: EmbeddedCluster
) -> None:
    for cluster in (west, east):
        cluster.alter_topic(TOPIC, {"compression.type": "uncompressed"})
        put(cluster, numbered(0, 10), 0, 10)
    # As many bytes as before: all that a head says of the part still holds.
    other = east.sink(TOPIC).stage(1, [altered(numbered(0, 10), 6, value=b"w6")], at=OffsetRange(0, 10))
    replace_part(east, other.entries)
    kept, deep = (compare_logs(here(), west.log(TOPIC), east.log(TOPIC), deep=deep) for deep in (False, True))
    assert kept.is_equal
    assert deep.partitions[0].first_difference == 6


def replace_part(cluster: EmbeddedCluster, entries: bytes) -> None:
    """Put the bytes of a staged part in the place of partition 0's only one."""
    (staged,) = json.loads(entries)
    head = cluster.log(TOPIC).read_head(0)
    assert head is not None
    found = cluster.store.get(staged["key"])
    assert found is not None
    cluster.store.put(head.entries[0].key, found.body)


def test_a_deep_comparison_tells_how_far_it_is(west: EmbeddedCluster, east: EmbeddedCluster) -> None:
    for cluster in (west, east):
        put(cluster, numbered(0, 100), 0, 100)
    seen: list[JobProgress] = []
    compare_logs(here(), west.log(TOPIC), east.log(TOPIC), deep=True, progress=seen.append)
    assert (seen[-1].records, seen[-1].records_total) == (100, 100)
    assert seen[-1].bytes == seen[-1].bytes_total


def test_a_topic_that_is_gone_is_said_so(west: EmbeddedCluster, east: EmbeddedCluster) -> None:
    log = west.log(TOPIC)
    west.delete_topic(TOPIC)
    with pytest.raises(UserError, match="orders was deleted or unmounted"):
        compare_logs(here(), log, east.log(TOPIC))


@pytest.mark.spark
@pytest.mark.thorough
def test_many_partitions_are_compared_in_spark(
    spark: SparkSession, west: EmbeddedCluster, east: EmbeddedCluster
) -> None:
    for cluster in (west, east):
        cluster.delete_topic(TOPIC)
        fill(cluster, partitions=5)
    assert compare_logs(on(spark), west.log(TOPIC), east.log(TOPIC), deep=True).is_equal
