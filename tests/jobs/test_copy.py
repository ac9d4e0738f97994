"""Copies between clusters, in Spark."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import IncompleteError, RetryableError, UserError
from reconciler.jobs.verify import compare_logs
from reconciler.records.log import OffsetRange
from tests.embedded.samples import numbered, read
from tests.engines import here
from tests.jobs.doubles import TOPIC, Broken, Interrupted, Refusing, Unlucky, Unshared, append, fill, in_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.jobs.progress import JobProgress

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


@pytest.fixture
def filled(west: EmbeddedCluster, east: EmbeddedCluster) -> None:
    fill(west)
    east.create_topic(TOPIC, partitions=3)


@pytest.mark.usefixtures("filled")
def test_a_copy_has_the_same_offsets_times_keys_headers_and_bytes(
    spark: SparkSession, west: EmbeddedCluster, east: EmbeddedCluster
) -> None:
    copied = in_spark(spark, west.log(TOPIC), east.sink(TOPIC))
    assert (copied.records, copied.offsets) == (240, 240)
    for partition in range(3):
        assert read(east.log(TOPIC), partition) == read(west.log(TOPIC), partition)
        assert len(read(east.log(TOPIC), partition)) == 80
    assert compare_logs(here(), west.log(TOPIC), east.log(TOPIC)).is_equal


@pytest.mark.usefixtures("filled")
def test_only_what_is_missing_is_copied(spark: SparkSession, west: EmbeddedCluster, east: EmbeddedCluster) -> None:
    in_spark(spark, west.log(TOPIC), east.sink(TOPIC))
    assert in_spark(spark, west.log(TOPIC), east.sink(TOPIC)).offsets == 0
    append(west, partitions=2, count=5)
    assert in_spark(spark, west.log(TOPIC), east.sink(TOPIC)).records == 10
    assert compare_logs(here(), west.log(TOPIC), east.log(TOPIC)).is_equal


def test_gaps_and_an_end_without_records_are_kept(
    spark: SparkSession, west: EmbeddedCluster, east: EmbeddedCluster
) -> None:
    for cluster in (west, east):
        cluster.create_topic(TOPIC)
    source = west.sink(TOPIC)
    source.publish([source.stage(0, [numbered(3, 4)], at=OffsetRange(0, 20))])
    source.publish([source.stage(0, [numbered(25, 2)], at=OffsetRange(20, 30))])
    assert in_spark(spark, west.log(TOPIC), east.sink(TOPIC)).offsets == 30
    assert east.sink(TOPIC).read_ends() == {0: 30}
    assert read(east.log(TOPIC)) == read(west.log(TOPIC))


def test_dozens_of_small_partitions_are_one_round(
    spark: SparkSession, west: EmbeddedCluster, east: EmbeddedCluster
) -> None:
    fill(west, partitions=60, count=2, parts=1)
    east.create_topic(TOPIC, partitions=60)
    seen: list[JobProgress] = []
    assert in_spark(spark, west.log(TOPIC), east.sink(TOPIC), progress=seen.append).records == 120
    assert len(seen) == 2
    assert (seen[0].records, seen[0].records_total) == (0, 120)
    assert seen[1].ends == dict.fromkeys(range(60), 2)
    assert [(each.partitions_done, each.partitions) for each in seen] == [(0, 60), (60, 60)]
    assert compare_logs(here(), west.log(TOPIC), east.log(TOPIC)).is_equal


@pytest.mark.usefixtures("filled")
def test_progress_ends_where_its_total_is_and_tells_the_time_left(
    spark: SparkSession, west: EmbeddedCluster, east: EmbeddedCluster
) -> None:
    seen: list[JobProgress] = []
    ticks = iter(range(1000))
    in_spark(spark, west.log(TOPIC), east.sink(TOPIC), progress=seen.append, clock=lambda: float(next(ticks)))
    last = seen[-1]
    assert (last.records, last.bytes) == (last.records_total, last.bytes_total) == (240, last.bytes)
    assert last.bytes > 0
    assert last.seconds_left == 0


@pytest.mark.usefixtures("filled")
def test_two_mirrors_at_once_publish_nothing_twice(
    spark: SparkSession, west: EmbeddedCluster, east: EmbeddedCluster
) -> None:
    with ThreadPoolExecutor(2) as runners:
        copies = list(runners.map(lambda _: in_spark(spark, west.log(TOPIC), east.sink(TOPIC)), range(2)))
    assert sum(copy.records for copy in copies) == 240
    assert compare_logs(here(), west.log(TOPIC), east.log(TOPIC)).is_equal


@pytest.mark.usefixtures("filled")
def test_what_somebody_else_published_meanwhile_is_not_published_again(
    spark: SparkSession, west: EmbeddedCluster, east: EmbeddedCluster
) -> None:
    def faster() -> None:
        sink = east.sink(TOPIC)
        sink.publish([sink.stage_copy(1, west.log(TOPIC), OffsetRange(0, 33))])

    copied = in_spark(spark, west.log(TOPIC), Interrupted(east.sink(TOPIC), faster))
    assert copied.records == 240 - 33
    assert compare_logs(here(), west.log(TOPIC), east.log(TOPIC)).is_equal


@pytest.mark.usefixtures("filled")
def test_a_copy_that_never_fits_gives_up(spark: SparkSession, west: EmbeddedCluster, east: EmbeddedCluster) -> None:
    with pytest.raises(RetryableError, match="another process kept writing to this mirror"):
        in_spark(spark, west.log(TOPIC), Unlucky(east.sink(TOPIC)))
    assert east.sink(TOPIC).read_ends() == {0: 0, 1: 0, 2: 0}


@pytest.mark.usefixtures("filled")
def test_an_executor_that_does_not_see_the_sink_is_named_and_nothing_is_published(
    spark: SparkSession, west: EmbeddedCluster, east: EmbeddedCluster
) -> None:
    with pytest.raises(UserError, match="is not visible to the executor on") as refused:
        in_spark(spark, west.log(TOPIC), Unshared(east.sink(TOPIC)))
    assert refused.value.hint == "Share it."
    assert east.sink(TOPIC).read_ends() == {0: 0, 1: 0, 2: 0}


def test_what_other_tasks_copied_is_kept_when_one_is_refused(
    spark: SparkSession, west: EmbeddedCluster, east: EmbeddedCluster
) -> None:
    fill(west, count=4)
    east.create_topic(TOPIC, partitions=3)
    with pytest.raises(UserError, match="no space left for partition 1"):
        in_spark(spark, west.log(TOPIC), Refusing(east.sink(TOPIC)))
    assert east.sink(TOPIC).read_ends()[0] == 8
    assert east.sink(TOPIC).read_ends()[1] == 0


@pytest.mark.usefixtures("filled")
def test_a_bug_in_a_task_is_one_line_and_not_a_page_of_java(
    spark: SparkSession, west: EmbeddedCluster, east: EmbeddedCluster
) -> None:
    with pytest.raises(RetryableError) as failed:
        in_spark(spark, west.log(TOPIC), Broken(east.sink(TOPIC)))
    assert failed.value.message == "copying records failed in Spark: division by zero in partition 1"


@pytest.mark.usefixtures("filled")
def test_a_stopped_copy_keeps_what_it_published_and_says_it_is_incomplete(
    spark: SparkSession, west: EmbeddedCluster, east: EmbeddedCluster
) -> None:
    with pytest.raises(IncompleteError):
        in_spark(spark, west.log(TOPIC), east.sink(TOPIC), is_stopped=lambda: True)
    assert in_spark(spark, west.log(TOPIC), east.sink(TOPIC)).records == 240
