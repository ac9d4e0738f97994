"""A topic as a DataFrame."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from reconciler.jobs.source import register
from reconciler.objectstore.directory import DirectoryStore
from reconciler.records.log import OffsetRange
from reconciler.records.schema import RECORD_SCHEMA
from tests.embedded.samples import NOW, cluster_in, numbered, read
from tests.jobs.doubles import TOPIC, Metered, fill
from tests.jobs.streams import to_the_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from reconciler.embedded.cluster import EmbeddedCluster

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def load(session: SparkSession, cluster: EmbeddedCluster, **options: str) -> DataFrame:
    logs = {TOPIC: cluster.log(TOPIC)}
    register(session, lambda found: logs[found["topic"]])
    return session.read.format("topic-log").options(cluster="west", topic=TOPIC, **options).load()


def rows_in(cluster: EmbeddedCluster, partitions: int = 3) -> list[dict[str, Any]]:
    """Return the records of the topic as Spark's Kafka source would."""
    return [
        {
            "key": row["key"],
            "value": row["value"],
            "topic": TOPIC,
            "partition": row["partition"],
            "offset": row["offset"],
            "timestamp": EPOCH + dt.timedelta(milliseconds=row["timestamp_ms"]),
            "timestampType": row["timestamp_type"],
            "headers": row["headers"] or None,
        }
        for partition in range(partitions)
        for row in read(cluster.log(TOPIC), partition)
    ]


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    rows = [row.asDict(recursive=True) for row in frame.orderBy("partition", "offset").collect()]
    return [{**row, "timestamp": row["timestamp"].astimezone(dt.UTC)} if "timestamp" in row else row for row in rows]


def test_every_record_is_a_row_exactly(spark: SparkSession, west: EmbeddedCluster) -> None:
    fill(west)
    rows = rows_of(load(spark, west))
    assert rows == rows_in(west)
    assert len(rows) == 240


def test_columns_are_those_of_sparks_kafka_source(spark: SparkSession, west: EmbeddedCluster) -> None:
    fill(west, count=1)
    assert load(spark, west).schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )


@pytest.mark.parametrize("how", ["option", "schema"])
def test_a_read_may_name_the_columns_it_needs(spark: SparkSession, west: EmbeddedCluster, how: str) -> None:
    fill(west)
    load(spark, west)
    reader = spark.read.format("topic-log").options(cluster="west", topic=TOPIC)
    if how == "option":
        frame = reader.option("columns", "offset, topic, headers, partition").load()
    else:
        frame = reader.schema(
            "offset bigint, topic string, headers array<struct<key string, value binary>>, partition int"
        ).load()
    names = ["offset", "topic", "headers", "partition"]
    assert frame.columns == names
    assert rows_of(frame) == [{name: row[name] for name in names} for row in rows_in(west)]


@pytest.mark.parametrize(
    ("columns", "schema", "problem"),
    [
        ("value, ofset", None, "topic-log has no column 'ofset'. Did you mean offset?"),
        (None, "value binary, ofset bigint", "topic-log has no column 'ofset'. Did you mean offset?"),
        (None, "value string", "column value of topic-log is of type binary, not string"),
    ],
)
def test_columns_that_are_none_are_refused(
    spark: SparkSession, west: EmbeddedCluster, columns: str | None, schema: str | None, problem: str
) -> None:
    fill(west, count=1)
    load(spark, west)
    reader = spark.read.format("topic-log").options(cluster="west", topic=TOPIC)
    reader = reader if columns is None else reader.option("columns", columns)
    reader = reader if schema is None else reader.schema(schema)
    with pytest.raises(AnalysisException, match=re.escape(problem)):
        reader.load().count()


T0 = 1_700_000_000_000
CONDITIONS = [
    "partition in (0, 2, 7)",
    "partition > 0 and partition <= 1 and offset >= 30 and offset < 50",
    "partition = 1 and partition = 2",
    "offset in (3, 70) and partition <> 1",
    f"timestamp >= timestamp_millis({T0 + 30}) and timestamp < timestamp_millis({T0 + 35})",
    f"timestamp <= timestamp_millis({T0 + 2}) or partition = 0",
    f"timestamp in (timestamp_millis({T0 + 7}), timestamp_millis({T0 + 12}))",
    "key is null and offset = 4",
]


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_filtered_read_has_the_rows_of_the_filtered_topic(pushing: SparkSession, west: EmbeddedCluster) -> None:
    fill(west)
    frame = load(pushing, west)
    kept = pushing.createDataFrame(frame.collect(), frame.schema)
    for condition in CONDITIONS:
        # Spark keeps what it planned for the first filter for every later scan of a frame: so each has its own.
        assert rows_of(load(pushing, west, pushFilters="true").where(condition)) == rows_of(kept.where(condition))


