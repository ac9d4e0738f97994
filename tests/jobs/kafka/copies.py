"""Topics on a real broker that are copied, and what a stranger reads of them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from reconciler.jobs.copy import copy_log
from reconciler.providers.brokers.ledger import CONFIGS, MAP, PROGRESS, TOPIC, Ledger
from reconciler.providers.brokers.records.copy_progress import parse_offset_map
from reconciler.providers.brokers.records.copy_sink import CopyLimits, CopySink, CopyTarget
from reconciler.providers.brokers.records.record_log import KafkaLog
from tests.engines import here
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import until_known

if TYPE_CHECKING:
    from reconciler.jobs.flows import CopyResult
    from reconciler.records.log import TopicLog
    from reconciler.records.offset_map import OffsetMap

LONG_AGO = 1_500_000_000_000
"""Retention of the target would take such records at once, were it not the source's."""
BARE = {
    "group.id": "bare",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
}
KEPT = {"retention.ms": "-1"}


@dataclass
class Place:
    """One broker, and names that nobody else uses."""

    kafka: Kafka
    prefix: str

    @property
    def settings(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.kafka.bootstrap(), "reconnect.backoff.max.ms": 100}

    def create(self, name: str, partitions: int = 1, **configs: str) -> str:
        """Make a topic that keeps what it gets, and return what the broker calls it."""
        return self._made(f"{self.prefix}.{name}", partitions, {**KEPT, **_dotted(configs)})

    def create_ledger(self) -> None:
        if TOPIC not in AdminClient(self.settings).list_topics(timeout=30).topics:
            self._made(TOPIC, 1, CONFIGS)

    def delete(self, topic: str) -> None:
        admin = AdminClient(self.settings)
        admin.delete_topics([topic])[topic].result(30)
        until = time.monotonic() + 30
        while topic in self.kafka.names():
            assert time.monotonic() < until

    def truncate(self, topic: str, offset: int) -> None:
        """Delete the records of partition 0 below an offset."""
        admin = AdminClient(self.settings)  # Its requests end with it.
        gone = TopicPartition(topic, 0, offset)
        admin.delete_records([gone])[gone].result(30)

    def open_log(self, topic: str) -> KafkaLog:
        return KafkaLog(topic, self.settings, {"bootstrap_servers": self.kafka.bootstrap().split(",")}, "west")

    def sink(self, topic: str, *, limits: CopyLimits | None = None, owner: str = "link", **more: Any) -> CopySink:
        """Return a sink with an identity as a link has one."""
        self.create_ledger()
        log = self.open_log(topic)
        most = limits or CopyLimits()
        partitions = len(log.read_bounds())
        target = CopyTarget(self.settings, "east", topic, log.topic_id, partitions, owner, "link", limits=most, **more)
        return CopySink(target)

    def map(self, topic: str, partition: int) -> OffsetMap:
        entries = Ledger(self.settings, "east").read(PROGRESS, MAP)
        return parse_offset_map(entries, topic, partition)

    def read(self, topic: str) -> dict[int, list[tuple[int, str]]]:
        """Return what a bare consumer gets of each partition: offsets, and the rest as Kafka's own tool prints it."""
        consumer = Consumer({**self.settings, **BARE})
        unread = set(consumer.list_topics(topic, 30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in unread])
        found: dict[int, list[tuple[int, str]]] = {}
        while unread:
            message = consumer.poll(30)
            assert message is not None, f"{topic}: nothing comes"
            if message.error() is None:
                found.setdefault(message.partition(), []).append((message.offset(), printed(message)))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                unread.discard(message.partition())
        consumer.close()
        return found

    def told(self, topic: str) -> dict[int, list[tuple[int, str]]]:
        """Return the same as the broker's own console consumer prints it."""
        count = sum(map(len, self.read(topic).values()))  # It waits for more where it is not told.
        flag = "--property" if self.kafka.version.startswith("3") else "--formatter-property"
        shown = ("timestamp", "partition", "offset", "headers", "key", "value")
        wanted = [part for name in shown for part in (flag, f"print.{name}=true")]
        said = self.kafka.tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", self.kafka.bootstrap(), "--topic", topic, "--from-beginning"),
            *("--isolation-level", "read_committed", "--max-messages", str(count), "--timeout-ms", "60000"),
            *(flag, "null.literal=<null>", *wanted),
        )
        found: dict[int, list[tuple[int, str]]] = {}
        for line in said.splitlines():
            when, partition, offset, rest = line.split("\t", 3)
            number = int(partition.removeprefix("Partition:"))
            found.setdefault(number, []).append((int(offset.removeprefix("Offset:")), f"{when}\t{rest}"))
        return found

    def _made(self, topic: str, partitions: int, configs: dict[str, str]) -> str:
        admin = AdminClient(self.settings)  # Its requests end with it.
        admin.create_topics([NewTopic(topic, partitions, 1, config=dict(configs))])[topic].result(30)
        until_known(self.kafka, topic, partitions)
        return topic


def printed(message: Message) -> str:
    """Return a record as the console consumer prints it, without where it lies."""
    headers = ",".join(f"{name}:{_text(content)}" for name, content in message.headers() or []) or "NO_HEADERS"
    kind = "LogAppendTime" if message.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME else "CreateTime"
    return f"{kind}:{message.timestamp()[1]}\t{headers}\t{_text(message.key())}\t{_text(message.value())}"


def _text(content: bytes | None) -> str:
    return "<null>" if content is None else content.decode()


def _dotted(configs: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in configs.items()}


def produce(place: Place, topic: str, count: int, *, partitions: int = 1, each: int = 0, start: int = 0) -> None:
    """Write records of every shape; with `each` in transactions of so many, every third of them aborted."""
    settings = {**place.settings, "linger.ms": 5}
    if each:
        settings["transactional.id"] = f"{topic}.{start}"
    producer = Producer(settings)
    if each:
        producer.init_transactions(120)
    for at in range(0, count, each or count):
        if each:
            producer.begin_transaction()
        for number in range(start + at, start + min(at + (each or count), count)):
            for partition in range(partitions):
                producer.produce(topic, partition=partition, **shape(number))
        if each:
            assert producer.flush(120) == 0
            (producer.abort_transaction if at // each % 3 == 2 else producer.commit_transaction)(120)
    assert producer.flush(120) == 0


def shape(number: int) -> dict[str, Any]:
    """Return a record that differs from its neighbours in what may be null, empty or absent."""
    return {
        "value": None if number % 7 == 0 else ("" if number % 11 == 0 else f"value {number}"),
        "key": "" if number % 5 == 0 else (None if number % 3 == 0 else f"k{number}"),
        "headers": [("n", None), ("m", str(number)), ("m", "")] if number % 2 else None,
        "timestamp": LONG_AGO + number,
    }


def copied(source: TopicLog, sink: CopySink, **options: Any) -> CopyResult:
    return copy_log(here(), source, sink, **options)


def assert_copied(place: Place, source: str, target: str) -> int:
    """Compare what a stranger reads of both, and where each record went with what the map says; return how many."""
    ours, theirs = place.read(source), place.read(target)
    assert {number: [text for _, text in found] for number, found in theirs.items()} == {
        number: [text for _, text in found] for number, found in ours.items()
    }
    for number, found in ours.items():
        offsets = place.map(target, number)
        told = [offsets.find_target(offset) for offset, _ in found]
        assert told == [offset for offset, _ in theirs[number]]
    return sum(map(len, ours.values()))
