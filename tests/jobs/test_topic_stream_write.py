"""A stream into a topic: each of its batches once, whatever becomes of the query in between."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from reconciler.errors import UserError
from reconciler.jobs.source import StagedBatch, StagedRows, StreamWriter, register
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import AppendSink, NumberedBatch, StagedAppend
from tests.embedded.deaths import opened
from tests.embedded.samples import cluster_in, contents, read, values
from tests.embedded.stores import WatchedStore
from tests.jobs.doubles import TOPIC, append, fill
from tests.jobs.streams import to_the_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reconciler.embedded.cluster import EmbeddedCluster

ROOT = Path(__file__).parents[2]
PATIENCE_S = 180
TOTALS = "totals"


def run(session: SparkSession, cluster: EmbeddedCluster, sink: AppendSink, folder: Path, **options: str) -> None:
    """Copy a topic by a stream, in batches of 50 offsets, to its end as it is now."""
    log = cluster.log(TOPIC)
    register(session, lambda _options: log, lambda _options: sink)
    stream = session.readStream.format("topic-log").options(cluster="west", topic=TOPIC, start="earliest")
    rows = stream.option("maxOffsetsPerTrigger", "50").load().drop("topic")
    writer = rows.writeStream.format("topic-log").options(cluster="west", topic=TOTALS, **options)
    to_the_end(writer, folder / "checkpoint")


def rows_in(cluster: EmbeddedCluster, topic: str) -> list[list[Any]]:
    names = ("key", "value", "headers", "timestamp_ms")
    log = cluster.log(topic)
    return [[[row[name] for name in names] for row in read(log, partition)] for partition in range(2)]


@pytest.fixture
def topics(west: EmbeddedCluster) -> None:
    fill(west, partitions=2, count=40)
    west.create_topic(TOTALS, partitions=2)


@pytest.mark.spark
@pytest.mark.usefixtures("topics")
def test_a_stream_writes_each_row_once_and_goes_on_after_a_restart(
    spark: SparkSession, west: EmbeddedCluster, tmp_path: Path
) -> None:
    sink = west.appends(TOTALS)
    run(spark, west, sink, tmp_path)
    assert rows_in(west, TOTALS) == rows_in(west, TOPIC)
    append(west, partitions=2, count=3)
    run(spark, west, sink, tmp_path)
    assert rows_in(west, TOTALS) == rows_in(west, TOPIC)


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.usefixtures("topics")
def test_a_batch_that_spark_did_not_note_as_done_is_not_written_again(
    spark: SparkSession, west: EmbeddedCluster, tmp_path: Path
) -> None:
    sink = west.appends(TOTALS)
    run(spark, west, sink, tmp_path)
    commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    assert len(commits) == 4
    for left in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        left.unlink()
    append(west, partitions=2, count=3)
    run(spark, west, sink, tmp_path)
    assert rows_in(west, TOTALS) == rows_in(west, TOPIC)


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.usefixtures("topics")
def test_a_stream_of_totals_cannot_replace_what_is_there(
    spark: SparkSession, west: EmbeddedCluster, tmp_path: Path
) -> None:
    log, sink = west.log(TOPIC), west.appends(TOTALS)
    register(spark, lambda _options: log, lambda _options: sink)
    stream = spark.readStream.format("topic-log").options(cluster="west", topic=TOPIC, start="earliest").load()
    totals = stream.groupBy("key").count().selectExpr("key", "string(count) as value").writeStream
    writer = totals.format("topic-log").options(cluster="west", topic=TOTALS).outputMode("complete")
    with pytest.raises(StreamingQueryException, match="topic-log only appends: a topic cannot be overwritten"):
        to_the_end(writer, tmp_path / "checkpoint")
    assert rows_in(west, TOTALS) == [[], []]


@pytest.mark.parametrize("answer", [None, StagedRows(StagedAppend(0, ()))])
def test_what_a_task_staged_and_did_not_say_is_never_passed_over(answer: StagedRows | None) -> None:
    cluster = cluster_in(MemoryStore())
    cluster.create_topic(TOPIC)
    sink = cluster.appends(TOPIC)
    staged = StagedBatch(sink.stage([values("one")], task=0), "query")
    with pytest.raises(UserError, match="1 of 2 tasks did not report what they staged, so nothing was written"):
        StreamWriter(sink, TOPIC).commit([staged, answer], 0)
    assert contents(cluster.log(TOPIC)) == []


def test_a_second_query_with_one_checkpoint_is_told_so() -> None:
    cluster = cluster_in(MemoryStore())
    cluster.create_topic(TOPIC)
    came: list[bool] = []

    def commit(one: EmbeddedCluster, value: str) -> None:
        sink = one.appends(TOPIC)
        staged = sink.stage([values(value)], task=0)
        StreamWriter(sink, TOPIC).commit([StagedBatch(staged, "query")], 3)

    def intrude(_what: str, key: str) -> None:
        if key.startswith("heads/") and not came:
            came.append(True)
            commit(cluster, "of the second")

    first = opened(WatchedStore(cluster.store, before=intrude))
    with pytest.raises(UserError, match="another run of query query writes to orders: batch 3 was not written by this"):
        commit(first, "of the first")
    assert [value for _, value in contents(cluster.log(TOPIC))] == [b"of the second"]


RUNNER = """
import os, sys
from pathlib import Path
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.jobs.session import start_session
from reconciler.objectstore.directory import DirectoryStore
from reconciler.resources.workspace import SparkSpec
from tests.jobs.test_topic_stream_write import TOTALS, HaltingAppends, run

