"""One fresh topic of three partitions, `orders`, on each platform: what the contract suite of logs runs over."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from reconciler.records.log import OffsetRange, TopicLog
from reconciler.records.schema import INPUT_SCHEMA
from tests.embedded.samples import cluster_in, numbered
from tests.servers.kafkatopics import build_record_settings, delete_topic, kafka_log, make_topic

if TYPE_CHECKING:
    import pyarrow as pa

    from reconciler.objectstore.base import ObjectStore
    from tests.servers.kafka import Kafka

PARTITIONS: Final = 3


class Topic(Protocol):
    """A topic, and how records get into it."""

    log: TopicLog

    def fill(self, *counts: int, partition: int = 0) -> None:
        """Append numbered records to a partition, one batch for each count."""
        ...

    def append(self, records: pa.RecordBatch) -> None: ...

    def made_anew(self) -> TopicLog:
        """Delete it, make it again under the same name, and return the log of that."""
        ...


class EmbeddedTopic:
    """On an embedded cluster of its own."""

    def __init__(self, store: ObjectStore) -> None:
        self._cluster = cluster_in(store)
        self._cluster.create_topic("orders", partitions=PARTITIONS)
        self.log: TopicLog = self._cluster.log("orders")

    def fill(self, *counts: int, partition: int = 0) -> None:
        sink = self._cluster.sink("orders")
        for count in counts:
            start = sink.read_ends()[partition]
            at = OffsetRange(start, start + count)
            sink.publish([sink.stage(partition, [numbered(start, count, partition=partition)], at=at)])

    def append(self, records: pa.RecordBatch) -> None:
        with self._cluster.producer() as producer:
            producer.append("orders", records)

    def made_anew(self) -> TopicLog:
        self._cluster.delete_topic("orders")
        self._cluster.create_topic("orders", partitions=PARTITIONS)
        return self._cluster.log("orders")


class KafkaTopic:
    """On brokers that other tests share, under a name of its own."""

    def __init__(self, kafka: Kafka, prefix: str) -> None:
        self._kafka, self.name = kafka, f"{prefix}.orders"
        make_topic(kafka, self.name)
        log = kafka_log(kafka, self.name)
        self.log: TopicLog = replace(log, id=log.topic_id)  # as providers open it
        self._ends: dict[int, int] = {}

    def fill(self, *counts: int, partition: int = 0) -> None:
        for count in counts:
            start = self._ends.get(partition, 0)
            self.append(numbered(start, count, partition=partition).select(INPUT_SCHEMA.names))
            self._ends[partition] = start + count

    def append(self, records: pa.RecordBatch) -> None:
        from reconciler.providers.brokers.records.record_producer import KafkaProducer  # noqa: PLC0415 - brings the client

        producer = KafkaProducer(self.name, build_record_settings(self._kafka), "west")
        producer.append(records)
        producer.flush()

    def made_anew(self) -> TopicLog:
        delete_topic(self._kafka, self.name)
        make_topic(self._kafka, self.name)
        return kafka_log(self._kafka, self.name)
