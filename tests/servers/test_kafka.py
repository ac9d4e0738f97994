"""The brokers that other tests rely on: ready when they say so, and gone with whoever started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from examples import kafkajars
from tests.servers.kafka import Kafka
from tests.waiting import until

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[2]
STARTER = """
import sys
from tests.servers.kafka import Kafka
broker = Kafka.start().brokers[0]
print(broker.pid, broker.folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["kafka_broker", "kafka_39"])
def kafka(request: pytest.FixtureRequest) -> Kafka:
    broker: Kafka = request.getfixturevalue(request.param)
    return broker


def written(kafka: Kafka, topic: str, *values: str) -> None:
    kafka.topics("--create", "--topic", topic, "--config", "retention.ms=-1")  # else old records go at once
    producer = Producer({"bootstrap.servers": kafka.bootstrap(), "reconnect.backoff.max.ms": 100})
    for value in values:
        producer.produce(topic, value, key="k", headers=[("h", b"1")], timestamp=1_500_000_000_000)
    assert producer.flush(30) == 0


def test_a_broker_keeps_what_it_is_given(kafka: Kafka, kafka_prefix: str) -> None:
    written(kafka, f"{kafka_prefix}.one", "a", "b")
    assert kafka.consumed(f"{kafka_prefix}.one", 2) == [
        f"CreateTime:1500000000000\tPartition:0\tOffset:{offset}\th:1\tk\t{value}" for offset, value in enumerate("ab")
    ]


@pytest.mark.soak
def test_a_broker_that_was_killed_comes_back_with_what_it_had(
    start_kafka: Callable[..., Kafka], kafka_prefix: str
) -> None:
    kafka = start_kafka()
    written(kafka, kafka_prefix, "a")
    kafka.kill()
    kafka.restart()
    assert kafka_prefix in kafka.topics("--list")
    kafka.pause()
    kafka.resume()
    kafka.stop()
    kafka.restart()
    assert kafka_prefix in kafka.topics("--list")


@pytest.mark.soak
def test_three_brokers_are_one_cluster_which_survives_one_of_them(start_kafka: Callable[..., Kafka]) -> None:
    kafka = start_kafka(brokers=3)
    kafka.kill(2)
    kafka.topics("--create", "--topic", "wide", "--replication-factor", "2")
    kafka.restart(2)
    assert "ReplicationFactor: 2" in kafka.topics("--describe", "--topic", "wide")


@pytest.mark.soak
@pytest.mark.xdist_group("kafka")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_broker_ends_with_whoever_started_it(how: signal.Signals) -> None:
    environ = {**os.environ, "XDG_CACHE_HOME": str(kafkajars._CACHE.parents[1])}  # where the jars are already
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER], cwd=ROOT, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert starter.stdout is not None
    broker, folder = starter.stdout.readline().decode().split()
    os.kill(int(broker), 0)
    starter.send_signal(how)
    starter.communicate()
    until(lambda: not Path(folder).exists(), "the broker outlived its starter", seconds=20)
    with pytest.raises(ProcessLookupError):
        os.kill(int(broker), 0)
