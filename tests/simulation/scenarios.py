"""One history: who comes when, what goes wrong, and what is wrong in the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from reconciler.errors import IncompleteError, LeaseError, ReconcilerError, RetryableError, StalePlanError, UserError
from tests.simulation.checks import ALWAYS, AT_THE_END, wrong
from tests.simulation.machine import Fault, Harm, Step
from tests.simulation.typed import typed
from tests.simulation.world import RunOutcome, Visit, World, prepared


@dataclass(frozen=True, slots=True)
class Scenario:
    """Machines that come, each with its faults; the last of them comes alone and nothing happens to it."""

    visits: tuple[Visit, ...]
    seed: int = 0

    @property
    def replayed_by(self) -> str:
        return f"python -m tests.simulation.replay {self.seed} {' '.join(map(typed, self.visits))}"

    def __str__(self) -> str:
        return f"seed {self.seed}: " + "; ".join(map(typed, self.visits))


@cache
def base() -> World:
    return prepared()


def play(scenario: Scenario) -> World:
    return base().fork().play(scenario.visits, seed=scenario.seed)


def faults_of(world: World) -> list[str]:
    """Return what is wrong: at any moment, with how the visits ended, and after one more plain apply."""
    found = wrong(world, ALWAYS)
    found += [line for ended in world.ended.values() for line in _wrong_end(ended)]
    if found:
        return found
    last = max(world.ended.values(), key=lambda ended: world.history.epoch_of(ended.visit.machine))
    is_plain = not (last.visit.faults or last.visit.resumes or last.visit.leaves_jobs or last.visit.files != "after")
    if is_plain and last.outcome in {"done", "nothing"}:
        return wrong(world, AT_THE_END)
    world.play([Visit("final")])
    final = world.ended["final"]
    if final.outcome not in {"done", "nothing"}:
        found.append(f"the_final_run_ends_well: {final.outcome}: {final.error}")
    return found + wrong(world, (*ALWAYS, *AT_THE_END))


def _wrong_end(ended: RunOutcome) -> Iterator[str]:
    """A visit nothing happened to ends well, and every other one with an error that says what to do."""
    if ended.outcome in {"done", "nothing", "died"}:
        return
    is_unharmed = not ended.visit.faults
    expected: tuple[type[ReconcilerError], ...] = (LeaseError, IncompleteError, RetryableError, ReconcilerError)
    if is_unharmed:
        expected = (UserError,) if ended.visit.resumes and "nothing to resume" in str(ended.error) else ()
    if ended.visit.resumes and ended.visit.files != "after":  # Their files have less than what the open run planned.
        expected = (*expected, StalePlanError)
    if not (isinstance(ended.error, expected)):
        yield f"visits_end_well: {ended.visit}: {type(ended.error).__name__}: {ended.error}"


def failures(scenarios: Iterable[Scenario]) -> list[str]:
    """Play all of them; return those in which something is wrong, each with how to see it again."""
    found = []
    for scenario in scenarios:
        lines = faults_of(play(scenario))
        if lines:
            found.append("\n".join([f"{scenario}", *lines, f"replay: {scenario.replayed_by}"]))
    return found


@cache
def steps(seed: int = 0) -> Sequence[tuple[Step, str]]:
    """Return the steps a visit takes where nothing goes wrong."""
    return play(Scenario((Visit("a"),), seed)).ended["a"].trace


def each(
    trace: Sequence[tuple[Step, str]], kinds: Iterable[Step], harm: Harm, seconds: float = 0.0, *, after: int = -1
) -> Iterator[Fault]:
    """Yield one fault for each step of these kinds."""
    wanted = frozenset(kinds)
    for number, (step, _) in enumerate(trace):
        if number > after and step in wanted:
            yield Fault(number, harm, seconds)
