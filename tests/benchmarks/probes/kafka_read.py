"""Read a topic of RECORDS records from a broker REPETITIONS times into Arrow, in turns with a bare consumer.

Prints the medians. Arguments: RECORDS, REPETITIONS.
"""

import json
import statistics
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from reconciler.records.log import OffsetRange
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import kafka_log, make_topic, record_settings

PARTITIONS, AT_ONCE = 6, 1_000
_READING = {
    "group.id": "bare",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "fetch.message.max.bytes": 4 << 20,
}

records, repetitions = int(sys.argv[1]), int(sys.argv[2])


def fill(kafka: Kafka) -> None:
    """Write records of 10 bytes of key and 200 of value, a thousand at a time to each partition."""
    sizes = {"linger.ms": 50, "batch.num.messages": 100_000, "queue.buffering.max.kbytes": 1 << 20}
    producer = Producer({**record_settings(kafka), **sizes})
    value = b"v" * 200
    for number in range(records):
        while True:
            try:
                producer.produce("events", value, b"k%09d" % number, number // 1_000 % PARTITIONS)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    producer.flush()


def bare(kafka: Kafka) -> int:
    """Consume everything, and keep nothing."""
    consumer = Consumer({**record_settings(kafka), **_READING})
    consumer.assign([TopicPartition("events", number, 0) for number in range(PARTITIONS)])
    counted = 0
    while counted < records:
        counted += len(consumer.consume(AT_ONCE, 1.0))
    consumer.close()
    return counted


def ours(kafka: Kafka) -> int:
    """Read everything as batches of records."""
    log = kafka_log(kafka, "events")
    ends = {number: bounds.end for number, bounds in log.bounds().items()}
    return sum(batch.num_rows for number, end in ends.items() for batch in log.read(number, OffsetRange(0, end)))


with Kafka.start(heap="1g") as kafka:
    make_topic(kafka, "events", partitions=PARTITIONS)
    fill(kafka)
    took: dict[str, list[float]] = {"floor": [], "ours": []}
    for number in range(repetitions + 1):
        for name, read in (("floor", bare), ("ours", ours)):
            began = time.perf_counter()
            counted = read(kafka)
            if number:  # the first only warms the broker
                took[name].append(time.perf_counter() - began)
            if counted != records:
                sys.exit(f"{name}: {counted} records were read, not {records}")
print(json.dumps({name: statistics.median(each) for name, each in took.items()}))
