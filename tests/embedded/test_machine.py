"""Whatever two processes do to a cluster, and wherever one dies: what should be readable is, and nothing else."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.segments import head as head_module
from reconciler.objectstore.base import ObjectStore, create_nonce
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.open import open_store
from tests.embedded.machine import ClusterMachine, run_machine

if TYPE_CHECKING:
    from tests.servers.weed import S3Server


@pytest.fixture(autouse=True)
def _small_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_module, "TAIL", 4)
    monkeypatch.setattr(head_module, "BRANCHES", 2)


def run(store: Callable[[], ObjectStore], *, examples: int, steps: int, is_new: bool = False) -> None:
    """Run the machine so often; `is_new`: each time otherwise, with a seed that is told."""
    number = secrets.randbits(32) if is_new else None
    print(f"seed {number}")  # noqa: T201 - shown where it fails
    run_machine(partial(ClusterMachine, store), examples=examples, steps=steps, number=number)


@pytest.mark.thorough
def test_in_memory() -> None:
    run(MemoryStore, examples=12, steps=30)


def test_in_a_directory(tmp_path: Path) -> None:
    run(lambda: DirectoryStore(tmp_path / create_nonce()), examples=6, steps=20)


@pytest.mark.thorough
def test_on_an_s3_server(s3_server: S3Server) -> None:
    run(lambda: open_store(s3_server.settings("machine")), examples=3, steps=15)


@pytest.mark.soak
def test_in_memory_for_long() -> None:
    run(MemoryStore, examples=1_000, steps=60, is_new=True)


@pytest.mark.soak
def test_in_a_directory_for_long(tmp_path: Path) -> None:
    run(lambda: DirectoryStore(tmp_path / create_nonce()), examples=200, steps=50, is_new=True)


@pytest.mark.soak
def test_on_an_s3_server_for_long(s3_server: S3Server) -> None:
    run(lambda: open_store(s3_server.settings("machine")), examples=50, steps=40, is_new=True)
