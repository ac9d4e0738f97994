"""Crash, stop, freeze and lost answers at every step of a plan of all types of actions: enumerated, not sampled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.machine import AWAITS, WRITES, Fault, Harm, Step
from tests.simulation.scenarios import Scenario, each, failures, play, steps
from tests.simulation.world import LEASE_S, Visit


def test_the_plan_has_actions_of_every_type() -> None:
    world = play(Scenario((Visit("a"),)))
    assert world.ended["a"].outcome == "done"
    kinds = [type(action).__name__ for action in world.actions_of("a#1")]
    assert sorted(set(kinds)) == ["Adopt", "Create", "Delete", "Forget", "RunJob", "Transition", "Update"]
    assert len(kinds) >= 12
    assert {action.cluster for action in world.actions_of("a#1")} == {"west", "east"}


def crashes() -> Iterator[Fault]:
    yield from each(steps(), AWAITS | WRITES, "crash")


def test_after_a_crash_at_any_point_the_next_apply_finishes() -> None:
    assert failures(Scenario((Visit("a", (fault,)), Visit("b", after="a", offset_s=5000))) for fault in crashes()) == []


@pytest.mark.soak  # some of it is in the random histories, too
def test_after_a_crash_at_any_point_resume_on_another_machine_finishes() -> None:
    scenarios = (
        Scenario((Visit("a", (fault,)), Visit("b", after="a", resumes=True, offset_s=-5000))) for fault in crashes()
    )
    assert failures(scenarios) == []


def test_one_lost_answer_of_the_state_ends_no_run() -> None:
    harms: tuple[Harm, ...] = ("lose", "late")
    for harm in harms:
        for fault in each(steps(), {"write"}, harm, 0.5):
            if steps()[fault.at][1].startswith("state:"):
                ended = play(Scenario((Visit("a", (fault,)),))).ended["a"]
                assert (ended.outcome, fault) == ("done", fault), ended.error


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("harm", "seconds"), [("lose", 0.0), ("late", 0.5), pytest.param("fail", 0.0, marks=pytest.mark.soak)]
)
def test_after_a_lost_or_late_answer_at_any_request_the_next_apply_finishes(harm: Harm, seconds: float) -> None:
    kinds: set[Step] = {"write"} if harm != "fail" else {"read", "write"}
    faults = each(steps(), kinds, harm, seconds)
    assert failures(Scenario((Visit("a", (fault,)), Visit("b", after="a"))) for fault in faults) == []


@pytest.mark.thorough
def test_what_lands_after_its_runner_died_and_was_taken_over_is_found() -> None:
    faults = list(each(steps(), {"write"}, "late", LEASE_S + 0.4))
    died = [(fault, next(each(steps(), AWAITS, "crash", after=fault.at))) for fault in faults]
    assert failures(Scenario((Visit("a", both), Visit("b", after="a"))) for both in died) == []


@pytest.mark.thorough
def test_what_lands_after_its_run_had_looked_and_found_nothing_is_still_ours() -> None:
    faults = [
        fault
        for fault in each(steps(), {"write"}, "late", LEASE_S)
        if steps()[fault.at][1].startswith(("west: ", "east: "))
    ]
    histories = [Scenario((Visit("a", (fault,)), Visit("b", after="a", starts_s=2 * LEASE_S))) for fault in faults]
    assert failures(histories) == []
    landed = [history for history in histories if play(history).ended["a"].landed_late]
    assert landed, "nothing has landed late, so nothing was shown"
