"""A runner for our workflows and composite actions: jobs and steps run in order, with GitHub's environment and files.

Of GitHub's expressions it knows what they use, and fails on anything else. It checks out repositories of this machine.
Steps that use an action of others are noted and not run.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
ACTIONS: Final = ROOT / ".github" / "actions"
OURS: Final = "acme/reconciler"
"""The repository of our workflows; private: only its token reads it."""
OURS_TOKEN: Final = "r3ad-0815"  # noqa: S105 - only this runner takes it
COMMIT: Final = "0815" * 10
_EXPRESSION: Final = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_UNWANTED: Final = re.compile(r"^(GITHUB|RUNNER|CI$|CI_|GITEA|GITLAB|RECONCILER)")


@dataclass
class RunOutcome:
    """How an action or a job ended."""

    code: int
    log: str
    outputs: dict[str, str]
    summary: str
    used: list[tuple[str, dict[str, str]]]
    """Other actions that it would have run, and with what."""
    job: Mapping[str, str] = field(default_factory=dict)
    """Of a job of a workflow: runs-on, timeout-minutes, environment, and the group of its concurrency."""


@dataclass
class Runner:
    """A machine with a checkout, for the jobs of one event."""

    home: Path
    checkout: Path
    event_name: str
    event: Mapping[str, Any]
    environ: Mapping[str, str] = field(default_factory=dict)
    """What is set on top: the API's address, the repository, the commit."""
    token: str = ""
    finds_installed: bool = True
    """Whether the tool is there from an earlier step of the job: then nothing is installed."""
    job: Mapping[str, str] = field(default_factory=lambda: {"workflow_repository": OURS, "workflow_sha": COMMIT})
    """What the server says about a job; GitHub Enterprise Server says less."""
    server: str = "https://github.com"

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
        job = _Job(self, self.checkout, self._contexts())
        inputs = {name.replace("_", "-"): value for name, value in given.items()}
        outputs = job.run_action(ACTIONS / action, inputs)
        return RunOutcome(job.code, job.log, outputs, job.summary, job.used)

    def call(self, workflow: str, secrets: Mapping[str, str] | None = None, **given: Any) -> list[RunOutcome]:
        """Run the jobs of a workflow that is called; a job that is skipped is left out."""
        document = yaml.load((ROOT / ".github" / "workflows" / f"{workflow}.yml").read_text(), Loader=yaml.BaseLoader)  # noqa: S506 - keeps `on` a key
        called = document["on"]["workflow_call"]
        unknown = {*given, *(secrets or {})} - called["inputs"].keys() - called["secrets"].keys()
        assert not unknown, f"{workflow} has no inputs or secrets {unknown}"
        contexts = self._contexts()
        contexts["inputs"] = {name: _typed(spec, given.get(name)) for name, spec in called["inputs"].items()}
        contexts |= {"secrets": secrets or {}, "job": self.job, "needs": {}}
        outcomes: list[RunOutcome] = []
        for name, job in document["jobs"].items():
            needed = [job["needs"]] if "needs" in job else []
            if not all(other in contexts["needs"] for other in needed):
                continue
            if not truth(value_of(_bare(job.get("if", "true")), contexts)):
                continue
            matrix = {
                key: value_of(_bare(cell), contexts) for key, cell in job.get("strategy", {}).get("matrix", {}).items()
            }
            for cells in itertools.product(*matrix.values()):
                scope = {**contexts, "matrix": dict(zip(matrix, cells, strict=True)), "strategy": {}}
                outcomes.append(self._run_job(job, scope, len(outcomes)))
                contexts["needs"][name] = {"outputs": outcomes[-1].outputs}
        return outcomes

    def _run_job(self, job: Mapping[str, Any], contexts: dict[str, Any], number: int) -> RunOutcome:
        folder = self.home / "work" / f"{len(list(self.home.glob('work/*')))}-{number}"
        folder.mkdir(parents=True)
        running = _Job(self, folder, {**contexts, "steps": {}})
        running.run_steps(job["steps"], ROOT)
        outputs = {key: filled(value, running.contexts) for key, value in job.get("outputs", {}).items()}
        facts = {
            key: filled(job[key], running.contexts)
            for key in ("runs-on", "timeout-minutes", "environment")
            if key in job
        }
        if "concurrency" in job:
            facts["group"] = filled(job["concurrency"]["group"], running.contexts)
        return RunOutcome(running.code, running.log, outputs, running.summary, running.used, facts)

    def _contexts(self) -> dict[str, Any]:
        github = {
            "token": self.token,
            "event": self.event,
            "event_name": self.event_name,
            "server_url": self.server,
            "ref": "refs/heads/main",
        }
        return {"github": github}


