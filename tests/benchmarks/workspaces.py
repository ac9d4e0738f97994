"""Workspaces of any size, written as people write them: a hundred topics a file, one namespace a file."""

from __future__ import annotations

from pathlib import Path

_WORKSPACE = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: bench}
spec:
  state: file://.reconciler
  manifests: [manifests]
"""

_CLUSTER = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec:
  provider: embedded
  embedded: {root: file://.clusters/west}
"""

_NAMESPACE = """\
apiVersion: reconciler/v1
kind: Namespace
metadata:
  name: "team-%03d:events"
  cluster: west
spec:
  configs:
    retention.ms: 30d
"""

_TOPIC = """\
---
apiVersion: reconciler/v1
kind: Topic
metadata:
  name: topic-%05d
  namespace: "team-%03d:events"
  cluster: west
  labels: {team: team-%03d, tier: gold}
spec:
  partitions: 12
  configs:
    cleanup.policy: delete
    max.message.bytes: 4MiB
    retention.ms: 7d
"""


def write_workspace(folder: Path, *, topics: int, files: int = 100) -> Path:
    """Write a workspace of so many topics, spread over so many files, and return its folder."""
    manifests = folder / "manifests"
    manifests.mkdir(parents=True)
    (folder / "reconciler.yaml").write_text(_WORKSPACE, encoding="utf-8")
    (manifests / "cluster.yaml").write_text(_CLUSTER, encoding="utf-8")
    each = topics // files
    for number in range(files):
        documents = (_TOPIC % (number * each + index, number, number) for index in range(each))
        text = _NAMESPACE % number + "".join(documents)
        (manifests / f"team-{number:03d}.yaml").write_text(text, encoding="utf-8")
    return folder
