"""A DataFrame as new records of a topic: all of them, or none."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as fn

from reconciler.embedded.catalog.commits import CatalogRegister
from reconciler.embedded.catalog.mirror_tables import MirrorShape
from reconciler.jobs.source import register
from reconciler.objectstore.directory import DirectoryStore
from reconciler.resources.mirrors import LinkEntry
from tests.embedded.samples import NOW, read
from tests.jobs.doubles import TOPIC, fill

if TYPE_CHECKING:
    from pathlib import Path

    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.records.log import AppendSink

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
SCHEMA = (
    "key binary, value binary, headers array<struct<key: string, value: binary>>, timestamp timestamp, partition int"
)


def write(frame: DataFrame, sink: AppendSink, *, topic: str = TOPIC, mode: str = "append") -> None:
    register(frame.sparkSession, lambda _options: sink, lambda _options: sink)  # type: ignore[arg-type,return-value]
    frame.write.format("topic-log").options(cluster="west", topic=topic).mode(mode).save()


def rows_in(cluster: EmbeddedCluster, *names: str, topic: str = TOPIC, partitions: int = 3) -> list[list[Any]]:
    log = cluster.log(topic)
    return [[[row[name] for name in names] for row in read(log, partition)] for partition in range(partitions)]


def nothing_in(cluster: EmbeddedCluster) -> bool:
    return all(bounds.end == 0 for bounds in cluster.log(TOPIC).read_bounds().values())


def test_every_row_is_a_record_exactly(spark: SparkSession, west: EmbeddedCluster) -> None:
    west.create_topic(TOPIC, partitions=3)
    at = EPOCH + dt.timedelta(milliseconds=NOW - 5)
    rows = [
        Row(
            key=b"k",
            value=b"v",
            headers=[Row(key="n", value=b"1"), Row(key="n", value=None)],
            timestamp=at,
            partition=2,
        ),
        Row(key=None, value=None, headers=None, timestamp=None, partition=2),
        Row(key=b"", value=b"", headers=[], timestamp=at, partition=0),
    ]
    write(spark.createDataFrame(rows, SCHEMA).coalesce(1), west.appends(TOPIC))
    assert rows_in(west, "key", "value", "headers", "timestamp_ms") == [
        [[b"", b"", [], NOW - 5]],
        [],
        [[b"k", b"v", [{"key": "n", "value": b"1"}, {"key": "n", "value": None}], NOW - 5], [None, None, [], NOW]],
    ]


def test_what_was_read_may_be_written_as_it_is(
    spark: SparkSession, west: EmbeddedCluster, east: EmbeddedCluster
) -> None:
    fill(west)
    east.create_topic("copies", partitions=3)
    log, sink = west.log(TOPIC), east.appends("copies")
    register(spark, lambda _options: log)
    frame = spark.read.format("topic-log").options(cluster="west", topic=TOPIC).load()
    register(spark, lambda _options: log, lambda _options: sink)
    frame.write.format("topic-log").options(cluster="east", topic="copies").mode("append").save()
    names = ("key", "value", "headers", "timestamp_ms")
    assert rows_in(east, *names, topic="copies") == rows_in(west, *names)


def test_text_is_written_as_utf_8_and_goes_where_its_key_says(spark: SparkSession, west: EmbeddedCluster) -> None:
    west.create_topic(TOPIC, partitions=3)
    west.create_topic("other", partitions=3)
    words = ["one", "zwei", "três", "четыре"]
    write(spark.createDataFrame([(word, word) for word in words], "key string, value string"), west.appends(TOPIC))
    with west.producer() as producer:
        for word in words:
            producer.send("other", word, key=word)
    found = rows_in(west, "key", "value")
    assert [sorted(each) for each in found] == [sorted(each) for each in rows_in(west, "key", "value", topic="other")]


def test_rows_stay_in_order_from_task_to_task(spark: SparkSession, west: EmbeddedCluster) -> None:
    west.create_topic(TOPIC, partitions=1)
    frame = spark.range(0, 50_000, 1, 5).select(fn.col("id").cast("string").alias("value"))
    write(frame, west.appends(TOPIC))
    assert rows_in(west, "value", partitions=1) == [[[str(number).encode()] for number in range(50_000)]]


def test_no_rows_are_no_records(spark: SparkSession, west: EmbeddedCluster) -> None:
    west.create_topic(TOPIC, partitions=1)
    write(spark.createDataFrame([], "value binary"), west.appends(TOPIC))
    assert nothing_in(west)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("'a' as key", "topic-log writes rows with a column value, and these have key"),
        ("'a' as VALUE", "topic-log writes no column 'VALUE'. Did you mean value?"),
        ("'a' as vlaue", "topic-log writes no column 'vlaue'. Did you mean value?"),
        ("1 as value", "topic-log writes column value of type binary or string, not int"),
        (
            "'a' as value, 'b' as headers",
            "topic-log writes column headers of type array<struct<key:string,value:binary>>",
        ),
        ("'a' as value, 1L as partition", "topic-log writes column partition of type int, not bigint"),
        ("'a' as value, 5 as timestamp", "topic-log writes column timestamp of type timestamp, not int"),
    ],
)
def test_columns_that_no_record_has_are_refused(
    spark: SparkSession, west: EmbeddedCluster, expression: str, problem: str
) -> None:
    west.create_topic(TOPIC)
    frame = spark.range(3).selectExpr(*expression.split(", "))
    with pytest.raises(AnalysisException, match=re.escape(problem)):
        write(frame, west.appends(TOPIC))
    assert nothing_in(west)


def test_a_topic_cannot_be_overwritten(spark: SparkSession, west: EmbeddedCluster) -> None:
    west.create_topic(TOPIC)
    with pytest.raises(AnalysisException, match="topic-log only appends: a topic cannot be overwritten"):
        write(spark.range(3).selectExpr("'a' as value"), west.appends(TOPIC), mode="overwrite")


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("cast(if(id = 77, 9, 0) as int) as partition", "partition 9: the topic does not have it"),
        ("if(id = 77, raise_error('a fault of the query'), 'k') as key", "a fault of the query"),
    ],
)
def test_a_job_that_fails_leaves_nothing(
    spark: SparkSession, west: EmbeddedCluster, expression: str, problem: str
) -> None:
    west.create_topic(TOPIC, partitions=3)
    frame = spark.range(0, 100, 1, 4).selectExpr("'a' as value", expression)
    with pytest.raises(PySparkException, match=problem):
        write(frame, west.appends(TOPIC))
    assert nothing_in(west)
    assert list(west.store.list("topics/"))


def test_executors_that_do_not_see_the_cluster_end_the_job(
    spark: SparkSession, west: EmbeddedCluster, tmp_path: Path
) -> None:
    west.create_topic(TOPIC)
    elsewhere = DirectoryStore(tmp_path / "elsewhere")
    sink = replace(west.appends(TOPIC), store=elsewhere, catalog=CatalogRegister(elsewhere))
    with pytest.raises(PySparkException, match="is not visible to the executor on") as caught:
        write(spark.range(3).selectExpr("'a' as value"), sink)
    assert "Traceback" not in str(caught.value)


def test_a_mirror_is_refused_also_where_it_became_one_meanwhile(
    spark: SparkSession, west: EmbeddedCluster, east: EmbeddedCluster
) -> None:
    west.create_topic(TOPIC)
    east.create_topic(TOPIC)
    sink = east.appends(TOPIC)
    east.delete_topic(TOPIC)
    east.create_link("dr", LinkEntry("link", "west", {"source": "west"}))
    east.create_mirror(TOPIC, MirrorShape(link="dr", source=TOPIC), west.source_topic(TOPIC))
    mirror = replace(sink, topic_id=east.topic(TOPIC).id)
    with pytest.raises(PySparkException, match="orders is a mirror of orders: only its link writes to it"):
        write(spark.range(3).selectExpr("'a' as value"), mirror)


def test_a_session_that_only_reads_says_so(spark: SparkSession, west: EmbeddedCluster) -> None:
    west.create_topic(TOPIC)
    log = west.log(TOPIC)
    register(spark, lambda _options: log)
    frame = spark.range(3).selectExpr("'a' as value")
    with pytest.raises(AnalysisException, match="topic-log was registered for reading only"):
        frame.write.format("topic-log").options(cluster="west", topic=TOPIC).mode("append").save()
