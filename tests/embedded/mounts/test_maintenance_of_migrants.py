"""Upkeep beside migrations: topics that are closed, detached or another cluster's are left alone by every job."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from reconciler.archives.archive import release_archive
from reconciler.archives.keys import build_location_prefix
from reconciler.archives.location import TopicLocation
from reconciler.embedded.catalog.model import RewriteEntry
from reconciler.embedded.maintenance.passes import Upkeep, scrub_cluster
from reconciler.embedded.tiered.remote_sweep import MIN_AGE_MS
from reconciler.embedded.tiered.usage import StorageReport
from reconciler.errors import OwnershipLostError
from reconciler.resources.address import Address
from tests.embedded.mounts.shared_bucket import CLICKS, Bucket, Mount
from tests.embedded.stores import WatchedStore

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.embedded.maintenance.survey import MaintenanceResult
    from reconciler.objectstore.base import ObjectStore

SMALL = {"segment.bytes": "14", "retention.ms": "-1"}
EXPIRING = {**SMALL, "retention.bytes": "1", "retention.local.target.bytes": "1"}
COMPACTED = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
ROLLED = {"segment.bytes": "1500", "retention.ms": "-1"}
CONFIGS = {"retention": EXPIRING, "roll": ROLLED, "upload": SMALL, "compact": COMPACTED, "merge": SMALL, "scrub": SMALL}
"""Under which each job has something to do with a topic."""
JOBS: dict[str, Callable[[Upkeep], MaintenanceResult]] = {
    "retention": lambda upkeep: upkeep.retain(),
    "roll": lambda upkeep: upkeep.roll(),
    "upload": lambda upkeep: upkeep.upload(),
    "compact": lambda upkeep: upkeep.compact(),
    "merge": lambda upkeep: upkeep.merge(),
    "scrub": lambda upkeep: scrub_cluster(upkeep, ignores_interval=True),
}


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


def contents(store: ObjectStore, *, but: str = "runner/") -> dict[str, bytes]:
    """Return all of a store but for what upkeep remembers."""
    bodies = {listed.key: store.get(listed.key) for listed in store.list("")}
    return {key: stored.body for key, stored in bodies.items() if stored is not None and not key.startswith(but)}


def more(bucket: Bucket) -> None:
    """Append three parts of a record to each partition."""
    for number in range(3):
        with bucket.west.producer() as producer:
            for partition in range(2):
                producer.send(CLICKS, f"more-{number}".encode(), key=b"k", partition=partition)


def closed(bucket: Bucket, job: str, state: str = "executing") -> int:
    """Make a topic of `west` with which a job has something to do and that a migration closes; return that."""
    bucket.filled(CLICKS, 6, partitions=2, configs=CONFIGS[job])
    more(bucket)
    bucket.west.upkeep().upload()
    if job == "merge":
        bucket.west.alter_topic(CLICKS, {"segment.bytes": "12000"})
    mounts = bucket.west.mounts
    number = mounts.unmount(CLICKS, is_automatic=False)
    mounts.ask(number, "prepare")
    mounts.drive(number)
    more(bucket)
    mounts.ask(number, "execute")
    if state != "executing":
        mounts.drive(number)
    if job == "scrub":
        bucket.storage.delete([listed.key for listed in bucket.storage.list("") if listed.key.endswith(".index")])
    return number


def everything(cluster: EmbeddedCluster) -> None:
    upkeep = cluster.upkeep()
    for job in JOBS.values():
        assert job(upkeep).errors == []
    cluster.finish_rewrites()
    cluster.finish_disablings()
    cluster.finish_deletions()
    cluster.sweep()


# -- closed


@pytest.mark.parametrize("state", ["executing", "executed"])
@pytest.mark.parametrize("job", JOBS)
def test_a_closed_topic_is_left_alone_by_every_job(bucket: Bucket, job: str, state: str) -> None:
    closed(bucket, job, state)
    before = contents(bucket.stores["west"]), contents(bucket.storage)
    bucket.clock.now_ms += 10 * MIN_AGE_MS
    tended = JOBS[job](bucket.west.upkeep())
    assert (tended.partitions, tended.errors) == (0, [])
    assert (contents(bucket.stores["west"]), contents(bucket.storage)) == before


@pytest.mark.parametrize("job", JOBS)
def test_the_same_job_has_work_with_the_same_topic_once_it_is_open(bucket: Bucket, job: str) -> None:
    bucket.west.mounts.cancel(closed(bucket, job))
    bucket.clock.now_ms += 10 * MIN_AGE_MS
    before = contents(bucket.stores["west"]), contents(bucket.storage)
    tended = JOBS[job](bucket.west.upkeep())
    assert (tended.partitions, tended.errors) == (2, [])
    assert (contents(bucket.stores["west"]), contents(bucket.storage)) != before


def test_local_space_takes_nothing_from_a_closed_topic_and_takes_it_once_that_is_open(bucket: Bucket) -> None:
    number = closed(bucket, "upload", "executed")
    bucket.west.alter_cluster({"retention_local_target_capacity_bytes": "1"})
    before = contents(bucket.stores["west"])
    assert bucket.west.upkeep().retain().partitions == 0
    assert contents(bucket.stores["west"]) == before
    bucket.west.mounts.cancel(number)
    bucket.clock.now_ms += MIN_AGE_MS
    assert bucket.west.upkeep().retain().bytes > 0


def test_objects_of_a_closed_topic_are_written_anew_once_it_is_open(bucket: Bucket) -> None:
    number = closed(bucket, "upload")
    west = bucket.west
    topic_id = west.topic(CLICKS).id
    west.catalog.commit(lambda draft: draft.put_rewrite(topic_id, RewriteEntry(CLICKS)))
    before = contents(west.store)
    assert west.finish_rewrites() == 0
    assert contents(west.store) == before
    west.mounts.cancel(number)
    assert west.finish_rewrites() == 1


def test_the_sweep_takes_nothing_of_a_closed_topic(bucket: Bucket) -> None:
    number = closed(bucket, "upload")
    place = TopicLocation.parse(bucket.location())
    orphan = f"{build_location_prefix(place.cluster_id, place.revision)}00000/9-9-9-1-v1-orphan00.parquet"
    bucket.storage.put(orphan, b"x")
    aged(bucket)
    bucket.west.sweep()
    assert bucket.storage.get(orphan) is not None
    bucket.west.mounts.cancel(number)
    bucket.west.sweep()
    assert bucket.storage.get(orphan) is None
    assert len(bucket.values()) == 24


def aged(bucket: Bucket) -> None:
    """Let all that lies in object storage be old by its clock."""
    inner = bucket.storage

    class Later(WatchedStore):
        def read_clock_ms(self) -> int:
            return self.inner.read_clock_ms() + 10 * MIN_AGE_MS

    bucket.storage = Later(inner)


# -- detached, or another cluster's


@pytest.mark.parametrize("lost", ["nothing", "manifests", "everything that describes it"])
@pytest.mark.fact("F-R-125")
def test_no_upkeep_of_any_cluster_touches_what_lies_detached(bucket: Bucket, lost: str) -> None:
    location = TopicLocation.parse(
        bucket.filled(CLICKS, 6, partitions=2, configs={**EXPIRING, "remote.delete": "true"})
    )
    bucket.unmounted()
    bucket.west.finish_deletions()
    bucket.east  # noqa: B018 - it is made
    prefix = build_location_prefix(location.cluster_id, location.revision)
    gone = {"nothing": (), "manifests": ("manifest.json",)}.get(lost, ("manifest.json", "topic.json"))
    bucket.storage.delete(
        [listed.key for listed in bucket.storage.list(prefix) if listed.key.endswith(gone)] if gone else []
    )
    before = contents(bucket.storage)
    bucket.clock.now_ms += 10 * MIN_AGE_MS
    aged(bucket)
    for name in ("west", "east"):
        everything(bucket.cluster(name))
    assert contents(bucket.storage) == before


def test_the_first_owner_never_touches_what_is_mounted_elsewhere_and_the_new_one_looks_after_it(bucket: Bucket) -> None:
    location = TopicLocation.parse(bucket.filled(CLICKS, 6, configs=SMALL))
    bucket.unmounted()
    bucket.mounted(str(location))
    orphan = f"{build_location_prefix(location.cluster_id, location.revision)}00000/9-9-9-1-v1-orphan00.parquet"
    bucket.storage.put(orphan, b"x")
    before = contents(bucket.storage)
    aged(bucket)
    everything(bucket.west)
    assert contents(bucket.storage) == before
    bucket.east.sweep()
    assert contents(bucket.storage) == {key: body for key, body in before.items() if key != orphan}


def released(bucket: Bucket, configs: dict[str, str], *, is_mounted: bool) -> TopicLocation:
    """Make a topic of `west` that was taken from it, and written to since."""
    location = TopicLocation.parse(bucket.filled(CLICKS, 6, partitions=4, configs=configs))
    bucket.west.upkeep().upload()
    release_archive(bucket.storage, location, bucket.west.cluster_id, now_ms=bucket.clock())
    if is_mounted:
        bucket.mounted(str(location))
    with bucket.west.producer() as producer:
        for number in range(16):
            producer.send(CLICKS, f"late-{number}".encode(), key=b"k", partition=number % 4)
    return location


@pytest.mark.parametrize("is_mounted", [False, True])
@pytest.mark.parametrize("job", ["retention", "upload", "merge", "scrub"])
def test_the_jobs_of_who_lost_a_topic_say_so_once_and_change_nothing_of_it(
    bucket: Bucket,
    job: str,
    is_mounted: bool,  # noqa: FBT001 - a parameter
) -> None:
    released(bucket, CONFIGS[job], is_mounted=is_mounted)
    before = contents(bucket.storage)
    bucket.clock.now_ms += 10 * MIN_AGE_MS
    tended = JOBS[job](bucket.west.upkeep())
    (error,) = tended.errors
    assert isinstance(error, OwnershipLostError)
    assert tended.failed == 1
    whose = f"cluster {bucket.east.cluster_id} now" if is_mounted else "no cluster now: it was released"
    assert error.message.startswith(f"{CLICKS}: ") or error.message.startswith(f"topic {CLICKS}")
    assert error.message.endswith(f"belongs to {whose}")
    assert error.hint is not None
    assert "delete the topic here" in error.hint
    assert contents(bucket.storage) == before


def test_a_pass_says_once_that_a_topic_is_lost_whichever_job_finds_it_and_the_next_pass_says_it_again(
    bucket: Bucket,
) -> None:
    released(bucket, EXPIRING, is_mounted=True)
    for _ in range(2):
        bucket.clock.now_ms += 10 * MIN_AGE_MS
        upkeep = bucket.west.upkeep()
        done = [job(upkeep) for job in JOBS.values()]
        assert [type(error) for each in done for error in each.errors] == [OwnershipLostError]
        assert sum(each.failed for each in done) == 1


def test_a_deletion_of_what_belongs_to_another_deletes_here_alone(bucket: Bucket) -> None:
    released(bucket, {**SMALL, "remote.delete": "true"}, is_mounted=True)
    before, values = contents(bucket.storage), bucket.values(cluster="east")
    bucket.west.delete_topic(CLICKS)
    assert bucket.west.finish_deletions() == 0
    bucket.west.sweep()
    assert contents(bucket.storage) == before
    assert bucket.values(cluster="east") == values
    assert not [key for key in contents(bucket.stores["west"]) if key.startswith(("heads/", "topics/"))]


# -- what is shown meanwhile


def test_a_topic_is_shown_at_every_step_of_its_way(bucket: Bucket) -> None:
    """`topic storage` and the metrics are of the same report: it can be had of what is closed, and has no heads yet."""
    location = bucket.filled(CLICKS, 6, partitions=2)
    number = bucket.west.mounts.unmount(CLICKS, is_automatic=False)
    shown = [report(bucket, "west")]
    mounts = bucket.west.mounts
    for verb in ("prepare", "execute"):
        mounts.ask(number, verb)
        shown.append(report(bucket, "west"))
        mounts.drive(number)
        shown.append(report(bucket, "west"))
    assert [records for records, _ in shown] == [12] * 5
    assert shown[-1] == (12, 0)
    mounts.ask(number, "finish")
    assert report(bucket, "west") == (12, 0)
    assert mounts.drive(number) is not None
    assert CLICKS not in bucket.west.topics()

    mounts = bucket.east.mounts
    number = mounts.mount(Mount(location, CLICKS), is_automatic=False)
    for verb, records in (("prepare", 0), ("execute", 0), ("finish", 12)):
        mounts.ask(number, verb)
        mounts.drive(number)
        assert report(bucket, "east") == (records, 0)


def report(bucket: Bucket, cluster: str) -> tuple[int, int]:
    """Return how many records a topic has, and how many bytes of it wait to be uploaded."""
    opened = bucket.cluster(cluster)
    topics = StorageReport(opened.store, bucket.storage, opened.catalog.read(), opened.cluster_id)
    (topic,) = topics.report_topics({CLICKS: Address(f"topic/west/{CLICKS}")})
    assert not [each.problem for each in topic.partitions if each.problem]
    return sum(each.log_records for each in topic.partitions), sum(each.pending_bytes or 0 for each in topic.partitions)
