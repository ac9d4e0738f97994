"""A summary that cannot be written changes nothing else: what was settled is looked at once more all the same."""

from __future__ import annotations

from tests.simulation.machine import Fault
from tests.simulation.scenarios import Scenario, faults_of, play, steps
from tests.simulation.world import Visit

ATTEMPTS = 3


def refused(trace: list[tuple[str, str]]) -> tuple[Fault, ...]:
    """Return what refuses the first `result.json` of a visit, as often as it is tried."""
    first = next(at for at, (step, what) in enumerate(trace) if step == "write" and what.endswith("/result.json"))
    return tuple(Fault(first + number, "fail") for number in range(ATTEMPTS))


def test_a_run_whose_summary_is_refused_ends_as_it_would() -> None:
    world = play(Scenario((Visit("a", refused(list(steps()))),)))
    assert world.ended["a"].outcome == "done", world.ended["a"].error
    assert faults_of(world) == []


def test_a_run_that_settled_another_looks_again_though_its_summary_is_refused() -> None:
    begun = next(at for at, (step, what) in enumerate(steps()) if step == "write" and what.startswith("west: "))
    died, second = Visit("a", (Fault(begun, "crash"),)), Visit("b", after="a")
    trace = play(Scenario((died, second))).ended["b"].trace
    world = play(Scenario((died, Visit("b", refused(list(trace)), after="a"))))
    found = world.ended["b"]
    assert found.outcome == "done", found.error
    last = max(at for at, (_, what) in enumerate(found.trace) if what.endswith("b#1/result.json"))
    assert any(what.startswith("west: get") for _, what in found.trace[last:])
    assert faults_of(world) == []
