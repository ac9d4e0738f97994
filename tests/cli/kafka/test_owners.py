"""Who owns what on Kafka: two workspaces at one cluster, and principals that may not write the ledger."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

from tests.cli.kafka.conftest import AS_SOMEBODY, WORKSPACE, Desk
from tests.cli.kafka.test_half_made import clerk
from tests.servers.kafka import Kafka
from tests.servers.kafkasecured import Secured
from tests.waiting import until

pytestmark = pytest.mark.thorough

UNTOLD: Final = "cluster live does not have the list of what this workspace owns"
UNKNOWN: Final = "the owners of its resources cannot be read"


@pytest.fixture
def guarded(at_desk: Callable[[Kafka], Desk], kafka_secured: Secured, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Before brokers that people log in to."""
    monkeypatch.setenv("PASSWORD", "wonder")
    return at_desk(kafka_secured.kafka)


def second(desk: Desk, monkeypatch: pytest.MonkeyPatch, name: str = "second") -> Desk:
    """Sit down in another workspace that declares the same, in another folder."""
    folder = Path(name).absolute()
    folder.mkdir()
    for each in Path("manifests").iterdir():
        (folder / each.name).write_text(each.read_text())
    monkeypatch.chdir(folder)
    other = Desk(desk.typed, desk.kafka, desk.prefix)
    Path("reconciler.yaml").write_text(WORKSPACE.replace("name: desk", f"name: {name}"))
    for each in folder.glob("*.yaml"):
        if each.name != "reconciler.yaml":
            each.rename(folder / "manifests" / each.name)
    Path("manifests/namespace.yaml").unlink()
    return other


def test_another_workspace_is_blocked_until_it_is_allowed_and_the_first_one_is_told(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path.cwd()
    name = desk.topic("orders", configs={"retention.ms": "2h"})
    desk.apply()
    desk.settled()
    other = second(desk, monkeypatch)
    other.topic("orders", configs={"retention.ms": "1h"})
    said = other.apply(code=7)
    assert f"owned by workspace 'desk' (state file://{here}/state)" in said.out + said.err
    take = f"adopt:{desk.address('orders')}"
    assert take in said.out + said.err
    other.apply("--allow", take)
    assert desk.own(name)["retention.ms"] == "3600000"
    monkeypatch.chdir(here)
    (told,) = json.loads(desk.plan("--format", "json").out)["actions"]
    assert (told["blocked"]["guard"], told["owner"]["workspace"]) == ("owner", "second")
    drift = desk.typed("drift")
    assert drift.code == 3
    assert "workspace 'second'" in drift.out
    shown = json.loads(desk.typed("show", desk.address("orders"), "--format", "json").out)["resources"][0]["owner"]
    assert (shown["workspace"], shown["ours"]) == ("second", False)
    desk.apply("--allow", take)
    desk.settled()


def test_a_topic_that_is_destroyed_or_forgotten_is_free(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path.cwd()
    desk.topic("orders")
    desk.topic("clicks")
    desk.apply()
    forgotten = desk.typed("state", "rm", desk.address("clicks"), "--yes")
    assert forgotten.code == 0, forgotten.err
    gone = desk.typed("destroy", "--yes", "--target", desk.address("orders"), "--allow", "delete:*")
    assert gone.code == 0, gone.err
    other = second(desk, monkeypatch)
    other.apply()
    monkeypatch.chdir(here)
    said = desk.apply(code=7)
    assert "owned by workspace 'second'" in said.out + said.err


def test_whoever_may_not_write_the_ledger_applies_all_the_same_and_is_warned_once(guarded: Desk) -> None:
    desk = guarded
    desk.apply()
    desk.write("cluster", AS_SOMEBODY.format(broker=desk.kafka.bootstrap("LOGIN"), user=clerk(desk)))
    names = {desk.topic("orders"), desk.topic("clicks")}
    said = desk.apply()
    assert said.err.count(UNTOLD) == 1, said.err
    assert names <= set(desk.admin.list_topics())
    plan = desk.plan("--detailed-exitcode")
    assert plan.code == 0, plan.err
    assert UNTOLD not in plan.err


def test_whoever_may_see_the_ledger_is_warned_by_each_plan_until_they_may_read_it(guarded: Desk) -> None:
    desk = guarded
    desk.topic("orders")
    desk.apply()
    user = clerk(desk)
    allow(desk, user, ACLOperation.DESCRIBE)
    desk.write("cluster", AS_SOMEBODY.format(broker=desk.kafka.bootstrap("LOGIN"), user=user))
    plan = desk.plan()
    assert plan.code == 0, plan.err
    assert plan.err.count(UNKNOWN) == 1, plan.err
    allow(desk, user, ACLOperation.READ)
    plan = desk.plan()
    assert plan.code == 0, plan.err
    assert UNKNOWN not in plan.err
    desk.apply()
    (shown,) = json.loads(desk.typed("show", desk.address("orders"), "--format", "json").out)["resources"]
    assert shown["owner"]["ours"]


def test_whoever_may_see_the_ledger_but_not_read_it_is_told_what_a_topic_holds(guarded: Desk) -> None:
    desk = guarded
    name = desk.topic("orders")
    desk.apply()
    producer = Producer({"bootstrap.servers": desk.kafka.bootstrap()})
    producer.produce(name, b"one")
    assert producer.flush(30) == 0
    user = clerk(desk)
    allow(desk, user, ACLOperation.DESCRIBE)
    desk.write("cluster", AS_SOMEBODY.format(broker=desk.kafka.bootstrap("LOGIN"), user=user))
    desk.drop("orders")
    plan = desk.plan()
    assert plan.code == 7, plan.err
    assert re.search(r"delete +1 record, [0-9]+ B +blocked: it may hold records", plan.out), plan.out


def allow(desk: Desk, user: str, operation: ACLOperation) -> None:
    """Allow a user something of the ledger, and wait until that shows."""
    ledger = ResourcePattern(ResourceType.TOPIC, "__reconciler")
    rule = ACL(f"User:{user}", "*", operation, ACLPermissionType.ALLOW, ledger)
    assert not desk.admin.create_acls([rule])["failed"]
    asked = ACLFilter(rule.principal, "*", operation, ACLPermissionType.ALLOW, ledger)
    until(lambda: desk.admin.describe_acls(asked)[0], "the rule does not show")
