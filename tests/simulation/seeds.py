"""Random histories: two to four runners, crashes, pauses of up to four leases, lost and late answers, other files."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.simulation.machine import Fault, Harm
from tests.simulation.scenarios import Scenario
from tests.simulation.world import LEASE_S, Visit

_STEPS: Final = 220
"""About as many as a run takes."""
_HARMS: Final[tuple[Harm, ...]] = ("crash", "crash", "freeze", "freeze", "stop", "lose", "lose", "late", "late", "fail")
_LONGEST_S: Final = 4 * LEASE_S


def scenario(seed: int) -> Scenario:
    choose = Random(seed)  # noqa: S311 - repeatable, no secret
    names = "abcd"[: choose.choice((2, 2, 3, 4))]
    return Scenario(tuple(_visit(choose, names, place) for place in range(len(names))), seed)


def _visit(choose: Random, names: str, place: int) -> Visit:
    comes_after = place > 0 and choose.random() < 0.4
    return Visit(
        names[place],
        faults=_faults(choose),
        resumes=place > 0 and choose.random() < 0.25,
        starts_s=0.0 if comes_after else choose.choice((0.0, 0.1, 1.0, LEASE_S, 2 * LEASE_S)),
        after=names[place - 1] if comes_after else None,
        offset_s=choose.choice((0.0, -86_400.0, 86_400.0, 12.5)),
        files=choose.choice(("after", "after", "after", "after", "fewer")),
        batch=choose.choice((1, 3, 100)),
        call_s=choose.choice((0.01, 0.01, 0.2, 1.0)),
        leaves_jobs=choose.random() < 0.1,
    )


def _faults(choose: Random) -> tuple[Fault, ...]:
    count = choose.choice((0, 1, 1, 2, 3))
    at = sorted(choose.sample(range(_STEPS), count))
    found = []
    for step in at:
        harm = choose.choice(_HARMS)
        seconds = choose.choice((0.01, 0.3, 3.0, LEASE_S + 0.5, choose.uniform(0, _LONGEST_S)))
        found.append(Fault(step, harm, round(seconds, 2) if harm in {"freeze", "late"} else 0.0))
    return tuple(found)
