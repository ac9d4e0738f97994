"""What a profile says of a topic is what counting its records one by one says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.embedded.clients.topic_log import EmbeddedLog
from reconciler.errors import UserError
from reconciler.jobs import profile as steps
from reconciler.jobs.profile import compute_profile
from reconciler.records.log import OffsetRange
from reconciler.resources.topic_profile import Counts, Gap, KeyCounts, KeyProfile, Sizes, Timeline
from tests.embedded.samples import numbered, read
from tests.engines import no_spark
from tests.jobs.doubles import TOPIC, fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from reconciler.embedded.cluster import EmbeddedCluster

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

COLUMNS = "partition int, offset bigint, timestamp_ms bigint, key binary, is_null boolean, size bigint"
NOW = 1_700_000_000_000


def frame(spark: SparkSession, rows: Sequence[tuple[int, int, int, bytes | None, int]]) -> DataFrame:
    """Return records as `sized` gives them; a size of 0 is a tombstone's."""
    return spark.createDataFrame([(*row[:4], not row[4], row[4]) for row in rows], COLUMNS)


def size_of(row: dict[str, Any]) -> int:
    headers = sum(len(header["key"].encode()) + len(header["value"] or b"") for header in row["headers"])
    return len(row["key"] or b"") + len(row["value"] or b"") + headers


def test_a_profile_says_what_counting_by_hand_says(spark: SparkSession, west: EmbeddedCluster) -> None:
    fill(west)
    found = compute_profile(lambda: spark, west.log(TOPIC), old_before_ms=NOW + 10)
    rows = [[*read(west.log(TOPIC), number)] for number in range(3)]
    flat = [row for part in rows for row in part]
    sizes = sorted(map(size_of, flat))
    assert found.counts == Counts(
        records=240,
        bytes=sum(sizes),
        first_offset=0,
        last_offset=79,
        first_ms=NOW,
        last_ms=NOW + 39,
        null_keys=sum(row["key"] is None for row in flat),
        null_values=sum(row["value"] is None for row in flat),
        tombstones=sum(row["value"] is None and row["key"] is not None for row in flat),
        old_records=60,
        old_bytes=sum(size_of(row) for row in flat if row["timestamp_ms"] < NOW + 10),
        sizes=Sizes(sizes[0], sizes[119], sizes[-3], sizes[-1]),
    )
    for number, part in enumerate(rows):
        newest = {row["key"]: row["offset"] for row in part if row["key"] is not None}
        older = [row for row in part if row["key"] is not None and newest[row["key"]] > row["offset"]]
        assert found.partitions[number].keys == KeyCounts(len(newest), len(older), sum(map(size_of, older)))
        assert found.partitions[number].counts.bytes == sum(map(size_of, part))
    keys = Counter(row["key"] for row in flat if row["key"] is not None)
    assert found.keys == found.scattered_keys == len(keys)
    assert [each.records for each in found.top_keys] == [count for _, count in keys.most_common(10)]
    assert found.top_keys[0] == KeyProfile(b"", 0, 48, sum(size_of(row) for row in flat if row["key"] == b""), 3)
    assert found.skew == pytest.approx(1.0)
    assert found.timeline == Timeline(NOW, 1, (6,) * 40)


def test_nothing_to_read_starts_no_spark(west: EmbeddedCluster) -> None:
    west.create_topic(TOPIC, partitions=2)
    found = compute_profile(no_spark, west.log(TOPIC))
    assert (found.counts, [each.partition for each in found.partitions], found.skew) == (Counts(), [0, 1], None)


def test_a_topic_of_tombstones_and_an_empty_partition(spark: SparkSession, west: EmbeddedCluster) -> None:
    west.create_topic(TOPIC, partitions=2)
    with west.producer() as producer:
        for key in (b"\x1b[31m", b"\x1b[31m", b"\xff" * 300):
            producer.send(TOPIC, None, key=key, partition=1, timestamp_ms=NOW)
    found = compute_profile(lambda: spark, west.log(TOPIC))
    assert found.partitions[0].counts == Counts()
    assert (found.counts.tombstones, found.superseded_records, found.superseded_bytes) == (3, 1, 5)
    assert found.top_keys == (KeyProfile(b"\x1b[31m", 5, 2, 10, 1), KeyProfile(b"\xff" * 256, 300, 1, 300, 1))
    assert found.skew == pytest.approx(2.0)
    assert found.partitions[1].gap is None


