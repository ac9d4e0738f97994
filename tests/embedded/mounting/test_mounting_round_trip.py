"""West, object storage, east under an alias, object storage, west: compared by `verify`, on stores of every kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.tiered.recoverable import lying_in
from reconciler.errors import UserError
from reconciler.jobs.verify import verify
from tests.embedded.mounting.bucket import CLICKS, Bucket
from tests.embedded.samples import ids
from tests.embedded.tiered import BOTH
from tests.embedded.travelling import seen
from tests.embedded.upkeeping import DAY, TWO_PARTS, copied, swept_later
from tests.servers.stores import KINDS, fresh_store

if TYPE_CHECKING:
    from pathlib import Path

    from reconciler.objectstore.base import ObjectStore

ALIAS = "archive:clicks-2025"
PAYING = "paying"


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture(params=KINDS)
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
        assert verify(None, was.log(name), stored.west.log(name), deep=True).is_equal
        assert seen(stored, name) == before[name]
    stored.west.finish_deletions()
    assert check_cluster(stored.west.store, deep=True, storage=stored.storage).findings == []


def test_a_topic_of_a_hundred_partitions_travels_whole(bucket: Bucket) -> None:
    bucket.filled(records=2, partitions=100)
    before, was = seen(bucket), frozen(bucket)
    bucket.east.create_namespace("archive")
    location = bucket.unmounted()
    bucket.mounted(location, ALIAS)
    bucket.unmounted(ALIAS, "east")
    bucket.mounted(location, cluster="west")
    assert verify(None, was.log(CLICKS), bucket.west.log(CLICKS), deep=True).is_equal
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
    assert ((bucket.west.cluster_id, revision) in lying_in(bucket.storage)) == left
    assert len(bucket.values("shop:kept")) == 3
    assert [each.state for each in bucket.west.mounts.mountable()] == (["mounted"] if left else [])
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
    from reconciler.embedded.catalog.tiering_state import TopicLocation  # noqa: PLC0415
    from reconciler.embedded.mounts.mounts import release  # noqa: PLC0415

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
    release(bucket.storage, TopicLocation.parse(location), bucket.west.cluster_id, now_ms=bucket.clock())
    bucket.mounted(location)
    assert [value for _, _, value in bucket.values(cluster="east")] == [b"v0", b"v1", b"v2"]
