"""Properties of all brokers, set while they run, by the commands; and what brokers refuse of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from confluent_kafka import Producer

from tests.cli.kafka.conftest import Desk
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.soak  # minutes: brokers are started, killed and asked by whole commands


CLUSTER: Final = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: live}}
spec:
  provider: kafka
  kafka: {{bootstrapServers: ["{broker}"]}}
  properties:
{properties}
"""


@pytest.fixture(scope="module")
def kafka_alone() -> Iterator[Kafka]:
    """A broker whose properties are nobody else's concern."""
    with Kafka.start() as kafka:
        yield kafka


@pytest.fixture
def desk(at_desk: Callable[[Kafka], Desk], kafka_alone: Kafka) -> Iterator[Desk]:
    desk = at_desk(kafka_alone)
    theirs = desk.own_now(None)
    yield desk
    kept = {*theirs, "min.insync.replicas"}  # Brokers never take it back.
    desk.by_hand(None, {key: None for key in desk.own_now(None) if key not in kept})


def properties(desk: Desk, **given: object) -> None:
    lines = "\n".join(f"    {key.replace('_', '.')}: {value}" for key, value in given.items()) or "    {}"
    desk.write("cluster", CLUSTER.format(broker=desk.kafka.bootstrap(), properties=lines))


def test_properties_are_set_changed_and_taken_back(desk: Desk) -> None:
    before = desk.own_now(None)
    properties(desk, log_cleaner_threads=2, message_max_bytes="2MiB", log_retention_ms="7d")
    desk.apply()
    assert desk.own_now(None) == {
        **before,
        "log.cleaner.threads": "2",
        "message.max.bytes": "2097152",
        "log.retention.ms": "604800000",
    }
    desk.settled()
    properties(desk, log_cleaner_threads=1)
    desk.apply("--allow", "update:cluster/live")
    assert desk.own_now(None) == {**before, "log.cleaner.threads": "1"}
    desk.settled()
    desk.by_hand(None, {"log.cleaner.threads": "2"})
    assert desk.typed("drift").code == 3
    desk.apply()
    desk.settled()


def test_a_property_that_one_broker_sets_for_itself_is_warned_of_and_with_its_way_back(desk: Desk) -> None:
    properties(desk, log_retention_ms="3d", log_cleaner_threads=2)
    desk.apply()
    desk.by_hand_on_one(1, {"log.retention.ms": "5000000", "log.cleaner.threads": "2"})
    try:
        deadline = time.monotonic() + 30
        while "for itself" not in (said := desk.typed("drift")).out + said.err:
            assert time.monotonic() < deadline, said
        planned = desk.plan()
        for text in (said.out + said.err, planned.out + planned.err):
            assert "broker 1 sets log.retention.ms to 5000000 for itself, so 259200000 has no effect there" in text
            assert "--entity-name 1 --delete-config log.retention.ms" in text
            assert "log.cleaner.threads to" not in text
    finally:
        desk.by_hand_on_one(1, {"log.retention.ms": None, "log.cleaner.threads": None})


def test_what_brokers_refuse_is_told_with_their_words_and_our_line(desk: Desk) -> None:
    before = desk.own_now(None)
    desk.topic("orders")
    properties(desk, log_retention_ms="7d", compression_type="nonsense")
    said = desk.apply(code=8)
    text = said.out + said.err
    assert "manifests/cluster.yaml:9: " in text, text
    assert "compression.type" in text
    assert desk.own_now(None) == before


def test_a_property_that_brokers_never_take_back_is_set_to_its_default_instead(desk: Desk) -> None:
    properties(desk, min_insync_replicas=1, log_cleaner_threads=2)
    desk.apply()
    properties(desk)
    refused = desk.apply(code=8)
    assert "brokers with eligible leader replicas (Kafka 4) refuse to take back" in refused.out + refused.err
    assert "write min.insync.replicas: 1 among the properties of the Cluster" in refused.out + refused.err
    properties(desk, min_insync_replicas=1)
    desk.apply()
    assert "log.cleaner.threads" not in desk.own_now(None)
    desk.settled()


def test_what_cannot_be_set_while_brokers_run_is_refused_at_plan(desk: Desk) -> None:
    properties(desk, auto_create_topics_enable="true", nonsense=1)
    said = desk.plan()
    text = said.out + said.err
    assert said.code == 1, text
    assert "manifests/cluster.yaml:8" in text
    assert "auto.create.topics.enable" in text
    assert "nonsense" in text


@pytest.mark.parametrize(("threads", "bound"), [(100, "at most 20"), (1, "at least 5")])
def test_threads_beyond_what_running_brokers_take_are_refused_at_plan(desk: Desk, threads: int, bound: str) -> None:
    properties(desk, background_threads=threads)
    said = desk.plan()
    text = said.out + said.err
    assert said.code == 1, text
    assert f"background.threads: {threads} is out of range: {bound}" in text
    assert "manifests/cluster.yaml:8" in text


@pytest.mark.parametrize("threads", [5, 20])
def test_threads_that_running_brokers_take_are_set(desk: Desk, threads: int) -> None:
    properties(desk, background_threads=threads)
    desk.apply()
    assert desk.own_now(None)["background.threads"] == str(threads)


def test_a_retention_that_all_brokers_are_to_lower_is_blocked_as_a_loss(desk: Desk) -> None:
    name = desk.topic("orders")
    desk.apply()
    producer = Producer({"bootstrap.servers": desk.kafka.bootstrap()})
    producer.produce(name, b"a", timestamp=int((time.time() - 60) * 1000))
    assert producer.flush(30) == 0
    properties(desk, log_retention_ms=1000)
    said = desk.plan()
    assert "blocked: " in said.out, said.out
    desk.apply(code=7)
    assert "log.retention.ms" not in desk.own_now(None)
    assert name in desk.kafka.names()
