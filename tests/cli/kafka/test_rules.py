"""Access rules on real brokers, by the commands, and what whoever has few rights is told."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

from tests.cli.kafka.conftest import AS_SOMEBODY, Desk
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.soak  # minutes: brokers are started, killed and asked by whole commands


READER: Final = {"principal": "User:checkout", "operations": ["read", "describe"]}
WRITER: Final = {"principal": "User:checkout", "operations": ["write"]}
DENIED: Final = {"principal": "User:intern", "permission": "deny", "operations": ["write"], "host": "10.0.0.7"}
PATTERN: Final = re.compile(r"resourceType=(\w+), name=(\S+), patternType=(\w+)")
RULE: Final = re.compile(r"principal=(\S+), host=(\S+), operation=(\w+), permissionType=(\w+)")
LOGIN: Final = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.login.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
}
SEES: Final = (ACLOperation.DESCRIBE, ACLOperation.DESCRIBE_CONFIGS)


def bindings(desk: Desk) -> set[tuple[str, ...]]:
    """Return the rules about names of this test, as Kafka's own tool lists them."""
    tool = "org.apache.kafka.tools.AclCommand" if desk.kafka.version >= "4" else "kafka.admin.AclCommand"
    said = desk.kafka.tool(tool, "--bootstrap-server", desk.kafka.bootstrap(), "--list")
    found: set[tuple[str, ...]] = set()
    about: tuple[str, ...] = ()
    for line in said.splitlines():
        if pattern := PATTERN.search(line):
            about = pattern.groups()
        elif (rule := RULE.search(line)) and about[1].startswith(desk.prefix):
            found.add((*about, *rule.groups()))
    return found


@pytest.mark.fact("F-K-033")
def test_rules_of_namespaces_are_of_prefixes_and_those_of_topics_of_their_names(either: Desk) -> None:
    prefix = either.prefix
    either.namespace(
        acls=[{**READER, "resources": ["topics", "groups"]}, {**WRITER, "resources": ["transactional-ids"]}]
    )
    name = either.topic("orders", acls=[WRITER, DENIED])
    either.apply()
    everyone, allow = ("User:checkout", "*"), "ALLOW"
    assert bindings(either) == {
        *(
            (kind, f"{prefix}.", "PREFIXED", *everyone, what, allow)
            for kind in ("TOPIC", "GROUP")
            for what in ("READ", "DESCRIBE")
        ),
        ("TRANSACTIONAL_ID", f"{prefix}.", "PREFIXED", *everyone, "WRITE", allow),
        ("TOPIC", name, "LITERAL", *everyone, "WRITE", allow),
        ("TOPIC", name, "LITERAL", "User:intern", "10.0.0.7", "WRITE", "DENY"),
    }
    either.settled()
    either.namespace(acls=[{**READER, "operations": ["read"]}])
    either.topic("orders", acls=[DENIED])
    either.apply()
    assert bindings(either) == {
        ("TOPIC", f"{prefix}.", "PREFIXED", *everyone, "READ", allow),
        ("TOPIC", name, "LITERAL", "User:intern", "10.0.0.7", "WRITE", "DENY"),
    }
    either.settled()
    said = either.typed("destroy", "--yes", "--allow", f"delete:{either.address('orders')}")
    assert said.code == 0, said.out + said.err
    assert bindings(either) == set()


@pytest.mark.fact("F-K-085")
def test_without_an_authorizer_declared_rules_are_refused_at_plan(
    at_desk: Callable[[Kafka], Desk], start_kafka: Callable[..., Kafka]
) -> None:
    desk = at_desk(start_kafka(extra={"authorizer.class.name": ""}))
    desk.topic("orders")
    desk.apply()
    desk.settled()
    desk.namespace(acls=[READER])
    desk.topic("orders", acls=[WRITER])
    said = desk.plan()
    assert said.code == 1
    assert (said.out + said.err).count("cannot hold ACLs: no authorizer is configured") == 2
    assert "manifests/orders.yaml" in said.out + said.err


