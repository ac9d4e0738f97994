"""Crashes of the recovery itself: after any first crash, at any point of what comes next."""

from __future__ import annotations

import pytest

from tests.simulation.machine import AWAITS, WRITES, Fault
from tests.simulation.scenarios import Scenario, each, failures, play, steps
from tests.simulation.world import Visit


def recoveries(first: Fault, *, resumes: bool) -> list[Fault]:
    """Return a crash for each step of what comes after a first one, up to where its own run begins."""
    second = Visit("b", after="a", resumes=resumes)
    trace = play(Scenario((Visit("a", (first,)), second))).ended["b"].trace
    begins = next((at for at, (_, what) in enumerate(trace) if what.endswith("b#1/run.json")), len(trace))
    return [fault for fault in each(trace, AWAITS | WRITES, "crash") if fault.at <= begins]


def scenarios(firsts: list[Fault], *, resumes: bool) -> list[Scenario]:
    return [
        Scenario((Visit("a", (first,)), Visit("b", (second,), after="a", resumes=resumes), Visit("c", after="b")))
        for first in firsts
        for second in _from_the_lease_on(recoveries(first, resumes=resumes))
    ]


def _from_the_lease_on(faults: list[Fault]) -> list[Fault]:
    """Waiting for the lease is the same whatever crashed; the last look before it is enough."""
    return faults[-40:]


@pytest.mark.soak
def test_after_a_crash_of_the_recovery_the_next_one_finishes() -> None:
    firsts = list(each(steps(), {"written"}, "crash"))[7::24]
    assert failures(scenarios(firsts, resumes=False)) == []


@pytest.mark.soak
@pytest.mark.parametrize("resumes", [False, True])
@pytest.mark.parametrize("part", range(8))
def test_after_any_two_crashes_the_next_run_finishes(part: int, resumes: bool) -> None:  # noqa: FBT001 - the case
    firsts = list(each(steps(), AWAITS | WRITES, "crash"))[part::8]
    assert failures(scenarios(firsts, resumes=resumes)) == []
