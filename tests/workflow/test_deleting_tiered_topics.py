"""The plan that deletes a tiered topic says what becomes of what it has in object storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.cli.text.lines import text_of
from reconciler.cli.text.plan_text import plan_text
from reconciler.operations.steps.invocation import Select
from reconciler.planning.actions import Reason
from reconciler.planning.plan_rows import action_row
from tests.workflow.test_tiering_policies import declare, topic

if TYPE_CHECKING:
    from conftest import Bench

REMOTE = frozenset({Reason.REMOTE_DELETED, Reason.REMOTE_KEPT})


@pytest.mark.fact("F-R-008", "F-R-009", "F-R-010")
@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        ("remote.write: true, remote.read: true", Reason.REMOTE_DELETED),
        ("remote.write: true, remote.read: true, remote.delete: false", Reason.REMOTE_KEPT),
        ("remote.write: true", Reason.REMOTE_KEPT),
        ("remote.write: false", None),
    ],
)
def test_what_becomes_of_remote_objects_is_in_the_plan(bench: Bench, configs: str, reason: Reason | None) -> None:
    declare(bench)
    topic(bench, configs=f"{{{configs}}}")
    assert bench.apply().verdict is None
    (bench.folder / "manifests" / "orders.yaml").unlink()
    plan = bench.plan().plan
    (action,) = plan.actions
    assert REMOTE.intersection(action.reasons) == ({reason} if reason else set())
    location = action_row(action, None, {})["estimate"]["location"]
    assert (location or "").startswith("shop:orders/" if reason else "")
    text = text_of(plan_text(plan))
    assert ("its remote data goes too: shop:orders/" in text) == (reason is Reason.REMOTE_DELETED)
    assert ("its remote data is kept, recoverable from shop:orders/" in text) == (reason is Reason.REMOTE_KEPT)


def test_what_a_namespace_says_counts_where_only_the_topic_is_planned(bench: Bench) -> None:
    declare(bench)
    path = bench.folder / "manifests" / "west.yaml"
    path.write_text(path.read_text() + "spec: {configs: {remote.delete: false}}\n")
    topic(bench, configs="{remote.write: true, remote.read: true}")
    assert bench.apply().verdict is None
    (bench.folder / "manifests" / "orders.yaml").unlink()
    plan = bench.plan(Select(targets=("topic/west/shop:orders",))).plan
    assert Reason.REMOTE_KEPT in plan.actions[0].reasons
