"""Changes of several fields of one topic in one apply, on two brokers: replicas with partitions and configs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from reconciler.errors import RetryableError
from reconciler.providers.brokers import admin_requests
from tests.cli.kafka.conftest import Desk
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def kafka_of_two() -> Iterator[Kafka]:
    with Kafka.start(brokers=2) as kafka:
        yield kafka


@pytest.fixture
def desk(at_desk: Callable[[Kafka], Desk], kafka_of_two: Kafka) -> Desk:
    desk = at_desk(kafka_of_two)
    desk.topic("orders", partitions=2, configs={"retention.ms": "7d"})
    desk.apply()
    return desk


def replicas(desk: Desk) -> list[int]:
    (topic,) = desk.admin.describe_topics([f"{desk.prefix}.orders"])
    return [len(each["replica_nodes"]) for each in topic["partitions"]]


def retention(desk: Desk) -> str | None:
    return desk.own_now(f"{desk.prefix}.orders").get("retention.ms")


def test_replicas_change_together_with_configs(desk: Desk) -> None:
    desk.topic("orders", partitions=2, replicationFactor=2, configs={"retention.ms": "8d"})
    desk.apply()
    assert (replicas(desk), retention(desk)) == ([2, 2], "691200000")
    desk.settled()


def test_replicas_change_together_with_partitions_and_configs(desk: Desk) -> None:
    desk.topic("orders", partitions=3, replicationFactor=2, configs={"retention.ms": "8d"})
    desk.apply()
    assert (replicas(desk), retention(desk)) == ([2, 2, 2], "691200000")
    desk.settled()


@pytest.mark.parametrize("is_reverted", [False, True], ids=["the same files", "reverted files"])
def test_the_next_apply_completes_a_change_that_ended_before_its_replicas_moved(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, *, is_reverted: bool
) -> None:
    def lost(*_given: object) -> None:
        raise RetryableError("no broker answers", hint="Try again.")

    desk.topic("orders", partitions=3, replicationFactor=2, configs={"retention.ms": "8d"})
    with monkeypatch.context() as patch:
        patch.setattr(admin_requests, "reassign_replicas", lost)
        desk.apply(code=4)
    assert (replicas(desk), retention(desk)) == ([1, 1, 1], "691200000")
    if is_reverted:
        desk.topic("orders", partitions=3, configs={"retention.ms": "8d"})
    desk.apply()
    assert replicas(desk) == ([1, 1, 1] if is_reverted else [2, 2, 2])
    desk.settled()
