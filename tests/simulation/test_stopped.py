"""Asked to stop at every step: what was done stays, what is left is said, and the next run goes on."""

from __future__ import annotations

import pytest

from reconciler.errors import IncompleteError, InterruptedRunError
from tests.simulation.machine import AWAITS, WRITES
from tests.simulation.scenarios import Scenario, each, failures, play, steps
from tests.simulation.world import Visit


@pytest.mark.soak
@pytest.mark.parametrize("resumes", [False, True])
def test_after_a_stop_at_any_point_the_next_run_finishes(resumes: bool) -> None:  # noqa: FBT001 - the case
    faults = each(steps(), AWAITS | WRITES, "stop")
    visits = ((Visit("a", (fault,)), Visit("b", after="a", resumes=resumes)) for fault in faults)
    assert failures(map(Scenario, visits)) == []


@pytest.mark.thorough
def test_whoever_is_stopped_ends_at_once_and_frees_the_lease() -> None:
    for fault in each(steps(), AWAITS | WRITES, "stop"):
        world = play(Scenario((Visit("a", (fault,)),)))
        ended = world.ended["a"]
        assert ended.outcome in {"done", InterruptedRunError, IncompleteError}, (fault, ended.error)
        assert ended.at < 3.0, fault
        assert world.history.lockfile is not None
        assert world.history.lockfile.lease.status == "free", fault
