"""What lower retention deletes on real brokers, as a plan and `topic alter` tell it before they do it."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from tests.cli.kafka.conftest import Desk

pytestmark = pytest.mark.thorough

DAY_S = 24 * 60 * 60


def filled(desk: Desk, retention: str, *ages_days: float) -> str:
    """Make a topic with ten records of each age, oldest first, each age in a segment of its own."""
    name = desk.topic("orders", configs={"retention.ms": retention, "segment.bytes": "1MiB"})
    desk.apply()
    producer = Producer({"bootstrap.servers": desk.kafka.bootstrap()})
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