@dataclass
class _Job:
    runner: Runner
    checkout: Path
    contexts: dict[str, Any]
    code: int = 0
    log: str = ""
    summary: str = ""
    path: str = os.environ["PATH"]
    environ: dict[str, str] = field(default_factory=dict)
    """What steps wrote to `$GITHUB_ENV`."""
    used: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def run_action(self, folder: Path, given: Mapping[str, str]) -> dict[str, str]:
        """Run the steps of a composite action; return its outputs."""
        document = yaml.safe_load((folder / "action.yml").read_text(encoding="utf-8"))
        specs = document["inputs"]
        assert given.keys() <= specs.keys(), f"{folder.name} has no inputs {given.keys() - specs.keys()}"
        outer, self.contexts = self.contexts, {"github": self.contexts["github"], "steps": {}}
        defaults = {name: filled(str(spec.get("default", "")), self.contexts) for name, spec in specs.items()}
        self.contexts["inputs"] = {**defaults, **given}
        self.run_steps(document["runs"]["steps"], folder)
        outputs = {name: filled(spec["value"], self.contexts) for name, spec in document.get("outputs", {}).items()}
        self.contexts = outer
        return outputs

    def run_steps(self, steps: list[dict[str, Any]], folder: Path) -> None:
        for step in steps:
            condition = _bare(step.get("if", "true"))
            may_run = self.code == 0 or "cancelled()" in condition
            if not may_run or not truth(value_of(condition, self.contexts)):
                continue
            options = {name: filled(str(value), self.contexts) for name, value in step.get("with", {}).items()}
            uses = step.get("uses", "")
            if uses.startswith("./"):
                self.run_action(self.checkout / uses, options)
            elif uses.startswith("actions/checkout@"):
                self._check_out(options)
            elif uses:
                self.used.append((uses, options))
            else:
                self._run(step, folder)

    def _check_out(self, options: Mapping[str, str]) -> None:
        """Check out the repository of the runner, or ours, which is read with its own token."""
        name = options.get("repository", "")
        place = self.checkout / options.get("path", "")
        if not name:
            commit = options.get("ref") or self.runner.environ.get("GITHUB_SHA", "HEAD")
            git = ["git", "-C", str(place)]
            subprocess.run(["git", "clone", "--quiet", "--no-checkout", self.runner.checkout, place], check=True)
            subprocess.run([*git, "fetch", "--quiet", "origin", "+refs/pull/*:refs/pull/*"], check=True)
            subprocess.run([*git, "checkout", "--quiet", "--detach", commit], check=True)
        elif (name, options["ref"], options["token"]) == (OURS, COMMIT, OURS_TOKEN):
            shutil.copytree(ROOT / ".github", place / ".github")
        else:
            self.code, self.log = 1, f"{self.log}{name}@{options['ref']}: not found\n"

    def _run(self, step: Mapping[str, Any], folder: Path) -> None:
        number = len(list((self.runner.home / "files").glob("step-*")))
        files = {name: self.runner.home / "files" / f"{name}-{number}" for name in ("output", "path", "summary", "env")}
        for path in files.values():
            path.write_text("")
        script = self.runner.home / "files" / f"step-{number}.sh"
        script.write_text(filled(step["run"], self.contexts))
        command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)]
        more = {name: filled(str(value), self.contexts) for name, value in step.get("env", {}).items()}
        done = subprocess.run(
            command,
            cwd=self.checkout,
            env=self._environ(folder, files, more),
            capture_output=True,
            text=True,
            check=False,
        )
        self.log += done.stdout + done.stderr
        self.code = self.code or done.returncode
        self.summary += files["summary"].read_text()
        self.environ |= dict(_outputs(files["env"].read_text()))
        self.contexts["steps"][step.get("id", f"#{number}")] = {"outputs": dict(_outputs(files["output"].read_text()))}
        for line in files["path"].read_text().splitlines():
            self.path = f"{line}:{self.path}"

    def _environ(self, folder: Path, files: Mapping[str, Path], more: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not _UNWANTED.search(name)}
        return {
            **kept,
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": self.runner.event_name,
            "GITHUB_EVENT_PATH": str(self.runner.home / "files" / "event.json"),
            "GITHUB_WORKSPACE": str(self.checkout),
            "GITHUB_ACTION_PATH": str(folder),
            "GITHUB_OUTPUT": str(files["output"]),
            "GITHUB_PATH": str(files["path"]),
            "GITHUB_ENV": str(files["env"]),
            "GITHUB_STEP_SUMMARY": str(files["summary"]),
            "RUNNER_TEMP": str(self.runner.home / "temp"),
            "PATH": self.path,
            **self.runner.environ,
            **self.environ,
            **more,
        }


