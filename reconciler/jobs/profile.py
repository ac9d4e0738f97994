"""Profile a topic with DataFrames, which cache sizes instead of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from reconciler.jobs.progress import translate_job_error
from reconciler.jobs.scan import NAME
from reconciler.jobs.source import register
from reconciler.jobs.stage import describe_stages
from reconciler.resources.topic_profile import (
    KEY_PREFIX,
    Counts,
    Gap,
    KeyCounts,
    KeyProfile,
    PartitionProfile,
    Profile,
    Sizes,
    Timeline,
)

if TYPE_CHECKING:
    from reconciler.records.log import TopicLog


TOP_KEYS: Final = 10
SLOTS: Final = 48
_SECOND_MS: Final = 1000


def compute_profile(start: Callable[[], SparkSession], log: TopicLog, *, old_before_ms: int = 0) -> Profile:
    """Compute a topic's profile. Records before `old_before_ms` count as old.

    `start` is not called for an empty topic.
    """
    bounds = log.read_bounds()
    numbers = sorted(bounds)
    if all(partition_bounds.start >= partition_bounds.stable for partition_bounds in bounds.values()):
        return Profile(tuple(map(PartitionProfile, numbers)))
    session = start()
    register(session, lambda _options: log)
    try:
        with describe_stages(session, "reconciler: profile"):
            records = add_sizes(session.read.format(NAME).option("failOnDataLoss", "false").load()).persist()
            try:
                return _make_profile(records, numbers, old_before_ms)
            finally:
                records.unpersist()
    except Exception as trouble:
        raise translate_job_error("reading the topic", trouble) from trouble


def _make_profile(records: DataFrame, numbers: Sequence[int], old_before_ms: int) -> Profile:
    counts = {row.partition: _parse_counts(row) for row in count_by_partition(records, old_before_ms).collect()}
    whole = counts.get(None, Counts())
    by_key = count_by_key(records)
    keys = {row.partition: _parse_key_counts(row) for row in count_superseded(by_key).collect()}
    gaps = {row.partition: Gap(row.gap.start_ms, row.gap.end_ms) for row in find_longest_gaps(records).collect()}
    partitions = tuple(
        PartitionProfile(number, counts.get(number, Counts()), keys.get(number, KeyCounts()), gaps.get(number))
        for number in numbers
    )
    topic_keys = count_partitions_of_keys(by_key)
    (spread,) = count_spread_keys(topic_keys).collect()
    return Profile(
        partitions,
        whole,
        spread.keys,
        spread.scattered,
        tuple(KeyProfile(bytes(row.prefix), *row[1:]) for row in find_largest_keys(topic_keys).collect()),
        make_timeline(records, whole),
    )


def add_sizes(records: DataFrame) -> DataFrame:
    """Return partition, offset, time, key, size and null value of each record."""
    in_headers = fn.aggregate(
        "headers",
        fn.lit(0).cast("bigint"),
        lambda total, header: total + _measure_length(header["key"]) + _measure_length(header["value"]),
    )
    size = _measure_length(fn.col("key")) + _measure_length(fn.col("value")) + fn.coalesce(in_headers, fn.lit(0))
    return records.select(
        "partition",
        "offset",
        fn.unix_millis("timestamp").alias("timestamp_ms"),
        "key",
        fn.col("value").isNull().alias("is_null"),
        size.alias("size"),
    )


def _measure_length(column: Column) -> Column:
    return fn.coalesce(fn.octet_length(column), fn.lit(0)).cast("bigint")


def count_by_partition(records: DataFrame, old_before_ms: int) -> DataFrame:
    """Return counts by partition, and the totals in a row without a partition."""
    has_time = fn.col("timestamp_ms") >= 0
    is_old = has_time & (fn.col("timestamp_ms") < old_before_ms)
    is_tombstone = fn.col("is_null") & fn.col("key").isNotNull()
    return records.rollup("partition").agg(
        fn.count("*").alias("records"),
        fn.sum("size").alias("bytes"),
        fn.min("offset").alias("first_offset"),
        fn.max("offset").alias("last_offset"),
        fn.min(fn.when(has_time, fn.col("timestamp_ms"))).alias("first_ms"),
        fn.max(fn.when(has_time, fn.col("timestamp_ms"))).alias("last_ms"),
        fn.count_if(fn.col("key").isNull()).alias("null_keys"),
        fn.count_if(fn.col("is_null")).alias("null_values"),
        fn.count_if(is_tombstone).alias("tombstones"),
        fn.count_if(is_old).alias("old_records"),
        fn.sum(fn.when(is_old, fn.col("size")).otherwise(0)).alias("old_bytes"),
        fn.min("size").alias("smallest"),
        fn.percentile_approx("size", [0.5, 0.99], 10_000).alias("percentiles"),
        fn.max("size").alias("largest"),
    )


def count_by_key(records: DataFrame) -> DataFrame:
    """Return each key of each partition with its counts and the size of its newest record."""
    with_key = records.where(fn.col("key").isNotNull())
    return with_key.groupBy("partition", "key").agg(
        fn.count("*").alias("records"), fn.sum("size").alias("bytes"), fn.max_by("size", "offset").alias("newest_size")
    )


def count_superseded(keys: DataFrame) -> DataFrame:
    """Return the numbers of keys and of superseded records by partition."""
    return keys.groupBy("partition").agg(
        fn.count("*").alias("keys"),
        fn.sum(fn.col("records") - 1).alias("superseded_records"),
        fn.sum(fn.col("bytes") - fn.col("newest_size")).alias("superseded_bytes"),
    )


def count_partitions_of_keys(keys: DataFrame) -> DataFrame:
    """Return each key with its counts and its number of partitions."""
    return keys.groupBy("key").agg(
        fn.sum("records").alias("records"), fn.sum("bytes").alias("bytes"), fn.count("*").alias("partitions")
    )


def count_spread_keys(topic_keys: DataFrame) -> DataFrame:
    """Return a row with the number of keys, and of keys in several partitions."""
    return topic_keys.agg(fn.count("*").alias("keys"), fn.count_if(fn.col("partitions") > 1).alias("scattered"))


def find_largest_keys(topic_keys: DataFrame) -> DataFrame:
    """Return the keys with the most records. Long keys are truncated."""
    most = topic_keys.orderBy(fn.desc("records"), fn.desc("bytes"), "key").limit(TOP_KEYS)
    return most.select(
        fn.substring("key", 1, KEY_PREFIX).alias("prefix"),
        fn.octet_length("key").alias("key_bytes"),
        "records",
        "bytes",
        "partitions",
    )


def find_longest_gaps(records: DataFrame) -> DataFrame:
    """Return each partition's longest time between records, if at least a second."""
    timed = records.where(fn.col("timestamp_ms") >= 0)
    second = fn.col("timestamp_ms") - fn.col("timestamp_ms") % _SECOND_MS
    ends = timed.groupBy("partition", second.alias("second")).agg(
        fn.min("timestamp_ms").alias("first_ms"), fn.max("timestamp_ms").alias("last_ms")
    )
    before = fn.lag("last_ms").over(Window.partitionBy("partition").orderBy("second"))
    gap = fn.struct(
        (fn.col("first_ms") - fn.col("start_ms")).alias("length_ms"), "start_ms", fn.col("first_ms").alias("end_ms")
    )
    gaps = ends.select("partition", "first_ms", before.alias("start_ms")).select("partition", gap.alias("gap"))
    return gaps.where(fn.col("gap.length_ms") >= _SECOND_MS).groupBy("partition").agg(fn.max("gap").alias("gap"))


