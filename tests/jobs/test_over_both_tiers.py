"""Jobs over a topic whose older half lies in object storage alone: executors fetch it, and cache on their own disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.jobs.source import register
from reconciler.jobs.verify import compare_logs
from reconciler.objectstore.directory import DirectoryStore
from reconciler.records.log import OffsetRange
from tests.embedded.mounts.recovered_topics import say
from tests.embedded.samples import NOW, ids, numbered, read, rows_of
from tests.embedded.tiered.tiered_cluster import TIERED, archive, cached_in, evict, tiered_cluster
from tests.engines import here, on
from tests.jobs.doubles import TOPIC, in_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.thorough

PART, COUNT = 20, 160


@pytest.fixture
def west(tmp_path: Path) -> EmbeddedCluster:
    """A cluster with a tiered topic, half of it remote only, in folders that executors see."""
    store, storage = DirectoryStore(tmp_path / "west"), DirectoryStore(tmp_path / "bucket")
    cluster = tiered_cluster(store, storage, cached_in(tmp_path / "cache", chunk="4096"))
    cluster.create_topic(TOPIC, configs=TIERED)
    sink = cluster.sink(TOPIC)
    for base in range(0, COUNT, PART):
        sink.publish([sink.stage(0, [numbered(base, PART)], at=OffsetRange(base, base + PART))])
    archive(cluster, TOPIC)
    evict(cluster, TOPIC, to=COUNT // 2)
    return cluster


@pytest.mark.spark
def test_a_data_frame_has_the_records_of_both(spark: SparkSession, west: EmbeddedCluster, tmp_path: Path) -> None:
    log = west.log(TOPIC)
    register(spark, lambda _options: log)
    frame = spark.read.format("topic-log").options(cluster="west", topic=TOPIC).load()
    rows = [(row.offset, row.key, row.value) for row in frame.orderBy("offset").collect()]
    assert rows == [(row["offset"], row["key"], row["value"]) for row in rows_of([numbered(0, COUNT)])]
    assert any(path.is_file() for path in (tmp_path / "cache").rglob("*_chunks/*"))


@pytest.mark.spark
def test_a_mirror_is_copied_from_both(spark: SparkSession, west: EmbeddedCluster, east: EmbeddedCluster) -> None:
    east.create_topic(TOPIC)
    assert in_spark(spark, west.log(TOPIC), east.sink(TOPIC)).records == COUNT
    assert read(east.log(TOPIC)) == read(west.log(TOPIC)) == rows_of([numbered(0, COUNT)])


@pytest.mark.parametrize("how", ["kept", "read here", pytest.param("read in Spark", marks=pytest.mark.spark)])
def test_a_comparison_covers_both(
    request: pytest.FixtureRequest, west: EmbeddedCluster, east: EmbeddedCluster, how: str
) -> None:
    east.create_topic(TOPIC)
    sink = east.sink(TOPIC)
    sink.publish([sink.stage(0, [numbered(0, COUNT)], at=OffsetRange(0, COUNT))])
    engine = on(request.getfixturevalue("spark")) if how == "read in Spark" else here()
    assert compare_logs(engine, west.log(TOPIC), east.log(TOPIC), deep=how != "kept").is_equal
    sink.publish([sink.stage(0, [numbered(COUNT, 1)], at=OffsetRange(COUNT, COUNT + 1))])
    assert not compare_logs(engine, west.log(TOPIC), east.log(TOPIC), deep=how != "kept").is_equal


@pytest.mark.spark
def test_a_read_replica_is_a_data_frame_and_compares_equal_to_its_source(
    spark: SparkSession, west: EmbeddedCluster, tmp_path: Path
) -> None:
    say(west, TOPIC)
    reader = EmbeddedCluster.create(
        DirectoryStore(tmp_path / "reader"),
        now_ms=lambda: NOW,
        new_id=ids(),
        storage=DirectoryStore(tmp_path / "bucket"),
    )
    reader.alter_cluster({"cloud_storage_enabled": "true", **cached_in(tmp_path / "other", chunk="4096")})
    reader.replicate_topic("copies", f"{TOPIC}/{west.cluster_id}/{west.topic(TOPIC).revision}")
    log = reader.log("copies")
    register(spark, lambda _options: log)
    frame = spark.read.format("topic-log").options(cluster="reader", topic="copies").load()
    rows = [(row.offset, row.key, row.value) for row in frame.orderBy("offset").collect()]
    assert rows == [(row["offset"], row["key"], row["value"]) for row in rows_of([numbered(0, COUNT)])]
    assert compare_logs(on(spark), west.log(TOPIC), log, deep=True).is_equal