def _outputs(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        assert equals, f"no output: {line}"
        yield name, value


def _typed(spec: Mapping[str, str], given: Any) -> Any:
    """Return an input as its declared type, or its default."""
    if given is not None:
        assert isinstance(given, {"string": str, "boolean": bool, "number": int}[spec["type"]]), spec
        return given
    return spec["default"] if spec["type"] == "string" else json.loads(spec["default"])


def filled(text: str, contexts: Mapping[str, Any]) -> str:
    return _EXPRESSION.sub(lambda match: _text(value_of(match[1], contexts)), text)


def _bare(text: str) -> str:
    match = _EXPRESSION.fullmatch(text)
    return match[1] if match else text


def truth(value: Any) -> bool:
    return value not in (None, "", 0, False)


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "", True: "true", False: "false"}[value]
    return str(value)


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "fromJSON": json.loads,
    "contains": lambda items, item: item in items,
    "startsWith": lambda text, start: _text(text).startswith(start),
    "endsWith": lambda text, end: _text(text).endswith(end),
    "format": lambda text, *values: text.format(*map(_text, values)),
    "cancelled": lambda: False,
}
_TOKENS: Final = re.compile(r"\s*('(?:[^']|'')*'|&&|\|\||==|!=|[!(),]|[A-Za-z_][\w.-]*)")


def value_of(expression: str, contexts: Mapping[str, Any]) -> Any:
    tokens = [match[1] for match in _TOKENS.finditer(expression)]
    assert "".join(tokens) == re.sub(r"\s+(?=(?:[^']*'[^']*')*[^']*$)", "", expression), expression
    value = _either(tokens, contexts)
    assert not tokens, f"the runner of the tests does not know {expression}"
    return value


def _either(tokens: list[str], contexts: Mapping[str, Any]) -> Any:
    value = _both(tokens, contexts)
    while tokens[:1] == ["||"]:
        tokens.pop(0)
        other = _both(tokens, contexts)
        value = value if truth(value) else other
    return value


def _both(tokens: list[str], contexts: Mapping[str, Any]) -> Any:
    value = _compared(tokens, contexts)
    while tokens[:1] == ["&&"]:
        tokens.pop(0)
        other = _compared(tokens, contexts)
        value = other if truth(value) else value
    return value


def _compared(tokens: list[str], contexts: Mapping[str, Any]) -> Any:
    value = _single(tokens, contexts)
    if tokens[:1] in (["=="], ["!="]):
        is_negated = tokens.pop(0) == "!="
        return (_text(value) == _text(_single(tokens, contexts))) != is_negated
    return value


def _single(tokens: list[str], contexts: Mapping[str, Any]) -> Any:
    word = tokens.pop(0)
    if word == "!":
        return not truth(_single(tokens, contexts))
    if word == "(":
        value = _either(tokens, contexts)
        assert tokens.pop(0) == ")"
        return value
    if word.startswith("'"):
        return word[1:-1].replace("''", "'")
    if word in {"true", "false"}:
        return word == "true"
    if tokens[:1] == ["("]:
        tokens.pop(0)
        values: list[Any] = []
        while tokens[0] != ")":
            values.append(_either(tokens, contexts))
            if tokens[0] == ",":
                tokens.pop(0)
        tokens.pop(0)
        return _FUNCTIONS[word](*values)
    value = contexts
    kind, *path = word.split(".")
    assert kind in contexts, f"there is no {word}"
    assert kind != "inputs" or path[0] in contexts[kind], f"there is no {word}"
    for name in (kind, *path):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
