"""A script plans and applies a workspace as the command line does, with its errors as exceptions."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler import (
    BlockedError,
    LeaseError,
    ReconcilerError,
    StalePlanError,
    UsageError,
    UserError,
    Workspace,
)

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.operations.plan import PlanResult

ORDERS = "topic/west/shop:orders"
RECONCILER = Path(sys.executable).with_name("reconciler")
TOPIC = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: {name}, namespace: shop, cluster: west}}
spec: {{partitions: {partitions}}}
"""


def typed(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([RECONCILER, *arguments], cwd=folder, capture_output=True, check=False)


def refusal(typed_: subprocess.CompletedProcess[bytes]) -> str:
    return " ".join(typed_.stderr.decode().split())


def test_a_workspace_is_planned_applied_and_then_nothing_is_left(bench: Bench) -> None:
    shop = Workspace.open(bench.folder)
    plan = shop.plan()
    assert ORDERS in plan.actions[-1]
    assert "to add" in plan.summary == str(plan)
    assert not (bench.folder / ".reconciler").exists()
    result = shop.apply(plan)
    assert (result.done, result.not_needed) == (plan.actions, ())
    assert str(result) == plan.summary.replace("to add", "added")
    assert (shop.plan().is_empty, shop.drift(), shop.plan().summary) == (True, (), "nothing to do")


def test_the_json_of_a_plan_is_what_the_command_prints(bench: Bench) -> None:
    plan = Workspace.open(bench.folder).plan(targets=["namespace/west/*"])
    printed = typed(bench.folder, "plan", "--format", "json", "--target", "namespace/west/*")
    assert plan.to_json() == printed.stdout


def test_environment_and_variables_are_those_of_the_command(bench: Bench) -> None:
    overlay = "apiVersion: reconciler/v1\nkind: Workspace\nmetadata: {name: shop}\nspec: {values: [values.yaml]}\n"
    bench.write("reconciler.yaml", overlay)
    bench.write("values.yaml", "count: 5\n")
    bench.write("more.yaml", "count: 6\n")
    bench.write("overlays/prod/values.yaml", "count: 8\n")
    bench.write("manifests/orders.yaml", TOPIC.format(name="orders", partitions='"${var.count}"'))

    def partitions(shop: Workspace) -> int:
        (created,) = (row["after"] for row in json.loads(shop.plan().to_json())["actions"] if row["address"] == ORDERS)
        return int(created["spec"]["partitions"])

    folder = bench.folder
    assert partitions(Workspace.open(folder)) == 5
    assert partitions(Workspace.open(folder, var_files=[folder / "more.yaml"])) == 6
    assert partitions(Workspace.open(folder, variables={"count": "7"})) == 7
    assert partitions(Workspace.open(folder, environment="prod")) == 8
    assert partitions(Workspace.open(folder, environ={"RECONCILER_VAR_count": "9"})) == 9
    with pytest.raises(UserError, match="prod"):
        Workspace.open(folder, environment="prodd")


def test_what_is_no_workspace_is_refused_as_on_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        Workspace.open(tmp_path)
    said = refusal(typed(tmp_path, "plan", "--workspace", str(tmp_path)))
    assert caught.value.message in said
    assert caught.value.hint in said


def test_files_with_problems_are_refused_when_they_are_opened(bench: Bench) -> None:
    bench.write("manifests/orders.yaml", TOPIC.format(name="orders", partitions="many"))
    with pytest.raises(UserError, match=r"orders\.yaml"):
        Workspace.open(bench.folder)


def test_a_cluster_that_does_not_answer_is_an_error(applied: Bench) -> None:
    (applied.folder / ".clusters").rename(applied.folder / "away")
    (applied.folder / ".clusters").write_text("no folder")
    shop = Workspace.open(applied.folder)
    with pytest.raises(ReconcilerError) as caught:
        shop.plan()
    done = typed(applied.folder, "plan")
    assert (caught.value.exit_code, caught.value.message in refusal(done)) == (done.returncode, True)
    with pytest.raises(type(caught.value)):
        shop.drift()


def test_a_blocked_plan_is_an_error_unless_what_it_blocks_is_allowed(applied: Bench) -> None:
    (applied.folder / "manifests/orders.yaml").unlink()
    shop = Workspace.open(applied.folder)
    plan = shop.plan()
    assert list(plan.blocked) == [f"delete:{ORDERS}"]
    with pytest.raises(BlockedError) as caught:
        shop.apply(plan)
    assert caught.value.hint == f"Allow once with --allow delete:{ORDERS}"
    with pytest.raises(BlockedError):
        shop.apply(plan, allow=["delete:topic/west/shop:clicks"])
    with pytest.raises(UsageError):
        shop.apply(plan, allow=["orders"])
    assert shop.apply(plan, allow=[f"delete:{ORDERS}"]).done == (f"delete:{ORDERS}",)


def test_a_plan_that_no_longer_holds_is_an_error(applied: Bench) -> None:
    shop = Workspace.open(applied.folder)
    applied.write("manifests/clicks.yaml", TOPIC.format(name="clicks", partitions=1))
    plan = shop.plan()
    applied.write("manifests/clicks.yaml", TOPIC.format(name="clicks", partitions=2))
    with pytest.raises(StalePlanError, match="no longer matches the plan"):
        shop.apply(plan)
    applied.write("manifests/clicks.yaml", TOPIC.format(name="clicks", partitions=1))
    assert shop.apply(plan).done == plan.actions
    assert shop.apply(plan).not_needed == plan.actions


def test_a_plan_with_errors_says_them_and_is_not_applied(applied: Bench) -> None:
    applied.write("manifests/orders.yaml", TOPIC.format(name="orders", partitions=1))
    shop = Workspace.open(applied.folder)
    plan = shop.plan()
    assert len(plan.errors) == 1
    with pytest.raises(UserError, match="the plan has 1 error"):
        shop.apply(plan)


def test_drift_is_listed(applied: Bench) -> None:
    done = typed(applied.folder, "topic", "alter", ORDERS, "--set", "retention.ms=3d", "--no-state", "--yes")
    assert done.returncode == 0, done.stderr
    (item,) = Workspace.open(applied.folder).drift()
    assert (item.kind, item.address, item.path) == ("drift", ORDERS, "configs.retention.ms")


def test_of_two_applies_at_once_the_second_is_told_who_has_the_lease(applied: Bench) -> None:
    shop = Workspace.open(applied.folder)
    applied.write("manifests/clicks.yaml", TOPIC.format(name="clicks", partitions=1))
    plan = shop.plan()
    refused: list[LeaseError] = []

    def confirm(_planned: PlanResult) -> bool:
        with pytest.raises(LeaseError) as caught:
            shop.apply(plan, lock_timeout_s=0.1)
        refused.append(caught.value)
        return True

    assert applied.apply(confirm=confirm).verdict is None
    assert ["anna@build-7" in error.message for error in refused] == [True]


def test_a_notebook_applies_within_its_event_loop(bench: Bench) -> None:
    async def cell() -> tuple[str, ...]:
        shop = Workspace.open(bench.folder)
        return shop.apply(shop.plan()).done

    assert f"create:{ORDERS}" in asyncio.run(cell())
