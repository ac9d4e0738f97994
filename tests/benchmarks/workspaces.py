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

_KAFKA_CLUSTER = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec:
  provider: kafka
  kafka: {bootstrapServers: ["%s"]}
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
  partitions: %d
  configs:
    cleanup.policy: delete
    max.message.bytes: 4MiB
    retention.ms: 7d
"""


def write_workspace(folder: Path, *, topics: int, files: int = 100, brokers: str | None = None) -> Path:
    """Write a workspace of so many topics, spread over so many files, and return its folder.

    With `brokers` it is of a Kafka cluster, and each topic has one partition: the brokers are not what is measured.
    """
    manifests = folder / "manifests"
    manifests.mkdir(parents=True)
    (folder / "reconciler.yaml").write_text(_WORKSPACE, encoding="utf-8")
    (manifests / "cluster.yaml").write_text(_KAFKA_CLUSTER % brokers if brokers else _CLUSTER, encoding="utf-8")
    each, partitions = topics // files, 1 if brokers else 12
    for number in range(files):
        documents = (_TOPIC % (number * each + index, number, number, partitions) for index in range(each))
        text = _NAMESPACE % number + "".join(documents)
        (manifests / f"team-{number:03d}.yaml").write_text(text, encoding="utf-8")
    return folder


def write_fleet(folder: Path, *, clusters: int, topics: int) -> Path:
    """Write a workspace of so many embedded clusters, each with a file and so many topics; return its folder."""
    (folder / "manifests").mkdir(parents=True)
    (folder / "reconciler.yaml").write_text(_WORKSPACE, encoding="utf-8")
    for number in range(clusters):
        parts = (_CLUSTER, "---\n", _NAMESPACE % 0, *(_TOPIC % (index, 0, 0, 12) for index in range(topics)))
        text = "".join(parts).replace("west", f"c{number:03d}")
        (folder / "manifests" / f"c{number:03d}.yaml").write_text(text, encoding="utf-8")
    return folder


def topic_names(topics: int, files: int) -> list[str]:
    """Return what brokers call the topics of such a workspace."""
    each = topics // files
    return [f"team-{at // each:03d}.events.topic-{at:05d}" for at in range(topics)]
