"""Clusters that race for one topic, and migrations that are cancelled, before and at each of their writes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.catalog.tiering_state import TopicLocation
from reconciler.embedded.tiered.ownership import read_ownership
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
    holders,
    look,
    manifest_owners,
    mount_both,
    owner_of,
    places,
    rows,
    send,
    undecided,
)
from tests.embedded.mounting.migrating import deaths, drive, give_up, process, refusal, rivals, tail, without_threads

if TYPE_CHECKING:
    from collections.abc import Callable


FOUND = (UserError, RetryableError)


@pytest.fixture(autouse=True)
def _one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The n-th write is the same one every time."""
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
    for number in cluster.mounts.under_way():
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
        assert not west.mounts.under_way()
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
        if cluster.mounts.under_way()[number].state == state:
            cluster.mounts.cancel(number)
        tail(cluster)
        assert cluster.mounts.under_way()[number].state == "cancelled"
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
    assert mounts.under_way()[number].state == state
    return number