def count_over_time(records: DataFrame, start_ms: int, width_ms: int) -> DataFrame:
    """Return the number of records by time slot (from 0), without empty slots."""
    timed = records.where(fn.col("timestamp_ms") >= 0)
    slot = fn.expr(f"(timestamp_ms - {start_ms}) div {width_ms}")
    return timed.groupBy(slot.alias("slot")).agg(fn.count("*").alias("records"))


def _parse_counts(row: Any) -> Counts:
    values: Mapping[str, Any] = row.asDict()
    known = {column.name: values[column.name] for column in fields(Counts) if values.get(column.name) is not None}
    median, p99 = row.percentiles or (0, 0)
    return Counts(**known, sizes=Sizes(row.smallest, median, p99, row.largest) if row.records else None)


def _parse_key_counts(row: Any) -> KeyCounts:
    return KeyCounts(row.keys, row.superseded_records, row.superseded_bytes)


def make_timeline(records: DataFrame, whole: Counts) -> Timeline | None:
    """Return the number of records by time slot, from the first to the last timestamp; `None` without timestamps."""
    if whole.first_ms is None or whole.last_ms is None:
        return None
    width_ms = (whole.last_ms - whole.first_ms) // SLOTS + 1
    records_by_slot = {row.slot: row.records for row in count_over_time(records, whole.first_ms, width_ms).collect()}
    slots = (whole.last_ms - whole.first_ms) // width_ms + 1
    return Timeline(whole.first_ms, width_ms, tuple(records_by_slot.get(slot, 0) for slot in range(slots)))
