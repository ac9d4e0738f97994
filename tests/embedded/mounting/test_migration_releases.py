"""Topics taken from an owner that is gone, or lives after all: before and at each write there is one owner, or none."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.catalog.tiering_state import TopicLocation
from reconciler.embedded.mounts.mounts import release
from reconciler.errors import OwnershipLostError, ReconcilerError, RetryableError, UserError
from tests.embedded.mounting.migrants import (
    CLICKS,
    ORDERS,
    Bucket,
    Mount,
    check_mounted,
    detached,
    digests,
    expected,
    filled,
    manifest_owners,
    mount_both,
    owner_of,
    places,
    send,
    swept,
)
from tests.embedded.mounting.migrating import deaths, drive, give_up, refusal, rivals, tail, without_threads

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster

FOUND = (UserError, RetryableError)


@pytest.fixture(autouse=True)
def _one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The n-th write is the same one every time."""
    without_threads(monkeypatch)


@pytest.mark.fact("F-R-111")
def test_a_release_before_any_write_of_a_mount_leaves_one_owner_or_none() -> None:
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    detached(bucket)
    bucket.east.mounts.mount(Mount(locations[0], CLICKS), Mount(locations[1], ORDERS))
    refused: list[ReconcilerError | None] = []
    for left, said in rivals(bucket, "east", drive, lambda now: refused.append(_released(now, locations[0], "east"))):
        assert said is None or isinstance(said, FOUND), said
        _settled(left, locations, is_released=refused[-1] is None)
    assert refused.count(None) > 5


@pytest.mark.fact("F-R-111")
def test_a_mount_before_any_write_of_a_release_leaves_one_owner_or_none() -> None:
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    detached(bucket)
    bucket.cluster("south")
    mounts = bucket.east.mounts
    number = mounts.mount(Mount(locations[0], CLICKS), Mount(locations[1], ORDERS), is_automatic=False)
    for verb in ("prepare", "execute", "finish"):
        mounts.ask(number, verb)
        if verb != "finish":
            mounts.drive(number)
    for left, said in rivals(
        bucket,
        "south",
        lambda south: _release(south, locations[0], bucket.east.cluster_id),
        lambda now: refusal(lambda: drive(now.east)),
    ):
        assert said is None
        _settled(left, locations, is_released=True)


def _released(bucket: Bucket, location: str, owner: str) -> ReconcilerError | None:
    return refusal(lambda: _release(bucket.cluster("south"), location, bucket.cluster(owner).cluster_id))


def _release(cluster: EmbeddedCluster, location: str, owner: str) -> None:
    assert cluster.storage is not None
    release(cluster.storage, TopicLocation.parse(location), owner, now_ms=cluster.now_ms())


def _settled(left: Bucket, locations: list[str], *, is_released: bool) -> None:
    """See that what is released can be mounted by a third, and what is not is the second's."""
    east = left.east
    for number, migration in east.mounts.under_way().items():
        refusal(partial(east.mounts.drive, number))
        if migration.state in {"executing", "executed"} and number in east.mounts.under_way():
            east.mounts.cancel(number)
            east.mounts.ask(number, "delete")
    tail(east)
    assert {migration.state for migration in east.mounts.under_way().values()} <= {"finished"}
    if not is_released:
        check_mounted(left, locations)
        return
    if CLICKS in east.topics():  # It came after the last look: as any owner that lives, east is refused from now on.
        send(east, CLICKS, "lost", partition=0)
        east.mounts.unmount(CLICKS)
        assert isinstance(refusal(lambda: drive(east)), OwnershipLostError)
        give_up(left, "east")
        east.delete_topic(CLICKS)
    assert owner_of(left, locations[0]) is None
    assert manifest_owners(left, locations[0], 3) == {"nobody"}
    assert CLICKS not in east.topics()
    south = left.cluster("south")
    south.mounts.mount(Mount(locations[0], CLICKS))
    tail(south)
    assert digests(south, CLICKS) == expected()[CLICKS]
    assert manifest_owners(left, locations[0], 3) == {"south"}


@pytest.mark.fact("F-R-111")
def test_a_release_that_died_at_any_write_is_done_again_and_the_owner_that_lives_is_refused() -> None:
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    west = bucket.west
    west.finish_transactions()
    west.upkeep().upload()
    bucket.cluster("south")
    for left in deaths(bucket, "south", lambda south: _release(south, locations[1], west.cluster_id)):
        if owner_of(left, locations[1]) == "west":
            _release(left.cluster("south"), locations[1], west.cluster_id)
        assert manifest_owners(left, locations[1], 1) == {"nobody"}
        send(left.west, ORDERS, "lost", "lost too")
        left.west.upkeep().roll()
        (error, *_) = left.west.upkeep().upload().errors
        assert isinstance(error, OwnershipLostError)
        south = left.cluster("south")
        south.mounts.mount(Mount(locations[1], ORDERS))
        tail(south)
        assert owner_of(left, locations[1]) == "south"
        before = digests(south, ORDERS)
        for job in ("roll", "upload", "merge", "retain", "compact"):
            getattr(left.west.upkeep(), job)()
        left.west.delete_topic(ORDERS)
        swept(left, "west")
        assert digests(south, ORDERS) == before
        assert manifest_owners(left, locations[1], 1) == {"south"}


@pytest.mark.fact("F-R-109")
def test_a_release_before_any_write_of_an_unmount_lets_it_come_to_an_end() -> None:
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    bucket.west.mounts.unmount(CLICKS, ORDERS)
    for left, said in rivals(bucket, "west", drive, lambda now: _released(now, locations[0], "west")):
        assert said is None or isinstance(said, FOUND)
        west = left.west
        for number in west.mounts.under_way():
            if isinstance(refusal(partial(west.mounts.drive, number)), OwnershipLostError):
                west.mounts.cancel(number)
        tail(west)
        assert {migration.state for migration in west.mounts.under_way().values()} <= {"cancelled"}
        if CLICKS not in west.topics():
            mount_both(left, locations)
            check_mounted(left, locations)
