"""Topics detached from a cluster and attached to another: nothing of them changes on the way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.archives.archive import release_archive
from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import Manifest, manifest_register, remote_partition
from reconciler.archives.recoverable import count_manifests
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import UserError
from reconciler.jobs.verify import compare_logs
from reconciler.objectstore.directory import DirectoryStore
from reconciler.records.log import OffsetRange
from tests.embedded.maintenance.tiny_segments import DAY, TWO_PARTS, copied, swept_later
from tests.embedded.mounts.readable_topics import seen
from tests.embedded.mounts.shared_bucket import CLICKS, Bucket
from tests.embedded.mounts.shared_bucket import Mount as BucketMount
from tests.embedded.samples import ids
from tests.embedded.stores import GIB, MIB, Counted, WatchedStore
from tests.embedded.tiered.tiered_cluster import BOTH
from tests.engines import here
from tests.servers.stores import ON_SERVERS_THOROUGHLY, fresh_store

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore, StoredObject


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.mark.fact("F-R-102", "F-R-109", "F-R-114")
def test_an_unmounted_topic_is_gone_here_and_can_be_mounted_by_its_location(bucket: Bucket) -> None:
    location = bucket.filled()
    assert bucket.unmounted() == location
    assert CLICKS not in bucket.west.topics()
    (found,) = bucket.east.mounts.list_detached()
    assert (str(found.location), found.state, found.records, found.partitions) == (location, "detached", 3, 1)


@pytest.mark.fact("F-R-104", "F-R-105", "F-R-106")
def test_clients_write_and_read_until_executing_and_not_from_then_on(bucket: Bucket) -> None:
    bucket.filled()
    mounts = bucket.west.mounts
    number = mounts.unmount(CLICKS, is_automatic=False)
    mounts.ask(number, "prepare")
    mounts.drive(number)
    _sent(bucket, b"late")
    assert len(bucket.values()) == 4
    mounts.ask(number, "execute")
    for act in (lambda: _sent(bucket, b"too late"), bucket.values):
        with pytest.raises(UserError, match="INVALID_TOPIC_EXCEPTION"):
            act()
    mounts.drive(number)
    mounts.ask(number, "finish")
    mounts.drive(number)
    bucket.mounted(str(bucket.east.mounts.list_detached()[0].location))
    assert [value for _, _, value in bucket.values(cluster="east")][-1] == b"late"


def _sent(bucket: Bucket, value: bytes) -> None:
    with bucket.west.producer() as producer:
        producer.send(CLICKS, value, partition=0)


def test_a_reader_that_was_under_way_does_not_take_the_end_of_the_topic_for_the_end_of_its_records(
    bucket: Bucket,
) -> None:
    bucket.filled()
    west = bucket.west
    log = west.log(CLICKS)
    assert log.read_bounds()[0].end == 3
    bucket.unmounted()
    west.finish_deletions()
    with pytest.raises(UserError, match="was deleted or unmounted"):
        list(log.read(0, OffsetRange(0, 3)))


# What mounting and unmounting ask of the stores: nothing that grows with bytes, a few requests for each partition.


# -- what it costs


@pytest.mark.fact("F-R-103")
def test_mounting_10_gib_takes_as_many_requests_as_mounting_1_mib() -> None:
    asked = []
    for stored_bytes in (MIB, 10 * GIB):
        it = Counted()
        location = it.detached(1)
        it.grown(location, stored_bytes)
        asked.append(it.asked(lambda it=it, location=location: it.bucket.mounted(location)))  # type: ignore[misc]
        head = it.bucket.east.log(CLICKS).read_head(0)
        assert head is not None
        assert (head.local_start, head.entries) == (head.end, ())
        held = manifest_register(it.storage, remote_partition(TopicLocation.parse(location), 0)).read()
        assert held is not None
        assert Manifest.from_json(held.value).stored_bytes == stored_bytes
    assert asked[0] == asked[1]
    assert sum(asked[0].values()) < 100
    assert not {"get_range", "put", "copy_from", "delete"} & asked[0].keys()


@pytest.mark.thorough
def test_each_partition_adds_the_same_few_requests_to_a_mount() -> None:
    few, some, many = (
        it.asked(lambda it=it, location=location: it.bucket.mounted(location))  # type: ignore[misc]
        for partitions in (1, 11, 101)
        for it in [Counted()]
        for location in [it.detached(partitions)]
    )
    per_ten = some - few
    assert sum(per_ten.values()) <= 60
    assert sum((many - some).values()) == 9 * sum(per_ten.values())
    assert per_ten["list"] == 0


@pytest.mark.thorough
def test_each_partition_adds_the_same_few_requests_to_an_unmount_and_none_where_it_was_never_written() -> None:
    uploading, alone = [], []
    for partitions in (1, 11, 101):
        it = Counted()
        location = it.bucket.filled(records=1, partitions=partitions)
        uploading.append(sum(it.asked(it.bucket.unmounted).values()))
        it.bucket.mounted(location)
        alone.append(sum(it.asked(lambda it=it: it.bucket.unmounted(cluster="east")).values()))  # type: ignore[misc]
    for most, (few, some, many) in ((320, uploading), (160, alone)):
        assert some - few <= most
        assert many - some <= 1.1 * 9 * (some - few)

    it = Counted()
    it.bucket.filled(records=0, partitions=500)
    assert sum(it.asked(it.bucket.unmounted).values()) < 650  # To read that nothing is there takes one GET each.


def test_an_unmount_uploads_only_what_is_not_there_yet() -> None:
    it = Counted()
    location = it.detached(3)
    it.bucket.mounted(location)
    written = {"put", "copy_from"}
    assert not written & it.asked(lambda: it.bucket.unmounted(cluster="east")).keys()
    it.bucket.mounted(location)
    with it.bucket.east.producer() as producer:
        producer.send(CLICKS, b"one more", partition=1)
    again = it.asked(lambda: it.bucket.unmounted(cluster="east"))
    assert again["put"] + again["copy_from"] == 2  # A segment and its index.


# -- side by side


class Meeting(WatchedStore):
    """A store that answers for some keys only when several ask for such at once."""

    def __init__(self, inner: ObjectStore, parties: int, waits: Callable[[str, str], bool]) -> None:
        super().__init__(inner)
        self.waits, self.met = waits, 0
        self._gate = threading.Barrier(parties, timeout=30)
        self._lock, self._left = threading.Lock(), parties

    def get(self, key: str) -> StoredObject | None:
        self._meet("get", key)
        return super().get(key)

    def swap(self, key: str, body: bytes, *, expected: Any) -> Any:
        self._meet("swap", key)
        return super().swap(key, body, expected=expected)

    def _meet(self, what: str, key: str) -> None:
        with self._lock:
            if not self._left or not self.waits(what, key):
                return
            self._left -= 1
        self._gate.wait()
        self.met += 1


@pytest.mark.parametrize("what", ["get", "swap"])
def test_partitions_are_mounted_and_unmounted_side_by_side(what: str) -> None:
    it = Bucket()
    location = it.filled(records=1, partitions=8)
    for cluster in ("west", "east"):
        met = Meeting(it.storage, 8, lambda does, key: does == what and key.endswith("manifest.json"))
        opened = it.cluster(cluster, storage=met)
        mounts = opened.mounts
        number = mounts.unmount(CLICKS) if cluster == "west" else mounts.mount(BucketMount(location, CLICKS))
        assert mounts.drive(number) is None
        assert met.met == 8


def test_heads_are_made_side_by_side() -> None:
    it = Bucket()
    location = it.filled(records=1, partitions=8)
    it.unmounted()
    it.east  # noqa: B018 - it is made
    met = Meeting(it.stores["east"], 8, lambda does, key: does == "swap" and key.startswith("heads/"))
    it.stores["east"] = met
    it.mounted(location)
    assert met.met == 8


@pytest.mark.parametrize("where", ["heads/", "mountable/", "topic.json"])
@pytest.mark.fact("F-R-118")
def test_topics_of_one_migration_are_mounted_and_unmounted_side_by_side(where: str) -> None:
    it = Bucket()
    names = [f"shop:eu:topic-{number}" for number in range(8)]
    locations = [it.filled(name, records=1) for name in names]
    it.east  # noqa: B018 - it is made

    def swaps(does: str, key: str) -> bool:
        return does == "swap" and where in key

    for cluster in ("west", "east"):
        mounts = it.cluster(cluster).mounts
        topics = [BucketMount(location, name) for name, location in zip(names, locations, strict=True)]
        number = (mounts.unmount if cluster == "west" else mounts.mount)(
            *(names if cluster == "west" else topics),  # type: ignore[arg-type]
            is_automatic=False,
        )
        mounts.ask(number, "prepare")
        mounts.drive(number)
        met = Meeting(it.stores[cluster] if where == "heads/" else it.storage, 8, swaps)
        if where == "heads/":
            it.stores[cluster] = met
        mounts = it.cluster(cluster, storage=it.storage if where == "heads/" else met).mounts
        for verb in ("execute", "finish"):
            mounts.ask(number, verb)
            mounts.drive(number)
        assert met.met == 8
        assert mounts.list_unfinished()[number].state == "finished"


@pytest.mark.soak
@pytest.mark.fact("F-R-118")
def test_1000_partitions_in_one_migration_take_seconds(tmp_path: Path) -> None:
    it = Bucket(storage=DirectoryStore(tmp_path / "bucket"))
    it.stores = {name: DirectoryStore(tmp_path / name) for name in ("west", "east")}
    for name in it.stores:
        opened = it.cluster(name)
        opened.alter_cluster({"cloud_storage_enabled": "true"})
        opened.create_namespace("shop")
        opened.create_namespace("shop:eu")
    location = it.filled(records=1, partitions=1000)
    took = {}
    for what, do in (
        ("unmount", it.unmounted),
        ("mount", lambda: it.mounted(location)),
        ("unmount again", lambda: it.unmounted(cluster="east")),
    ):
        began = time.perf_counter()
        do()
        took[what] = time.perf_counter() - began
    assert max(took.values()) < 120, took


# West, object storage, east under an alias, object storage, west: compared by `compare_logs`, on stores of every kind.


ALIAS = "archive:clicks-2025"
PAYING = "paying"


@pytest.fixture(params=ON_SERVERS_THOROUGHLY)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Bucket:
    """Clusters and object storage, all of one kind of store."""
    found = Bucket(fresh_store(request, tmp_path / "storage"))
    for name in ("west", "east"):
        found.cluster(name, store=fresh_store(request, tmp_path / name))
    return found


def frozen(bucket: Bucket) -> EmbeddedCluster:
    """Return west as it is now, whatever becomes of it."""
    storage: ObjectStore = copied(bucket.storage)
    store = copied(bucket.stores["west"])
    west = EmbeddedCluster.open(store, now_ms=bucket.clock, new_id=ids(), storage=storage)
    west.producer(PAYING).init_transactions()  # What is open is aborted, as an unmount does.
    return west


def fill_each(bucket: Bucket) -> list[str]:
    """Make a compacted, a transactional, an empty topic and one of a single record on west; return their names."""
    west = bucket.west
    small = {**BOTH, "segment.bytes": TWO_PARTS}
    compacted = {**small, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    west.create_topic("shop:compacted", configs=compacted)
    west.create_topic("shop:paid", partitions=2, configs=small)
    west.create_topic("shop:empty", partitions=3, configs=BOTH)
    west.create_topic("shop:single", configs=BOTH)
    for number in range(6):
        with west.producer() as producer:
            producer.send("shop:compacted", f"v{number}", key=f"k{number % 2}")
    paying = west.producer(PAYING)
    paying.init_transactions()
    for number in range(4):
        paying.begin()
        paying.send("shop:paid", f"v{number}", partition=number % 2)
        paying.flush()
        paying.abort() if number % 3 else paying.commit()
    paying.begin()
    paying.send("shop:paid", "never", partition=1)
    paying.flush()
    with west.producer() as producer:
        producer.send("shop:single", "one", key="k", headers={"h": b"1"})
    for job in ("roll", "upload", "compact"):
        getattr(west.upkeep(), job)()
    return ["shop:compacted", "shop:paid", "shop:empty", "shop:single"]


def test_a_round_trip_under_an_alias_changes_nothing(stored: Bucket) -> None:
    names = fill_each(stored)
    stored.east.create_namespace("archive")
    before, was = {name: seen(stored, name) for name in names}, frozen(stored)
    for name in names:
        location = stored.unmounted(name)
        stored.mounted(location, ALIAS)
        assert {**seen(stored, ALIAS, "east")} == before[name]
        assert stored.unmounted(ALIAS, "east") == location
        stored.mounted(location, name, "west")
        assert compare_logs(here(), was.log(name), stored.west.log(name), deep=True).is_equal
        assert seen(stored, name) == before[name]
    stored.west.finish_deletions()
    assert check_cluster(stored.west.store, deep=True, storage=stored.storage).findings == []


@pytest.mark.thorough
def test_a_topic_of_a_hundred_partitions_travels_whole(bucket: Bucket) -> None:
    bucket.filled(records=2, partitions=100)
    before, was = seen(bucket), frozen(bucket)
    bucket.east.create_namespace("archive")
    location = bucket.unmounted()
    bucket.mounted(location, ALIAS)
    bucket.unmounted(ALIAS, "east")
    bucket.mounted(location, cluster="west")
    assert compare_logs(here(), was.log(CLICKS), bucket.west.log(CLICKS), deep=True).is_equal
    assert seen(bucket) == before


@pytest.mark.fact("F-R-125")
def test_whatever_remote_delete_says_an_unmount_keeps_every_object(bucket: Bucket) -> None:
    bucket.filled(configs={"remote.delete": "true"})
    location = bucket.unmounted()
    objects = {each.key for each in bucket.storage.list("topics/") if each.key.endswith(".parquet")}
    for name in ("west", "east"):
        bucket.cluster(name).finish_deletions()
        swept_later(bucket.stores[name], bucket.clock)
        upkeep = bucket.cluster(name).upkeep()
        for job in (upkeep.retain, upkeep.roll, upkeep.upload, upkeep.compact, upkeep.merge):
            assert not job().failed
        bucket.cluster(name).sweep()
    assert {each.key for each in bucket.storage.list("topics/") if each.key.endswith(".parquet")} == objects
    bucket.mounted(location)
    assert len(bucket.values(cluster="east")) == 3


@pytest.mark.parametrize(("deletes", "left"), [("true", False), ("false", True)])
def test_a_mounted_topic_that_is_deleted_takes_its_objects_along_where_it_says_so(
    bucket: Bucket, deletes: str, *, left: bool
) -> None:
    bucket.filled("shop:kept")
    location = bucket.filled(configs={"remote.delete": deletes})
    bucket.mounted(bucket.unmounted())
    bucket.east.delete_topic(CLICKS)
    bucket.east.finish_deletions()
    revision = int(location.rpartition("/")[2])
    assert ((bucket.west.cluster_id, revision) in count_manifests(bucket.storage)) == left
    assert len(bucket.values("shop:kept")) == 3
    assert [each.state for each in bucket.west.mounts.list_detached()] == (["mounted"] if left else [])
    if left:
        with pytest.raises(UserError, match="is mounted on cluster") as refused:
            bucket.west.recover_topic("shop:again", location)
        assert "reconciler mount release" in refused.value.hint
        bucket.east.recover_topic("shop:again", location)
        assert len(bucket.values("shop:again", "east")) == 3


def test_recovery_copies_a_detached_topic_and_leaves_it_mountable(bucket: Bucket) -> None:
    bucket.filled()
    before = seen(bucket)
    location = bucket.unmounted()
    bucket.east.recover_topic("shop:copy", location)
    assert seen(bucket, "shop:copy", "east")["rows"] == before["rows"]
    bucket.mounted(location)
    assert seen(bucket, cluster="east") == before


def test_a_mounted_topic_grows_and_travels_on_with_its_new_partitions(bucket: Bucket) -> None:
    bucket.filled(partitions=2)
    bucket.mounted(bucket.unmounted())
    bucket.east.alter_topic(CLICKS, {}, partitions=4)
    with bucket.east.producer() as producer:
        producer.send(CLICKS, "new", partition=3)
    before = seen(bucket, cluster="east")
    bucket.mounted(bucket.unmounted(cluster="east"), cluster="west")
    assert seen(bucket) == before
    assert bucket.west.topic(CLICKS).partitions == 4


@pytest.mark.parametrize("policy", ["retain", "delete"])
def test_tiering_is_switched_off_after_a_mount_as_of_any_topic(bucket: Bucket, policy: str) -> None:
    bucket.filled()
    bucket.mounted(bucket.unmounted())
    with bucket.east.producer() as producer:
        producer.send(CLICKS, "local", partition=0)
    off = {"remote.write": "false", "remote.read": "false", "remote.log.disable.policy": policy}
    bucket.east.alter_topic(CLICKS, off)
    bucket.east.finish_disablings()
    values = [value for _, _, value in bucket.values(cluster="east")]
    assert values == ([b"v0", b"v1", b"v2", b"local"] if policy == "retain" else [b"local"])


def test_a_released_topic_whose_tiering_was_off_is_read_as_before(bucket: Bucket) -> None:
    location, mounts = bucket.filled(), bucket.west.mounts
    number = mounts.unmount(CLICKS, is_automatic=False)
    mounts.ask(number, "prepare")
    mounts.drive(number)
    mounts.cancel(number)
    bucket.west.upkeep().upload()
    bucket.west.alter_topic(CLICKS, {"remote.write": "false", "remote.read": "false"})
    bucket.west.finish_disablings()
    bucket.west.upkeep().upload()
    bucket.clock.now_ms += DAY
    release_archive(bucket.storage, TopicLocation.parse(location), bucket.west.cluster_id, now_ms=bucket.clock())
    bucket.mounted(location)
    assert [value for _, _, value in bucket.values(cluster="east")] == [b"v0", b"v1", b"v2"]
