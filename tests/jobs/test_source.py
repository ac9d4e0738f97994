"""A topic as a DataFrame."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from reconciler.jobs.source import register
from reconciler.records.log import OffsetRange
from tests.embedded.samples import numbered, read
from tests.jobs.doubles import TOPIC, fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from reconciler.embedded.cluster import EmbeddedCluster

pytestmark = pytest.mark.spark


def load(session: SparkSession, cluster: EmbeddedCluster, **options: str) -> DataFrame:
    logs = {TOPIC: cluster.log(TOPIC)}
    register(session, lambda found: logs[found["topic"]])
    return session.read.format("topic-log").options(cluster="west", topic=TOPIC, **options).load()


def test_every_record_is_a_row_exactly(spark: SparkSession, west: EmbeddedCluster) -> None:
    fill(west)
    rows = [row.asDict(recursive=True) for row in load(spark, west).orderBy("partition", "offset").collect()]
    assert rows == [row for partition in range(3) for row in read(west.log(TOPIC), partition)]
    assert len(rows) == 240


def test_columns_are_those_of_a_record(spark: SparkSession, west: EmbeddedCluster) -> None:
    fill(west, count=1)
    assert load(spark, west).schema.simpleString() == (
        "struct<partition:int,offset:bigint,timestamp_ms:bigint,timestamp_type:tinyint,"
        "key:binary,value:binary,headers:array<struct<key:string,value:binary>>>"
    )


def test_ranges_are_offsets_of_every_partition(spark: SparkSession, west: EmbeddedCluster) -> None:
    fill(west)
    found = load(spark, west, start="30", end="45").groupBy("partition").agg({"offset": "min", "*": "count"})
    rows = sorted(tuple(row) for row in found.select("partition", "min(offset)", "count(1)").collect())
    assert rows == [(partition, 30, 15) for partition in range(3)]


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
    words = "select timestamp_millis(max(timestamp_ms)) as latest, count(value) as n from orders where offset > 2"
    (row,) = spark.sql(words).collect()
    assert row.n == 6
    assert row.latest.astimezone(dt.UTC).year == 2023


@pytest.mark.parametrize(("option", "value"), [("start", "soon"), ("start", "-1"), ("end", "latest")])
def test_a_place_that_is_none_is_refused(spark: SparkSession, west: EmbeddedCluster, option: str, value: str) -> None:
    west.create_topic(TOPIC)
    with pytest.raises(AnalysisException, match=f"option {option} of topic-log: '{value}' is not a place in a topic"):
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
