"""What lower retention deletes on real brokers, as a plan and `topic alter` tell it before they do it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ConfigResource,
    ConfigResourceType,
    ResourcePattern,
    ResourceType,
)

from tests.cli.kafka.conftest import AS_SOMEBODY, Desk
from tests.cli.kafka.test_half_made import clerk
from tests.servers.kafka import Kafka
from tests.servers.kafkasecured import Secured

pytestmark = pytest.mark.thorough

DAY_S = 24 * 60 * 60


def filled(desk: Desk, retention: str, *ages_days: float) -> str:
    """Make a topic with ten records of each age, oldest first, each age in a segment of its own."""
    name = desk.topic("orders", configs={"retention.ms": retention, "segment.bytes": "1MiB"})
    desk.apply()
    producer = Producer({"bootstrap.servers": desk.kafka.bootstrap("PLAINTEXT")})
    for age in sorted(ages_days, reverse=True):
        for _ in range(10):
            producer.produce(name, bytes(110_000), timestamp=int((time.time() - age * DAY_S) * 1000))
        assert producer.flush(30) == 0
    return name


@pytest.mark.parametrize(("before", "after"), [("14d", "10d"), ("30d", "29d"), ("infinite", "400d")])
def test_lower_retention_is_blocked_where_any_record_is_older(desk: Desk, before: str, after: str) -> None:
    days = float(after.removesuffix("d"))
    filled(desk, before, days + 0.5, 1)
    desk.topic("orders", configs={"retention.ms": after, "segment.bytes": "1MiB"})
    said = desk.plan()
    assert said.code == 7, said.out + said.err
    assert "MiB expire" in said.out
    said = desk.typed("topic", "alter", desk.address("orders"), "--set", f"retention.ms={after}")
    assert said.code != 0, said.out + said.err
    assert "--yes" in said.err, said.err


@pytest.mark.parametrize(("before", "after"), [("30d", "1d"), ("14d", "10d")])
def test_lower_retention_is_no_risk_where_every_record_is_younger(desk: Desk, before: str, after: str) -> None:
    filled(desk, before, 0.9 * float(after.removesuffix("d")), 0.01)
    desk.topic("orders", configs={"retention.ms": after, "segment.bytes": "1MiB"})
    said = desk.plan()
    assert said.code == 0, said.out + said.err
    desk.apply()
    desk.settled()


def test_records_of_the_last_minutes_are_no_risk(desk: Desk) -> None:
    filled(desk, "30d", 0.001)
    desk.topic("orders", configs={"retention.ms": "1d", "segment.bytes": "1MiB"})
    assert desk.plan().code == 0


def test_retention_that_is_taken_back_is_judged_by_what_the_brokers_keep(
    start_kafka: Callable[..., Kafka], at_desk: Callable[[Kafka], Desk]
) -> None:
    desk = at_desk(start_kafka(extra={"log.retention.hours": "24"}))
    filled(desk, "7d", 3, 0.1)
    desk.topic("orders", configs={"segment.bytes": "1MiB"})
    said = desk.plan()
    assert said.code == 7, said.out + said.err
    assert "MiB expire" in said.out


def test_retention_that_is_taken_back_is_blocked_where_brokers_keep_records_for_different_times(
    start_kafka: Callable[..., Kafka], at_desk: Callable[[Kafka], Desk]
) -> None:
    desk = at_desk(start_kafka(brokers=2))
    filled(desk, "7d", 3, 0.1)
    for broker in ("1", "2"):
        changed = ConfigResource(ConfigResourceType.BROKER, broker, {"log.retention.ms": "3600000"})
        desk.admin.alter_configs([changed])
        desk.topic("orders", configs={"segment.bytes": "1MiB"})
        until_blocked(desk, "cannot tell" if broker == "1" else "MiB expire")


def test_retention_is_not_taken_back_by_whoever_may_not_see_what_brokers_keep(
    at_desk: Callable[[Kafka], Desk], kafka_secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", "wonder")
    desk = at_desk(kafka_secured.kafka)
    filled(desk, "7d", 3, 0.1)
    user = clerk(desk)
    cluster = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")
    desk.admin.delete_acls([ACLFilter(f"User:{user}", "*", ACLOperation.ANY, ACLPermissionType.ANY, cluster)])
    desk.write("cluster", AS_SOMEBODY.format(broker=desk.kafka.bootstrap("LOGIN"), user=user))
    desk.topic("orders", configs={"segment.bytes": "1MiB"})
    until_blocked(desk, "cannot tell")
    described = desk.typed("topic", "describe", desk.address("orders"))
    assert "brokers" not in next((line for line in described.out.splitlines() if " retention.ms" in line), "")


def until_blocked(desk: Desk, words: str) -> None:
    """Plan until the brokers show what they keep."""
    deadline = time.monotonic() + 30
    while words not in (said := desk.plan()).out:
        assert time.monotonic() < deadline, said.out + said.err
    assert said.code == 7, said.out + said.err