@pytest.fixture(scope="module")
def kafka_with_alice() -> Iterator[Kafka]:
    with Kafka.start(listeners={"LOGIN": "SASL_PLAINTEXT"}, extra=LOGIN, scram={"alice": "wonder"}) as kafka:
        yield kafka


@pytest.fixture
def hers(at_desk: Callable[[Kafka], Desk], kafka_with_alice: Kafka, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Two topics made by somebody who may everything, and then alice's turn; what she may is up to each test."""
    monkeypatch.setenv("PASSWORD", "wonder")
    desk = at_desk(kafka_with_alice)
    desk.topic("mine", configs={"retention.ms": "1d"})
    desk.topic("other", configs={"retention.ms": "1d"})
    desk.apply()
    desk.write("cluster", AS_SOMEBODY.format(broker=desk.kafka.bootstrap("LOGIN"), user="alice"))
    return desk


def let(desk: Desk, topic: str, *operations: ACLOperation) -> None:
    """Allow alice something, and wait until the broker has heard of it."""
    where = ResourcePattern(ResourceType.TOPIC, f"{desk.prefix}.{topic}")
    rules = [ACL("User:alice", "*", operation, ACLPermissionType.ALLOW, where) for operation in operations]
    assert not desk.admin.create_acls(rules)["failed"]
    deadline = time.monotonic() + 30
    asked = ACLFilter("User:alice", "*", ACLOperation.ANY, ACLPermissionType.ANY, where)
    while {each.operation for each in desk.admin.describe_acls(asked)[0]} < set(operations):
        assert time.monotonic() < deadline, f"rules of {topic} do not show"


def test_what_may_not_be_seen_is_told_and_nothing_of_it_is_made_or_deleted(hers: Desk) -> None:
    let(hers, "mine", *SEES, ACLOperation.ALTER_CONFIGS)
    hers.topic("mine", configs={"retention.ms": "2d"})
    said = hers.plan()
    text = said.out + said.err
    assert said.code == 1, text
    where = f"manifests/other.yaml:2  {hers.address('other')}"
    assert f"{where}: it is hidden: cluster live: the principal of reconciler may not" in text
    assert hers.address("mine") in text
    hers.drop("other")
    said = hers.plan()
    assert said.code == 1
    assert f"{hers.address('other')}  it is hidden" in said.out + said.err
    assert "1 to delete" not in said.out
    hers.apply("--exclude", hers.address("other"))
    assert hers.own_now(f"{hers.prefix}.mine")["retention.ms"] == "172800000"
    assert hers.own_now(f"{hers.prefix}.other")["retention.ms"] == "86400000"


def test_what_may_be_seen_and_not_changed_fails_alone_and_the_rest_is_done(hers: Desk) -> None:
    let(hers, "mine", *SEES, ACLOperation.ALTER_CONFIGS)
    let(hers, "other", *SEES)
    for name in ("mine", "other"):
        hers.topic(name, configs={"retention.ms": "2d"})
    said = hers.apply(code=8)
    assert hers.own_now(f"{hers.prefix}.mine")["retention.ms"] == "172800000"
    assert hers.own_now(f"{hers.prefix}.other")["retention.ms"] == "86400000"
    assert (
        "may not do that with the topic" in said.out + said.err or "Topic authorization failed" in said.out + said.err
    )
    let(hers, "other", ACLOperation.ALTER_CONFIGS)
    hers.apply()
    hers.settled()


def test_rules_that_may_not_be_seen_are_not_declared_blindly(hers: Desk) -> None:
    for name in ("mine", "other"):
        let(hers, name, *SEES)
    hers.apply()
    hers.settled()
    hers.topic("mine", configs={"retention.ms": "1d"}, acls=[READER])
    said = hers.plan()
    assert said.code == 1
    why = "the principal of reconciler may not see its access rules: it needs DESCRIBE"
    assert f"cannot hold ACLs: {why}" in said.out + said.err
    assert Path("manifests/mine.yaml").name in said.out + said.err
