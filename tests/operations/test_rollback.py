"""`state diff` and `state rollback-plan`: what changed since, and the way back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import ActionDone, Event
from reconciler.errors import BlockedError, IncompleteError, StalePlanError, UserError
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.state_views import plan_rollback, state_diff, state_history, state_show
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import Stop

if TYPE_CHECKING:
    from conftest import Bench

ORDERS = "topic/west/shop:orders"
REFUNDS = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: refunds, namespace: shop, cluster: west}
spec: {partitions: 1, configs: {}}
"""


def change(bench: Bench, old: str, new: str) -> None:
    path = bench.folder / "manifests/orders.yaml"
    path.write_text(path.read_text().replace(old, new))
    assert bench.apply().verdict is None


def back(bench: Bench, serial: int, *allow: str) -> Path:
    """Save the plan back, and return where it is."""
    out = Path("back.json")
    plan_rollback(bench.invocation, Select(allow=allow), serial, out=out)
    return out


def go(bench: Bench, file: Path) -> None:
    assert bench.apply(Select(), ApplyOptions(file=file)).verdict is None


def test_two_states_are_compared_by_address_and_field(applied: Bench) -> None:
    applied.write("manifests/refunds.yaml", REFUNDS)
    change(applied, "7d", "9d, cleanup.policy: compact")
    change(applied, "spec: {", "spec: {protect: true, ")
    differences = {each.address: each for each in state_diff(applied.invocation, Select(), 1).differences}
    assert differences.keys() == {ORDERS, "topic/west/shop:refunds"}
    assert differences["topic/west/shop:refunds"].change == "created"
    orders = differences[ORDERS]
    assert [(field.path, field.before, field.after) for field in orders.fields] == [
        ("configs.cleanup.policy", None, "compact"),
        ("configs.retention.ms", "604800000", "777600000"),
        ("protect", None, True),
    ]
    assert [(fact.path, fact.before, fact.after) for fact in orders.facts] == [("protect", False, True)]
    assert state_diff(applied.invocation, Select(), 2, 2).differences == ()


def test_before_anything_is_applied_there_is_nothing_to_compare_or_to_go_back_to(bench: Bench) -> None:
    with pytest.raises(UserError, match="holds no state yet"):
        state_diff(bench.invocation, Select(), 1)
    with pytest.raises(UserError, match="holds no state yet"):
        plan_rollback(bench.invocation, Select(), 1)


def test_going_back_needs_no_manifests(applied: Bench) -> None:
    change(applied, "7d", "9d")
    (applied.folder / "manifests/orders.yaml").write_text("kind: [\n")
    go(applied, back(applied, 1))
    assert state_diff(applied.invocation, Select(), 1).differences == ()


def test_what_came_since_is_deleted_only_where_that_is_allowed(applied: Bench) -> None:
    applied.write("manifests/refunds.yaml", REFUNDS)
    assert applied.apply().verdict is None
    with pytest.raises(BlockedError, match="delete:topic/west/shop:refunds"):
        go(applied, back(applied, 1))
    go(applied, back(applied, 1, "delete:topic/west/shop:refunds"))
    assert state_diff(applied.invocation, Select(), 1).differences == ()


def test_what_was_protected_since_is_not_deleted_at_all(applied: Bench) -> None:
    applied.write("manifests/refunds.yaml", REFUNDS.replace("{partitions", "{protect: true, partitions"))
    assert applied.apply().verdict is None
    plan = plan_rollback(applied.invocation, Select(allow=("delete:*",)), 1).plan
    assert [action.blocked.guard for action in plan.blocked if action.blocked] == ["protected"]


def test_protection_that_came_since_goes_with_the_rest(applied: Bench) -> None:
    change(applied, "spec: {", "spec: {protect: true, ")
    go(applied, back(applied, 1))
    assert state_show(applied.invocation, Select(), ORDERS).recorded.protect is False


def test_a_topic_that_is_gone_is_made_anew_and_that_it_is_empty_is_said(applied: Bench) -> None:
    (applied.folder / "manifests/orders.yaml").unlink()
    assert applied.apply(Select(allow=(f"delete:{ORDERS}",))).verdict is None
    plan = plan_rollback(applied.invocation, Select(), 1).plan
    assert [action.id for action in plan.actions] == [f"create:{ORDERS}"]
    assert "created again, empty" in plan.warnings[0].message


def test_partitions_stay_and_that_is_said(applied: Bench) -> None:
    change(applied, "partitions: 3", "partitions: 6")
    planned = plan_rollback(applied.invocation, Select(), 1)
    assert planned.plan.is_empty
    (warning,) = planned.warnings
    assert warning.startswith(f"state #1: {ORDERS} had 3 partitions and keeps its 6. Partitions are never removed")


def test_how_a_cluster_is_reached_is_not_undone(applied: Bench) -> None:
    (applied.folder / ".clusters/west").rename(applied.folder / ".clusters/moved")
    path = applied.folder / "manifests/west.yaml"
    path.write_text(path.read_text().replace(".clusters/west", ".clusters/moved"))
    change(applied, "7d", "9d")
    go(applied, back(applied, 1))
    (difference,) = state_diff(applied.invocation, Select(), 1).differences
    assert difference.address == "cluster/west"


def test_a_saved_plan_back_is_refused_when_more_would_happen_by_now(applied: Bench) -> None:
    change(applied, "7d", "9d")
    file = back(applied, 1)
    applied.write("manifests/refunds.yaml", REFUNDS)
    assert applied.apply().verdict is None
    with pytest.raises((StalePlanError, BlockedError)):
        go(applied, file)


def test_a_way_back_that_was_stopped_is_resumed_to_that_state_and_not_to_the_files(applied: Bench) -> None:
    for path in (applied.folder / "manifests").glob("orders.yaml"):
        path.unlink()
    west = applied.folder / "manifests/west.yaml"
    west.write_text(west.read_text().partition("---")[0])
    assert applied.apply(Select(allow=("delete:*",))).verdict is None

    def stop_after_the_namespace(event: Event) -> None:
        if isinstance(event, ActionDone):
            applied.stop.request()

    file = back(applied, 1)
    stopped = applied.apply(Select(), ApplyOptions(file=file), report=stop_after_the_namespace)
    assert isinstance(stopped.verdict, IncompleteError)
    applied.stop = Stop()
    resumed = applied.apply(Select(), ApplyOptions(resumes=True))
    assert resumed.verdict is None
    assert [action.id for action in resumed.planned.plan.actions] == [f"create:{ORDERS}"]
    (difference,) = state_diff(applied.invocation, Select(), 1).differences
    assert [fact.path for fact in difference.facts] == ["incarnation"]
    assert state_history(applied.invocation, Select()).rows[0].command == "apply, back to #1"
