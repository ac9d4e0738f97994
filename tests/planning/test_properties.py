"""What holds for every plan, over random worlds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.planning.actions import Action, Adopt, Create, Delete, Forget, Transition, Update
from reconciler.planning.plan import PlanOptions
from reconciler.planning.plan_rows import encode_plan
from reconciler.planning.saved_plan import encode_saved_plan, read_plan_to_show
from reconciler.planning.situation import STOPPED, as_topic, get_source_topic
from reconciler.resources.address import Address, address_of, kind_of
from reconciler.resources.mirror_link import MirrorTopic
from tests.planning.inventories import linked_worlds, strangers, without_allowances, worlds
from tests.planning.world import World

if TYPE_CHECKING:
    from reconciler.resources.inventory import Inventory

WAYS_BACK = {"truncate-and-restore", "reverse-and-start", "reverse-and-pause"}
quick = settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

ANY = st.one_of(worlds(), linked_worlds())


@quick
@given(ANY)
def test_after_applying_a_plan_nothing_is_to_be_done(world: World) -> None:
    first = world.plan()
    if first.errors or first.blocked:
        return
    second = without_allowances(world.applied(first)).plan()
    assert [action.id for action in second.actions] == []
    assert not second.errors
    assert not second.drift


@quick
@given(ANY)
def test_applying_what_is_not_blocked_brings_nothing_new(world: World) -> None:
    first = world.plan()
    if first.errors:
        return
    second = world.applied(first).plan()
    assert not second.errors
    left = {action.id for action in second.actions}
    # What a blocked action holds up may look different, but it is at the same addresses. Where it is the way back of a
    # mirror, the record may meanwhile learn of the mirror that it comes from: that one is stopped, and stays so.
    held = {action.address for action in first.blocked}
    others = [action for action in second.actions if action.address not in held]
    way_back = any(isinstance(action, Transition) and action.verb in WAYS_BACK for action in first.blocked)
    assert all(way_back and isinstance(each, Adopt) and kind_of(each.address) == "mirror" for each in others), left


@quick
@given(ANY, st.integers())
def test_the_same_inventories_in_any_order_give_the_same_bytes(world: World, seed: int) -> None:
    shuffled = replace(
        world,
        desired=_shuffled(world.desired, seed),
        recorded=_shuffled(world.recorded, seed),
        observed=_shuffled(world.observed, seed),
    )
    assert encode_plan(world.plan()) == encode_plan(shuffled.plan())


@quick
@given(ANY)
def test_nothing_unowned_is_ever_deleted_or_forgotten(world: World) -> None:
    plan = strangers(world).plan()
    for action in plan.actions:
        if isinstance(action, Delete | Forget):
            assert action.address in world.recorded
    before, survivors = strangers(world).observed, strangers(world).applied(plan).observed
    assert survivors.keys() >= before.keys() - world.recorded.keys() - _moved(plan.actions) - _dropped(
        before, plan.actions
    )


@quick
@given(ANY)
def test_every_delete_that_is_done_was_visible_and_allowed(world: World) -> None:
    plan = world.plan()
    applied = world.applied(plan)
    left = applied.observed.keys() | _moved(plan.actions)
    gone = {address for address in world.observed if address not in left}
    deletes = {action.address: action for action in plan.actions if isinstance(action, Delete)}
    deleted = {address for address, action in deletes.items() if action.blocked is None}
    assert deleted <= gone <= deleted | _dropped(world.observed, plan.actions)
    for address in deleted:
        if kind_of(address) in {"topic", "mirror"}:
            assert deletes[address].granted_by is not None


@quick
@given(ANY)
def test_what_is_protected_stays(world: World) -> None:
    applied = world.applied(world.plan())
    held = {address for address, item in world.recorded.items() if item.protect and address not in world.desired}
    same = {
        address
        for address in held & world.observed.keys()
        if world.recorded[address].incarnation in {None, world.observed[address].incarnation}
    }
    assert same - _moved(world.plan().actions) <= applied.observed.keys()


@quick
@given(ANY)
def test_the_digest_is_that_of_the_document(world: World) -> None:
    plan = world.plan()
    assert read_plan_to_show(encode_saved_plan(plan, {})).plan.digest == plan.digest


@quick
@given(ANY)
def test_what_an_action_depends_on_comes_before_it_in_an_earlier_wave(world: World) -> None:
    waves: dict[str, int] = {}
    for action in world.plan().actions:
        assert action.id not in waves
        assert all(waves[needed] < action.wave for needed in action.depends_on)
        waves[action.id] = action.wave


@quick
@given(ANY)
def test_there_is_at_most_one_decision_about_an_address(world: World) -> None:
    """Adopt and update go together; nothing else does, on what is made and changed in place."""
    seen: dict[str, list[type]] = {}
    for action in world.plan().actions:
        if kind_of(action.address) != "mirror":
            seen.setdefault(action.address, []).append(type(action))
    for kinds in seen.values():
        assert len(kinds) == 1 or kinds in ([Adopt, Update], [Transition, Update])


def _shuffled(mapping: object, seed: int) -> dict:  # type: ignore[type-arg]
    items = list(mapping.items())  # type: ignore[attr-defined]
    Random(seed).shuffle(items)  # noqa: S311 - nothing secret
    return dict(items)


def _dropped(observed: Inventory, actions: Iterable[Action]) -> set[Address]:
    """Return the stopped mirrors of links that are deleted, which takes their records along (F-C-091); topics stay."""
    links = {action.address for action in actions if isinstance(action, Delete) and action.blocked is None}
    return {
        address
        for address, seen in observed.items()
        if seen.state == STOPPED
        and isinstance(seen.resource, MirrorTopic)
        and address_of("link", seen.resource.cluster, seen.resource.link) in links
    }


def _moved(actions: Iterable[Action]) -> set[str]:
    """Return topics that have another name afterwards, or are mirrors: their roles were swapped."""
    asked = [action for action in actions if isinstance(action, Transition)]
    renamed = {str(action.parameters["from"]) for action in asked if action.verb == "move"}
    mirrors = [(action.verb, action.after) for action in asked if isinstance(action.after, MirrorTopic)]
    swapped = {get_source_topic(mirror) for verb, mirror in mirrors if verb.startswith("reverse-")}
    restored = {as_topic(mirror) for verb, mirror in mirrors if verb == "truncate-and-restore"}
    return renamed | swapped | restored


@quick
@given(ANY)
def test_setting_only_drift_back_undoes_no_intent_and_leaves_no_drift_it_could_set_back(world: World) -> None:
    whole = world.plan()
    narrow = replace(world, given=replace(world.given, options=PlanOptions(is_only_drift=True)))
    first = narrow.plan()
    assert {action.id for action in first.actions} <= {action.id for action in whole.actions}
    assert all(change.drift for action in first.actions if isinstance(action, Update) for change in action.changes)
    assert first.drift == whole.drift
    made = [action for action in first.actions if isinstance(action, Create) and kind_of(action.address) != "mirror"]
    assert all(action.after == world.recorded[action.address].resource for action in made)
    if first.errors or first.blocked:
        return
    after = narrow.applied(first)
    assert [action.id for action in after.plan().actions] == []
    left = {action.address for action in after_all(after) if any(change.drift for change in action.changes)}
    renamed = {action.address for action in whole.actions if action.verb == "move" or _takes_a_record_along(action)}
    assert left <= renamed
    assert left <= {warning.address for warning in first.warnings}


def _takes_a_record_along(action: Action) -> bool:
    return isinstance(action, Adopt) and action.moved_from is not None


def after_all(world: World) -> list[Update]:
    plain = replace(world, given=replace(world.given, options=PlanOptions()))
    return [action for action in plain.plan().actions if isinstance(action, Update)]
