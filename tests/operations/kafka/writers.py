"""Producers of every kind that write to a topic until they are told to stop, and what was acknowledged to each."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError

logging.getLogger("kafka.producer").setLevel(logging.CRITICAL)

LARGE: Final = 200_000
SLOW_S: Final = 0.2
FAST_S: Final = 0.002
_SHORT: Final = {"message.timeout.ms": 5_000, "topic.metadata.propagation.max.ms": 100}
"""What is written to a deleted topic fails soon."""


@dataclass
class Writer:
    """One producer in a thread of its own. `acknowledged`: the values a broker said it has."""

    kind: str
    write: Callable[[Writer], None]
    pause_s: float = FAST_S
    size: int = 0
    acknowledged: set[bytes] = field(default_factory=set)
    refused: int = 0
    failure: BaseException | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    _count: int = 0

    def value(self) -> bytes:
        self._count += 1
        return f"{self.kind}-{self._count}".encode().ljust(self.size, b".")

    def run(self) -> None:
        """Write until somebody stops it; what is refused is tried again as another value."""
        try:
            self.write(self)
        except BaseException as error:  # noqa: BLE001 - told by whoever waits for it
            self.failure = error


def _plain(settings: dict[str, Any], topic: str, partition: int) -> Callable[[Writer], None]:
    def write(me: Writer) -> None:
        producer = Producer(settings)

        def told(error: object, message: Any) -> None:
            if error is None:
                me.acknowledged.add(message.value())
            else:
                me.refused += 1

        with suppress(KafkaException):  # The topic is gone.
            while not me.stop.wait(me.pause_s):
                producer.produce(topic, me.value(), partition=partition, on_delivery=told)
                producer.poll(0)
        assert producer.flush(60) == 0

    return write


def _paying(settings: dict[str, Any], topic: str) -> Callable[[Writer], None]:
    """Write transactions of three records to two partitions; every fourth is given up."""

    def write(me: Writer) -> None:
        producer = Producer(settings)
        producer.init_transactions(60)
        for number in range(1_000_000):
            if me.stop.wait(me.pause_s):
                return
            values = [me.value() for _ in range(3)]
            producer.begin_transaction()
            try:
                for place, value in enumerate(values):
                    producer.produce(topic, value, partition=place % 2)
                assert producer.flush(60) == 0
                if number % 4 == 3:
                    producer.abort_transaction(60)
                else:
                    producer.commit_transaction(60)
                    me.acknowledged.update(values)
            except KafkaException:
                me.refused += 1
                producer.abort_transaction(60)

    return write


def _other(bootstrap: str, topic: str, partition: int) -> Callable[[Writer], None]:
    """Write by another client library, one record at a time."""

    def write(me: Writer) -> None:
        producer = KafkaProducer(bootstrap_servers=[bootstrap], acks="all", max_block_ms=1_000)
        while not me.stop.wait(me.pause_s):
            value = me.value()
            try:
                producer.send(topic, value, partition=partition).get(30)
                me.acknowledged.add(value)
            except KafkaError:
                me.refused += 1
        producer.close()

    return write


def writers(bootstrap: str, topic: str) -> list[Writer]:
    """Return producers of every kind: of all acks, idempotent, transactional, slow, fast, large, tiny, compressed."""

    def of(partition: int, **more: Any) -> Callable[[Writer], None]:
        brokers = {"bootstrap.servers": bootstrap, "linger.ms": 0, **_SHORT}
        return _plain({**brokers, **{key.replace("_", "."): value for key, value in more.items()}}, topic, partition)

    paying = {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}.paying", **_SHORT}
    return [
        Writer("slow", of(0, acks=1), SLOW_S),
        Writer("one", of(0, acks=1)),
        Writer("all", of(1, acks="all")),
        Writer("idempotent", of(2, enable_idempotence=True)),
        Writer("gzip", of(0, compression_type="gzip"), 0.01),
        Writer("lingering", of(1, **{"linger.ms": 50})),
        Writer("large", of(2, acks="all"), 0.1, LARGE),
        Writer("paying", _paying(paying, topic), 0.01),
        Writer("other", _other(bootstrap, topic, 1), 0.01),
        Writer("unheard", of(2, acks=0)),
    ]


@contextmanager
def writing(found: list[Writer]) -> Iterator[None]:
    """Let producers write meanwhile. Afterwards each has stopped, and has been told what became of what it wrote."""
    threads = [threading.Thread(target=writer.run, name=writer.kind) for writer in found]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for writer in found:
            writer.stop.set()
        for thread in threads:
            thread.join(120)
    assert not [thread.name for thread in threads if thread.is_alive()]
    for writer in found:
        if writer.failure is not None:
            raise writer.failure
