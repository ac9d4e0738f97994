from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from reconciler.workflow.invocation import Invocation

Write: TypeAlias = Callable[[str, str], Path]

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
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, namespace: shop, cluster: west}
spec: {partitions: 3, configs: {retention.ms: 7d}}
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file of the workspace."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


@pytest.fixture
def shop(write: Write) -> Path:
    """A workspace with one cluster, one namespace and one topic."""
    write("manifests/west.yaml", WEST)
    return write("reconciler.yaml", WORKSPACE).parent


@pytest.fixture
def invocation(tmp_path: Path) -> Invocation:
    runs = (f"019a0000-0000-7000-8000-{number:012}" for number in itertools.count(1))
    return Invocation(
        cwd=tmp_path,
        environ={},
        now_ms=lambda: time.time_ns() // 1_000_000,
        new_id=lambda: str(uuid.uuid4()),
        new_run=lambda: next(runs),
        tool="0.1.0",
        who="anna@build-7",
    )
