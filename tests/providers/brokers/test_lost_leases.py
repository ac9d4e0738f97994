"""Who writes where another has taken over is told so, at whatever call it notices."""

from __future__ import annotations

import time

import pytest

from reconciler.errors import LostRaceError, ProducerFencedError
from reconciler.providers.brokers.ledger import LedgerWriter
from reconciler.providers.brokers.records.copy_transaction import ClientTransactions, SentRecord
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import make_topic

pytestmark = pytest.mark.thorough

ROW: SentRecord = (b"value", b"key", 1_000, [], 0)


def test_who_copies_on_after_being_fenced_is_told_who_copies_now(kafka_broker: Kafka, kafka_prefix: str) -> None:
    topic = f"{kafka_prefix}.copy"
    kafka_broker.topics("--create", "--topic", topic)
    settings = {"bootstrap.servers": kafka_broker.bootstrap(), "transactional.id": f"{kafka_prefix}-copier"}
    first = ClientTransactions(settings, (topic, 0), "east")
    first.write_records([ROW])
    first.await_offsets()
    second = ClientTransactions(settings, (topic, 0), "east")
    told: list[str] = []
    deadline = time.monotonic() + 60
    while len(told) < 3:  # The first time the client names the reason; from then on it only says that it is fatal.
        assert time.monotonic() < deadline, told
        try:
            first.write_records([ROW])
            first.await_offsets()
        except LostRaceError as error:
            told.append(str(error))
    assert all("another process" in each.lower() for each in told), told
    for each in (first, second):
        each.close()


def test_who_writes_into_the_ledger_on_after_being_fenced_is_told(kafka_broker: Kafka, kafka_prefix: str) -> None:
    make_topic(kafka_broker, kafka_prefix, partitions=1)
    settings = {"bootstrap.servers": kafka_broker.bootstrap()}
    first = LedgerWriter(settings, f"{kafka_prefix}-link", "east")
    first.write(kafka_prefix, [(b"key", b"one")])
    LedgerWriter(settings, f"{kafka_prefix}-link", "east").write(kafka_prefix, [(b"key", b"two")])
    with pytest.raises(ProducerFencedError):  # Nobody uses it after that.
        first.write(kafka_prefix, [(b"key", b"three")])
