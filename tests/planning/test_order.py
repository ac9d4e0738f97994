"""The order of mounts and unmounts among other actions, where no case has them side by side; and rings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reconciler.planning.actions import Action, Create, Delete, RunJob, Transition, Update
from reconciler.planning.order import break_cycles, build_cycle_error, sort_actions
from reconciler.planning.situation import Situation
from reconciler.resources.address import Address
from reconciler.resources.mount import Mounts, MountSource, StoredTopics
from tests.planning.casefile import Case
from tests.planning.short import resource

HERE = Address("topic/west/clicks")


def mounting(verb: str, name: str = "clicks", **said: Any) -> Transition:
    after = resource({"mounting": name, "state": f"{verb}ed", **said})
    return Transition(address=after.address, machine=verb, verb=verb, from_state="", to_state=f"{verb}ed", after=after)


def topic(name: str = "clicks") -> Create:
    after = resource({"topic": name})
    return Create(address=after.address, after=after)


def update() -> Update:
    after = resource({"topic": "clicks"})
    return Update(address=after.address, before=after, after=after, changes=())


def mirror(source: str = "clicks") -> Create:
    after = resource({"mirror": source, "where": "east", "link": "l"})
    return Create(address=after.address, after=after)


def copy(of: Create) -> RunJob:
    return RunJob(address=of.address, job="mirror", source=HERE, sink=Address("topic/east/clicks"))


def promote() -> Transition:
    after = mirror().after
    return Transition(
        address=after.address, machine="mirror", verb="promote", from_state="ACTIVE", to_state="STOPPED", after=after
    )


def moved(old: str, new: str) -> Transition:
    after = resource({"topic": new})
    parameters = {"from": f"topic/west/{old}"}
    return Transition(
        address=after.address,
        machine="topic",
        verb="move",
        from_state=old,
        to_state=new,
        after=after,
        parameters=parameters,
    )


def needs(*actions: Action, mounts: Mounts | None = None) -> dict[str, set[str]]:
    world = Case("empty", {"why": "", "plan": [], "clusters": ["west", "east"]}).world
    given = replace(world.given, stored=StoredTopics(mounts=mounts or {}))
    situation = Situation({}, {}, {}, given, {}, frozenset({"west", "east"}), lambda _: True, lambda *_: None)
    ordered, rings = sort_actions(actions, situation)
    assert rings == []
    return {action.id: set(action.depends_on) for action in ordered}


def test_a_topic_is_made_under_a_name_that_an_unmount_has_freed() -> None:
    assert needs(topic(), mounting("unmount"))["create:topic/west/clicks"] == {"unmount:mounting/west/clicks"}


def test_a_topic_moves_to_a_name_that_an_unmount_has_freed() -> None:
    found = needs(moved("old", "clicks"), mounting("unmount"))
    assert found == {"move:topic/west/clicks": {"unmount:mounting/west/clicks"}, "unmount:mounting/west/clicks": set()}


def test_a_mount_waits_for_the_name_to_be_left_by_unmount_delete_or_move() -> None:
    mount = mounting("mount", "other", **{"as": "clicks"})
    assert needs(mount, mounting("unmount"))[mount.id] == {"unmount:mounting/west/clicks"}
    before = resource({"topic": "clicks"})
    assert needs(mount, Delete(address=HERE, before=before))[mount.id] == {"delete:topic/west/clicks"}
    assert needs(mount, moved("clicks", "new"))[mount.id] == {"move:topic/west/new"}


def test_what_changes_a_topic_comes_before_its_unmount_and_after_its_mount() -> None:
    unmount, mount = mounting("unmount"), mounting("mount")
    assert needs(update(), unmount)[unmount.id] == {"update:topic/west/clicks"}
    assert needs(update(), mount)["update:topic/west/clicks"] == {mount.id}


def test_where_a_name_goes_from_one_topic_to_another_changes_are_about_the_new_one() -> None:
    unmount, mount = mounting("unmount"), mounting("mount", "other", **{"as": "clicks"})
    assert needs(update(), unmount, mount) == {
        unmount.id: set(),
        mount.id: {unmount.id},
        "update:topic/west/clicks": {mount.id},
    }


def test_a_mirror_reads_to_its_end_before_its_source_is_unmounted_and_a_new_one_begins_after_the_mount() -> None:
    unmount, mount, new = mounting("unmount"), mounting("mount", "other", **{"as": "clicks"}), mirror()
    assert needs(promote(), unmount)[unmount.id] == {"promote:mirror/east/clicks"}
    assert needs(promote(), unmount, mount)[unmount.id] == {"promote:mirror/east/clicks"}
    found = needs(new, copy(new), unmount, mount)
    assert found[unmount.id] == set()
    assert found[new.id] == {mount.id}
    assert found["mirror:mirror/east/clicks"] == {mount.id, new.id}


def test_a_mount_waits_for_the_unmount_on_another_cluster_that_detaches_what_it_takes() -> None:
    unmount, mount = mounting("unmount"), mounting("mount", "clicks", where="east", **{"as": "later"})
    source = MountSource("clicks/67f5505a-32f3-4677-bcad-3c75a1a702a6/10", None, unmount.address)
    assert needs(mount, unmount, mounts={mount.address: source})[mount.id] == {unmount.id}


def test_links_and_namespaces_that_share_a_name_with_a_topic_are_not_waited_for() -> None:
    before = resource({"link": "clicks", "source": "east"})
    mount = mounting("mount")
    assert needs(mount, Delete(address=before.address, before=before))[mount.id] == set()


def test_what_waits_for_itself_is_an_error_that_names_the_ring() -> None:
    depends = {"a": ("c",), "b": ("a",), "c": ("b", "d"), "d": ()}
    sorter, rings = break_cycles(depends)
    assert sorter.is_active()
    (ring,) = rings
    assert ring[0] == ring[-1]
    assert {*ring} == {"a", "b", "c"}
    found = build_cycle_error(ring)
    assert " → ".join(ring) in found.message
    assert found.hint


def test_every_ring_is_cut_open() -> None:
    depends = {"a": ("b",), "b": ("a",), "c": ("d",), "d": ("c",), "e": ("a", "c")}
    _, rings = break_cycles(depends)
    assert {frozenset(ring) for ring in rings} == {frozenset("ab"), frozenset("cd")}
