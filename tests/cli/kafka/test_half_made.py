"""What an apply made before the brokers refused the rest of it is ours all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import pytest
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka.admin import ACLResourcePatternType as PatternType

from tests.cli.kafka.conftest import AS_SOMEBODY, CLUSTER, Desk
from tests.servers.kafka import Kafka
from tests.servers.kafkasecured import Secured
from tests.waiting import until

pytestmark = pytest.mark.thorough

RULE: Final = {"principal": "User:checkout", "operations": ["read", "describe"]}


def clerk(desk: Desk) -> str:
    """Make a user who may make topics below the prefix, and see rules, but not make any; wait until that shows."""
    user = f"{desk.prefix}-clerk"
    made = UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_256, "wonder")
    assert not any(desk.admin.alter_user_scram_credentials([made]).values())
    topics = ResourcePattern(ResourceType.TOPIC, f"{desk.prefix}.", PatternType.PREFIXED)
    cluster = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")
    wanted = [(topics, ACLOperation.ALL), (cluster, ACLOperation.DESCRIBE), (cluster, ACLOperation.DESCRIBE_CONFIGS)]
    rules = [ACL(f"User:{user}", "*", may, ACLPermissionType.ALLOW, where) for where, may in wanted]
    assert not desk.admin.create_acls(rules)["failed"]
    anything = ResourcePatternFilter(ResourceType.ANY, None, PatternType.ANY)
    asked = ACLFilter(f"User:{user}", "*", ACLOperation.ANY, ACLPermissionType.ANY, anything)
    until(lambda: len(desk.admin.describe_acls(asked)[0]) >= len(rules), "the rules do not show")
    return user


@pytest.fixture
def desk(at_desk: Callable[[Kafka], Desk], kafka_secured: Secured, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Before brokers that people log in to."""
    monkeypatch.setenv("PASSWORD", "wonder")
    return at_desk(kafka_secured.kafka)


def test_a_plan_saved_before_a_new_password_is_applied_with_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.apply()
    user = clerk(desk)
    desk.write("cluster", AS_SOMEBODY.format(broker=desk.kafka.bootstrap("LOGIN"), user=user))
    desk.apply()
    name = desk.topic("orders")
    before = json.loads(desk.plan("--out", "p.json", "--format", "json").out)
    change = UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_256, "fresh")
    assert not any(desk.admin.alter_user_scram_credentials([change]).values())
    until(lambda: desk.plan().code != 0, "the old password still logs in")
    monkeypatch.setenv("PASSWORD", "fresh")
    assert json.loads(desk.plan("--format", "json").out)["digest"] == before["digest"]
    applied = desk.typed("apply", "p.json", "--yes")
    assert (applied.code, name in desk.admin.list_topics()) == (0, True), applied.err
    desk.settled()


def test_a_topic_whose_rules_were_refused_is_ours_and_lacks_its_rules(desk: Desk) -> None:
    desk.apply()
    desk.write("cluster", AS_SOMEBODY.format(broker=desk.kafka.bootstrap("LOGIN"), user=clerk(desk)))
    name = desk.topic("orders", configs={"retention.ms": "1d"}, acls=[RULE])
    said = desk.apply(code=8)
    assert "1 failed" in said.out + said.err
    assert name in desk.admin.list_topics()
    desk.write("cluster", CLUSTER.format(broker=desk.kafka.bootstrap()))
    planned = json.loads(desk.plan("--format", "json").out)["actions"]
    of_topic = [each for each in planned if each["address"] == desk.address("orders")]
    assert [(each["action"], [change["path"] for change in each["changes"]]) for each in of_topic] == [
        ("update", ["acls.allow User:checkout"])
    ]
    desk.apply()
    desk.settled()
    gone = desk.typed("destroy", "--yes", "--allow", f"delete:{desk.address('orders')}")
    assert gone.code == 0, gone.out + gone.err
    assert name not in desk.admin.list_topics()
