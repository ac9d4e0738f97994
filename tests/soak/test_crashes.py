"""However `apply` is killed, the next one finishes what it left: then the plan is empty and the state is the truth."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.soak  # what the simulation shows of every step, on real processes

ROOT = Path(__file__).parents[2]
ROUNDS = int(os.environ.get("RECONCILER_SOAK_ROUNDS", "1000"))
SEED = os.environ.get("RECONCILER_SOAK_SEED", "1")
# One thread in the process that forks: a thread pool of a library would not survive a fork.
ALONE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def rounds_of(folder: Path, rounds: str, seed: str) -> list[int]:
    """Return what each round says: every one has ended well, or this fails with what was said."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.soak.crashes", folder, rounds, seed],
        cwd=ROOT,
        env={**os.environ, **ALONE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line)["found"] for line in ran.stdout.splitlines()]


def test_an_apply_killed_at_random_moments_is_finished_by_the_next_one(tmp_path: Path) -> None:
    found = rounds_of(tmp_path, "15", "small")
    assert len(found) == 15
    assert sum(found) >= 5


def test_an_apply_killed_before_or_after_any_durable_write_is_finished_by_the_next_one(tmp_path: Path) -> None:
    found = rounds_of(tmp_path, "points", "small")
    assert found.count(1) > 20
    assert found.count(0) == 2  # the last point of each of the two steps lies behind the end


def test_an_apply_that_is_asked_to_stop_frees_its_lease_and_is_finished_by_the_next_one(tmp_path: Path) -> None:
    found = rounds_of(tmp_path, "signals", "small")
    assert len(found) == 12
    assert set(found) >= {4, 130}  # stopped with work left, and before anything had begun


def test_an_apply_killed_very_often_is_finished_by_the_next_one_every_time(tmp_path: Path) -> None:
    found = rounds_of(tmp_path, str(ROUNDS), SEED)
    assert len(found) == ROUNDS
    assert sum(found) >= ROUNDS // 3
