"""Whatever is done to a tiered topic, and wherever a process dies: what the model says is readable is, and no more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from reconciler.embedded.segments import head as head_module
from reconciler.objectstore.base import ObjectStore, create_nonce
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.tiered.tier_machine import TieredMachine


@pytest.fixture(autouse=True)
def _small_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_module, "TAIL", 4)
    monkeypatch.setattr(head_module, "BRANCHES", 2)


def run(make: Callable[[], ObjectStore], *, examples: int, steps: int, number: int | None = None) -> None:
    """Run the machine so often, with a seed where one is given."""
    machine = partial(TieredMachine, make, make)
    if number is not None:
        machine = seed(number)(machine)
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


@pytest.mark.thorough
def test_in_memory() -> None:
    run(MemoryStore, examples=10, steps=25)


@pytest.mark.soak
def test_in_folders(tmp_path: Path) -> None:
    run(lambda: DirectoryStore(tmp_path / create_nonce()), examples=3, steps=15)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(20))
def test_in_memory_for_long(number: int) -> None:
    run(MemoryStore, examples=100, steps=50, number=number)
