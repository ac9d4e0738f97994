"""Runs the command as its users do, and the stories of the examples."""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from examples import kafkajars
from reconciler.cli.main import main

RECONCILER = Path(sys.executable).with_name("reconciler")
Run = Callable[..., subprocess.CompletedProcess[str]]
Tell = Callable[[Path], "ModuleType"]


@pytest.fixture
def reconciler() -> Run:
    """The command, in a process of its own."""

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


@pytest.fixture
def tell_alone(tmp_path: Path) -> Callable[..., None]:
    """Tell a story in a process of its own, with servers of its own, and check that it ends as it says."""

    def tell(demo: Path, **environ: str) -> None:
        jars = {"XDG_CACHE_HOME": str(kafkajars._CACHE.parents[1])}  # of whoever runs the tests
        told = subprocess.run(
            [sys.executable, demo, tmp_path / "workspace"],
            env={**os.environ, **jars, **environ},
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        assert told.returncode == 0, told.stdout + told.stderr
        assert "All as the story says" in told.stdout

    return tell


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command, in this process: in a tenth of the time."""

    def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(folder)
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", out)
            patched.setattr(sys, "stderr", err)
            code = main(arguments)
        return subprocess.CompletedProcess(arguments, code, _written(out), _written(err))

    return run


def _written(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


@pytest.fixture
def tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Run) -> Tell:
    """Load a demo as a module, with a workspace of its own, whose commands are typed in this process."""

    def loaded(demo: Path) -> ModuleType:
        workspace = tmp_path / "workspace"
        spec = importlib.util.spec_from_file_location(f"{demo.parent.name}_demo", demo)
        assert spec is not None
        assert spec.loader is not None
        monkeypatch.setattr(sys, "argv", [str(demo), str(workspace)])
        module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)

        def add_workspace_files(*arguments: str) -> tuple[int, str]:
            done = typed(workspace, *arguments)
            return done.returncode, done.stdout

        module.STORY.typed = add_workspace_files
        return module  # type: ignore[no-any-return]  # a module whose story types elsewhere

    return loaded
