"""A plan back to what was applied: over random worlds, and over every case of planning."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from reconciler.operations.state_views import restore_desired
from reconciler.planning.plan import Selection
from reconciler.resources.address import Address, kind_of
from reconciler.resources.inventory import Resource
from tests.planning.inventories import without_allowances, worlds
from tests.planning.test_properties import quick
from tests.planning.world import World


def going_back(world: World, then: World) -> World:
    """Return a world in which what was recorded then is wanted, and all of it allowed by name."""
    addresses = sorted({*world.recorded, *then.recorded})
    verbs = ("delete", "update", "create", "adopt")
    allow = tuple(f"{verb}:{address}" for verb in verbs for address in addresses)
    wanted = restore_desired(then.recorded, world.recorded, 1)
    return replace(world, desired=wanted, given=replace(world.given, back_to=1, selection=Selection(allow=allow)))


@quick
@given(worlds())
def test_right_after_an_apply_the_way_back_to_it_is_empty(world: World) -> None:
    first = world.plan()
    if first.errors or first.blocked:
        return
    applied = without_allowances(world.applied(first))
    plan = going_back(applied, applied).plan()
    assert not plan.errors
    assert [action.id for action in plan.actions] == []


@settings(quick, max_examples=25)
@given(worlds(), worlds())
def test_the_way_back_leads_back(earlier: World, later: World) -> None:
    first = earlier.plan()
    if first.errors or first.blocked:
        return
    then = without_allowances(earlier.applied(first))
    between = replace(later, recorded=then.recorded, observed=then.observed, given=then.given)
    second = between.plan()
    if second.errors:
        return
    now = between.applied(second)
    back = going_back(now, then)
    plan = back.plan()
    if plan.errors or plan.blocked:
        return
    after = back.applied(plan)
    assert [action.id for action in going_back(after, then).plan().actions] == []
    assert _named(after) == {address: item.resource for address, item in back.desired.items() if _is_named(address)}


def _named(world: World) -> dict[Address, Resource]:
    return {address: item.resource for address, item in world.recorded.items() if _is_named(address)}


def _is_named(address: Address) -> bool:
    """Leave out namespaces: a tier that only others need may be there without being ours, or ours a little longer."""
    return kind_of(address) != "namespace"