def test_offsets_without_records_are_no_records(spark: SparkSession, west: EmbeddedCluster) -> None:
    west.create_topic(TOPIC)
    sink = west.sink(TOPIC)
    sink.publish([sink.stage(0, [numbered(5, 3)], at=OffsetRange(0, 100))])
    counts = compute_profile(lambda: spark, west.log(TOPIC)).counts
    assert (counts.records, counts.first_offset, counts.last_offset) == (3, 5, 7)


def test_only_gaps_make_no_record(spark: SparkSession, west: EmbeddedCluster) -> None:
    west.create_topic(TOPIC)
    sink = west.sink(TOPIC)
    sink.publish([sink.stage(0, [], at=OffsetRange(0, 100))])
    found = compute_profile(lambda: spark, west.log(TOPIC))
    assert (found.counts, found.timeline, found.top_keys) == (Counts(), None, ())


def test_the_longest_gap_is_found_in_whatever_order_records_came(spark: SparkSession) -> None:
    times = [(0, 5_000), (0, 1_000), (0, 5_900), (0, 90_000), (0, 60_500), (0, -1), (1, 7), (1, 999), (2, 3)]
    records = frame(spark, [(number, at, ms, b"k", 1) for at, (number, ms) in enumerate(times)])
    gaps = {row.partition: Gap(row.gap.start_ms, row.gap.end_ms) for row in steps.find_longest_gaps(records).collect()}
    assert gaps == {0: Gap(5_900, 60_500)}


def test_times_of_any_size_are_counted(spark: SparkSession) -> None:
    most = (1 << 63) - 1
    records = frame(spark, [(0, 0, -1, None, 1), (0, 1, 0, None, 1), (0, 2, most, None, 1)])
    timeline = steps.make_timeline(records, Counts(first_ms=0, last_ms=most))
    assert timeline is not None
    assert (timeline.records[0], timeline.records[-1], sum(timeline.records)) == (1, 1, 2)
    (row,) = steps.find_longest_gaps(records).collect()
    assert row.gap.end_ms == most


def test_a_log_that_cannot_be_read_is_an_error_in_a_sentence(
    spark: SparkSession, west: EmbeddedCluster, tmp_path: Path
) -> None:
    fill(west, count=1)
    log = west.log(TOPIC)
    for file in (tmp_path / "west").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(
        UserError, match=r"reading the topic failed: orders, partition [0-9]+: the records at offsets"
    ) as caught:
        compute_profile(lambda: spark, log)
    assert "Traceback" not in caught.value.message
    assert caught.value.hint.startswith("Restore it from a copy of the store")


def test_what_retention_removes_meanwhile_is_no_part_of_a_profile(spark: SparkSession, west: EmbeddedCluster) -> None:
    fill(west, partitions=1, count=5, parts=4)
    west.alter_topic(TOPIC, {"retention.bytes": "1", "segment.bytes": "14"})
    log = west.log(TOPIC)

    class Trimmed(EmbeddedLog):
        def check_shared(self) -> None:
            west.upkeep().retain()  # It was planned what is read.

    counts = compute_profile(lambda: spark, Trimmed(*(getattr(log, each.name) for each in fields(log)))).counts
    start = log.read_bounds()[0].start
    assert start > 0
    assert (counts.records, counts.first_offset, counts.last_offset) == (20 - start, start, 19)


def test_a_session_may_call_a_time_without_a_zone_a_timestamp(spark: SparkSession, west: EmbeddedCluster) -> None:
    fill(west, partitions=1, count=5, parts=1)
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        counts = compute_profile(lambda: spark, west.log(TOPIC)).counts
    finally:
        spark.conf.unset("spark.sql.timestampType")
    assert (counts.records, counts.first_ms, counts.last_ms) == (5, NOW, NOW + 4)
