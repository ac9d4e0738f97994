"""Profile a topic: a chain of DataFrame steps over its records, of which only small results come to the driver.

The records are read once. What the steps need of them (numbers, times, keys and sizes, no values) stays with the
executors, in memory and on their disks, until the profile is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from reconciler.jobs.progress import failed
from reconciler.jobs.scan import NAME
from reconciler.jobs.source import register
from reconciler.jobs.stage import described
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
"""Into how many parts at most the time of a topic is cut."""
_SECOND_MS: Final = 1000


def profile(start: Callable[[], SparkSession], log: TopicLog, *, old_before_ms: int = 0) -> Profile:
    """Return what a topic holds; records from before a time are counted apart.

    `start` starts Spark, or returns it where it runs; it is not called where there is nothing to read.

    Raises:
        UserError: The log is gone.
        RetryableError: Spark gave up.
    """
    bounds = log.bounds()
    numbers = sorted(bounds)
    if all(each.start >= each.stable for each in bounds.values()):
        return Profile(tuple(map(PartitionProfile, numbers)))
    session = start()
    register(session, lambda _options: log)
    try:
        with described(session, "reconciler: profile"):
            # What retention removes meanwhile is no part of the topic any more.
            records = sized(session.read.format(NAME).option("failOnDataLoss", "false").load()).persist()
            try:
                return _profiled(records, numbers, old_before_ms)
            finally:
                records.unpersist()
    except Exception as trouble:
        raise failed("reading the topic", trouble) from trouble


def _profiled(records: DataFrame, numbers: Sequence[int], old_before_ms: int) -> Profile:
    counts = {row.partition: _counts(row) for row in counted(records, old_before_ms).collect()}
    whole = counts.get(None, Counts())
    by_key = keyed(records)
    keys = {row.partition: _keys(row) for row in superseded(by_key).collect()}
    gaps = {row.partition: Gap(row.gap.start_ms, row.gap.end_ms) for row in longest_gaps(records).collect()}
    partitions = tuple(
        PartitionProfile(number, counts.get(number, Counts()), keys.get(number, KeyCounts()), gaps.get(number))
        for number in numbers
    )
    topic_keys = across_partitions(by_key)
    (spread,) = spread_of(topic_keys).collect()
    return Profile(
        partitions,
        whole,
        spread.keys,
        spread.scattered,
        tuple(KeyProfile(bytes(row.prefix), *row[1:]) for row in largest(topic_keys).collect()),
        timeline_of(records, whole),
    )


# The steps, each a function from a frame to a frame.


def sized(records: DataFrame) -> DataFrame:
    """Return of each record partition, offset, time, key and size, and whether its value is null."""
    in_headers = fn.aggregate(
        "headers",
        fn.lit(0).cast("bigint"),
        lambda total, header: total + _length(header["key"]) + _length(header["value"]),
    )
    size = _length(fn.col("key")) + _length(fn.col("value")) + fn.coalesce(in_headers, fn.lit(0))
    return records.select(
        "partition",
        "offset",
        fn.unix_millis("timestamp").alias("timestamp_ms"),
        "key",
        fn.col("value").isNull().alias("is_null"),
        size.alias("size"),
    )


def _length(column: Column) -> Column:
    return fn.coalesce(fn.octet_length(column), fn.lit(0)).cast("bigint")


def counted(records: DataFrame, old_before_ms: int) -> DataFrame:
    """Return counts, ends, nulls and sizes of each partition, and of all of them in a row without a number."""
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


def keyed(records: DataFrame) -> DataFrame:
    """Return each key of each partition with its records, and the size of the newest of them."""
    with_key = records.where(fn.col("key").isNotNull())
    return with_key.groupBy("partition", "key").agg(
        fn.count("*").alias("records"),
        fn.sum("size").alias("bytes"),
        fn.max_by("size", "offset").alias("newest_size"),
    )


def superseded(keys: DataFrame) -> DataFrame:
    """Return for each partition how many keys it has, and what is older than the newest record of its key."""
    return keys.groupBy("partition").agg(
        fn.count("*").alias("keys"),
        fn.sum(fn.col("records") - 1).alias("superseded_records"),
        fn.sum(fn.col("bytes") - fn.col("newest_size")).alias("superseded_bytes"),
    )


def across_partitions(keys: DataFrame) -> DataFrame:
    """Return each key of the topic, and in how many partitions it lies."""
    return keys.groupBy("key").agg(
        fn.sum("records").alias("records"), fn.sum("bytes").alias("bytes"), fn.count("*").alias("partitions")
    )


def spread_of(topic_keys: DataFrame) -> DataFrame:
    """Return in one row how many keys there are, and how many lie in several partitions."""
    return topic_keys.agg(fn.count("*").alias("keys"), fn.count_if(fn.col("partitions") > 1).alias("scattered"))


def largest(topic_keys: DataFrame) -> DataFrame:
    """Return the keys with the most records, long ones cut."""
    most = topic_keys.orderBy(fn.desc("records"), fn.desc("bytes"), "key").limit(TOP_KEYS)
    return most.select(
        fn.substring("key", 1, KEY_PREFIX).alias("prefix"),
        fn.octet_length("key").alias("key_bytes"),
        "records",
        "bytes",
        "partitions",
    )


def longest_gaps(records: DataFrame) -> DataFrame:
    """Return the longest time between records of each partition, where that is a second or more.

    Only the first and the last record of every second are compared: no gap of a second lies within one.
    """
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


def over_time(records: DataFrame, start_ms: int, width_ms: int) -> DataFrame:
    """Return how many records lie in each stretch of time, numbered from 0; empty ones are left out."""
    timed = records.where(fn.col("timestamp_ms") >= 0)
    slot = fn.expr(f"(timestamp_ms - {start_ms}) div {width_ms}")
    return timed.groupBy(slot.alias("slot")).agg(fn.count("*").alias("records"))


# Rows of small results as our own types.


def _counts(row: Any) -> Counts:
    values: Mapping[str, Any] = row.asDict()
    known = {each.name: values[each.name] for each in fields(Counts) if values.get(each.name) is not None}
    median, p99 = row.percentiles or (0, 0)
    return Counts(**known, sizes=Sizes(row.smallest, median, p99, row.largest) if row.records else None)


def _keys(row: Any) -> KeyCounts:
    return KeyCounts(row.keys, row.superseded_records, row.superseded_bytes)


def timeline_of(records: DataFrame, whole: Counts) -> Timeline | None:
    """Return how many records lie in each stretch of the time between the first and the last of them."""
    if whole.first_ms is None or whole.last_ms is None:
        return None
    width_ms = (whole.last_ms - whole.first_ms) // SLOTS + 1
    found = {row.slot: row.records for row in over_time(records, whole.first_ms, width_ms).collect()}
    slots = (whole.last_ms - whole.first_ms) // width_ms + 1
    return Timeline(whole.first_ms, width_ms, tuple(found.get(slot, 0) for slot in range(slots)))
