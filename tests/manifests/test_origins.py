from __future__ import annotations

from typing import Any

from reconciler.manifests.load import find_field_origins, load_manifests
from reconciler.manifests.overlays import Variables
from reconciler.resources.address import Address

BASE = """\
# topics
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, cluster: west, labels: {team: checkout}}
spec:
  partitions: ${var.partitions}
  configs:
    retention.ms: 7d
    cleanup.policy: delete
  acls:
    - {principal: "User:a", operations: [read]}
    - {principal: "User:b", operations: [read]}
---
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: from-west, cluster: east}
spec:
  source: west
  prefix: "w."
  mirrorTopics:
    - source: orders
    - source: clicks
      state: paused
"""
OVERLAY = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, cluster: west}
spec:
  replicationFactor: 3
  configs: {retention.ms: null}
  acls: [{principal: "User:c", operations: [write]}]
"""


def test_each_value_is_traced_to_the_file_and_the_variable_that_say_it(workspace: Any, clusters: str) -> None:
    folder = workspace(
        {
            "manifests/a.yaml": clusters,
            "manifests/b.yaml": BASE,
            "overlays/prod/b.yaml": OVERLAY,
            "overlays/prod/values.yaml": "partitions: 12\n",
        }
    )
    loaded = load_manifests(folder, environment="prod", variables=Variables())
    assert find_field_origins(loaded, Address("topic/west/orders")) == {
        "apiVersion": "overlays/prod/b.yaml:1",
        "kind": "overlays/prod/b.yaml:2",
        "metadata.cluster": "overlays/prod/b.yaml:3",
        "metadata.labels.team": "manifests/b.yaml:4",
        "metadata.name": "overlays/prod/b.yaml:3",
        "spec.acls[0].operations[0]": "overlays/prod/b.yaml:7",
        "spec.acls[0].principal": "overlays/prod/b.yaml:7",
        "spec.configs.cleanup.policy": "manifests/b.yaml:9",
        "spec.partitions": "manifests/b.yaml:6 (var.partitions of overlays/prod/values.yaml)",
        "spec.replicationFactor": "overlays/prod/b.yaml:5",
    }


def test_a_mirror_is_traced_to_its_entry(workspace: Any, clusters: str) -> None:
    folder = workspace({"manifests/a.yaml": clusters, "manifests/b.yaml": BASE})
    loaded = load_manifests(folder, environment=None, variables=Variables.parse(["partitions=1"], environ={}))
    assert find_field_origins(loaded, Address("mirror/east/w.clicks")) == {
        "source": "manifests/b.yaml:22",
        "state": "manifests/b.yaml:23",
    }


def test_what_no_file_declares_has_no_origin(workspace: Any, clusters: str) -> None:
    loaded = load_manifests(workspace({"manifests/a.yaml": clusters}), environment=None, variables=Variables())
    assert find_field_origins(loaded, Address("topic/west/nowhere")) == {}
