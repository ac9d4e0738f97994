"""How these tests start the command."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from reconciler.cli.main import main
from tests.cli import terminals
from tests.cli.sample_workspaces import Shop, Twins, make_shop, make_twins

Finished: TypeAlias = "subprocess.CompletedProcess[str]"
Run: TypeAlias = Callable[..., Finished]


class Said(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Call: TypeAlias = Callable[..., Said]

COMMAND = (sys.executable, "-m", "reconciler.cli.main")


UNWANTED = (
    *("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI", "GITHUB_ACTIONS", "GITLAB_CI"),
    *("TERM", "COLUMNS", "LINES", "PYTHONIOENCODING"),
)
"""What a pipeline or a developer's shell sets, and changes how a command prints."""


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which nothing but a test decides about colours, pipelines or a home."""
    kept = {key: value for key, value in os.environ.items() if key not in UNWANTED and not key.startswith("GITHUB_")}
    return {**kept, "TERM": "xterm", "LC_ALL": "C.UTF-8", **more}


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Call:
    """Run commands in this process, in a folder of their own; nothing is there yet."""
    monkeypatch.chdir(tmp_path)
    for name in UNWANTED:
        monkeypatch.delenv(name, raising=False)

    def start(*arguments: str, stdin: bytes = b"") -> Said:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        code = main(arguments)
        sys.stdout.flush()
        shown = capfdbinary.readouterr()
        return Said(code, shown.out.decode(), shown.err.decode())

    return start


@pytest.fixture
def call(typed: Call) -> Call:
    """The same in a workspace that `init` made."""
    assert typed("init").code == 0
    return typed


@pytest.fixture(scope="session")
def made_shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace of two clusters that share one object storage, applied; it is copied, never changed."""
    folder = tmp_path_factory.mktemp("shop")
    make_shop(folder)
    return folder


@pytest.fixture
def shop(made_shop: Path, typed: Call, tmp_path: Path) -> Shop:
    """The same in a folder of its own, and the commands typed there."""
    shutil.copytree(made_shop, tmp_path, dirs_exist_ok=True)
    return Shop(typed, tmp_path)


@pytest.fixture(scope="session")
def made_twins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace of two clusters with a bidirectional link, applied and copied; it is copied, never changed."""
    folder = tmp_path_factory.mktemp("twins")
    make_twins(folder)
    return folder


@pytest.fixture
def twins(made_twins: Path, typed: Call, tmp_path: Path) -> Twins:
    """The same in a folder of its own, and the commands typed there."""
    shutil.copytree(made_twins, tmp_path, dirs_exist_ok=True)
    return Twins(typed, tmp_path)


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
        types: Sequence[tuple[str, terminals.Typed]] = (),
        environ: Mapping[str, str] | None = None,
        cwd: Path = tmp_path,
        command: Sequence[str] = COMMAND,
        size: terminals.Size = terminals.WIDE,
    ) -> tuple[int, str]:
        return terminals.on_terminal(
            [*command, *arguments], cwd=cwd, environ=environment(**(environ or {})), types=types, size=size
        )

    return start
