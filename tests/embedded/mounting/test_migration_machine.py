"""Whatever is done to topics that travel, wherever a process dies: one owner at most, nothing acknowledged lost."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.embedded.mounting.migrating import without_threads
from tests.embedded.mounting.migrationmachine import MigrationMachine


@pytest.fixture(autouse=True)
def _one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The n-th write is the same one every time."""
    without_threads(monkeypatch)


def run(*, examples: int, steps: int, number: int | None = None) -> None:
    """Run the machine so often, with a seed where one is given."""
    machine = MigrationMachine if number is None else seed(number)(MigrationMachine)
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


@pytest.mark.fact("F-R-107", "F-R-111", "F-R-112", "F-R-124")
def test_in_memory() -> None:
    run(examples=6, steps=20)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(20))
def test_in_memory_for_long(number: int) -> None:
    run(examples=100, steps=50, number=number)
