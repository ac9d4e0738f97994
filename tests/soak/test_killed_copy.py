"""A copy whose runner is killed is begun again from what its sink has, and ends equal to its source."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RECORDS = 100_000
ROUNDS = int(os.environ.get("RECONCILER_SOAK_COPIES", "3"))

BASE = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: copies}
spec:
  state: "file://.reconciler"
"""
CLUSTERS = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec: {provider: embedded, embedded: {root: "file://.clusters/west"}}
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: east}
spec: {provider: embedded, embedded: {root: "file://.clusters/east"}}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: numbers, cluster: west}
spec: {partitions: 4}
"""
LINK = """\
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: from-west, cluster: east}
spec:
  source: west
  mirrorTopics:
    - {source: numbers, state: mirroring}
"""
COMMAND = (sys.executable, "-m", "reconciler.cli.main")


def run(folder: Path, *words: str) -> str:
    ran = subprocess.run([*COMMAND, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A topic full of records, and a link that has never been applied."""
    (tmp_path / "manifests").mkdir()
    (tmp_path / "reconciler.yaml").write_text(BASE)
    (tmp_path / "manifests" / "clusters.yaml").write_text(CLUSTERS)
    run(tmp_path, "apply", "--yes")
    rows = (json.dumps({"n": number, "key": f"k{number % 997}"}) for number in range(RECORDS))
    (tmp_path / "numbers.jsonl").write_text("\n".join(rows) + "\n")
    run(tmp_path, "topic", "produce", "topic/west/numbers", "--input", "numbers.jsonl", "--key-field", "key")
    (tmp_path / "manifests" / "link.yaml").write_text(LINK)
    return tmp_path


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_copy_killed_at_a_random_moment_is_finished_by_the_next_apply(workspace: Path, number: int) -> None:
    with subprocess.Popen(
        [*COMMAND, "apply", "--yes", "--format", "json"], cwd=workspace, stdout=subprocess.PIPE, text=True
    ) as applying:
        assert applying.stdout is not None
        assert any('"action_started","id":"mirror:' in line for line in applying.stdout)
        time.sleep(random.Random(number).uniform(0, 8))  # noqa: S311 - repeatable, no secret
        applying.send_signal(signal.SIGKILL)
    lease = json.loads((workspace / ".reconciler" / "lockfile.json").read_bytes())["lease"]
    if lease["status"] == "held":
        run(workspace, "state", "unlock", lease["run"], "--yes")
    run(workspace, "apply", "--yes")
    assert f"{RECORDS:,} records" in run(workspace, "verify", "topic/west/numbers", "topic/east/numbers", "--deep")
    assert "nothing to do" in run(workspace, "plan")
