"""Every planning case of `tests/cases`, and what must hold for all of them."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from reconciler.planning.actions import Delete
from reconciler.planning.plan_rows import compute_digest, encode_plan
from reconciler.planning.planner import assess_draft, list_topics_to_measure
from reconciler.planning.saved_plan import encode_action, encode_saved_plan, read_action, read_plan_to_show
from reconciler.resources.address import Address, cluster_of
from reconciler.resources.measures import Measure
from tests.planning.casefile import Case, cases, differences

CASES = cases()

each_case = pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.fact(*case.row["facts"])] if "facts" in case.row else []) for case in CASES],
    ids=lambda case: case.name,
)


class Sizes(dict[Address, Measure]):
    """Measures that keep which topics they were asked for."""

    def __init__(self, known: dict[Address, Measure]) -> None:
        super().__init__(known)
        self.asked: set[Address] = set()

    def get(self, key: Address, default: Measure | None = None) -> Measure | None:  # type: ignore[override] # as used
        self.asked.add(key)
        return super().get(key, default)


@each_case
def test_a_case_is_planned_as_it_says_in_any_order_and_its_plan_is_kept_whole(case: Case) -> None:
    world = case.world
    plan = world.plan()
    wrong = differences(case, plan)
    assert not wrong, f"{case.row['why']}\n" + "\n".join(wrong)
    strange = {action.address for action in plan.actions if isinstance(action, Delete)} - world.recorded.keys()
    assert all(world.observed[address].mirror.is_automatic for address in strange)  # A link of ours made it.

    saved = encode_saved_plan(plan, {"targets": []})
    assert encode_plan(read_plan_to_show(saved).plan) == encode_plan(plan)
    stored = tuple(read_action(orjson.loads(orjson.dumps(encode_action(action)))) for action in plan.actions)
    assert stored == plan.actions
    assert compute_digest(stored) == compute_digest(plan.actions)

    backwards = replace(
        world,
        desired=dict(reversed(world.desired.items())),
        recorded=dict(reversed(world.recorded.items())),
        observed=dict(reversed(world.observed.items())),
    )
    assert encode_saved_plan(backwards.plan(), {"targets": []}) == saved

    draft = world.draft()
    sizes = Sizes({address: Measure(10, 1) for address in list_topics_to_measure(draft)})
    assess_draft(draft, sizes)
    lacking = sizes.asked - sizes.keys()
    assert not {address for address in lacking if cluster_of(address) in draft.situation.trusted}, "measured once"


@each_case
def test_after_applying_nothing_is_to_be_done(case: Case) -> None:
    first = case.world.plan()
    if first.errors or first.blocked:
        assert not case.row.get("converges"), case.row["why"]
        return
    world = case.world.applied(first)
    # What was allowed has been used, and would only be warned about.
    world = replace(world, given=replace(world.given, selection=replace(world.given.selection, allow=())))
    for _ in range(1, case.row.get("rounds", 1)):
        world = world.applied(world.plan())
    second = world.plan()
    assert [action.id for action in second.actions] == [], case.row["why"]
    assert not second.errors


def test_every_case_says_why() -> None:
    whys = [case.row["why"] for case in CASES]
    assert all(whys)
    assert len(set(whys)) == len(whys)
    assert len(whys) >= 50
