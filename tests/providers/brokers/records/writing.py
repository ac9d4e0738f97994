"""Records written to test brokers by the library itself, and what of them a log should have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from tests.servers.kafkatopics import build_record_settings

if TYPE_CHECKING:
    from tests.servers.kafka import Kafka


def write(kafka: Kafka, topic: str, values: Iterable[str], **settings: Any) -> None:
    """Write values into partition 0; underscores in names of settings are dots."""
    producer = Producer({**build_record_settings(kafka), **{k.replace("_", "."): v for k, v in settings.items()}})
    for value in values:
        producer.produce(topic, value, key=value[:1], partition=0)
    assert producer.flush(30) == 0


def transact(kafka: Kafka, topic: str, values: Iterable[str], *, ends: str = "commit") -> Producer:
    """Write values into partition 0 in one transaction, and commit it, abort it or leave it open."""
    settings = {**build_record_settings(kafka), "transactional.id": f"{topic}-{ends}"}
    producer = Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, key=value[:1], partition=0)
    assert producer.flush(30) == 0
    if ends == "commit":
        producer.commit_transaction(30)
    if ends == "abort":
        producer.abort_transaction(30)
    return producer
