"""MirrorMaker 2 of the brokers' own version, from its artifacts: how long it takes once it moves records."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from examples.kafkajars import classpath, java
from tests.servers.ports import free_ports

PATIENCE_S = 300.0
BEGUN, ENDED = 0.1, 0.95
"""Between these shares of all records it is timed: starting, and the last small batches, are not held against it."""

_COMMON = {
    "clusters": "A,B",
    "A->B.enabled": "true",
    "B->A.enabled": "false",
    "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
    "replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "emit.heartbeats.enabled": "false",
    "tasks.max": "2",
    "A.consumer.auto.offset.reset": "earliest",
}
TUNED = {
    "A.consumer.max.poll.records": "20000",
    "A.consumer.max.partition.fetch.bytes": str(8 << 20),
    "A.consumer.fetch.max.bytes": str(64 << 20),
    "B.producer.batch.size": "1000000",
    "B.producer.linger.ms": "50",
    "B.producer.buffer.memory": str(256 << 20),
}
EXACTLY_ONCE = {
    "B.exactly.once.source.support": "enabled",
    "A.consumer.isolation.level": "read_committed",
    "dedicated.mode.enable.internal.rest": "true",
}


def seconds_for(topic: str, ends: tuple[str, str], records: int, settings: dict[str, str], folder: Path) -> float:
    """Mirror a topic from one cluster to the other; return the seconds all of it takes at the pace it goes steadily."""
    written = {
        **_COMMON,
        **settings,
        "A.bootstrap.servers": ends[0],
        "B.bootstrap.servers": ends[1],
        "A->B.topics": topic,
        "listeners": f"http://127.0.0.1:{free_ports(1)[0]}",
    }
    properties = folder / "mm2.properties"
    properties.write_text("".join(f"{key} = {value}\n" for key, value in written.items()), encoding="utf-8")
    command = [java(), "-Xms1g", "-Xmx1g", "-cp", classpath(), "org.apache.kafka.connect.mirror.MirrorMaker"]
    with (folder / "mm2.log").open("w", encoding="utf-8") as log:
        running = subprocess.Popen([*command, str(properties)], stdout=log, stderr=log)
        try:
            return _steady(lambda: _written(ends[1], topic), records, running)
        finally:
            running.kill()
            running.wait()


def _steady(written: Callable[[], int], records: int, running: subprocess.Popen[Any]) -> float:
    until, first = time.monotonic() + PATIENCE_S, (0.0, 0)
    while time.monotonic() < until and running.poll() is None:
        try:
            now, count = time.perf_counter(), written()
        except KafkaException:  # a topic that was made this moment has no leader yet
            continue
        if count >= BEGUN * records and not first[1]:
            first = now, count
        if count >= ENDED * records:
            return (now - first[0]) * records / max(1, count - first[1])
        time.sleep(0.1)
    message = "MirrorMaker 2 did not come to its end"
    raise TimeoutError(message)


def _written(bootstrap: str, topic: str) -> int:
    """Return how many offsets the copy has; those of transactions are some more than its records."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "counting", "log_level": 0})
    try:
        known = consumer.list_topics(topic, 10).topics[topic].partitions
        return sum(consumer.get_watermark_offsets(TopicPartition(topic, number), 10)[1] for number in known)
    finally:
        consumer.close()
