"""Topics that were released while their cluster lived: what a plan says where they are still, and elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.archives.archive import release
from reconciler.archives.location import TopicLocation
from reconciler.objectstore.directory import DirectoryStore
from reconciler.planning.actions import Reason
from tests.embedded.samples import NOW
from tests.operations.stage import MountShop, cluster, errors_of, ids_of, mounting, topic

if TYPE_CHECKING:
    from conftest import Bench


@pytest.fixture
def shop(bench: Bench) -> MountShop:
    """Return two clusters, and a topic of west that was released and that west has still."""
    shop = MountShop(bench)
    shop.apply(west=cluster("west"), east=cluster("east"), orders=topic("orders", "west"))
    with shop.opened("west").producer() as producer:
        producer.send("shop:orders", b"v", key=b"k")
    shop.opened("west").upkeep().upload()
    location, owner = TopicLocation.parse(shop.location()), shop.opened("west").cluster_id
    release(DirectoryStore(bench.folder / "bucket"), location, owner, now_ms=NOW)
    return shop


def test_it_is_not_unmounted_where_it_is_still(shop: MountShop) -> None:
    shop.say(sleep=mounting("orders", "west", "unmounted"))
    (said,) = errors_of(shop.bench.plan())
    assert f"it is not cluster west's any more: {shop.location()} was released" in said
    assert "Delete it here, and what lies there stays" in said


def test_it_is_mounted_elsewhere(shop: MountShop) -> None:
    location = shop.location()
    shop.apply(wake=mounting("orders", "east", "mounted"))
    assert shop.location("shop:orders", "east") == location


def test_deleting_it_keeps_what_lies_in_object_storage_and_advises_no_unmount(shop: MountShop) -> None:
    shop.say(orders=None)
    planned = shop.bench.plan()
    assert ids_of(planned) == ["delete:topic/west/shop:orders"]
    (action,) = planned.plan.actions
    assert Reason.REMOTE_KEPT in action.reasons
    assert Reason.REMOTE_DELETED not in action.reasons
    assert action.blocked is not None
    assert action.blocked.instead is None
