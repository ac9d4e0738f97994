"""The demo, as `make demo` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "flights" / "demo.py"


def run_demo(workspace: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, DEMO, workspace],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.soak
@pytest.mark.spark
def test_every_flight_reaches_the_other_cluster_and_the_last_plan_is_empty(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    told = run_demo(workspace)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "336,776 records on west, the same 336,776 on east, and the last plan is empty." in told.stdout


def test_without_java_it_says_so_in_one_line(tmp_path: Path) -> None:
    told = run_demo(tmp_path / "workspace", PATH=str(tmp_path), JAVA_HOME=str(tmp_path))
    assert told.returncode == 1
    assert len(told.stderr.strip().splitlines()) == 1
    assert "Java" in told.stderr
    assert told.stdout == ""
