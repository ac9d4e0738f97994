"""Namespaces on real brokers, by the commands: they go with their rules, whosever topics carry the prefix."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final

import pytest
from kafka import OffsetAndMetadata, TopicPartition
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    NewTopic,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.admin import ACLResourcePatternType as PatternType

from reconciler.providers.brokers.client import KafkaClient, create_bindings, read_bindings
from reconciler.resources.acls import AccessBinding
from tests.cli.kafka.conftest import Desk
from tests.waiting import until

RULE: Final = {"principal": "User:checkout", "operations": ["read", "describe"]}
STRANGERS: Final = "User:audit"


def principals(desk: Desk) -> set[str]:
    """Return whom the rules on the prefix are about."""
    pattern = ResourcePatternFilter(ResourceType.TOPIC, f"{desk.prefix}.", PatternType.PREFIXED)
    asked = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, pattern)
    return {each.principal for each in desk.admin.describe_acls(asked)[0]}


def stranger(desk: Desk, name: str = "theirs") -> str:
    """Let somebody else make a topic that carries the prefix."""
    topic = f"{desk.prefix}.{name}"
    desk.admin.create_topics([NewTopic(topic, 1, 1)])
    return topic


def rule_of_a_stranger(desk: Desk) -> None:
    """Let somebody else allow something on the prefix, and wait until it shows."""
    pattern = ResourcePattern(ResourceType.TOPIC, f"{desk.prefix}.", PatternType.PREFIXED)
    desk.admin.create_acls([ACL(STRANGERS, "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)])
    until(lambda: STRANGERS in principals(desk), "the rule does not show")


@pytest.mark.parametrize("comes", ["before", "after"])
def test_destroying_takes_our_rules_away_whosever_topics_carry_the_prefix(desk: Desk, comes: str) -> None:
    if comes == "before":
        theirs = stranger(desk)
    desk.namespace(acls=[RULE])
    desk.apply()
    if comes == "after":
        theirs = stranger(desk)
        rule_of_a_stranger(desk)
    said = desk.typed("destroy", "--yes")
    assert said.code == 0, said.out + said.err
    assert "1 topic with its prefix" in said.out + said.err
    assert principals(desk) == (set() if comes == "before" else {STRANGERS})
    assert theirs in desk.admin.list_topics()
    assert "0 resources" in desk.typed("state", "list").out


@pytest.mark.thorough
def test_a_namespace_that_left_the_files_goes_though_a_strangers_topic_stays(desk: Desk) -> None:
    ours = desk.topic("orders")
    desk.namespace(acls=[RULE])
    desk.apply()
    theirs = stranger(desk)
    for each in ("namespace", "orders"):
        desk.drop(each)
    said = desk.plan("--allow", f"delete:{desk.address('orders')}")
    assert "1 topic with its prefix is not managed: it stays" in said.out + said.err, said.out
    desk.apply("--allow", f"delete:{desk.address('orders')}")
    assert principals(desk) == set()
    assert theirs in desk.admin.list_topics()
    assert ours not in desk.admin.list_topics()
    desk.settled()


def test_rules_that_were_there_before_us_stay_when_what_was_adopted_is_forgotten(desk: Desk) -> None:
    rule_of_a_stranger(desk)
    desk.namespace(acls=[{"principal": STRANGERS, "operations": ["read"]}])
    desk.apply()
    said = desk.typed("destroy", "--yes")
    assert said.code == 0, said.out + said.err
    assert "1 access rule" in said.out + said.err
    assert principals(desk) == {STRANGERS}


@pytest.mark.fact("F-K-032")
def test_what_a_namespace_says_is_written_on_its_topics_and_goes_from_them_when_it_goes_there(desk: Desk) -> None:
    ours, theirs = desk.topic("heir"), desk.topic("own", configs={"retention.ms": "3d"})
    desk.namespace(configs={"retention.ms": "3d", "segment.ms": "1h"})
    desk.apply()
    both = {"retention.ms": "259200000", "segment.ms": "3600000"}
    assert [desk.own_now(ours), desk.own_now(theirs)] == [both, both]
    told = json.loads(desk.typed("state", "show", desk.address("heir"), "--format", "json").out)
    namespace = f"namespace/live/{desk.prefix}"
    recorded = told["recorded"]
    assert recorded["origins"] == {"configs.retention.ms": namespace, "configs.segment.ms": namespace}
    desk.namespace(configs={"segment.ms": "1h"})
    plan = json.loads(desk.plan("--format", "json").out)
    assert [action["id"] for action in plan["actions"]] == [f"update:{desk.address('heir')}"]
    desk.apply()
    assert [desk.own_now(ours), desk.own_now(theirs)] == [{"segment.ms": "3600000"}, both]
    desk.settled()


def names(desk: Desk) -> set[str]:
    return {name for name in desk.admin.list_topics() if name.startswith(desk.prefix)}


def test_the_command_deletes_what_is_allowed_and_leaves_the_rules_of_others(desk: Desk) -> None:
    desk.namespace(acls=[RULE], quotas={"topics": 5, "partitions": 9, "bytes": "1GiB"})
    name = desk.topic("orders")
    desk.apply()
    for command in (("namespace", "list", "live"), ("show", f"namespace/live/{desk.prefix}")):
        assert "topics 1 of 5, partitions 1 of 9, bytes 0 B of 1GiB" in desk.typed(*command).out
    rule_of_a_stranger(desk)
    desk.admin.alter_group_offsets(f"{desk.prefix}-search", {TopicPartition(name, 0): OffsetAndMetadata(0, "", -1)})
    delete = ("namespace", "delete", "live", desk.prefix, "--yes")
    held = desk.typed(*delete)
    assert held.code == 7
    assert f"{desk.address('orders')}: cluster live has deletionProtection" in held.err
    assert (principals(desk), names(desk)) == ({"User:checkout", STRANGERS}, {name})
    said = desk.typed(*delete, "--allow", f"delete:topic/live/{desk.prefix}:*")
    assert said.code == 0, said.err
    assert "1 group is reading it" in said.out
    kept = f"1 access rule on its prefix is not managed: it stays ({STRANGERS} allow read)"
    assert f"namespace/live/{desk.prefix}: {kept}" in said.out
    assert (principals(desk), names(desk)) == ({STRANGERS}, set())


def test_the_plan_leaves_the_rules_of_others_on_a_topic_that_it_deletes(desk: Desk) -> None:
    name = desk.topic("orders", acls=[RULE])
    desk.apply()
    pattern = ResourcePattern(ResourceType.TOPIC, name, PatternType.LITERAL)
    desk.admin.create_acls([ACL(STRANGERS, "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)])
    desk.drop("orders")
    deadline = time.monotonic() + 30
    while "its name is not managed: it stays (User:audit allow read)" not in (said := desk.plan()).out + said.err:
        assert time.monotonic() < deadline, said
    desk.apply("--allow", f"delete:{desk.address('orders')}")
    on_it = ResourcePatternFilter(ResourceType.TOPIC, name, PatternType.LITERAL)
    asked = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, on_it)
    assert {each.principal for each in desk.admin.describe_acls(asked)[0]} == {STRANGERS}


def test_nothing_is_created_and_nothing_renamed_by_command_and_that_is_said(desk: Desk) -> None:
    desk.topic("orders")
    desk.apply()
    made = desk.typed("namespace", "create", "live", f"{desk.prefix}:us", "--set", "retention.ms=3d")
    assert made.code == 1
    assert "a namespace is a prefix of names: there is nothing to create" in made.err
    moved = desk.typed("namespace", "move", "live", desk.prefix, "other", "--topic", "orders")
    assert moved.code == 1
    assert "topics cannot be renamed" in moved.err
    assert f'write namespace: "other" and movedFrom: "{desk.prefix}:orders"' in moved.err


def test_configs_that_only_its_topics_have_are_no_difference_of_a_namespace(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.namespace(configs={"retention.ms": "7d"})
    desk.topic("orders")
    desk.apply()
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = desk.typed("show", f"namespace/live/{desk.prefix}").out
    assert "retention.ms" in shown
    assert "\x1b[33m" not in shown


def test_rules_that_no_file_can_declare_are_left_alone_and_shown(desk: Desk) -> None:
    desk.namespace(
        acls=[
            {"principal": "User:flink", "operations": ["write"], "resources": ["transactional-ids"], "names": ["tx*"]},
            {"principal": "User:flink", "operations": ["read"], "resources": ["groups"]},
        ]
    )
    topic = desk.topic("orders")
    strange = [
        AccessBinding(kind, f"{desk.prefix}.{name}", is_prefix, "User:flink", "*", operation, "allow")
        for kind, name, is_prefix, operation in [
            ("transactional-ids", "tx", True, "two-phase-commit"),
            ("groups", "", True, "alter-configs"),
            ("topics", "orders", False, "idempotent-write"),
        ]
    ]
    client = KafkaClient("live", lambda: {"bootstrap_servers": [desk.kafka.bootstrap()]})
    assert create_bindings(client, strange) == [(0, "")] * len(strange)
    desk.apply()
    desk.settled()
    said = json.loads(desk.typed("topic", "describe", desk.address("orders"), "--format", "json").out)
    shown = {(*rule["resources"], *rule["operations"]) for rule in said["acls"]}
    assert {(each.resource, each.operation) for each in strange} < shown
    Path("manifests/orders.yaml").unlink()
    gone = desk.apply("--allow", f"delete:{desk.address('orders')}")
    assert "User:flink allow idempotent-write" in gone.err
    assert topic not in desk.admin.list_topics()
    assert set(strange) <= set(read_bindings(client)[0])
