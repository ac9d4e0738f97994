"""A runner frozen for longer than its lease, at every step, while another one comes."""

from __future__ import annotations

import pytest

from tests.simulation.checks import ALWAYS, AT_THE_END, one_holder_acts, wrong
from tests.simulation.machine import AWAITS
from tests.simulation.scenarios import Scenario, each, failures, play, steps
from tests.simulation.world import LEASE_S, Visit

LONG_S = 3 * LEASE_S


@pytest.mark.soak
@pytest.mark.parametrize("resumes", [False, True])
def test_a_runner_frozen_at_any_point_and_one_that_takes_over_end_well(resumes: bool) -> None:  # noqa: FBT001 - the case
    faults = each(steps(), AWAITS | {"write"}, "freeze", LONG_S)
    visits = ((Visit("a", (fault,)), Visit("b", starts_s=0.1, resumes=resumes, offset_s=5000)) for fault in faults)
    assert failures(map(Scenario, visits)) == []


@pytest.mark.soak
def test_whoever_wakes_after_a_takeover_with_a_clock_that_stood_still_is_stopped_by_the_stores() -> None:
    """Such a clock cannot tell that it is too late: what had its intent may be called. Nothing else may go wrong."""
    checks = tuple(check for check in ALWAYS if check is not one_holder_acts)
    for fault in each(steps(), AWAITS | {"write"}, "freeze", LONG_S):
        frozen = Visit("a", (fault,), is_clock_standing=True)
        scenario = Scenario((frozen, Visit("b", starts_s=0.1, offset_s=5000)))
        world = play(scenario)
        assert wrong(world, checks) == [], scenario.replayed_by
        world.play([Visit("final")])
        assert wrong(world, (*checks, *AT_THE_END)) == [], scenario.replayed_by
