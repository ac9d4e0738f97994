"""Runs the command as its users do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

RECONCILER = Path(sys.executable).with_name("reconciler")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def reconciler() -> Run:
    def run(
        folder: Path,
        *arguments: str,
        environ: Mapping[str, str] = {},
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [RECONCILER, *arguments],
            cwd=folder,
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )

    return run
