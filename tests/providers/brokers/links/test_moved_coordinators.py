"""Copiers are shut out by the broker that coordinates their transactions, also once that is another one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, Producer

from reconciler.providers.brokers.client import KafkaClient
from reconciler.providers.brokers.links.link_changes import fence_producers
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import make_topic

pytestmark = pytest.mark.thorough

IDS = [f"copier-{number}" for number in range(4)]


def test_a_process_that_knows_an_earlier_coordinator_shuts_copiers_out(start_kafka: Callable[..., Kafka]) -> None:
    kafka = start_kafka(brokers=2)
    client = KafkaClient("east", lambda: {"bootstrap_servers": kafka.bootstrap().split(",")})
    fence_producers(client, IDS)
    known = client.admin._manager.cluster._coordinators
    first, second = client.describe_cluster().brokers
    for key, node in [*known.items()]:
        known[key] = second if node == first else first
    make_topic(kafka, "orders")
    copier = Producer({"bootstrap.servers": kafka.bootstrap(), "transactional.id": IDS[0], "log_level": 0})
    copier.init_transactions(30)
    fence_producers(client, IDS)
    copier.begin_transaction()
    copier.produce("orders", b"late")
    with pytest.raises(KafkaException):
        copier.commit_transaction(30)
