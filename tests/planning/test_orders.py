"""Every case of `tests/cases/orders`: what a command wants, over what is recorded and observed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.planning.actions import list_changed_addresses
from reconciler.planning.plan import Plan
from reconciler.planning.plan_rows import compute_digest
from tests.planning.casefile import FOLDER, Case, cases, differences

CASES = cases(FOLDER / "orders")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_orders_are_planned_as_a_case_says_whatever_order_things_are_observed_in(case: Case) -> None:
    world = case.world
    plan = world.plan()
    wrong = differences(case, plan)
    assert not wrong, f"{case.row['why']}\n" + "\n".join(wrong)
    backwards = replace(
        world, recorded=dict(reversed(world.recorded.items())), observed=dict(reversed(world.observed.items()))
    )
    assert compute_digest(backwards.plan().actions) == compute_digest(plan.actions)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_order_that_is_refused_stops_no_other(case: Case) -> None:
    world = case.world
    orders = world.given.orders
    alone = [replace(world, given=replace(world.given, orders=(order,))).plan() for order in orders]
    assert changed(world.plan()) == {change for plan in alone for change in changed(plan)}


def changed(plan: Plan) -> set[tuple[str, str]]:
    """Return what a plan does to which resource; one migration may have several topics."""
    return {(action.verb, address) for action in plan.actions for address in list_changed_addresses(action)}
