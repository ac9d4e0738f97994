"""Tiering of topics on real brokers, by the commands: on, off with what was tiered kept, on again, off and deleted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import TopicPartition as KafkaPlace

from tests.cli.kafka.conftest import Desk
from tests.servers.kafka import Kafka
from tests.waiting import until

pytestmark = pytest.mark.thorough

VALUE: Final = b"v" * 700 * 1024
POLICY: Final = """\
---
apiVersion: reconciler/v1
kind: TieringPolicy
metadata: {{name: cold}}
spec: {spec}
"""
ON: Final = {"remoteWrite": True, "remoteRead": True, "localRetention": {"bytes": 1}, "segmentBytes": "1MiB"}
QUICK: Final = {"retention.ms": -1, "segment.ms": 500, "file.delete.delay.ms": 100}
EARLIEST, LOCAL, TIERED = -2, -4, -5


class Tiered:
    """A topic of one partition under a policy."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.name = desk.topic("orders", tieringPolicy="cold", configs=QUICK)
        self.count = 0

    def policy(self, **spec: Any) -> None:
        self.desk.write("policy", POLICY.format(spec=json.dumps(spec)))

    def apply(self, *options: str) -> None:
        self.desk.apply(*options)
        self.desk.settled()

    def produce(self, records: int = 6) -> None:
        producer = Producer({"bootstrap.servers": self.desk.kafka.bootstrap(), "message.max.bytes": 1_000_000})
        for number in range(self.count, self.count + records):
            producer.produce(self.name, VALUE, key=str(number).encode(), partition=0)
            assert producer.flush(30) == 0
        self.count += records

    def offset(self, which: int) -> int:
        found = self.desk.admin.list_partition_offsets({KafkaPlace(self.name, 0): which})
        return int(next(iter(found.values())).offset)

    def until(self, why: str, is_so: Callable[[], bool]) -> None:
        until(is_so, lambda: f"{why}: {[self.offset(each) for each in (EARLIEST, LOCAL, TIERED)]}", seconds=60)

    def keys(self) -> list[int]:
        """Return the keys of all records that can be read, by somebody else's client."""
        consumer = Consumer({"bootstrap.servers": self.desk.kafka.bootstrap(), "group.id": self.name})
        try:
            start = self.offset(EARLIEST)
            consumer.assign([TopicPartition(self.name, 0, start)])
            found: list[int] = []
            deadline = time.monotonic() + 60
            while not found or found[-1] < self.count - 1:
                assert time.monotonic() < deadline, f"only {found} of {self.count} were read"
                message = consumer.poll(1)
                if message is not None and message.error() is None:
                    found.append(int(message.key() or b"-1"))
            return found
        finally:
            consumer.close()


@pytest.fixture
def tiered(either: Desk) -> Tiered:
    """Records of which some lie in remote storage alone."""
    tiered = Tiered(either)
    tiered.policy(**ON)
    tiered.apply()
    tiered.produce()
    tiered.until("nothing is tiered", lambda: tiered.offset(LOCAL) > tiered.offset(EARLIEST) == 0)
    return tiered


@pytest.mark.soak
@pytest.mark.fact("F-K-070", "F-K-072", "F-K-074")
def test_a_policy_tiers_keeps_resumes_and_deletes_only_what_was_allowed(tiered: Tiered) -> None:
    desk = tiered.desk
    assert tiered.keys() == [0, 1, 2, 3, 4, 5]
    tiered.policy(**{**ON, "remoteWrite": False, "remoteRead": False})  # Kept, where nothing is said (F-K-052).
    tiered.apply()
    own = desk.own(tiered.name)
    assert (own["remote.storage.enable"], own["remote.log.copy.disable"]) == ("true", "true")
    assert (own["local.retention.ms"], own["local.retention.bytes"]) == ("-2", "-2")
    before = tiered.offset(TIERED)
    tiered.produce(3)
    assert tiered.keys() == list(range(9))
    assert tiered.offset(TIERED) == before
    tiered.policy(**ON)
    tiered.apply()
    tiered.produce(3)
    tiered.until("nothing more is tiered", lambda: tiered.offset(TIERED) >= 9)
    assert tiered.keys() == list(range(12))

    tiered.policy(**{**ON, "remoteWrite": False, "remoteRead": False, "onDisable": "delete"})
    local = tiered.count - 1  # All but the open segment, which is of one record.
    tiered.until("local segments stay", lambda: tiered.offset(LOCAL) == local)
    said = desk.plan("--format", "json")
    assert said.code == 7, said.err
    (action,) = json.loads(said.out)["actions"]
    assert action["risk"] == "data-loss"
    (lost,) = action["estimate"]["unreadable"]
    assert (lost["partition"], lost["start"], lost["stop"]) == (0, 0, local)
    assert f"{local} offsets of 1 partition become unreadable" in desk.plan().out
    desk.apply(code=7)
    assert tiered.keys() == list(range(12))
    tiered.apply("--allow", f"update:{desk.address('orders')}")
    tiered.until("the log starts where it did", lambda: tiered.offset(EARLIEST) >= local)
    assert tiered.keys() == list(range(tiered.offset(EARLIEST), 12))

    tiered.policy(**ON)
    tiered.apply()
    tiered.produce(3)
    tiered.until("nothing is tiered again", lambda: tiered.offset(TIERED) >= 12)


