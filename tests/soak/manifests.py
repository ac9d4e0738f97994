"""Workspaces that change from round to round: topics come, go and change on two clusters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

WORKSPACE = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {{name: soak}}
spec:
  state: "{state}"
  guards: {{maxDeletes: "100%"}}
"""
CLUSTERS = ("west", "east")
NAMESPACES = ("shop", "shop:eu", "bank")
TOPICS = 12


def write_manifests(folder: Path, choose: random.Random, *, at: str | None = None) -> None:
    """Write reconciler.yaml and one file of manifests, as `choose` decides; state and clusters lie here, or at `at`."""
    (folder / "manifests").mkdir(parents=True, exist_ok=True)
    (folder / "reconciler.yaml").write_text(WORKSPACE.format(state=f"{at}/state" if at else "file://.reconciler"))
    documents = [_cluster(name, at or "file://.clusters") for name in CLUSTERS]
    for cluster in CLUSTERS:
        namespaces = [name for name in NAMESPACES if name != "bank" or choose.random() < 0.7]
        documents += [_namespace(cluster, name, choose) for name in namespaces]
        documents += [_topic(cluster, namespaces, number, choose) for number in range(TOPICS) if choose.random() < 0.8]
    (folder / "manifests" / "all.yaml").write_text("---\n".join(documents))


def _cluster(name: str, at: str) -> str:
    return f"""\
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: {name}}}
spec:
  deletionProtection: false
  embedded: {{root: "{at}/{name}"}}
"""


def _namespace(cluster: str, name: str, choose: random.Random) -> str:
    return f"""\
apiVersion: reconciler/v1
kind: Namespace
metadata: {{name: "{name}", cluster: {cluster}}}
spec:
  configs: {{retention.ms: "{choose.choice((1, 2, 3))}d"}}
"""


def _topic(cluster: str, namespaces: list[str], number: int, choose: random.Random) -> str:
    # A topic keeps its namespace from round to round, unless that one is gone.
    namespace = namespaces[number % len(namespaces)]
    size, policy = choose.choice((1, 2, 4)), choose.choice(("delete", "compact"))
    return f"""\
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: t{number}, namespace: "{namespace}", cluster: {cluster}}}
spec:
  partitions: 3
  configs: {{max.message.bytes: "{size}MiB", cleanup.policy: {policy}}}
"""
