"""A topic of another platform in object storage: archived, mounted on an embedded cluster, compared.

An embedded topic that is not tiered stands in for it here; `tests/jobs/kafka` has the real one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from reconciler.archives.archive import (
    Archive,
    ArchivedTopic,
    begin_archive,
    claim_archive,
    delete_unreferenced_objects,
    describe_archive,
    detach_archive,
    release_claim,
    settle_claim,
)
from reconciler.archives.keys import create_segment_key
from reconciler.archives.location import TopicLocation
from reconciler.archives.ownership import OwnershipState, read_ownership
from reconciler.archives.storage import read_storage_id
from reconciler.embedded.mounts.archive_log import ArchiveLog, ArchiveSink
from reconciler.errors import IncompleteError, OwnershipLostError, RetryableError, UserError
from reconciler.jobs.archive import ArchiveJob, ArchiveResult, archive_records
from reconciler.jobs.verify import compare_logs
from reconciler.records.log import Bounds, OffsetRange, TopicLog, find_changed_partitions
from reconciler.runtime.dataclass import dataclass, field, replace
from tests.embedded.mounts.shared_bucket import Bucket
from tests.engines import here
from tests.jobs.doubles import Interrupted

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster

KAFKA = "0a55f1d2-57c2-4a34-9f34-000000000009"
NAME = "shop:clicks"
CLAIM = "c1"


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


def written(bucket: Bucket, *, partitions: int = 3, records: int = 40) -> EmbeddedCluster:
    """Make a topic that has gaps, headers, absent and empty keys and values, and begins after 0 in one partition."""
    cluster = bucket.cluster("other")
    cluster.create_topic(NAME, partitions=partitions, configs={"retention.ms": "-1"})
    more(cluster, records, partitions)
    paying = cluster.producer("paying")
    paying.init_transactions()
    for number in range(4):
        paying.begin()
        paying.send(NAME, f"paid{number}", partition=0)
        paying.flush()
        paying.abort() if number % 2 else paying.commit()
    return cluster


def more(cluster: EmbeddedCluster, records: int, partitions: int = 3) -> None:
    with cluster.producer() as producer:
        for number in range(records):
            value = None if number % 7 == 0 else b"" if number % 7 == 1 else f"v{number}".encode()
            key = None if number % 5 == 0 else b"" if number % 5 == 1 else f"k{number}".encode()
            headers = {"h": b"1", "empty": b""} if number % 3 else {}
            producer.send(NAME, value, key=key, partition=number % partitions, headers=headers)


def archive_of(bucket: Bucket) -> Archive:
    _ = bucket.east  # whoever binds a cluster makes the storage
    return Archive(bucket.storage, TopicLocation(NAME, KAFKA, 9), KAFKA, read_storage_id(bucket.storage))


def job(source: TopicLog, place: Archive, sink: Any = None, meanwhile: Callable[[], None] = lambda: None) -> ArchiveJob:
    """Archive a topic; `meanwhile` is the last that is done to it before everybody is shut out."""

    def block_producers() -> dict[int, int]:
        meanwhile()
        return {number: bounds.end for number, bounds in source.read_bounds().items()}

    return ArchiveJob(NAME, source, sink or ArchiveSink(place, 3), ArchiveLog(place), here(), block_producers)


TOPIC = ArchivedTopic(NAME, 3, 2, {"retention.ms": "-1"}, {"retention.ms": "-1"}, {"readers": {0: 3, 1: 4}})


def archived(bucket: Bucket, source: TopicLog, *, mark: str = CLAIM, sink: Any = None, **more: Any) -> ArchiveResult:
    """Archive a topic and let go of it."""
    place = archive_of(bucket)
    begin_archive(place, TOPIC, {number: each.start for number, each in source.read_bounds().items()}, mark)
    done = archive_records(job(source, place, sink and sink(place), **more))
    describe_archive(place, TOPIC, done.bounds)
    delete_unreferenced_objects(place)
    detach_archive(place, mark, now_ms=bucket.clock.now_ms)
    return done


def test_what_was_archived_is_mounted_elsewhere_record_by_record(bucket: Bucket) -> None:
    source = written(bucket).log(NAME)
    done = archived(bucket, source)
    assert done.records == 42
    bucket.mounted(f"{NAME}/{KAFKA}/9", NAME)
    assert compare_logs(here(), source, bucket.east.log(NAME), deep=True).is_equal
    offsets = bucket.east.groups.read_committed_offsets("readers", [NAME])
    assert offsets == {(NAME, 0): 3, (NAME, 1): 4}


def test_a_mounted_archive_is_unmounted_again_and_keeps_its_place(bucket: Bucket) -> None:
    source = written(bucket).log(NAME)
    archived(bucket, source)
    bucket.mounted(f"{NAME}/{KAFKA}/9", NAME)
    assert bucket.unmounted(NAME, "east") == f"{NAME}/{KAFKA}/9"
    place = archive_of(bucket)
    topic = claim_archive(place, NAME, "back", now_ms=1)
    assert (topic.partitions, list(topic.groups)) == (3, ["readers"])
    assert compare_logs(here(), source, ArchiveLog(place), deep=True).is_equal
    settle_claim(place, NAME, "back", now_ms=2)
    found = read_ownership(bucket.storage, place.location)
    assert found is not None
    assert (found.state, found.owner) == (OwnershipState.MOUNTED, KAFKA)


def test_what_a_cluster_puts_that_has_mounted_an_archive_is_left_alone(bucket: Bucket) -> None:
    archived(bucket, written(bucket).log(NAME))
    bucket.mounted(f"{NAME}/{KAFKA}/9", NAME)
    uploading = create_segment_key(archive_of(bucket).locate_partition(0).key_prefix, (100, 101), 3, 1)
    bucket.storage.put(uploading, b"not named yet")
    assert delete_unreferenced_objects(archive_of(bucket)) == 0
    assert bucket.storage.get(uploading) is not None


def test_an_archive_is_let_go_of_once_however_soon_it_is_mounted_and_unmounted_elsewhere(bucket: Bucket) -> None:
    archived(bucket, written(bucket).log(NAME))
    place = archive_of(bucket)
    bucket.mounted(f"{NAME}/{KAFKA}/9", NAME)
    found = detach_archive(place, CLAIM, now_ms=2)
    assert (found.state, found.owner) == (OwnershipState.MOUNTED, bucket.east.cluster_id)
    bucket.unmounted(NAME, "east")
    assert detach_archive(place, CLAIM, now_ms=3) == read_ownership(bucket.storage, place.location)


def test_who_has_claimed_it_first_has_it(bucket: Bucket) -> None:
    archived(bucket, written(bucket).log(NAME))
    place = archive_of(bucket)
    claim_archive(place, NAME, "first", now_ms=1)
    claim_archive(place, NAME, "first", now_ms=1)
    with pytest.raises(OwnershipLostError, match="being mounted on this cluster"):
        claim_archive(place, NAME, "second", now_ms=1)
    release_claim(place, "first", now_ms=2)
    claim_archive(place, NAME, "second", now_ms=3)
    settle_claim(place, NAME, "second", now_ms=4)
    settle_claim(place, NAME, "second", now_ms=4)


def test_an_archive_that_was_cut_short_is_gone_on_with(bucket: Bucket) -> None:
    source = written(bucket).log(NAME)
    place = archive_of(bucket)
    starts = {number: each.start for number, each in source.read_bounds().items()}
    for _ in range(2):
        begin_archive(place, TOPIC, starts, CLAIM)
    with pytest.raises(ZeroDivisionError):
        archive_records(job(source, place, Interrupted(ArchiveSink(place, 3), lambda: 1 // 0)))
    begin_archive(place, TOPIC, starts, CLAIM)
    assert archive_records(job(source, place)).records == 42
    begin_archive(place, TOPIC, starts, CLAIM)
    assert archive_records(job(source, place)).records == 0


def test_what_is_written_meanwhile_is_archived_too(bucket: Bucket) -> None:
    cluster = written(bucket)
    late = iter([9])
    done = archived(
        bucket,
        cluster.log(NAME),
        sink=lambda place: Interrupted(ArchiveSink(place, 3), lambda: more(cluster, next(late, 0))),
        meanwhile=lambda: more(cluster, 6),
    )
    assert done.records == 42 + 9 + 6
    bucket.mounted(f"{NAME}/{KAFKA}/9", NAME)
    assert compare_logs(here(), cluster.log(NAME), bucket.east.log(NAME), deep=True).is_equal


def test_what_comes_after_the_end_is_seen_and_ends_of_transactions_are_no_records(bucket: Bucket) -> None:
    cluster = written(bucket)
    log = cluster.log(NAME)
    ends = {number: bounds.end for number, bounds in log.read_bounds().items()}
    paying = cluster.producer("late")
    paying.init_transactions()
    paying.begin()
    paying.send(NAME, "undone", partition=2)
    paying.flush()
    paying.abort()
    assert log.read_bounds()[2].end > ends[2]
    assert find_changed_partitions(log, ends) == []
    more(cluster, 2)
    assert find_changed_partitions(log, ends) == [0, 1]
    assert find_changed_partitions(log, {0: log.read_bounds()[0].end}) == [1, 2]


def test_an_open_transaction_is_not_taken_for_the_end(bucket: Bucket) -> None:
    cluster, place = written(bucket), archive_of(bucket)
    paying = cluster.producer("late")
    paying.init_transactions()
    paying.begin()
    paying.send(NAME, "open", partition=2)
    paying.flush()
    begin_archive(place, TOPIC, {}, CLAIM)
    with pytest.raises(RetryableError, match="transactions are open on partitions 2"):
        archive_records(job(cluster.log(NAME), place))
    paying.commit()
    assert archive_records(job(cluster.log(NAME), place)).records == 1


def test_an_archive_that_differs_is_told_and_nothing_is_let_go_of(bucket: Bucket) -> None:
    cluster, place = written(bucket), archive_of(bucket)
    begin_archive(place, TOPIC, {}, CLAIM)
    archive_records(job(cluster.log(NAME), place))
    stranger = Bucket().cluster("stranger")
    stranger.create_topic(NAME, partitions=3)
    more(stranger, 200)
    with pytest.raises(UserError, match=r"the archive differs from the topic in partitions 0 \(from offset"):
        archive_records(job(stranger.log(NAME), place))


@dataclass(frozen=True)
class StoppedWhereCompared(ArchiveLog):
    """An archive during whose last comparison somebody asks to stop."""

    is_last: threading.Event = field(default_factory=threading.Event)
    is_stopped: threading.Event = field(default_factory=threading.Event)

    def read_bounds(self, only: Collection[int] | None = None) -> Mapping[int, Bounds]:
        if self.is_last.is_set():
            self.is_stopped.set()
        return super().read_bounds(only)


def test_what_was_not_compared_before_it_was_stopped_is_not_taken_for_equal(bucket: Bucket) -> None:
    cluster, place = written(bucket), archive_of(bucket)
    begin_archive(place, TOPIC, {}, CLAIM)
    copy = StoppedWhereCompared(place)

    def meanwhile() -> None:
        more(cluster, 6)
        copy.is_last.set()

    work = job(cluster.log(NAME), place, meanwhile=meanwhile)
    with pytest.raises(IncompleteError, match="comparing records was stopped"):
        archive_records(replace(work, copy=copy, engine=here(is_stopped=copy.is_stopped.is_set)))


@dataclass
class GroupRewrite:
    """A log of brokers that compact when they like: some records are gone once they have been copied."""

    log: TopicLog
    taken: frozenset[int]
    is_cleaned: bool = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    def may_lack_records(self) -> bool:
        return True

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        for batch in self.log.read(partition, offsets):
            gone = [self.is_cleaned and offset in self.taken for offset in batch.column("offset").to_pylist()]
            yield batch.filter(pa.array([not each for each in gone]))


@pytest.mark.parametrize(("taken", "is_equal"), [({0, 1}, True), ({3}, False)])
def test_what_brokers_compacted_after_it_was_archived_is_no_difference(
    bucket: Bucket, taken: set[int], *, is_equal: bool
) -> None:
    cluster, place = bucket.cluster("other"), archive_of(bucket)
    cluster.create_topic(NAME, partitions=1)
    with cluster.producer() as producer:
        for key, value in [("a", "0"), ("b", "1"), ("a", "2"), ("b", "3")]:
            producer.send(NAME, value, key=key.encode(), partition=0)
    source = GroupRewrite(cluster.log(NAME), frozenset(taken))
    begin_archive(place, replace(TOPIC, partitions=1), {}, CLAIM)

    def clean() -> None:
        source.is_cleaned = True

    sink = Interrupted(ArchiveSink(place, 1), clean)
    work = job(source, place, sink)
    if is_equal:
        assert archive_records(work).records == 4
    else:
        with pytest.raises(UserError, match=r"the archive differs from the topic in partitions 0 \(from offset 3\)"):
            archive_records(work)


def test_where_a_topic_lies_detached_nothing_is_archived(bucket: Bucket) -> None:
    cluster = written(bucket)
    archived(bucket, cluster.log(NAME))
    with pytest.raises(UserError, match="detached"):
        begin_archive(archive_of(bucket), TOPIC, {}, "again")


def test_another_time_replaces_what_the_place_held(bucket: Bucket) -> None:
    cluster = written(bucket)
    archived(bucket, cluster.log(NAME))
    place = archive_of(bucket)
    claim_archive(place, NAME, "here", now_ms=1)
    settle_claim(place, NAME, "here", now_ms=2)
    more(cluster, 10)
    assert archived(bucket, cluster.log(NAME), mark="c2").records == 52
    bucket.mounted(f"{NAME}/{KAFKA}/9", NAME)
    assert compare_logs(here(), cluster.log(NAME), bucket.east.log(NAME), deep=True).is_equal
    lying = [each.key for each in bucket.storage.list(f"topics/{KAFKA}/") if each.key.endswith(".parquet")]
    assert len(lying) == 3


def test_a_place_whose_tiering_was_switched_off_and_on_meanwhile_is_archived_to_again(bucket: Bucket) -> None:
    cluster = written(bucket)
    archived(bucket, cluster.log(NAME))
    bucket.mounted(f"{NAME}/{KAFKA}/9", NAME)
    bucket.east.alter_topic(NAME, {"remote.write": "false", "remote.read": "false"})
    bucket.east.finish_disablings()
    bucket.east.alter_topic(NAME, {"remote.write": "true", "remote.read": "true"})
    bucket.unmounted(NAME, "east")
    place = archive_of(bucket)
    claim_archive(place, NAME, "here", now_ms=1)
    settle_claim(place, NAME, "here", now_ms=2)
    more(cluster, 10)
    assert archived(bucket, cluster.log(NAME), mark="c2").records == 52
    bucket.mounted(f"{NAME}/{KAFKA}/9", NAME)
    assert compare_logs(here(), cluster.log(NAME), bucket.east.log(NAME), deep=True).is_equal


def test_another_storage_is_told_apart(bucket: Bucket) -> None:
    archived(bucket, written(bucket).log(NAME))
    other = Bucket()
    place = archive_of(other)
    with pytest.raises(UserError, match="there is no topic at"):
        claim_archive(place, NAME, "x", now_ms=1)
    with pytest.raises(UserError, match="object storage"):
        Archive(other.storage, place.location, KAFKA, "another").check_shared()