folder, where = Path(sys.argv[1]), sys.argv[2]
west = EmbeddedCluster.open(DirectoryStore(folder / "west"), now_ms=lambda: 1_700_000_000_000, new_id=lambda: "")
with start_session(SparkSpec(master="local[2]"), environ=os.environ) as spark:
    run(spark.session, west, HaltingAppends(west.appends(TOTALS), where, folder / "halted"), folder)
"""


@dataclass
class HaltingAppends:
    """A sink that waits to be killed in its second batch, before or after it is published, having said so in a file."""

    sink: Any
    where: str
    said: Path

    def check_shared(self) -> None:
        self.sink.check_shared()

    def stage(self, records: Any, *, task: int) -> Any:
        return self.sink.stage(records, task=task)

    def publish(self, staged: Any, batch: NumberedBatch) -> bool:
        if batch.number == 1 and self.where == "before":
            self._halt()
        published: bool = self.sink.publish(staged, batch)
        if batch.number == 1:
            self._halt()
        return published

    def _halt(self) -> None:
        self.said.touch()
        signal.pause()


@pytest.mark.spark
@pytest.mark.thorough
@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("where", ["before", "after"])
def test_a_driver_that_is_killed_around_its_commit_writes_nothing_twice(
    spark: SparkSession, west: EmbeddedCluster, tmp_path: Path, where: str
) -> None:
    command = [sys.executable, "-c", RUNNER, str(tmp_path), where]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=tmp_path, env=environ, start_new_session=True) as driver:
        ended = os.pidfd_open(driver.pid)
        while not (tmp_path / "halted").exists():
            assert not select.select([ended], [], [], 0.05)[0], "the stream ended instead of halting"
        # All at once, as when a machine loses power: the JVM must not note the batch.
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait(PATIENCE_S)
        os.close(ended)
    assert sum(map(len, rows_in(west, TOTALS))) == (50 if where == "before" else 100)
    run(spark, west, west.appends(TOTALS), tmp_path)
    assert rows_in(west, TOTALS) == rows_in(west, TOPIC)


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.usefixtures("topics")
def test_a_batch_that_fails_leaves_nothing_and_is_written_by_the_next_run(
    spark: SparkSession, west: EmbeddedCluster, tmp_path: Path
) -> None:
    west.alter_topic(TOTALS, {"max.message.bytes": "3"})
    with pytest.raises(StreamingQueryException, match=re.escape("(MESSAGE_TOO_LARGE)")):
        run(spark, west, west.appends(TOTALS), tmp_path)
    assert rows_in(west, TOTALS) == [[], []]
    west.alter_topic(TOTALS, {"max.message.bytes": "1000"})
    run(spark, west, west.appends(TOTALS), tmp_path)
    assert rows_in(west, TOTALS) == rows_in(west, TOPIC)