def test_a_frame_may_be_scanned_again_with_other_filters(pushing: SparkSession, west: EmbeddedCluster) -> None:
    fill(west, count=5)
    frame = load(pushing, west)
    assert [frame.where(f"partition = {number}").count() for number in range(3)] == [10, 10, 10]
    assert frame.where("partition = 1").union(frame.where("partition = 2")).count() == 20
    assert frame.count() == 30


def test_options_narrow_a_read_to_partitions_and_times(spark: SparkSession, west: EmbeddedCluster) -> None:
    fill(west, parts=1)
    frame = load(
        spark,
        west,
        partitions="0, 2",
        startingTimestamp=str(T0 + 30),
        endingTimestamp=str(T0 + 35),
        columns="offset, partition",
    )
    assert rows_of(frame) == [
        {"offset": offset, "partition": partition} for partition in (0, 2) for offset in range(30, 35)
    ]
    assert load(spark, west, startingTimestamp=str(T0 + 999)).count() == 0


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("partitions", "0, x", "option partitions of topic-log takes numbers, not '0, x'"),
        (
            "startingTimestamp",
            "today",
            "option startingTimestamp of topic-log takes a whole number of at least 0, not 'today'",
        ),
    ],
)
def test_numbers_that_are_none_are_refused(
    spark: SparkSession, west: EmbeddedCluster, option: str, value: str, problem: str
) -> None:
    west.create_topic(TOPIC)
    with pytest.raises(AnalysisException, match=problem):
        load(spark, west, **{option: value}).count()


def large(folder: Path, said: Path) -> tuple[EmbeddedCluster, Metered]:
    """Return a cluster whose topic has ten partitions of two parts, each larger than what is fetched whole."""
    store = Metered(DirectoryStore(folder), said)
    cluster = cluster_in(store, now_ms=NOW)
    cluster.create_topic(TOPIC, partitions=10)
    sink = cluster.sink(TOPIC)
    for part in range(2):
        rows = [
            {
                **row,
                "offset": part * 5 + number,
                "timestamp_ms": NOW + 1000 * part + number,
                "value": os.urandom(900_000),
            }
            for number, row in enumerate(numbered(0, 5).to_pylist())
        ]
        batch = pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)
        sink.publish([sink.stage(partition, [batch], at=None) for partition in range(10)])
    store.taken()
    return cluster, store


def test_what_a_query_does_not_want_is_not_fetched(pushing: SparkSession, tmp_path: Path) -> None:
    cluster, store = large(tmp_path / "large", tmp_path / "said")

    def fetched(columns: str, condition: str = "true", **options: str) -> int:
        frame = load(pushing, cluster, columns=columns, pushFilters="true", **options).where(condition)
        store.taken()
        frame.foreach(lambda _row: None)
        return store.taken()

    everything = fetched("value")
    assert everything > 20 * 4_500_000
    assert fetched("partition, key", "partition = 3") <= 0.01 * everything
    assert fetched("partition, value", "partition = 3") <= 0.2 * everything
    assert fetched("value", partitions="3") <= 0.2 * everything
    assert fetched("offset, timestamp, key, headers") <= 0.05 * everything
    assert fetched("offset, value", "offset >= 5") <= 0.6 * everything
    assert fetched("timestamp, value", f"timestamp >= timestamp_millis({NOW + 1000})") <= 0.6 * everything
    assert fetched("timestamp, value", f"timestamp < timestamp_millis({NOW + 1000})") <= 0.6 * everything


