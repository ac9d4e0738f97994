from __future__ import annotations

import itertools
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from reconciler.applying.events import Event
from reconciler.operations.apply import ApplyOptions, ApplyOutcome, DestroyOptions, Hooks, apply, destroy
from reconciler.operations.plan import PlanResult, plan
from reconciler.operations.steps.invocation import Invocation, Select
from reconciler.operations.steps.runner import EmergencyRun, Stop

WORKSPACE = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: shop}
"""

WEST = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec:
  embedded: {root: "file://.clusters/west"}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: shop, cluster: west}
"""

ORDERS = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, namespace: shop, cluster: west}
spec: {partitions: 3, configs: {retention.ms: 7d}}
"""


@dataclass
class Bench:
    """A workspace in a folder of its own, and the commands a person would give there."""

    folder: Path
    invocation: Invocation
    events: list[Event] = field(default_factory=list)
    asked: list[PlanResult] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    stop: Stop = field(default_factory=Stop)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def plan(self, select: Select | None = None, *, out: Path | None = None) -> PlanResult:
        return plan(self.invocation, select or Select(), out=out)

    def apply(
        self,
        select: Select | None = None,
        options: ApplyOptions | None = None,
        *,
        confirm: Callable[[PlanResult], bool] = lambda _planned: True,
        report: Callable[[Event], None] | None = None,
    ) -> ApplyOutcome:
        def asked(planned: PlanResult) -> bool:
            self.asked.append(planned)
            return confirm(planned)

        return apply(
            self.invocation,
            select or Select(),
            options or ApplyOptions(yes=True),
            Hooks(asked, report or self.events.append, self.stop),
        )

    def destroy(self, select: Select | None = None, *, recursive: bool = False) -> ApplyOutcome:
        return destroy(
            self.invocation,
            select or Select(),
            DestroyOptions(yes=True, recursive=recursive),
            Hooks(lambda _planned: True, self.events.append, self.stop),
        )

    def acting(self, command: str = "by hand", *, no_state: bool = False, state_url: str | None = None) -> EmergencyRun:
        """Return the run that a command makes which acts at once."""
        return EmergencyRun(
            invocation=self.invocation,
            select=Select(),
            command=command,
            no_state=no_state,
            state_url=state_url,
            lock_timeout_s=0,
            report=self.events.append,
            stop=self.stop,
        )

    def with_(self, **changes: object) -> Bench:
        return replace(self, invocation=replace(self.invocation, **changes))  # type: ignore[arg-type]  # fields by name


def _bench_in(folder: Path, first_run: int = 1) -> Bench:
    numbers = itertools.count(first_run)
    warned: list[str] = []
    invocation = Invocation(
        cwd=folder,
        environ={},
        now_ms=lambda: time.time_ns() // 1_000_000,
        new_id=lambda: str(uuid.uuid4()),
        new_run=lambda: f"019a0000-0000-7000-8000-{next(numbers):012}",
        tool="0.1.0",
        who="anna@build-7",
        warn=warned.append,
    )
    return Bench(folder, invocation, warned=warned)


def _with_files(bench: Bench) -> Bench:
    bench.write("reconciler.yaml", WORKSPACE)
    bench.write("manifests/west.yaml", WEST)
    bench.write("manifests/orders.yaml", ORDERS)
    return bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A workspace with one cluster, one namespace and one topic; nothing is applied yet."""
    return _with_files(_bench_in(tmp_path))


@pytest.fixture
def applied_here(bench: Bench) -> Bench:
    """The same, applied in its own folder, whose name the clusters keep as the place of the owner's state."""
    assert bench.apply().verdict is None
    return bench


@pytest.fixture(scope="session")
def applied_once(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """The same, applied; it is copied, never changed."""
    made = _with_files(_bench_in(tmp_path_factory.mktemp("applied")))
    assert made.apply().verdict is None
    return made


@pytest.fixture
def applied(applied_once: Bench, tmp_path: Path) -> Bench:
    """A copy of it in a folder of its own."""
    shutil.copytree(applied_once.folder, tmp_path, dirs_exist_ok=True)
    copy = _bench_in(tmp_path, first_run=2)
    copy.events.extend(applied_once.events)
    copy.asked.extend(applied_once.asked)
    return copy
