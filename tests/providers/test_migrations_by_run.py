"""What `run` and `mount status` say of migrations: what came further, what failed, and what keeps the others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from reconciler.archives.archive import release_archive
from reconciler.archives.location import TopicLocation
from reconciler.embedded.mounts.mounts import Mount
from reconciler.errors import OwnershipLostError
from tests.embedded.mounts.shared_bucket import CLICKS
from tests.providers.mounting import World, mount

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tables import Draft

ORDERS = "shop:eu:orders"


@pytest.fixture
def world() -> World:
    """Two clusters on one object storage."""
    return World()


def executed(world: World, *names: str) -> int:
    """Bring a mount on `east` that is told what to do as far as to `executed`; return its id."""
    mounts = world.bucket.east.mounts
    found = [Mount(world.bucket.filled(name), name) for name in names]
    for name in names:
        world.bucket.unmounted(name)
    number = mounts.mount(*found, is_automatic=False)
    for verb in ("prepare", "execute"):
        mounts.ask(number, verb)
        mounts.drive(number)
    assert world.states("east") == ["executed"]
    return number


def by_itself(world: World, number: int, mounting: str | None = None) -> None:
    """Let a migration go on by itself from here on, asked for by a Mounting."""

    def change(draft: Draft) -> None:
        found = draft.migrations[str(number)]
        topics = tuple(replace(topic, mounting=mounting) for topic in found.topics)
        draft.put_migration(number, replace(found, topics=topics, is_automatic=True))

    world.bucket.east.catalog.commit(change)


def released(world: World, full_name: str = CLICKS) -> None:
    (location,) = [str(each.location) for each in world.bucket.east.mounts.list_detached() if each.name == full_name]
    release_archive(world.bucket.storage, TopicLocation.parse(location), world.bucket.east.cluster_id, now_ms=1)


@pytest.mark.fact("F-R-111")
@pytest.mark.parametrize("is_automatic", [True, False])
def test_a_mount_that_lost_its_topic_in_the_cut_is_told_as_an_error(world: World, *, is_automatic: bool) -> None:
    number = executed(world, CLICKS, ORDERS)
    world.bucket.east.mounts.ask(number, "finish")
    if is_automatic:
        by_itself(world, number)
    released(world)
    upkept = world.finish("east")
    assert (upkept.done, upkept.failed) == (0, 1)
    (error,) = upkept.errors
    assert isinstance(error, OwnershipLostError)
    assert error.message.startswith(f"migration {number}: ")
    assert error.message.endswith(f"; not mounted: {CLICKS}")
    assert sorted(world.bucket.east.topics()) == [ORDERS]
    assert world.states("east") == ([] if is_automatic else ["finished"])


def test_each_step_of_what_is_told_what_to_do_is_counted_once(world: World) -> None:
    world.bucket.filled()
    mounts = world.bucket.west.mounts
    number = mounts.unmount(CLICKS, is_automatic=False)
    for verb, state in (("prepare", "prepared"), ("execute", "executed"), ("finish", "finished")):
        mounts.ask(number, verb)
        assert [world.finish("west").done for _ in range(2)] == [1, 0]
        assert world.states() == [state]


@pytest.mark.parametrize("verbs", [(), ("finish",)])
def test_a_mount_whose_claim_is_gone_says_that_this_is_what_keeps_it(world: World, verbs: tuple[str, ...]) -> None:
    number = executed(world, CLICKS)
    for verb in verbs:
        world.bucket.east.mounts.ask(number, verb)
    (before,) = world.provider("east").migrations.list_unfinished()
    assert not any("is gone" in each for each in before.waits)
    released(world)
    (after,) = world.provider("east").migrations.list_unfinished()
    assert "was released: the claim of this cluster no longer exists" in after.waits[0]


@pytest.mark.fact("F-R-111")
def test_an_apply_that_is_told_so_mounts_the_topic_the_next_time(world: World) -> None:
    number = executed(world, CLICKS)
    by_itself(world, number, CLICKS)
    (location,) = [str(each.location) for each in world.bucket.east.mounts.list_detached()]
    world.bucket.east.mounts.ask(number, "finish")
    released(world)
    action = mount(location)
    assert isinstance(world.refused("east", action), OwnershipLostError)
    world.done("east", action)
    assert len(world.bucket.values(cluster="east")) == 3
