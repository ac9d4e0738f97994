"""A job in Spark, asked to stop by a real signal: it ends in time, and `apply --resume` finishes a plan."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from reconciler.operations.clusters.consume import ProduceOptions, produce
from reconciler.operations.plan import plan
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions, Stop
from reconciler.operations.verify import VerifyOptions, verify
from tests.cli.conftest import COMMAND, environment
from tests.soak.runs import invocation, run_apply

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

INCOMPLETE = 4
INTERRUPTED = 130
WITHIN_S = 5.0
"""It is done in three; a pipeline kills after seven, and the machine of a test may be busy."""
DEADLINE_S = 120.0
RECORDS = 200_000
SOURCE, COPY = "topic/west/numbers", "topic/east/numbers"
JOB = "mirror:mirror/east/numbers"

WORKSPACE = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: copies}
spec: {state: "file://state", spark: {engine: spark}}
"""
MANIFESTS = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec: {embedded: {root: "file://west"}}
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: east}
spec: {embedded: {root: "file://east"}}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: numbers, cluster: west}
spec: {partitions: 2}
"""
LINK = """\
---
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: from-west, cluster: east}
spec: {source: west, mirrorTopics: [{source: numbers}]}
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A topic full of records, and a link that has never been applied."""
    (tmp_path / "manifests").mkdir()
    (tmp_path / "reconciler.yaml").write_text(WORKSPACE)
    manifests = tmp_path / "manifests" / "all.yaml"
    manifests.write_text(MANIFESTS)
    run_apply(tmp_path)
    rows = io.BytesIO(b"".join(b'{"n": %d}\n' % number for number in range(RECORDS)))
    options = ProduceOptions(input_format="jsonl")
    produce(
        SiteOptions(invocation=invocation(tmp_path), select=Select()),
        SOURCE,
        options,
        stdin=rows,
        report=lambda *_: None,
    )
    manifests.write_text(MANIFESTS + LINK)
    return tmp_path


def stopped_at(folder: Path, event: str, by: signal.Signals) -> tuple[int, list[dict[str, Any]]]:
    """Apply, send a signal at an event of the copy, and return the exit code and every event."""
    with subprocess.Popen(
        [*COMMAND, "apply", "--yes", "--format", "json"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        events: list[dict[str, Any]] = []
        for line in process.stdout:
            events.append(json.loads(line))
            if (events[-1]["event"], events[-1].get("id")) == (event, JOB):
                break
        began = time.monotonic()
        process.send_signal(by)
        try:
            rest, said = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert time.monotonic() - began < WITHIN_S, said
    assert "Traceback" not in said, said
    return process.returncode, events + [json.loads(line) for line in rest.splitlines()]


@pytest.mark.parametrize(
    ("event", "by"),
    [("progress", signal.SIGTERM), pytest.param("action_started", signal.SIGINT, marks=pytest.mark.soak)],
    ids=["while it copies", "while Spark starts"],
)
def test_a_copy_is_stopped_in_time_and_finished_by_resuming(workspace: Path, event: str, by: signal.Signals) -> None:
    code, events = stopped_at(workspace, event, by)
    assert code == INCOMPLETE
    (detached,) = (each for each in events if each["event"] == "detached")
    assert detached["left"] == [JOB]
    lockfile = json.loads((workspace / "state" / "lockfile.json").read_bytes())
    assert lockfile["lease"]["status"] == "free"
    assert lockfile["open_run"]["run"] == next(each for each in events if each["event"] == "summary")["run"]

    resumed = subprocess.run(
        [*COMMAND, "apply", "--resume"], cwd=workspace, env=environment(), capture_output=True, text=True, check=False
    )
    assert resumed.returncode == 0, resumed.stderr
    here = SiteOptions(invocation=invocation(workspace), select=Select())
    how = VerifyOptions(deep=False, report=lambda _: None, stop=Stop())
    assert verify(here, SOURCE, COPY, how).verdict is None
    assert plan(here.invocation, here.select).plan.is_empty


# What Spark starts for tasks: it says so, does nothing, and ends when the JVM does.
WORKER = """\
#!/bin/sh
case "$*" in *"pyspark.daemon pyspark.worker") ;; *) exec {python} "$@" ;; esac
exec 3> {fifo}
echo started >&3
exec cat > /dev/null
"""


def heard(fifo: int) -> bytes:
    """Return what workers say, as soon as they do; nothing: all have ended."""
    assert select.select([fifo], [], [], DEADLINE_S)[0]
    return os.read(fifo, 100)


@pytest.mark.parametrize(
    "command", [("verify", SOURCE, SOURCE, "--deep"), ("topic", "profile", SOURCE)], ids=["verify", "profile"]
)
def test_reading_in_spark_is_interrupted_without_a_trace(workspace: Path, command: tuple[str, ...]) -> None:
    fifo, worker = workspace / "told", workspace / "worker"
    os.mkfifo(fifo)
    worker.write_text(WORKER.format(fifo=fifo, python=sys.executable))
    worker.chmod(0o755)
    told = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with subprocess.Popen(
        [*COMMAND, *command],
        cwd=workspace,
        env=environment(PYSPARK_PYTHON=str(worker)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert heard(told), "no task began"
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            out, said = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert time.monotonic() - began < WITHIN_S, said
    assert (process.returncode, out) == (INTERRUPTED, ""), said
    assert said.splitlines()[-2:] == ["Error: Interrupted", "  hint: Nothing was changed"]
    assert "Traceback" not in said, said
    while heard(told):
        pass  # until no worker is left, and so no JVM
    os.close(told)
