"""The Dockerfile: linted, and its steps run here without Docker, as far as they need no root."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from dockerfile_parse import DockerfileParser

from tests.docs.markdown import ROOT

FILE = ROOT / "Dockerfile"
SPARK = ROOT / "spark-entrypoint"
PLACES = ("/src", "/wheels", "/opt/reconciler")
"""Folders of an image that a replay has below a folder of its own."""
BASE_MB = 150
HELD: dict[str, set[str]] = {
    "plan": set(),
    "kafka": {"kafka", "pyarrow"},
    "spark": {"kafka", "pyarrow", "pyspark"},
}
"""Of the large libraries, those that an image has; each begins from what the one before has installed."""


class Step(NamedTuple):
    """One instruction of a stage."""

    instruction: str
    value: str


def stages() -> dict[str, tuple[str, list[Step]]]:
    """Return what each stage begins from, and its steps."""
    with FILE.open("rb") as file:
        parsed = DockerfileParser(fileobj=file).structure
    found: dict[str, tuple[str, list[Step]]] = {}
    for each in parsed:
        if each["instruction"] == "FROM":
            source, _, name = each["value"].partition(" AS ")
            found[name] = (source, [])
        elif each["instruction"] != "COMMENT":
            found[name][1].append(Step(each["instruction"], each["value"]))
    return found


def whole(name: str) -> list[Step]:
    """Return the steps of a stage, those of the stages that it begins from first."""
    source, steps = stages()[name]
    return [*(whole(source) if source in stages() else []), *steps]


def test_the_linter_finds_nothing() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, "--format", "json", FILE], capture_output=True, text=True, check=False)
    assert json.loads(done.stdout) == []
    assert done.returncode == 0


def test_every_image_begins_from_one_digest_runs_as_nobody_special_and_starts_the_command() -> None:
    outside = {source for source, _ in stages().values() if source not in stages()}
    assert len(outside) == 1
    assert len(outside.pop().partition("@sha256:")[2]) == 64
    for target in ("plan", "kafka", "spark"):
        last = {step.instruction: step.value for step in whole(target)}
        assert last["USER"] == "10001", target
        starts = ["tini", "--", SPARK.name] if target == "spark" else ["reconciler"]
        assert json.loads(last["ENTRYPOINT"]) == starts, target
    assert list(stages())[-1] == "plan"


def test_the_entrypoint_of_the_image_with_spark_starts_the_command_and_shellcheck_finds_nothing() -> None:
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run([SPARK, "--version"], env={"PATH": path}, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("reconciler ")
    subprocess.run([Path(sys.executable).with_name("shellcheck"), SPARK], check=True)


def test_the_context_leaves_out_all_that_is_not_copied() -> None:
    wanted = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    steps = [step for _, steps in stages().values() for step in steps if step.instruction == "COPY"]
    copied = [step.value.split()[:-1] for step in steps if not step.value.startswith("--from=")]
    assert wanted == {source for sources in copied for source in sources}
    assert (ROOT / ".dockerignore").read_text().startswith("*\n")


class Replay:
    """Runs the steps that fill an image, below `root`, with a Python of its own as the base image has."""

    def __init__(self, root: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", root / "python"], check=True)
        path = f"{root / 'python' / 'bin'}:/usr/bin:/bin"
        self.root = self.here = root
        self.environ = {**os.environ, "PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def run(self, steps: list[Step]) -> None:
        for step in steps:
            match step.instruction:
                case "WORKDIR":
                    self.here = self.root / step.value.lstrip("/")
                    self.here.mkdir(parents=True)
                case "COPY":
                    self._copy(*step.value.split())
                case "RUN":
                    command = step.value
                    for place in PLACES:
                        command = command.replace(f" {place}", f" {self.root}{place}")
                    subprocess.run(["/bin/sh", "-ec", command], cwd=self.here, env=self.environ, check=True)
                case "ENV":
                    self.environ |= dict(each.split("=", 1) for each in shlex.split(step.value))
                case other:
                    raise AssertionError(f"a replay knows no {other}")

    def _copy(self, *names: str) -> None:
        *sources, to = names
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, self.here / to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, self.here / to)


@pytest.mark.thorough
def test_the_steps_of_each_image_install_a_command_that_plans_and_applies(tmp_path: Path) -> None:
    replay = Replay(tmp_path)
    installed = tmp_path / "opt" / "reconciler"
    replay.run(whole("build"))
    for target, libraries in HELD.items():
        source, steps = stages()[f"installed-{target}"]
        assert source in {"build", *(f"installed-{each}" for each in HELD)}
        replay.run(steps)
        have = {path.name for path in installed.glob("lib/*/site-packages/*")}
        assert have & HELD["spark"] == libraries, target
        size = sum(path.stat().st_size for path in installed.rglob("*") if path.is_file() and not path.is_symlink())
        assert target != "plan" or size < BASE_MB * 1_000_000
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        for arguments in (["init", target], ["apply", "--workspace", target, "--yes"], ["plan", "--workspace", target]):
            command = [installed / "bin" / "reconciler", *arguments]
            done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, ""), arguments
        assert "nothing to do" in done.stdout
