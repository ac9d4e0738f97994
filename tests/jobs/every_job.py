"""Every job, as a function that does it in a Spark session and sees for itself that its outcome is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from reconciler.archives.archive import Archive, ArchivedTopic, begin_archive
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.maintenance import compaction as in_memory
from reconciler.embedded.mounts.archive_log import ArchiveLog, ArchiveSink
from reconciler.errors import LostRaceError
from reconciler.jobs.archive import ArchiveJob, archive_records
from reconciler.jobs.compaction import run_in_spark
from reconciler.jobs.copy import TopicCopyJob, copy_log, fill_topic
from reconciler.jobs.profile import compute_profile
from reconciler.jobs.source import register
from reconciler.jobs.verify import compare_logs
from reconciler.objectstore.directory import DirectoryStore
from reconciler.providers.brokers.records.rekey_copy import KafkaRekeySink
from tests.embedded.mounts.shared_bucket import Bucket
from tests.embedded.samples import NOW, ids, read
from tests.engines import here, on
from tests.jobs.doubles import TOPIC, Mishap, MishapLog, MishapStore, append, in_spark, tiered_west
from tests.jobs.doubles import fill as fill_log
from tests.jobs.kafka.copies import Place, produce
from tests.jobs.kafka.test_rekey import assert_rekeyed, produce_into
from tests.jobs.streams import to_the_end
from tests.jobs.test_archive import archive_of

if TYPE_CHECKING:
    from reconciler.jobs.flows import CopyResult
    from reconciler.jobs.stage import Engine
    from reconciler.records.log import TopicLog


PARTITIONS = 6


@dataclass
class Scene:
    """Clusters and an object storage in a folder, each read and write of which may be the moment of a mishap."""

    folder: Path
    mishap: Mishap
    spark: SparkSession
    kafka: Callable[[], Place]

    @cached_property
    def engine(self) -> Engine:
        return on(self.spark)

    def store(self, name: str) -> Any:
        return MishapStore(DirectoryStore(self.folder / name), self.mishap)

    def cluster(self, name: str, *, parts: int) -> EmbeddedCluster:
        """Return a cluster with a topic of six partitions, with so many parts of 40 records each."""
        found = EmbeddedCluster.create(self.store(name), now_ms=lambda: NOW, new_id=ids())
        fill_log(found, partitions=PARTITIONS, parts=parts)
        return found

    def tiered(self) -> EmbeddedCluster:
        """Return a cluster with a tiered topic, whose closed segments wait for their upload."""
        storage = self.store("storage")
        found = tiered_west(self.folder / "tiered", storage, partitions=PARTITIONS, parts=9, now_ms=NOW)
        found.alter_cluster({"cloud_storage_segment_size_target": "20000", "cloud_storage_segment_size_min": "1"})
        found.upkeep().roll()
        return found


def broker(request: pytest.FixtureRequest) -> Place:
    """Start a broker only where a job asks for one."""
    return Place(request.getfixturevalue("kafka_broker"), request.getfixturevalue("kafka_prefix"))


def no_broker() -> Place:
    raise AssertionError("a mirror of embedded clusters asks for no broker")


SUBMITTED_MIRROR = """
import os, sys
from pathlib import Path
from pyspark import cloudpickle
from reconciler.jobs.session import start_session
from reconciler.resources.workspace import SparkSpec
from tests.jobs import doubles
from tests.jobs.every_job import Scene, mirror_is_the_same

cloudpickle.register_pickle_by_value(doubles)
folder = Path(sys.argv[1])
with start_session(SparkSpec(master=sys.argv[2]), environ=os.environ) as spark:
    mirror_is_the_same(Scene(folder, doubles.LostExecutor(folder), spark.session, None))
