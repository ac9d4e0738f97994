"""How these tests start the command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.cli import terminals

Finished: TypeAlias = "subprocess.CompletedProcess[str]"
Run: TypeAlias = Callable[..., Finished]

COMMAND = (sys.executable, "-m", "reconciler.cli.main")


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which nothing but a test decides about colours, pipelines or a home."""
    unwanted = ("NO_COLOR", "FORCE_COLOR", "CI", "TERM", "COLUMNS", "PYTHONIOENCODING")
    kept = {key: value for key, value in os.environ.items() if key not in unwanted and not key.startswith("GITHUB_")}
    return {**kept, "TERM": "xterm", "LC_ALL": "C.UTF-8", **more}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Start the command in a folder of its own and wait for it."""

    def start(
        *arguments: str, stdin: str = "", environ: Mapping[str, str] | None = None, cwd: Path = tmp_path
    ) -> Finished:
        return subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=cwd,
            env=environment(**(environ or {})),
            timeout=60,
            check=False,
        )

    return start


@pytest.fixture
def on_terminal(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Start the command on a terminal of its own, type, and return its exit code and everything it showed."""

    def start(
        *arguments: str,
        types: Sequence[tuple[str, bytes]] = (),
        environ: Mapping[str, str] | None = None,
        cwd: Path = tmp_path,
    ) -> tuple[int, str]:
        return terminals.on_terminal(
            [*COMMAND, *arguments], cwd=cwd, environ=environment(**(environ or {})), types=types
        )

    return start
