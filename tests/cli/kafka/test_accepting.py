"""`drift --accept` on Kafka, by the commands: what was accepted stays as it is on the broker."""

from __future__ import annotations

import subprocess
from typing import Final

import pytest
from kafka.admin import ACLFilter, ACLOperation, ACLPermissionType, NewTopic, ResourcePatternFilter, ResourceType
from kafka.admin import ACLResourcePatternType as PatternType

from tests.cli.kafka.conftest import NAMESPACE, Desk
from tests.waiting import until

pytestmark = pytest.mark.thorough

RULE: Final = {"principal": "User:checkout", "operations": ["read", "write"], "resources": ["topics", "groups"]}


def accept(desk: Desk) -> str:
    """Take everything of this test into the files, and return what is said beside the patch."""
    said = desk.typed("drift", "--accept", f"*/live/{desk.prefix}*")
    assert said.code == 0, said.err
    subprocess.run(["git", "apply", "-"], input=said.out.encode(), check=True, capture_output=True)
    return said.err


def rules(desk: Desk) -> set[tuple[str, str]]:
    """Return what is allowed in the namespace, as the broker has it."""
    found, _ = desk.admin.describe_acls(in_namespace(desk))
    return {(each.resource_pattern.resource_type.name, each.operation.name) for each in found}


def in_namespace(
    desk: Desk, kind: ResourceType = ResourceType.ANY, operation: ACLOperation = ACLOperation.ANY
) -> ACLFilter:
    pattern = ResourcePatternFilter(kind, f"{desk.prefix}.", PatternType.PREFIXED)
    return ACLFilter("User:checkout", "*", operation, ACLPermissionType.ANY, pattern)


def revoke(desk: Desk, kind: ResourceType, operation: ACLOperation = ACLOperation.ANY) -> set[tuple[str, str]]:
    """Take rights away as in an emergency, and return what is left once that shows."""
    before = rules(desk)
    gone = {each for each in before if kind.name in {each[0], "ANY"} and operation.name in {each[1], "ANY"}}
    desk.admin.delete_acls([in_namespace(desk, kind, operation)])
    until(lambda: rules(desk) == before - gone, "the rules do not go")
    return before - gone


@pytest.mark.parametrize(
    ("kind", "operation"),
    [
        (ResourceType.TOPIC, ACLOperation.WRITE),
        (ResourceType.TOPIC, ACLOperation.ANY),
        (ResourceType.ANY, ACLOperation.ANY),
    ],
)
def test_a_right_that_was_revoked_and_accepted_is_not_given_again(
    desk: Desk, kind: ResourceType, operation: ACLOperation
) -> None:
    desk.namespace(acls=[RULE])
    desk.topic("orders")
    desk.apply()
    left = revoke(desk, kind, operation)
    accept(desk)
    desk.apply()
    assert rules(desk) == left
    desk.settled()


def test_a_topic_that_was_found_and_accepted_does_not_take_the_configs_of_its_namespace(desk: Desk) -> None:
    desk.write(
        "namespace",
        NAMESPACE.format(
            name=desk.prefix,
            spec='{configs: {retention.ms: 30d, compression.type: zstd, segment.ms: default}, tieringPolicy: "off"}',
        )
        + "---\napiVersion: reconciler/v1\nkind: TieringPolicy\nmetadata: {name: 'off'}\nspec: {remoteWrite: false}\n",
    )
    desk.apply()
    own = {"plain": {}, "foreign": {"retention.ms": "864000000"}}
    for name, configs in own.items():
        desk.admin.create_topics([NewTopic(f"{desk.prefix}.{name}", 1, 1, topic_configs=configs)])
    accept(desk)
    said = desk.plan("--detailed-exitcode")
    assert "unset" not in said.out, said.out
    desk.apply()
    assert {name: desk.own(f"{desk.prefix}.{name}") for name in own} == own
    desk.settled()
