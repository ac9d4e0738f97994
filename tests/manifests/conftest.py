"""Workspaces written for one test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

WORKSPACE = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: shop}
"""

CLUSTERS = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec: {embedded: {root: file://.clusters/west}}
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: east}
spec: {embedded: {root: file://.clusters/east}}
---
apiVersion: reconciler/v1
kind: TieringPolicy
metadata: {name: standard}
spec: {remoteWrite: true, retention: {time: 3d}}
"""

Write = Callable[[Mapping[str, str | bytes]], Path]


@pytest.fixture
def workspace(tmp_path: Path) -> Write:
    """Return what writes files into a workspace folder and returns it."""

    def write(files: Mapping[str, str | bytes]) -> Path:
        for name, content in {"reconciler.yaml": WORKSPACE, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path

    return write


@pytest.fixture
def clusters() -> str:
    """Return a file that declares clusters west and east and the policy standard."""
    return CLUSTERS
