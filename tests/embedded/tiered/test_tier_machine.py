"""Whatever is done to a tiered topic, and wherever a process dies: what the model says is readable is, and no more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from reconciler.embedded.segments import head as head_module
from reconciler.objectstore.base import ObjectStore, create_nonce
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.machine import run_machine
from tests.embedded.tiered.tier_machine import TieredMachine


@pytest.fixture(autouse=True)
def _small_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_module, "TAIL", 4)
    monkeypatch.setattr(head_module, "BRANCHES", 2)


def run(make: Callable[[], ObjectStore], *, examples: int, steps: int, number: int | None = None) -> None:
    run_machine(partial(TieredMachine, make, make), examples=examples, steps=steps, number=number)


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
