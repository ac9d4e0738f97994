"""Uploading a topic and reading it back take no more memory the more there is of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MIB = 192
"""Enough for as many segments as are uploaded side by side."""


@pytest.mark.soak
def test_memory_stays_flat_from_one_to_four_times_as_much(tmp_path: Path) -> None:
    peaks = {times: peaks_of(tmp_path / str(times), times * MIB) for times in (1, 4)}
    for little, much in zip(peaks[1], peaks[4], strict=True):
        assert much < 1.25 * little + 64, peaks


def peaks_of(folder: Path, mib: int) -> list[int]:
    """Fill a topic, upload it and read it back, each in its own process; return what the last two took, in MiB."""
    run(folder, "fill", str(mib))
    return [run(folder, step) for step in ("upload", "read")]


def run(folder: Path, *step: str) -> int:
    command = [sys.executable, "-m", "tests.embedded.memoryprobe", str(folder), *step]
    return int(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout)
