"""Groups of a real broker that change between two looks."""

from __future__ import annotations

import pytest

from reconciler.providers.kafka import groups as module
from reconciler.providers.kafka.client import KafkaClient
from reconciler.providers.kafka.groups import KafkaGroups
from reconciler.providers.kafka.translate import naming_of
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.thorough


def test_a_group_that_has_gone_since_it_was_seen_is_gone(
    kafka_broker: Kafka, kafka_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = KafkaClient("west", lambda: {"bootstrap_servers": [kafka_broker.bootstrap()]})
    monkeypatch.setattr(module, "group_states", lambda _client: {kafka_prefix: "Empty"})
    assert not KafkaGroups(client, naming_of(".", ())).delete(kafka_prefix)
