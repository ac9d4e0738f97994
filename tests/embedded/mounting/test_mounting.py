"""Topics detached from a cluster and attached to another: nothing of them changes on the way."""

from __future__ import annotations

import pytest

from reconciler.embedded.mounts.mounts import Mount
from reconciler.errors import OwnershipLostError, UserError
from reconciler.records.log import OffsetRange
from tests.embedded.mounting.bucket import CLICKS, Bucket


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.mark.fact("F-R-102", "F-R-109", "F-R-114")
def test_an_unmounted_topic_is_gone_here_and_can_be_mounted_by_its_location(bucket: Bucket) -> None:
    location = bucket.filled()
    assert bucket.unmounted() == location
    assert CLICKS not in bucket.west.topics()
    (found,) = bucket.east.mounts.mountable()
    assert (str(found.location), found.state, found.records, found.partitions) == (location, "detached", 3, 1)


@pytest.mark.fact("F-R-103", "F-R-116")
def test_a_topic_comes_back_with_every_record_under_another_name_on_another_cluster(bucket: Bucket) -> None:
    bucket.filled(partitions=3)
    before = bucket.values()
    bucket.mounted(bucket.unmounted(), "shop:clicks-2025")
    assert bucket.values("shop:clicks-2025", "east") == before


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
    bucket.mounted(str(bucket.east.mounts.mountable()[0].location))
    assert [value for _, _, value in bucket.values(cluster="east")][-1] == b"late"


@pytest.mark.fact("F-R-111")
def test_a_topic_that_is_mounted_is_not_mounted_twice(bucket: Bucket) -> None:
    bucket.filled()
    location = bucket.unmounted()
    bucket.mounted(location)
    third = bucket.cluster("south")
    with pytest.raises(OwnershipLostError, match=f"mounted on cluster {bucket.east.cluster_id}"):
        third.mounts.mount(Mount(location, CLICKS))


@pytest.mark.fact("F-R-123")
def test_a_cancelled_unmount_leaves_a_topic_that_is_written_to_again(bucket: Bucket) -> None:
    bucket.filled()
    mounts = bucket.west.mounts
    number = mounts.unmount(CLICKS, is_automatic=False)
    for verb in ("prepare", "execute"):
        mounts.ask(number, verb)
        mounts.drive(number)
    mounts.cancel(number)
    _sent(bucket, b"again")
    assert len(bucket.values()) == 4


@pytest.mark.fact("F-R-123")
def test_a_cancelled_mount_leaves_a_topic_that_can_be_mounted(bucket: Bucket) -> None:
    bucket.filled()
    location = bucket.unmounted()
    mounts = bucket.east.mounts
    number = mounts.mount(Mount(location, CLICKS), is_automatic=False)
    for verb in ("prepare", "execute"):
        mounts.ask(number, verb)
        mounts.drive(number)
    mounts.cancel(number)
    assert CLICKS not in bucket.east.topics()
    bucket.mounted(location, cluster="south")
    assert len(bucket.values(cluster="south")) == 3


def _sent(bucket: Bucket, value: bytes) -> None:
    with bucket.west.producer() as producer:
        producer.send(CLICKS, value, partition=0)


def test_an_unmount_that_was_only_planned_lets_go_of_its_topic_when_it_is_deleted(bucket: Bucket) -> None:
    bucket.filled()
    mounts = bucket.west.mounts
    mounts.ask(mounts.unmount(CLICKS, is_automatic=False), "delete")
    assert bucket.west.topics()[CLICKS].hold is None
    assert mounts.under_way() == {}


def test_a_reader_that_was_under_way_does_not_take_the_end_of_the_topic_for_the_end_of_its_records(
    bucket: Bucket,
) -> None:
    bucket.filled()
    west = bucket.west
    log = west.log(CLICKS)
    assert log.bounds()[0].end == 3
    bucket.unmounted()
    west.finish_deletions()
    with pytest.raises(UserError, match="was deleted or unmounted"):
        list(log.read(0, OffsetRange(0, 3)))


@pytest.mark.fact("F-R-101")
def test_what_is_not_tiered_is_not_unmounted_and_nothing_of_it_changes(bucket: Bucket) -> None:
    bucket.filled(configs={"remote.write": "false"})
    before = bucket.west.catalog.read()
    with pytest.raises(UserError, match="no tiering that uploads: resources that are not eligible"):
        bucket.west.mounts.unmount(CLICKS)
    assert bucket.west.catalog.read() == before
    assert len(bucket.values()) == 3


@pytest.mark.fact("F-R-110")
def test_a_topic_that_is_being_mounted_is_there_and_serves_nobody(bucket: Bucket) -> None:
    bucket.filled()
    location, mounts = bucket.unmounted(), bucket.east.mounts
    number = mounts.mount(Mount(location, CLICKS), is_automatic=False)
    mounts.ask(number, "prepare")
    mounts.drive(number)
    assert mounts.under_way()[number].state == "prepared"
    assert CLICKS in bucket.east.topics()
    with pytest.raises(UserError, match="INVALID_TOPIC_EXCEPTION"):
        bucket.values(cluster="east")
    with pytest.raises(UserError, match="INVALID_TOPIC_EXCEPTION"), bucket.east.producer() as producer:
        producer.send(CLICKS, b"too early", partition=0)
