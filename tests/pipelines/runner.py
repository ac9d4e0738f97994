"""A runner for our composite actions: their steps run in order, with the environment and files that GitHub's has.

Of GitHub's expressions it knows what the actions use, and fails on anything else. Steps that use another action are
noted and not run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
ACTIONS: Final = ROOT / ".github" / "actions"
_EXPRESSION: Final = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_UNWANTED: Final = re.compile(r"^(GITHUB|RUNNER|CI$|CI_|GITEA|GITLAB|RECONCILER)")


@dataclass
class RunOutcome:
    """How an action ended."""

    code: int
    log: str
    outputs: dict[str, str]
    summary: str
    used: list[tuple[str, dict[str, str]]]
    """Other actions that it would have run, and with what."""


@dataclass
class Runner:
    """A machine with a checkout, for one job of one event."""

    home: Path
    checkout: Path
    event_name: str
    event: Mapping[str, Any]
    environ: Mapping[str, str] = field(default_factory=dict)
    """What is set on top: the API's address, the repository, the commit."""
    token: str = ""
    finds_installed: bool = True
    """Whether the tool is there from an earlier step of the job: then nothing is installed."""

    def __post_init__(self) -> None:
        for name in ("temp", "files"):
            (self.home / name).mkdir(parents=True, exist_ok=True)
        (self.home / "files" / "event.json").write_text(json.dumps(self.event))
        if self.finds_installed:
            tools = self.home / "temp" / "reconciler" / "bin"
            tools.mkdir(parents=True, exist_ok=True)
            for name in ("reconciler", "python"):
                target = Path(sys.executable).with_name(name)
                (tools / name).unlink(missing_ok=True)
                (tools / name).write_text(f'#!/bin/sh\nexec "{target}" "$@"\n')
                (tools / name).chmod(0o755)

    def run(self, action: str, **given: str) -> RunOutcome:
        """Run an action with inputs, whose `-` is written `_` here."""
        said = yaml.safe_load((ACTIONS / action / "action.yml").read_text(encoding="utf-8"))
        unknown = {name.replace("_", "-") for name in given} - said["inputs"].keys()
        assert not unknown, f"{action} has no inputs {unknown}"
        scope = _Scope(self, {}, {})
        for name, each in said["inputs"].items():
            scope.inputs[name] = given.get(name.replace("-", "_"), scope.filled(str(each.get("default", ""))))
        job = _Job(self, ACTIONS / action, scope)
        for number, step in enumerate(said["runs"]["steps"]):
            job.step(number, step)
        outputs = {name: scope.filled(each["value"]) for name, each in said.get("outputs", {}).items()}
        return RunOutcome(job.code, job.log, outputs, job.summary, job.used)


@dataclass
class _Scope:
    """What expressions may name."""

    runner: Runner
    inputs: dict[str, str]
    steps: dict[str, dict[str, str]]

    def filled(self, text: str) -> str:
        return _EXPRESSION.sub(lambda found: self.value(found[1]), text)

    def value(self, expression: str) -> str:
        kind, _, rest = expression.partition(".")
        match kind, rest.split("."):
            case "inputs", [name]:
                return self.inputs[name]
            case "steps", [step, "outputs", name]:
                return self.steps[step].get(name, "")
            case "github", ["token"]:
                return self.runner.token
            case "github", ["event", *path]:
                found: Any = self.runner.event
                for name in path:
                    found = found.get(name) if isinstance(found, dict) else None
                return "" if found is None else str(found)
        raise AssertionError(f"the runner of the tests does not know {expression}")

    def holds(self, condition: str | None, *, has_failed: bool) -> bool:
        """Tell whether a step runs: what its `if` says, and else only while nothing has failed."""
        if condition is None:
            return not has_failed
        found = re.fullmatch(r"\$\{\{ inputs\.([\w-]+) != '' && !cancelled\(\) \}\}", condition)
        assert found, f"the runner of the tests does not know {condition}"
        return self.inputs[found[1]] != ""


@dataclass
class _Job:
    runner: Runner
    folder: Path
    scope: _Scope
    code: int = 0
    log: str = ""
    summary: str = ""
    path: str = os.environ["PATH"]
    used: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def step(self, number: int, step: Mapping[str, Any]) -> None:
        if not self.scope.holds(step.get("if"), has_failed=self.code != 0):
            return
        if "uses" in step:
            options = {name: self.scope.filled(str(value)) for name, value in step.get("with", {}).items()}
            self.used.append((step["uses"], options))
            return
        assert step["shell"] == "bash"
        files = {name: self.runner.home / "files" / f"{name}-{number}" for name in ("output", "path", "summary", "env")}
        for path in files.values():
            path.write_text("")
        script = self.runner.home / "files" / f"step-{number}.sh"
        script.write_text(self.scope.filled(step["run"]))
        command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)]
        environ = self._environ(files, {name: self.scope.filled(str(v)) for name, v in step.get("env", {}).items()})
        done = subprocess.run(
            command, cwd=self.runner.checkout, env=environ, capture_output=True, text=True, check=False
        )
        self.log += done.stdout + done.stderr
        self.code = self.code or done.returncode
        self.summary += files["summary"].read_text()
        self.scope.steps[step.get("id", f"#{number}")] = dict(_outputs(files["output"].read_text()))
        for each in files["path"].read_text().splitlines():
            self.path = f"{each}:{self.path}"

    def _environ(self, files: Mapping[str, Path], more: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not _UNWANTED.search(name)}
        return {
            **kept,
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": self.runner.event_name,
            "GITHUB_EVENT_PATH": str(self.runner.home / "files" / "event.json"),
            "GITHUB_WORKSPACE": str(self.runner.checkout),
            "GITHUB_ACTION_PATH": str(self.folder),
            "GITHUB_OUTPUT": str(files["output"]),
            "GITHUB_PATH": str(files["path"]),
            "GITHUB_ENV": str(files["env"]),
            "GITHUB_STEP_SUMMARY": str(files["summary"]),
            "RUNNER_TEMP": str(self.runner.home / "temp"),
            "PATH": self.path,
            **self.runner.environ,
            **more,
        }


def _outputs(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        assert equals, f"no output: {line}"
        yield name, value
