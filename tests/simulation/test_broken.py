"""The simulation can fail: variants of the core that leave out one rule are noticed, each as what it breaks."""

from __future__ import annotations

import pytest

from tests.simulation.broken import VARIANTS, Broken
from tests.simulation.machine import AWAITS, WRITES
from tests.simulation.scenarios import Scenario, base, each, faults_of, play
from tests.simulation.world import Visit

pytestmark = pytest.mark.thorough

LONG = "publishing without looking"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak] if name == LONG else []) for name in VARIANTS]
)
def test_a_broken_variant_is_noticed(name: str) -> None:
    broken = VARIANTS[name]
    base()  # It is made once, and by what is whole: others begin with it.
    with broken.applied():
        trace = play(Scenario((Visit("a"),))).ended["a"].trace
        for fault in each(trace, AWAITS | WRITES, broken.harm, broken.seconds):
            found = {line.partition(":")[0] for line in faults_of(play(_scenario(broken, fault)))}
            if found & broken.noticed_as:
                return
    pytest.fail(f"{name}: nothing was noticed as {', '.join(sorted(broken.noticed_as))}")


def _scenario(broken: Broken, fault: object) -> Scenario:
    first = Visit("a", (fault,), is_clock_standing=broken.is_clock_standing)  # type: ignore[arg-type] # it is a fault
    if broken.harm == "freeze":
        return Scenario((first, Visit("b", starts_s=0.1, offset_s=5000, resumes=broken.resumes)))
    return Scenario((first, Visit("b", after="a", offset_s=5000, resumes=broken.resumes)))
