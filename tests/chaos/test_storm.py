"""However two runners are killed, frozen and stopped, the next one brings everything to what the files ask for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.servers.weed import S3Server

ROOT = Path(__file__).parents[2]
ROUNDS = os.environ.get("RECONCILER_CHAOS_ROUNDS", "300")
COPIES = os.environ.get("RECONCILER_CHAOS_COPIES", "20")
SEED = os.environ.get("RECONCILER_SOAK_SEED", "1")
# One thread in the process that forks: a thread pool of a library would not survive a fork.
ALONE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def rounds_of(server: S3Server, folder: Path, kind: str, rounds: str, seed: str) -> list[dict[str, Any]]:
    """Return what each round says: every one has ended well, or this fails with what was said and the seed."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.chaos.storm", folder, server.url("storm"), kind, rounds, seed],
        cwd=ROOT,
        env={**os.environ, **server.environ(), **ALONE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.mark.soak
def test_two_runners_that_are_killed_and_frozen_leave_nothing_that_the_next_one_does_not_finish(
    tmp_path: Path, s3_server: S3Server
) -> None:
    found = rounds_of(s3_server, tmp_path, "topics", "1", "small")
    assert len(found) == 1


@pytest.mark.soak
def test_hundreds_of_storms_leave_nothing_that_the_next_run_does_not_finish(
    tmp_path: Path, s3_server: S3Server
) -> None:
    found = rounds_of(s3_server, tmp_path, "topics", ROUNDS, SEED)
    assert len(found) == int(ROUNDS)
    seen = [word for each in found for word in each["seen"]]
    assert seen.count("had not closed") >= len(found) // 5
    assert seen.count("took over the lease") >= len(found) // 5


@pytest.mark.soak
@pytest.mark.spark
def test_copies_in_a_storm_are_published_once(tmp_path: Path, s3_server: S3Server) -> None:
    found = rounds_of(s3_server, tmp_path, "copies", COPIES, SEED)
    assert len(found) == int(COPIES)
