"""A migration whose process dies, or loses an answer, at any write: whoever comes next brings it to the same end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.archives.location import TopicLocation
from reconciler.archives.topic_manifest import read_topic_manifest
from reconciler.objectstore import register
from tests.embedded.mounts.migrants import (
    CLICKS,
    EXPECTED,
    ORDERS,
    Bucket,
    Mount,
    check_mounted,
    deaths,
    detached,
    digests,
    drive,
    filled,
    holders,
    look,
    manifest_owners,
    mount_both,
    owner_of,
    places,
    rivals,
    rows,
    send,
    swept,
    tail,
    without_threads,
)

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster


@pytest.fixture(autouse=True)
def _one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch)


def _unmount(cluster: EmbeddedCluster) -> None:
    cluster.mounts.drive(cluster.mounts.unmount(CLICKS, ORDERS))


@pytest.mark.thorough
@pytest.mark.fact("F-R-124", "F-R-107", "F-R-108")
def test_an_unmount_that_died_at_any_write_is_finished_by_the_next() -> None:
    bucket, points = filled(), 0
    locations = places(bucket, CLICKS, ORDERS)
    for left in deaths(bucket, "west", _unmount):
        points += 1
        look(left, *locations)
        west = left.west
        if CLICKS in west.topics() and not west.mounts.list_unfinished():
            west.mounts.unmount(CLICKS, ORDERS)
        tail(west)
        assert west.topics() == {}
        assert [listed.key for listed in left.stores["west"].list("heads/")] == []
        swept(left, "west")
        assert [listed.key for listed in left.stores["west"].list("topics/")] == []
        assert holders(left, *locations) == []
        mount_both(left, locations)
        check_mounted(left, locations)
    assert points > 50


@pytest.mark.thorough
@pytest.mark.fact("F-R-124", "F-R-113")
def test_a_mount_that_died_at_any_write_is_finished_by_the_next() -> None:
    bucket, points = filled(), 0
    locations = places(bucket, CLICKS, ORDERS)
    detached(bucket)

    def mount(cluster: EmbeddedCluster) -> None:
        mounts = [Mount(locations[0], CLICKS), Mount(locations[1], ORDERS)]
        cluster.mounts.drive(cluster.mounts.mount(*mounts))

    for left in deaths(bucket, "east", mount):
        points += 1
        look(left, *locations)
        if not left.east.topics() and not left.east.mounts.list_unfinished():
            mount(left.east)
        tail(left.east)
        check_mounted(left, locations)
    assert points > 30


@pytest.mark.fact("F-R-103")
def test_nothing_died() -> None:
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    mount_both(detached(bucket), locations)
    assert {name: rows(bucket.east, name) for name in EXPECTED} == EXPECTED
    check_mounted(bucket, locations)


# Drivers that wake up late, whatever has become of the topic since: they take nothing and say nothing.


def _finished(bucket: Bucket) -> None:
    """Let others finish what is in progress on `west` and `east`."""
    for name in ("west", "east"):
        if name in bucket.stores:
            tail(bucket.cluster(name))


def _once_more(bucket: Bucket, name: str, to: str) -> None:
    location = bucket.location(CLICKS, name)
    for number in range(4):
        send(bucket.cluster(name), CLICKS, f"{name}{number}", partition=number % 3)
        bucket.cluster(name).upkeep().roll()
        bucket.cluster(name).upkeep().upload()
        bucket.cluster(name).groups.commit("shop:readers", {(CLICKS, 0): 3 + number})
    bucket.unmounted(CLICKS, name)
    if to:
        bucket.mounted(location, CLICKS, to)


JOURNEYS: dict[str, tuple[str, ...]] = {
    "nothing more": (),
    "mounted elsewhere": ("east",),
    "mounted here again": ("west",),
    "mounted elsewhere and here again": ("east", "west"),
    "detached again": ("east", ""),
    "mounted here, and detached again": ("west", ""),
    "mounted here twice": ("west", "west"),
}
SHORT = {"nothing more", "mounted here again"}


@pytest.mark.thorough
@pytest.mark.fact("F-R-124", "F-R-111")
@pytest.mark.parametrize(
    "journey", [each if each in SHORT else pytest.param(each, marks=pytest.mark.soak) for each in JOURNEYS]
)
def test_a_driver_of_an_unmount_that_wakes_up_late_takes_nothing(journey: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register, "MARKS", 8)
    bucket = filled()
    location = bucket.location(CLICKS)
    bucket.west.mounts.unmount(CLICKS)
    seen: list[object] = []

    def rival(now: Bucket) -> None:
        _finished(now)
        before = ""
        for name in JOURNEYS[journey]:
            if before:
                _once_more(now, before, name)
            else:
                now.mounted(location, CLICKS, name)
            before = name
        _finished(now)
        seen.append(_state(now, location))

    for left, said in rivals(bucket, "west", drive, rival):
        if said is not None:
            raise AssertionError from said
        assert _state(left, location) == seen[-1]
        _finished(left)
        assert _state(left, location) == seen[-1]


@pytest.mark.thorough
@pytest.mark.fact("F-R-124", "F-R-112")
@pytest.mark.parametrize(
    "journey", [None, "east", *(pytest.param(each, marks=pytest.mark.soak) for each in ("", "west"))]
)
def test_a_driver_of_a_mount_that_wakes_up_late_takes_nothing(
    journey: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register, "MARKS", 8)
    bucket = filled()
    location = bucket.location(CLICKS)
    detached(bucket)
    bucket.east.mounts.mount(Mount(location, CLICKS))
    seen: list[object] = []

    def rival(now: Bucket) -> None:
        _finished(now)
        if journey is not None:
            _once_more(now, "east", journey)
        _finished(now)
        seen.append(_state(now, location))

    for left, said in rivals(bucket, "east", drive, rival):
        if said is not None:
            raise AssertionError from said
        assert _state(left, location) == seen[-1]
        _finished(left)
        assert _state(left, location) == seen[-1]


def _state(bucket: Bucket, location: str) -> object:
    """Return who has the topic, what is readable of it there, where its group is, and what lies in the stores."""
    held = holders(bucket, location)
    owner = owner_of(bucket, location)
    assert held == ([] if owner is None else [owner])
    owners = manifest_owners(bucket, location, 3)
    assert owners == {owner or "nobody"}
    where = TopicLocation.parse(location)
    told = read_topic_manifest(bucket.storage, where.cluster_id, where.revision)
    assert told is not None
    heads = {name: [each.key for each in store.list("heads/")] for name, store in bucket.stores.items()}
    if owner is None:
        return told.owner, told.groups, heads
    cluster = bucket.cluster(owner)
    return told.owner, digests(cluster, CLICKS), cluster.groups.fetch("shop:readers"), heads
