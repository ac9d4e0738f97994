"""The broker that these tests share, with names of their own."""

from __future__ import annotations

import pytest

from tests.jobs.kafka.copies import Place
from tests.servers.kafka import Kafka


@pytest.fixture
def place(kafka_broker: Kafka, kafka_prefix: str) -> Place:
    return Place(kafka_broker, kafka_prefix)