(folder / "mirrored").touch()
"""
"""A driver for `spark-submit`: its arguments are a folder and the master."""


# The jobs. Each is done on the cluster, and sees for itself that its outcome is right.


def mirror_is_the_same(it: Scene) -> None:
    west, east = it.cluster("west", parts=3), it.cluster("east", parts=0)
    assert in_spark(it.spark, west.log(TOPIC), east.sink(TOPIC)).records == PARTITIONS * 120
    for partition in range(PARTITIONS):
        assert [row["offset"] for row in read(east.log(TOPIC), partition)] == list(range(120))
    assert compare_logs(here(), west.log(TOPIC), east.log(TOPIC), deep=True).is_equal


def verify_finds_what_differs(it: Scene) -> None:
    west, east = it.cluster("west", parts=2), it.cluster("east", parts=2)
    append(east, partitions=1, count=1)
    found = compare_logs(it.engine, west.log(TOPIC), east.log(TOPIC), deep=True)
    assert [each.partition for each in found.differing] == [0]


def upload_and_merge_keep_every_record(it: Scene) -> None:
    tiered = it.tiered()
    before = [read(tiered.log(TOPIC), partition) for partition in range(PARTITIONS)]
    on_spark = partial(run_in_spark, it.engine)
    for job in (tiered.upkeep().upload, tiered.upkeep().merge):
        done = job(on_spark)
        assert (done.partitions, done.errors) == (PARTITIONS, [])
        assert job(on_spark).partitions == 0
    tiered.alter_topic(TOPIC, {"retention.local.strict": "true", "retention.local.target.bytes": "1"})
    assert tiered.upkeep().retain().errors == []
    heads = [tiered.log(TOPIC).read_head(partition) for partition in range(PARTITIONS)]
    assert all(head is not None and head.local_start > 10 for head in heads)
    assert [read(tiered.log(TOPIC), partition) for partition in range(PARTITIONS)] == before
    assert check_cluster(tiered.store, deep=True, storage=tiered.storage).findings == []


def compaction_keeps_the_newest_of_each_key(it: Scene) -> None:
    west = it.cluster("west", parts=0)
    west.alter_topic(TOPIC, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": "14"})
    for _ in range(3):
        with west.producer() as producer:
            for partition in range(PARTITIONS):
                for number in range(40):
                    producer.send(TOPIC, "value", key=f"k{number}", partition=partition)
    done = west.upkeep().compact(partial(run_in_spark, it.engine))
    assert (done.partitions, done.errors) == (PARTITIONS, [])
    for partition in range(PARTITIONS):
        head = west.log(TOPIC).read_head(partition)
        assert head is not None
        assert head.compacted_to > 80
        superseded = {later - 40 for later in range(40, head.compacted_to)}
        left = [row["offset"] for row in read(west.log(TOPIC), partition)]
        assert left == sorted({*range(120)} - superseded)


def compaction_of_more_keys_than_memory_holds_is_the_same(it: Scene) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(in_memory, "MAX_LEARNED_KEYS", 1)
        compaction_keeps_the_newest_of_each_key(it)


def archive_has_every_record(it: Scene) -> None:
    place = archive_of(Bucket(storage=it.store("storage")))
    source = it.cluster("west", parts=2).log(TOPIC)
    assert archive_all(source, place, it.engine).records == PARTITIONS * 80
    assert compare_logs(here(), source, ArchiveLog(place), deep=True).is_equal


def archive_all(source: TopicLog, place: Archive, engine: Engine) -> CopyResult:
    begin_archive(place, ArchivedTopic(TOPIC, PARTITIONS, 1, {}, {}, {}), dict.fromkeys(range(PARTITIONS), 0), "mark")
    ends = {number: bounds.end for number, bounds in source.read_bounds().items()}
    return archive_records(
        ArchiveJob(TOPIC, source, ArchiveSink(place, PARTITIONS), ArchiveLog(place), engine, lambda: ends)
    )


def mirror_into_kafka_is_the_same(it: Scene) -> None:
    place = it.kafka()
    source, target = place.create("orders", 3), place.create("copy", 3)
    produce(place, source, 400, partitions=3)
    watched: Any = MishapLog(place.open_log(source), it.mishap)
    run_again_if_shut_out(lambda: copy_log(it.engine, watched, place.sink(target)))
    assert [said for _, said in sorted_records(place, target)] == [said for _, said in sorted_records(place, source)]


def rekey_into_kafka_has_every_record(it: Scene) -> None:
    place = it.kafka()
    source, target = (place.open_log(place.create(name, number)) for name, number in (("orders", 3), ("copy", 5)))
    for partition in range(3):
        produce_into(place, source.topic, partition, 300)
    watched: Any = MishapLog(source, it.mishap)
    sink = KafkaRekeySink(place.sink(target.topic).target, source.topic_id)
    run_again_if_shut_out(lambda: fill_topic(TopicCopyJob("topic orders", watched, replace(sink), target, it.engine)))
    assert_rekeyed(source, target)


def restore_into_kafka_has_every_record(it: Scene) -> None:
    west, place, archived = it.cluster("west", parts=2).log(TOPIC), it.kafka(), Bucket(storage=it.store("storage"))
    archive_all(west, archive_of(archived), here())
    restored = place.create("orders", PARTITIONS)
    watched: Any = MishapLog(ArchiveLog(archive_of(archived)), it.mishap)
    run_again_if_shut_out(
        lambda: fill_topic(
            TopicCopyJob("topic orders", watched, place.sink(restored), place.open_log(restored), it.engine)
        )
    )
    for partition in range(PARTITIONS):
        found, rows = read(place.open_log(restored), partition), read(west, partition)
        assert [(row["key"], row["value"]) for row in found] == [(row["key"], row["value"]) for row in rows]


def run_again_if_shut_out(job: Callable[[], object]) -> None:
    """Of two attempts at a partition the later one shuts out the earlier, which may end first: the next run goes on."""
    try:
        job()
    except LostRaceError:
        job()


def sorted_records(place: Place, topic: str) -> list[tuple[int, str]]:
    return [record for _, records in sorted(place.read(topic).items()) for record in records]


def profile_counts_every_record_once(it: Scene) -> None:
    log = it.cluster("west", parts=2).log(TOPIC)
    found = compute_profile(lambda: it.spark, log)
    assert [each.counts.records for each in found.partitions] == [80] * PARTITIONS
    rows = [row for partition in range(PARTITIONS) for row in read(log, partition)]
    assert found.counts.tombstones == sum(row["value"] is None and row["key"] is not None for row in rows)
    assert found.keys == len({row["key"] for row in rows} - {None})


def topic_log_has_every_row_once(it: Scene) -> None:
    log = it.cluster("west", parts=3).log(TOPIC)
    register(it.spark, lambda _options: log)
    rows = it.spark.read.format("topic-log").load().groupBy("partition").count().collect()
    assert sorted(map(tuple, rows)) == [(partition, 120) for partition in range(PARTITIONS)]


def frame_is_written_once(it: Scene) -> None:
    west = it.cluster("west", parts=0)
    log, sink = west.log(TOPIC), west.appends(TOPIC)
    register(it.spark, lambda _options: log, lambda _options: sink)
    number = fn.col("id")
    rows = it.spark.range(0, 600, 1, 6).select(
        number.cast("string").alias("value"), (number % PARTITIONS).cast("int").alias("partition")
    )
    rows.write.format("topic-log").options(cluster="west", topic=TOPIC).mode("append").save()
    for partition in range(PARTITIONS):
        found = sorted(int(row["value"]) for row in read(log, partition))
        assert found == list(range(partition, 600, PARTITIONS))


def stream_is_written_once(it: Scene) -> None:
    west = it.cluster("west", parts=2)
    west.create_topic("totals", partitions=PARTITIONS)
    log, sink = west.log(TOPIC), west.appends("totals")
    register(it.spark, lambda _options: log, lambda _options: sink)
    stream = it.spark.readStream.format("topic-log").options(cluster="west", topic=TOPIC, start="earliest")
    rows = stream.option("maxOffsetsPerTrigger", "200").load().drop("topic")
    written = rows.writeStream.format("topic-log").options(cluster="west", topic="totals")
    to_the_end(written, it.folder / "checkpoint")
    for partition in range(PARTITIONS):
        before, after = (read(each, partition) for each in (log, west.log("totals")))
        assert [(row["key"], row["value"]) for row in after] == [(row["key"], row["value"]) for row in before]


JOBS = (
    mirror_is_the_same,
    verify_finds_what_differs,
    upload_and_merge_keep_every_record,
    compaction_keeps_the_newest_of_each_key,
    compaction_of_more_keys_than_memory_holds_is_the_same,
    archive_has_every_record,
    mirror_into_kafka_is_the_same,
    rekey_into_kafka_has_every_record,
    restore_into_kafka_has_every_record,
    profile_counts_every_record_once,
    topic_log_has_every_row_once,
    frame_is_written_once,
    stream_is_written_once,
)
