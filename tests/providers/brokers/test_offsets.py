"""Where partitions begin and end, as their leaders tell."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from reconciler.providers.brokers.client import KafkaClient
from reconciler.providers.brokers.offsets import read_bounds
from reconciler.records.log import Bounds
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import make_topic

RECORDS = 3
BOUNDS = [Bounds(0, 0, RECORDS, RECORDS), Bounds(0, 0, 0, 0)]


@pytest.mark.parametrize("leader", [None, 1, 99], ids=["unknown", "right", "gone"])
def test_bounds_are_the_same_whatever_is_known_of_leaders(
    kafka_broker: Kafka, kafka_prefix: str, leader: int | None
) -> None:
    name = f"{kafka_prefix}.orders"
    make_topic(kafka_broker, name, partitions=2)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap()})
    for _ in range(RECORDS):
        producer.produce(name, b"record", partition=0)
    assert producer.flush(30) == 0
    client = KafkaClient("west", lambda: {"bootstrap_servers": [kafka_broker.bootstrap()]})
    places = [(name, 0), (name, 1)]
    bounds = read_bounds(client, places, None if leader is None else dict.fromkeys(places, leader))
    assert [bounds[place] for place in places] == BOUNDS
    client.close()