def test_times_beyond_those_that_spark_knows_are_the_nearest_that_it_does(
    spark: SparkSession, west: EmbeddedCluster
) -> None:
    west.create_topic(TOPIC)
    times = [9_300_000_000_000_000, -(1 << 63), T0]
    rows = [{**row, "timestamp_ms": time} for row, time in zip(numbered(0, 3).to_pylist(), times, strict=True)]
    sink = west.sink(TOPIC)
    sink.publish([sink.stage(0, [pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)], at=None)])
    found = load(spark, west, columns="offset, timestamp").selectExpr("unix_micros(timestamp)").collect()
    most = 9_223_372_036_854_775_000
    assert [row[0] for row in found] == [most, -most, T0 * 1000]


def test_ranges_are_offsets_of_every_partition(spark: SparkSession, west: EmbeddedCluster) -> None:
    fill(west)
    found = load(spark, west, start="30", end="45").groupBy("partition").agg({"offset": "min", "*": "count"})
    rows = sorted(tuple(row) for row in found.select("partition", "min(offset)", "count(1)").collect())
    assert rows == [(partition, 30, 15) for partition in range(3)]


@pytest.mark.parametrize("name", [None, TOPIC])
def test_each_partition_may_begin_and_end_at_an_offset_of_its_own(
    spark: SparkSession, west: EmbeddedCluster, name: str | None
) -> None:
    fill(west)
    starts, ends = {"0": 10, "1": -2, "2": -1}, {"0": 15, "1": 3, "2": -1}
    given = {
        option: json.dumps(places if name is None else {name: places})
        for option, places in (("startingOffsets", starts), ("endingOffsets", ends))
    }
    found = load(spark, west, **given).orderBy("partition", "offset").select("partition", "offset").collect()
    assert [tuple(row) for row in found] == [(0, 10), (0, 11), (0, 12), (0, 13), (0, 14), (1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"start": '{"0": 1, "1": 1}'}, "option start of topic-log names no offset for partition 2"),
        (
            {"start": '{"0": 1, "1": 1, "2": 1, "3": 1}'},
            "option start of topic-log names an offset for partition 3, which the topic does not have",
        ),
        (
            {"end": "5", "endingOffsets": "latest"},
            "options end and endingOffsets of topic-log mean the same, and both are given",
        ),
    ],
)
def test_places_that_contradict_the_topic_are_refused(
    spark: SparkSession, west: EmbeddedCluster, options: dict[str, str], problem: str
) -> None:
    fill(west, count=1)
    with pytest.raises(AnalysisException, match=re.escape(problem)):
        load(spark, west, **options).count()


def subscribed(session: SparkSession, cluster: EmbeddedCluster, topics: str, **options: str) -> DataFrame:
    offer(session, cluster)
    return session.read.format("topic-log").options(subscribe=topics, **options).load()


def offer(session: SparkSession, cluster: EmbeddedCluster) -> None:
    """Register all topics of a cluster."""
    logs = {name: cluster.log(name) for name in cluster.topics()}
    register(session, lambda found: logs[found["topic"]], list_topics=lambda _options: logs)


def test_several_topics_are_read_as_one_frame(spark: SparkSession, west: EmbeddedCluster) -> None:
    fill(west, partitions=2, count=20)
    west.create_topic("payments")
    sink = west.sink("payments")
    sink.publish([sink.stage(0, [numbered(0, 7)], at=OffsetRange(0, 7))])
    west.create_topic("empty")
    frame = subscribed(spark, west, f"{TOPIC}, payments,empty,{TOPIC}")
    assert {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()} == {TOPIC: 80, "payments": 7}
    assert rows_of(frame.where(f"topic = '{TOPIC}'")) == rows_in(west, 2)
    begins = json.dumps({TOPIC: {"0": 38, "1": -1}, "payments": {"0": 5}, "empty": {"0": -2}})
    found = subscribed(spark, west, f"{TOPIC},payments,empty", startingOffsets=begins, endingOffsets="latest")
    places = found.orderBy("topic", "partition", "offset").select("topic", "partition", "offset").collect()
    assert [tuple(row) for row in places] == [
        (TOPIC, 0, 38),
        (TOPIC, 0, 39),
        ("payments", 0, 5),
        ("payments", 0, 6),
    ]
    assert subscribed(spark, west, "payments", partitions="0", start="5").count() == 2
    matched = spark.read.format("topic-log").options(subscribePattern="pay.*|em.*").load()
    assert [row.topic for row in matched.select("topic").distinct().collect()] == ["payments"]


