"""Clusters that race for one topic, and migrations that are cancelled, before and at each of their writes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pytest

from reconciler.archives.archive import release_archive
from reconciler.archives.location import TopicLocation
from reconciler.archives.ownership import read_ownership
from reconciler.errors import OwnershipLostError, ReconcilerError, RetryableError, UserError
from tests.embedded.mounts.migrants import (
    CLICKS,
    ORDERS,
    Bucket,
    Mount,
    check_mounted,
    deaths,
    detached,
    digests,
    drive,
    expected,
    filled,
    give_up,
    holders,
    look,
    manifest_owners,
    mount_both,
    owner_of,
    places,
    process,
    refusal,
    rivals,
    rows,
    send,
    swept,
    tail,
    undecided,
    without_threads,
)

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster


FOUND = (UserError, RetryableError)


@pytest.fixture(autouse=True)
def _one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch)


@pytest.mark.fact("F-R-111", "F-R-112")
def test_of_clusters_that_race_for_a_topic_before_every_write_one_wins() -> None:
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    detached(bucket)
    bucket.east.mounts.mount(Mount(locations[0], CLICKS))
    bucket.cluster("south").mounts.mount(Mount(locations[0], CLICKS))
    lost = 0
    for left, said in rivals(bucket, "east", drive, lambda now: _race(now, "south")):
        winner = owner_of(left, locations[0])
        assert winner in {"east", "south"}
        loser = "south" if winner == "east" else "east"
        if loser == "east":
            assert isinstance(said, OwnershipLostError)
            assert left.cluster(winner).cluster_id in str(said)
        else:
            assert said is None
        lost += loser == "east"
        look(left, locations[0])
        give_up(left, loser)
        assert left.cluster(loser).topics() == {}
        assert digests(left.cluster(winner), CLICKS) == expected()[CLICKS]
        assert manifest_owners(left, locations[0], 3) == {winner}
    assert lost > 3


def _race(bucket: Bucket, name: str) -> None:
    said = refusal(lambda: drive(bucket.cluster(name)))
    assert said is None or (isinstance(said, OwnershipLostError) and bucket.east.cluster_id in str(said))


@pytest.mark.fact("F-R-109", "F-R-112")
def test_what_lies_detached_can_be_mounted_at_once() -> None:
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    bucket.west.mounts.unmount(CLICKS, ORDERS)
    mounted: list[bool] = []

    def rival(now: Bucket) -> None:
        mounted.append(read_ownership(now.storage, TopicLocation.parse(locations[1])) is not None)
        if mounted[-1]:
            now.mounted(locations[1], ORDERS)

    for left, said in rivals(bucket, "west", drive, rival):
        assert said is None
        tail(left.west)
        for location, full_name in zip(locations, (CLICKS, ORDERS), strict=True):
            if holders(left, location) == []:
                left.mounted(location, full_name)
        check_mounted(left, locations)
    assert {True, False} == set(mounted)


@pytest.mark.thorough
@pytest.mark.fact("F-R-111")
def test_of_ten_clusters_one_wins_and_the_others_hear_who() -> None:
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    detached(bucket)
    names = [f"c{number}" for number in range(10)]
    for name in names:
        bucket.cluster(name).mounts.mount(Mount(locations[0], CLICKS))

    def chain(at: int) -> Callable[[str, str], None]:
        begun = []

        def next_one(_what: str, key: str) -> None:
            if key.startswith("mountable/") and not begun and at + 1 < len(names):
                begun.append(at)
                said.append(refusal(lambda: drive(process(bucket, names[at + 1], before=chain(at + 1)))))

        return next_one

    said: list[ReconcilerError | None] = []
    said.append(refusal(lambda: drive(process(bucket, names[0], before=chain(0)))))
    winner = owner_of(bucket, locations[0])
    assert winner is not None
    assert said.count(None) == 1
    assert all(
        isinstance(each, OwnershipLostError) and bucket.cluster(winner).cluster_id in str(each) for each in said if each
    )
    for name in names:
        if name != winner:
            give_up(bucket, name)
    assert holders(bucket, locations[0]) == [winner]


def _cancel_if_legal(bucket: Bucket, name: str) -> bool:
    cluster = bucket.cluster(name)
    for number in cluster.mounts.list_unfinished():
        said = refusal(partial(cluster.mounts.cancel, number))
        if said is not None:
            assert "cannot cancel" in str(said)
            return False
        cluster.mounts.ask(number, "delete")
        return True
    return False


@pytest.mark.fact("F-R-120", "F-R-121", "F-R-123")
def test_a_mount_that_is_cancelled_before_any_write_claims_nothing_any_more() -> None:
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    detached(bucket)
    bucket.east.mounts.mount(Mount(locations[0], CLICKS), Mount(locations[1], ORDERS))
    cancelled: list[bool] = []
    for left, said in rivals(bucket, "east", drive, lambda now: cancelled.append(_cancel_if_legal(now, "east"))):
        assert said is None or isinstance(said, FOUND)
        if not cancelled[-1]:
            tail(left.east)
            check_mounted(left, locations)
            continue
        tail(left.east)
        assert left.east.topics() == {}
        for location in locations:
            assert owner_of(left, location) is None
            assert manifest_owners(left, location, 3) == {"nobody"}
        mount_both(left, locations, "south")
        check_mounted(left, locations, "south")
    assert cancelled.count(True) > 5


@pytest.mark.thorough
@pytest.mark.fact("F-R-120", "F-R-121", "F-R-123")
def test_an_unmount_that_is_cancelled_before_any_write_takes_nothing_any_more() -> None:
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    bucket.west.mounts.unmount(CLICKS, ORDERS)
    cancelled: list[bool] = []
    producers = []

    def rival(now: Bucket) -> None:
        cancelled.append(_cancel_if_legal(now, "west"))
        if cancelled[-1]:
            send(now.west, CLICKS, "again", partition=1)
            producers.append(undecided(now.west, "shop:late", CLICKS, "later", partition=1))

    for left, said in rivals(bucket, "west", drive, rival):
        assert said is None or isinstance(said, FOUND)
        west = left.west
        if not cancelled[-1]:
            tail(west)
            mount_both(left, locations)
            check_mounted(left, locations)
            continue
        producers[-1].commit()
        send(west, CLICKS, "and again", partition=1)
        west.finish_transactions()
        assert not west.mounts.list_unfinished()
        found = [value for _, _, value in rows(west, CLICKS)]
        assert {b"a", b"b", b"c", b"again", b"and again", b"later"} <= set(found)
        assert owner_of(left, locations[0]) == "west"
        assert manifest_owners(left, locations[0], 3) <= {"west"}
    assert cancelled.count(True) > 10


@pytest.mark.fact("F-R-123", "F-R-124")
@pytest.mark.parametrize("state", ["preparing", "prepared", "executing", "executed"])
@pytest.mark.parametrize("name", ["west", "east"])
def test_a_cancel_that_died_at_any_write_is_finished_by_the_next(name: str, state: str) -> None:
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    number = _until(bucket, name, state, locations)
    for left in deaths(bucket, name, lambda cluster: cluster.mounts.cancel(number)):
        look(left, *locations)
        cluster = left.cluster(name)
        if cluster.mounts.list_unfinished()[number].state == state:
            cluster.mounts.cancel(number)
        tail(cluster)
        assert cluster.mounts.list_unfinished()[number].state == "cancelled"
        cluster.mounts.ask(number, "delete")
        if name == "west":
            assert manifest_owners(left, locations[0], 3) <= {"west"}
            send(cluster, CLICKS, "again")
            cluster.mounts.unmount(CLICKS, ORDERS)
            tail(cluster)
        assert cluster.topics() == {}
        assert [owner_of(left, location) for location in locations] == [None, None]


def _until(bucket: Bucket, name: str, state: str, locations: list[str]) -> int:
    """Bring a migration of both topics, out of `west` or into `east`, to a state, and return its id."""
    if name == "west":
        mounts = bucket.west.mounts
        number = mounts.unmount(CLICKS, ORDERS, is_automatic=False)
    else:
        detached(bucket)
        mounts = bucket.east.mounts
        number = mounts.mount(Mount(locations[0], CLICKS), Mount(locations[1], ORDERS), is_automatic=False)
    mounts.ask(number, "prepare")
    if state in {"prepared", "executing", "executed"}:
        mounts.drive(number)
    if state in {"executing", "executed"}:
        mounts.ask(number, "execute")
    if state == "executed":
        mounts.drive(number)
    assert mounts.list_unfinished()[number].state == state
    return number


# Topics taken from an owner that is gone, or lives after all: before and at each write there is one owner, or none.


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
    release_archive(cluster.storage, TopicLocation.parse(location), owner, now_ms=cluster.now_ms())


def _settled(left: Bucket, locations: list[str], *, is_released: bool) -> None:
    """See that what is released can be mounted by a third, and what is not is the second's."""
    east = left.east
    for number, migration in east.mounts.list_unfinished().items():
        refusal(partial(east.mounts.drive, number))
        if migration.state in {"executing", "executed"} and number in east.mounts.list_unfinished():
            east.mounts.cancel(number)
            east.mounts.ask(number, "delete")
    tail(east)
    assert {migration.state for migration in east.mounts.list_unfinished().values()} <= {"finished"}
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
        for number in west.mounts.list_unfinished():
            if isinstance(refusal(partial(west.mounts.drive, number)), OwnershipLostError):
                west.mounts.cancel(number)
        tail(west)
        assert {migration.state for migration in west.mounts.list_unfinished().values()} <= {"cancelled"}
        if CLICKS not in west.topics():
            mount_both(left, locations)
            check_mounted(left, locations)
