"""A migration whose process dies, or loses an answer, at any write: whoever comes next brings it to the same end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.embedded.mounting.migrants import (
    CLICKS,
    EXPECTED,
    ORDERS,
    Mount,
    check_mounted,
    detached,
    filled,
    holders,
    look,
    mount_both,
    places,
    rows,
    swept,
)
from tests.embedded.mounting.migrating import deaths, tail, without_threads

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster


@pytest.fixture(autouse=True)
def _one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The n-th write is the same one every time."""
    without_threads(monkeypatch)


def _unmount(cluster: EmbeddedCluster) -> None:
    cluster.mounts.drive(cluster.mounts.unmount(CLICKS, ORDERS))


@pytest.mark.fact("F-R-124", "F-R-107", "F-R-108")
def test_an_unmount_that_died_at_any_write_is_finished_by_the_next() -> None:
    bucket, points = filled(), 0
    locations = places(bucket, CLICKS, ORDERS)
    for left in deaths(bucket, "west", _unmount):
        points += 1
        look(left, *locations)
        west = left.west
        if CLICKS in west.topics() and not west.mounts.under_way():
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
        if not left.east.topics() and not left.east.mounts.under_way():
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
