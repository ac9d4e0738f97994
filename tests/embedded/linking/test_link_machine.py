"""Whatever is done to a topic and its mirrors, wherever a process dies: nothing is mixed, and nothing lost unasked."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.embedded.linking.linkedpoints import one_after_the_other
from tests.embedded.linking.linkmachine import LinkMachine


@pytest.fixture(autouse=True)
def _one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The n-th write is the same one every time."""
    one_after_the_other(monkeypatch)


def run(*, examples: int, steps: int, number: int | None = None) -> None:
    """Run the machine so often, with a seed where one is given."""
    machine = LinkMachine if number is None else seed(number)(LinkMachine)
    budget = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        database=None,
        derandomize=number is None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=budget)


@pytest.mark.fact("F-C-001", "F-C-002", "F-C-061", "F-C-063", "F-C-065", "F-C-074", "F-C-079", "F-C-095")
def test_in_memory() -> None:
    run(examples=6, steps=15)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(20))
def test_in_memory_for_long(number: int) -> None:
    run(examples=30, steps=40, number=number)
