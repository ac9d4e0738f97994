"""What probes of reading do with the client library alone: write a topic, and consume it into nothing."""

from __future__ import annotations

from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import build_record_settings

PARTITIONS: Final = 6
TOPIC: Final = "events"
_AT_ONCE: Final = 1_000
_READING: Final = {
    "group.id": "bare",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "fetch.message.max.bytes": 4 << 20,
    "fetch.queue.backoff.ms": 5,
}


def fill(kafka: Kafka, records: int) -> None:
    """Write records of 10 bytes of key and 200 of value, a thousand at a time to each partition."""
    sizes = {"linger.ms": 50, "batch.num.messages": 100_000, "queue.buffering.max.kbytes": 1 << 20}
    producer = Producer({**build_record_settings(kafka), **sizes})
    value = b"v" * 200
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, value, b"k%09d" % number, number // 1_000 % PARTITIONS)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    producer.flush()


def consume(kafka: Kafka, records: int) -> int:
    consumer = Consumer({**build_record_settings(kafka), **_READING})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    counted = 0
    while counted < records:
        counted += len(consumer.consume(_AT_ONCE, 1.0))
    consumer.close()
    return counted