@pytest.mark.soak
@pytest.mark.fact("F-K-071", "F-K-073")
@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"remote.storage.enable": True, "cleanup.policy": "compact"}, "compact"),
        ({"remote.storage.enable": True, "retention.ms": "1h", "local.retention.ms": "2h"}, "local.retention.ms"),
        ({"remote.storage.enable": True, "retention.ms": "1h", "local.retention.ms": -1}, "local.retention.ms"),
        ({"remote.storage.enable": True, "remote.log.copy.disable": True, "local.retention.ms": "1h"}, "copy"),
    ],
    ids=["compacted", "longer here than at all", "for ever here", "not copied and let go"],
)
def test_what_brokers_would_refuse_is_refused_at_plan(either: Desk, configs: dict[str, Any], words: str) -> None:
    name = either.topic("orders", configs=configs)
    said = either.plan()
    assert said.code == 1, said.out
    assert words in said.out + said.err
    assert "manifests/orders.yaml" in said.out + said.err
    given = [part for key, value in configs.items() for part in ("--config", f"{key}={written(value)}")]
    told = either.kafka.tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", either.kafka.bootstrap(), "--create", "--topic", name, *given),
        fails=True,
    )
    assert "InvalidConfigurationException" in told, told


@pytest.mark.soak
@pytest.mark.fact("F-K-075")
def test_a_policy_that_is_taken_away_leaves_no_switch_to_chance(tiered: Tiered) -> None:
    desk = tiered.desk
    desk.topic("orders", configs=QUICK)
    said = desk.plan()
    assert said.code == 1
    assert "would be unmanaged" in said.out + said.err
    assert desk.own(tiered.name)["remote.storage.enable"] == "true"


@pytest.mark.soak
@pytest.mark.fact("F-K-074")
def test_brokers_that_do_not_tier_are_told_at_plan(
    at_desk: Callable[[Kafka], Desk], start_kafka: Callable[..., Kafka]
) -> None:
    desk = at_desk(start_kafka(extra={"remote.log.storage.system.enable": "false"}))
    tiered = Tiered(desk)
    tiered.policy(**ON)
    said = desk.plan()
    assert said.code == 1
    assert "remote.log.storage.system.enable is not true at the brokers" in said.out + said.err
    desk.topic("orders", configs=QUICK)
    desk.apply()
    desk.settled()


def written(value: object) -> str:
    return {"1h": "3600000", "2h": "7200000", True: "true"}.get(value, str(value))  # type: ignore[call-overload,no-any-return]  # by what it is


# A tiering policy that comes to several topics, or goes from them: all that brokers would refuse, in one plan.


MANY_TOPICS_POLICY: Final = """\
apiVersion: reconciler/v1
kind: TieringPolicy
metadata: {{name: cold}}
spec: {spec}
"""
TOPICS: Final = ("a", "b", "c", "d", "e")


def test_every_topic_that_a_policy_cannot_go_from_or_come_to_is_named_in_one_plan(desk: Desk) -> None:
    desk.write("policy", MANY_TOPICS_POLICY.format(spec=json.dumps({"remoteWrite": True})))
    for name in TOPICS:
        desk.topic(name, tieringPolicy="cold")
    desk.apply()
    for name in TOPICS:
        desk.topic(name)
    said = desk.plan()
    assert said.code == 1, said.out
    for name in TOPICS:
        assert f"{desk.address(name)}: its tiered storage would be unmanaged" in said.out + said.err
    for name in TOPICS:
        desk.topic(name, tieringPolicy="cold", configs={"cleanup.policy": "compact"})
    said = desk.plan()
    assert said.code == 1, said.out
    for name in TOPICS:
        assert f"{desk.address(name)}: a topic that is compacted cannot be tiered" in said.out + said.err