@pytest.mark.parametrize("options", [{"subscribe": "orders,payments"}, {"subscribePattern": "(orders|pay.*)"}])
def test_several_topics_are_read_as_one_stream(
    spark: SparkSession, west: EmbeddedCluster, tmp_path: Path, options: dict[str, str]
) -> None:
    batches: list[list[tuple[str, int]]] = []
    fill(west, partitions=1, count=2, parts=1)
    for topic in ("payments", "others"):
        west.create_topic(topic)
    for expected in ([(TOPIC, 0), (TOPIC, 1)], [("payments", 0)]):
        offer(spark, west)
        frame = spark.readStream.format("topic-log").options(start="earliest", **options).load()
        writer = frame.writeStream.foreachBatch(
            lambda batch, _number: batches.append(sorted((row.topic, row.offset) for row in batch.collect()))
        )
        to_the_end(writer, tmp_path / "checkpoint")
        assert batches[-1] == expected
        with west.producer() as producer:
            producer.send("payments", "paid")
            producer.send("others", "not read")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"subscribe": "orders,,payments"},
            "option subscribe of topic-log: 'orders,,payments' has a name that is empty",
        ),
        ({"subscribe": "orders", "topic": "orders"}, "options topic and subscribe of topic-log both name topics"),
        ({"subscribe": "orders", "startingOffsets": '{"others": {"0": 1}}'}, "is not a place in a topic"),
    ],
)
def test_topics_that_are_not_named_plainly_are_refused(
    spark: SparkSession, west: EmbeddedCluster, options: dict[str, str], problem: str
) -> None:
    fill(west, count=1)
    load(spark, west)
    with pytest.raises(AnalysisException, match=re.escape(problem)) as caught:
        spark.read.format("topic-log").options(**options).load().count()
    assert "Traceback" not in str(caught.value)


def test_a_read_ends_where_the_topic_was_stable_when_it_was_planned(spark: SparkSession, west: EmbeddedCluster) -> None:
    fill(west)
    assert load(spark, west, start="latest").count() == 0
    assert load(spark, west, start="earliest", end="stable").count() == 240
    assert load(spark, west, start="70", end="9999").count() == 30


def test_an_empty_topic_is_an_empty_frame(spark: SparkSession, west: EmbeddedCluster) -> None:
    west.create_topic(TOPIC, partitions=2)
    assert load(spark, west).count() == 0


def test_gaps_are_no_rows(spark: SparkSession, west: EmbeddedCluster) -> None:
    west.create_topic(TOPIC)
    sink = west.sink(TOPIC)
    sink.publish([sink.stage(0, [numbered(5, 3)], at=OffsetRange(0, 100))])
    assert [row.offset for row in load(spark, west).select("offset").collect()] == [5, 6, 7]


def test_a_topic_is_queried_like_any_table(spark: SparkSession, west: EmbeddedCluster) -> None:
    fill(west, partitions=1, count=10, parts=1)
    load(spark, west).createOrReplaceTempView("orders")
    words = "select max(timestamp) as latest, count(value) as n from orders where offset > 2"
    (row,) = spark.sql(words).collect()
    assert row.n == 6
    assert row.latest.astimezone(dt.UTC).year == 2023


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("start", "soon"),
        ("start", "-1"),
        ("end", "earliest"),
        ("startingOffsets", '{"0": "x"}'),
        ("endingOffsets", "[]"),
    ],
)
def test_a_place_that_is_none_is_refused(spark: SparkSession, west: EmbeddedCluster, option: str, value: str) -> None:
    west.create_topic(TOPIC)
    with pytest.raises(AnalysisException, match=re.escape(f"option {option} of topic-log: {value!r} is not a place")):
        load(spark, west, **{option: value}).count()


def test_what_the_opener_holds_shows_in_no_plan(spark: SparkSession, west: EmbeddedCluster) -> None:
    fill(west, count=1)
    logs = {"hunter2": west.log(TOPIC)}
    register(spark, lambda _options: logs["hunter2"])
    frame = spark.read.format("topic-log").options(cluster="west", topic=TOPIC).load()
    plans = frame._jdf.queryExecution().toString()  # type: ignore[operator]  # the JVM's own object
    assert "topic-log" in plans
    assert "hunter2" not in plans
    assert frame.count() == 6
