"""One topic, from YAML through plan, lease and apply, and back to an empty plan."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pytest

from reconciler.operations.apply import ApplyOptions, Hooks, apply
from reconciler.operations.plan import parse_fail_on, plan
from reconciler.operations.steps.invocation import Invocation, Select
from reconciler.operations.steps.runner import Stop

MANIFESTS = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: shop}
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec:
  embedded: {root: "file://.clusters/west"}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, cluster: west}
spec: {partitions: 3}
"""


@pytest.fixture
def invocation(tmp_path: Path) -> Invocation:
    workspace, *rest = MANIFESTS.split("---\n")
    (tmp_path / "manifests").mkdir()
    (tmp_path / "reconciler.yaml").write_text(workspace)
    (tmp_path / "manifests" / "west.yaml").write_text("---\n".join(rest))
    return Invocation(
        cwd=tmp_path,
        environ={},
        now_ms=lambda: time.time_ns() // 1_000_000,
        new_id=lambda: str(uuid.uuid4()),
        new_run=lambda: str(uuid.uuid4()),
        tool="0.1.0",
        who="anna@build-7",
    )


def test_one_topic_goes_from_yaml_through_plan_and_apply_to_an_empty_plan(invocation: Invocation) -> None:
    first = plan(invocation, Select())
    assert [action.id for action in first.plan.actions] == ["create:cluster/west", "create:topic/west/orders"]
    assert not (invocation.cwd / ".reconciler").exists()
    assert not (invocation.cwd / ".clusters").exists()

    applied = apply(
        invocation, Select(), ApplyOptions(yes=True), Hooks(lambda _planned: True, lambda _event: None, Stop())
    )
    assert applied.verdict is None

    last = plan(invocation, Select())
    assert last.plan.is_empty
    assert last.header.serial == 1
    assert last.verdict(parse_fail_on(["changes"])) is None
