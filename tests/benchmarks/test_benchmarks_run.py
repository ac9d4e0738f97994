"""The benchmarks still run. What they measure is judged by people, never by a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run.py")


@pytest.mark.soak
def test_every_benchmark_runs_on_a_small_scale() -> None:
    ran = subprocess.run([sys.executable, RUN, "--quick"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "aims met" in ran.stdout
