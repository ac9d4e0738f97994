"""Mounts and unmounts of a plan carried out on embedded clusters: to their end, undone, or gone on with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from reconciler.archives.location import TopicLocation
from reconciler.archives.ownership import read_ownership
from reconciler.embedded.catalog.model import AclEntry
from reconciler.embedded.mounts.mounts import Mount
from reconciler.errors import (
    IncompleteError,
    LeaseError,
    NewerFormatError,
    NotAuthorizedError,
    OwnershipLostError,
    RetryableError,
    UserError,
)
from reconciler.providers.protocol import CompletedAction, FailedAction, Scope
from reconciler.resources.address import Address
from reconciler.resources.mount import MIGRATING, Mounting
from tests.embedded.mounts.shared_bucket import CLICKS
from tests.embedded.tiered.tiered_cluster import BOTH
from tests.providers.mounting import Lease, World, errors, mount, unmount

TIMEOUT_MS = 60_000


@pytest.fixture
def world() -> World:
    return World()


def when(world: World, state: str, do: Callable[[], object], cluster: str = "west") -> Callable[[], None]:
    """Return what does something once, when a migration of a cluster has come to a state."""
    is_done = False

    def may_go_on() -> None:
        nonlocal is_done
        if not is_done and state in world.states(cluster):
            is_done = True
            do()

    return may_go_on


def pass_time(world: World) -> None:
    world.bucket.clock.now_ms += TIMEOUT_MS + 1


# -- to the end


@pytest.mark.fact("F-R-102", "F-R-103", "F-R-116")
def test_a_topic_is_unmounted_here_and_mounted_there_under_an_alias(world: World) -> None:
    location = world.bucket.filled(partitions=2)
    before = world.bucket.values()
    assert world.done("west", unmount()).incarnation is None
    assert world.states() == []
    assert CLICKS not in world.bucket.west.topics()
    done = world.done("east", mount(location, alias="clicks-2025"))
    topic = world.bucket.east.topics()["shop:eu:clicks-2025"]
    assert done.incarnation == topic.id
    assert world.bucket.values("shop:eu:clicks-2025", "east") == before


def test_what_a_mount_needs_may_be_written_without_the_namespace(world: World) -> None:
    location = world.bucket.filled()
    world.done("west", unmount())
    short = location.rpartition(":")[2]
    assert world.done("east", mount(short)) == world.done("east", mount(short))


@pytest.mark.fact("F-R-124")
def test_an_unmount_whose_lease_was_lost_at_any_moment_is_finished_by_repeating_it(world: World) -> None:
    for at in range(1000):
        world = World()
        location = world.bucket.filled()
        lease = Lease(at)
        if lost(world, "west", unmount(source=location), lease):
            world.done("west", unmount(source=location))
        assert world.states() == []
        assert CLICKS not in world.bucket.west.topics()
        world.done("east", mount(location))
        assert len(world.bucket.values(cluster="east")) == 3
        if lease.asked <= at:
            break
    assert at > 10


@pytest.mark.fact("F-R-124")
def test_a_mount_whose_lease_was_lost_at_any_moment_is_finished_by_repeating_it(world: World) -> None:
    for at in range(1000):
        world = World()
        location = world.bucket.filled()
        world.bucket.unmounted()
        lease = Lease(at)
        if lost(world, "east", mount(location), lease):
            world.done("east", mount(location))
        assert world.states("east") == []
        assert len(world.bucket.values(cluster="east")) == 3
        if lease.asked <= at:
            break
    assert at > 10


def lost(world: World, cluster: str, action: object, lease: Lease) -> bool:
    """Carry out an action under a lease that may be lost; say whether it was."""
    try:
        (outcome,) = world.apply(cluster, action, may_go_on=lease)  # type: ignore[arg-type]  # it is one
    except LeaseError:
        return True
    if isinstance(outcome, FailedAction):
        assert isinstance(outcome.error, LeaseError)
        return True
    return False


@pytest.mark.fact("F-R-118")
def test_a_batch_goes_side_by_side_and_one_that_fails_stops_no_other(world: World) -> None:
    names = [f"shop:eu:t{number:02}" for number in range(24)]
    world.bucket.filled()
    for name in names:
        world.bucket.filled(name, 1)
    outcomes = world.apply("west", *[unmount(name) for name in [*names, "shop:eu:none"]])
    assert [error.partition(",")[0] for error in errors(outcomes)] == ["there is no topic shop:eu:none"]
    assert list(world.bucket.west.topics()) == [CLICKS]


# -- what is there already


@pytest.mark.fact("F-R-117")
def test_a_topic_of_that_name_that_came_from_elsewhere_is_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    location = world.bucket.filled()
    world.done("west", unmount())
    world.bucket.east.create_topic(CLICKS, configs=BOTH)
    assert f"is not the one of {location}" in world.refused("east", mount(location)).message
    assert [(record.levelname, record.name) for record in caplog.records if location in record.getMessage()] == [
        ("WARNING", "reconciler.providers")
    ]
    world.bucket.west.create_topic(CLICKS, configs=BOTH)
    assert f"is not the one of {location}" in world.refused("west", unmount(source=location)).message


def test_a_topic_that_is_gone_and_was_never_unmounted_is_told(world: World) -> None:
    location = world.bucket.filled()
    world.bucket.west.delete_topic(CLICKS)
    for action in (unmount(source=location), unmount()):
        assert "no record of its unmounting" in world.refused("west", action).message


def test_what_somebody_else_began_is_left_to_them(world: World) -> None:
    world.bucket.filled()
    number = world.bucket.west.mounts.unmount(CLICKS)
    assert f"data migration {number}" in world.refused("west", unmount()).message
    assert world.states() == ["planned"]


def test_a_cancelled_migration_gives_way_to_a_new_one(world: World) -> None:
    world.bucket.filled()
    mounts = world.bucket.west.mounts
    number = mounts.unmount(CLICKS, mounting=CLICKS)
    mounts.ask(number, "prepare")
    mounts.cancel(number)
    assert world.states() == ["cancelled"]
    world.done("west", unmount())
    assert world.states() == []
    assert CLICKS not in world.bucket.west.topics()


def test_what_somebody_cancels_meanwhile_is_not_done(world: World) -> None:
    world.bucket.filled()

    def cancel() -> None:
        mounts = world.bucket.west.mounts
        mounts.cancel(next(iter(mounts.list_unfinished())))

    error = world.refused("west", unmount(), when(world, "prepared", cancel))
    assert "was cancelled" in error.message
    assert CLICKS in world.bucket.west.topics()


# -- what takes too long


@pytest.mark.parametrize("state", ["planned", "preparing", "prepared", "executing"])
def test_an_unmount_that_takes_too_long_is_undone(world: World, state: str) -> None:
    world.bucket.filled()
    action = unmount(timeout_ms=TIMEOUT_MS)
    error = world.refused("west", action, when(world, state, lambda: pass_time(world)))
    assert isinstance(error, UserError)
    assert f"is still {state} after 1m" in error.message
    assert "the topic is here, as it was" in error.message
    assert world.states() == []
    world.bucket.filled("shop:eu:other")
    with world.bucket.west.producer() as producer:
        producer.send(CLICKS, b"again", partition=0)
    assert len(world.bucket.values()) == 4


@pytest.mark.parametrize("state", ["planned", "preparing", "prepared", "executing"])
def test_a_mount_that_takes_too_long_is_undone(world: World, state: str) -> None:
    location = world.bucket.filled()
    world.done("west", unmount())
    action = mount(location, timeout_ms=TIMEOUT_MS)
    error = world.refused("east", action, when(world, state, lambda: pass_time(world), "east"))
    assert f"is still {state} after 1m" in error.message
    assert "nothing is mounted" in error.message
    assert world.states("east") == []
    assert CLICKS not in world.bucket.east.topics()
    world.done("south", mount(location, cluster="south"))


@pytest.mark.parametrize("state", ["executed", "cut_over", "finished"])
def test_what_was_executed_is_finished_however_long_it_takes(world: World, state: str) -> None:
    location = world.bucket.filled()
    world.done("west", unmount(timeout_ms=TIMEOUT_MS), when(world, state, lambda: pass_time(world)))
    action = mount(location, timeout_ms=TIMEOUT_MS)
    world.done("east", action, when(world, state, lambda: pass_time(world), "east"))


# -- what cannot be


@pytest.mark.fact("F-R-111")
def test_a_lost_claim_fails_at_once_and_names_the_owner(world: World) -> None:
    location = world.bucket.filled()
    world.done("west", unmount())
    error = world.refused(
        "east",
        mount(location),
        when(world, "prepared", lambda: world.bucket.mounted(location, cluster="south"), "east"),
    )
    assert isinstance(error, OwnershipLostError)
    assert f"mounted on cluster {world.bucket.cluster('south').cluster_id}" in error.message
    assert "nothing is mounted" in error.message
    assert world.states("east") == []
    assert CLICKS not in world.bucket.east.topics()
    assert len(world.bucket.values(cluster="south")) == 3


@pytest.mark.fact("F-R-111")
def test_a_topic_that_another_cluster_has_is_refused_before_anything_begins(world: World) -> None:
    location = world.bucket.filled()
    world.done("west", unmount())
    world.bucket.mounted(location, cluster="south")
    assert isinstance(world.refused("east", mount(location)), OwnershipLostError)
    assert world.states("east") == []


def test_a_mount_of_what_a_newer_version_wrote_or_somebody_deleted_is_undone(world: World) -> None:
    location = world.bucket.filled()
    world.done("west", unmount())
    storage, place = world.bucket.storage, location.partition("/")[2]
    kept = storage.get(f"topics/{place}/topic.json")
    assert kept is not None

    def write_newer() -> None:
        storage.put(f"topics/{place}/topic.json", b'{"format": "reconciler.topic/9"}')

    assert isinstance(
        world.refused("east", mount(location), when(world, "planned", write_newer, "east")), NewerFormatError
    )
    storage.put(f"topics/{place}/topic.json", bytes(kept.body))

    def lose() -> None:
        storage.delete([listed.key for listed in storage.list(f"topics/{place}/") if listed.key.endswith(".parquet")])

    error = world.refused("east", mount(location), when(world, "executing", lose, "east"))
    assert "is not there" in error.message
    owner = read_ownership(storage, TopicLocation.parse(location))
    assert owner is not None
    assert owner.state == "detached"
    assert world.states("east") == []


def test_an_unmount_whose_uploads_are_switched_off_is_undone(world: World) -> None:
    world.bucket.filled()

    def switch_off() -> None:
        world.bucket.west.alter_cluster({"cloud_storage_enable_segment_uploads": "false"})

    error = world.refused("west", unmount(), when(world, "planned", switch_off))
    assert "uploads are switched off" in error.message
    assert "the topic is here, as it was" in error.message
    assert world.states() == []
    with world.bucket.west.producer() as producer:
        producer.send(CLICKS, b"again", partition=0)


def test_what_cannot_be_undone_now_is_undone_by_whoever_comes_next(world: World) -> None:
    world.bucket.filled()

    def refuse() -> None:
        raise RetryableError("object storage does not answer", hint="Try again.")

    late = when(world, "executing", lambda: pass_time(world))
    away = when(world, "canceling", refuse)

    def may_go_on() -> None:
        late()
        away()

    error = world.refused("west", unmount(timeout_ms=TIMEOUT_MS), may_go_on)
    assert isinstance(error, RetryableError)
    assert "is still executing after 1m; migration 2 is not undone yet: object storage does not" in error.message
    assert world.states() == ["canceling"]
    assert "was cancelled" in world.refused("west", unmount()).message
    with world.bucket.west.producer() as producer:
        producer.send(CLICKS, b"again", partition=0)
    world.done("west", unmount())


def test_a_store_that_does_not_answer_leaves_it_to_whoever_comes_next(world: World) -> None:
    world.bucket.filled()

    def refuse() -> None:
        raise RetryableError("object storage does not answer", hint="Try again.")

    assert isinstance(world.refused("west", unmount(), when(world, "executing", refuse)), RetryableError)
    assert world.states() == ["executing"]
    upkept = world.finish("west")
    assert (upkept.unit, upkept.done, upkept.failed) == ("topic", 1, 0)
    assert CLICKS not in world.bucket.west.topics()


def test_a_cluster_without_object_storage_refuses(world: World) -> None:
    world.bucket.filled()
    location = world.bucket.unmounted()
    for action in (mount(location, cluster="bare"), unmount(cluster="bare")):
        (outcome,) = world.bare("bare").apply([action])
        assert isinstance(outcome, FailedAction)
        assert isinstance(outcome.error, UserError)


def test_without_its_object_storage_nothing_is_undone(world: World) -> None:
    world.bucket.filled()
    world.bucket.west.mounts.unmount(CLICKS, mounting=CLICKS)
    (outcome,) = world.bare("west").apply([unmount()])
    assert isinstance(outcome, FailedAction)
    assert "no object storage" in outcome.error.message
    assert world.states() == ["preparing"]


# -- what is seen


def test_a_migration_is_seen_as_its_mounting_and_its_topic_as_migrating(world: World) -> None:
    location = world.bucket.filled()
    mounts = world.bucket.west.mounts
    number = mounts.unmount(CLICKS, mounting="shop:eu:asleep")
    seen = world.observed("west")
    assert seen["topic/west/shop:eu:clicks"].state == MIGRATING
    found = seen["mounting/west/shop:eu:asleep"]
    assert isinstance(found.resource, Mounting)
    assert (found.state, found.resource.spec.state, found.resource.topic_name) == ("planned", "unmounted", CLICKS)
    assert found.resource.spec.source == location
    assert list(world.observed("west", "mounting/west/shop:eu:asleep")) == ["mounting/west/shop:eu:asleep"]
    mounts.ask(number, "delete")
    assert "mounting/west/shop:eu:asleep" not in world.observed("west")
    assert world.observed("west")["topic/west/shop:eu:clicks"].state == "ENABLED"


def test_a_planned_mount_exists_as_its_mounting_alone(world: World) -> None:
    location = world.bucket.filled()
    world.bucket.unmounted()
    world.bucket.east.mounts.mount(Mount(location, CLICKS))
    seen = world.observed("east")
    assert seen[f"mounting/east/{CLICKS}"].state == "planned"
    assert f"topic/east/{CLICKS}" not in seen
    assert [shown.address for shown in world.provider("east").read_overview().topics] == []


# -- who may


def test_a_principal_needs_delete_to_unmount_and_mounting_is_the_super_users(world: World) -> None:
    location = world.bucket.filled()
    world.bucket.west.set_topic_acls(CLICKS, [AclEntry("User:a", "allow", ("describe", "read"))])
    (outcome,) = world.apply("west", unmount(), principal="User:a")
    assert isinstance(outcome, FailedAction)
    assert isinstance(outcome.error, NotAuthorizedError)
    world.bucket.west.set_topic_acls(CLICKS, [AclEntry("User:a", "allow", ("all",))])
    (outcome,) = world.apply("west", unmount(), principal="User:a")
    assert isinstance(outcome, CompletedAction)
    (outcome,) = world.apply("east", mount(location), principal="User:a")
    assert isinstance(outcome, FailedAction)
    assert isinstance(outcome.error, NotAuthorizedError)
    assert world.states("east") == []


def test_who_may_not_describe_a_topic_sees_neither_it_nor_its_mounting(world: World) -> None:
    world.bucket.filled()
    world.bucket.west.set_topic_acls(CLICKS, [AclEntry("User:b", "allow", ("all",))])
    world.bucket.west.mounts.unmount(CLICKS, mounting="shop:eu:asleep")
    for principal, is_hidden in (("User:a", True), ("User:b", False)):
        seen = world.provider("west", principal=principal).observe(Scope())
        found = [seen[Address(address)] for address in (f"topic/west/{CLICKS}", "mounting/west/shop:eu:asleep")]
        assert [each.hidden is not None for each in found] == [is_hidden, is_hidden]


# -- what run does


def test_run_finishes_what_was_left_and_counts_it(world: World) -> None:
    for name in (CLICKS, "shop:eu:orders"):
        world.bucket.filled(name)
        world.bucket.west.mounts.unmount(name, mounting=name)
    upkept = world.finish("west")
    assert (upkept.unit, upkept.done, upkept.failed) == ("topic", 2, 0)
    assert upkept.bytes > 0
    assert world.finish("west").done == 0


def test_run_spreads_what_is_to_upload_one_topic_after_the_other(world: World) -> None:
    names = [f"shop:eu:t{number}" for number in range(6)]
    for name in names:
        world.bucket.filled(name)
        world.bucket.west.mounts.unmount(name)
    under_way: list[str] = []
    seen: list[list[str]] = []

    def spread(work: Sequence[Any], do: Callable[[Sequence[Any]], Iterable[Any]]) -> Iterator[Sequence[Any]]:
        under_way.append(work[0].partition.full_name)
        seen.append([*under_way])
        yield list(do(work))
        under_way.remove(work[0].partition.full_name)

    assert world.finish("west", spread=spread).done == 6
    assert sorted(seen) == [[name] for name in names]


def test_run_leaves_what_waits_to_be_told(world: World) -> None:
    world.bucket.filled()
    world.bucket.west.mounts.unmount(CLICKS, is_automatic=False)
    upkept = world.finish("west")
    assert (upkept.done, upkept.failed) == (0, 0)
    assert world.states() == ["planned"]


def test_run_tells_what_keeps_a_migration_from_its_end_and_does_the_others(world: World) -> None:
    location = world.bucket.filled()
    world.bucket.unmounted()
    number = world.bucket.east.mounts.mount(Mount(location, CLICKS))
    world.bucket.mounted(location, cluster="south")
    other = world.bucket.filled("shop:eu:orders")
    world.bucket.unmounted("shop:eu:orders")
    world.bucket.east.mounts.mount(Mount(other, "shop:eu:orders"))
    upkept = world.finish("east")
    assert (upkept.done, upkept.failed) == (1, 1)
    assert upkept.errors[0].message.startswith(f"migration {number}: ")
    assert isinstance(upkept.errors[0], OwnershipLostError)


def test_run_stops_when_it_is_asked_to(world: World) -> None:
    world.bucket.filled()
    world.bucket.west.mounts.unmount(CLICKS)
    upkept = world.finish("west", is_stopped=lambda: True)
    assert [type(error) for error in upkept.errors] == [IncompleteError]
    assert world.states() == ["planned"]
