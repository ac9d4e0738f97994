"""JSON of commands that change a cluster: events, what became of each resource, and the error at the end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.sample_workspaces import ORDERS, Shop, Twins

VIEWS, GONE = "topic/west/shop:views", "topic/west/shop:gone"


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_run_ends_with_the_result_of_each_resource_and_the_error(twins: Twins) -> None:
    done = twins.typed("topic", "delete", VIEWS, GONE, "--allow", f"delete:{VIEWS}", "--yes", "--format", "json")
    *events, result, error = lines_of(done.out)
    assert done.code == 8
    assert [event["event"] for event in events] == ["action_started", "action_done", "summary"]
    views, gone = result["resources"]
    assert views == {"address": VIEWS, "changed": True, "state": None, "error": None, "hint": None}
    assert (gone["changed"], gone["error"]) == (False, f"{GONE} does not exist")
    assert (error["event"], error["exit_code"]) == ("error", 8)


def test_a_dry_run_prints_the_plan_and_nothing_else(twins: Twins) -> None:
    done = twins.typed("topic", "create", GONE, "--dry-run", "--format", "json")
    plan = json.loads(done.out)
    assert (plan["format"], plan["workspace"]) == ("reconciler.plan/1", "")
    assert [(action["action"], action["address"]) for action in plan["actions"]] == [("create", GONE)]


def test_what_is_wrong_before_a_run_is_the_last_line(twins: Twins) -> None:
    done = twins.typed("topic", "create", "topic/nowhere/shop:orders", "--format", "json")
    assert (done.code, lines_of(done.out)[-1]["event"]) == (1, "error")


def test_what_cannot_be_undone_is_not_done_without_an_answer(twins: Twins) -> None:
    done = twins.typed("topic", "alter", VIEWS, "--partitions", "9", "--format", "json")
    assert (done.code, lines_of(done.out)[-1]["exit_code"]) == (64, 64)
    assert "partitions 1 → 9  irreversible" in done.err


@pytest.mark.parametrize("way", [(), ("--no-state",)], ids=["with its state", "without"])
@pytest.mark.parametrize(
    "command", [("topic", "delete", "topic/west/shop:orders"), ("namespace", "delete", "west", "shop", "--recursive")]
)
def test_a_delete_names_the_mirrors_that_follow(twins: Twins, command: tuple[str, ...], way: tuple[str, ...]) -> None:
    said = twins.typed(*command, *way, "--dry-run").out
    assert f"{ORDERS} follows it, and stops when its source is gone" in said


def test_a_new_topic_under_the_name_of_an_unmounted_one_says_where_that_is(shop: Shop) -> None:
    location = shop.unmounted()
    done = shop.typed("topic", "create", "topic/west/shop:orders")
    assert f"is unmounted, with its records: it is in object storage at {location}" in done.err
    assert (done.code, "reconciler topic mount topic/west/shop:orders" in done.err) == (0, True)
