"""The disaster on two Kafka clusters, and the way back: nothing lost, nothing doubled, whatever breaks off in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from tests.cli.conftest import Call, Said
from tests.cli.kafka.conftest import WORKSPACE
from tests.jobs.kafka.copies import Place
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import forget_links

pytestmark = pytest.mark.thorough

CLUSTERS: Final = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: west}}
spec: {{provider: kafka, kafka: {{bootstrapServers: ["{west}"]}}}}
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: east}}
spec: {{provider: kafka, kafka: {{bootstrapServers: ["{east}"]}}}}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {{name: {prefix}, cluster: west}}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {{name: {prefix}, cluster: east}}
"""
TOPIC: Final = """\
---
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: {name}, namespace: {prefix}, cluster: west}}
spec: {{partitions: 2, replicationFactor: 1, configs: {configs}}}
"""
LINK: Final = """\
---
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {{name: link-{prefix}, cluster: east}}
spec:
  source: west
  mode: bidirectional
  consumerOffsetSync: {{enabled: true, interval: 1s, filters: [{{name: "{prefix}", patternType: prefixed}}]}}
  mirrorTopics: [{mirrors}]
"""
KEPT: Final = {"retention.ms": -1}


@dataclass
class Sides:
    """Two clusters, a workspace that mirrors topics of west to east, and what strangers do on both."""

    typed: Call
    west: Kafka
    east: Kafka
    prefix: str
    names: tuple[str, ...] = ("orders",)
    configs: str = json.dumps(KEPT)

    def declare(self, state: str = "mirroring") -> None:
        """Write the files."""
        Path("reconciler.yaml").write_text(WORKSPACE)
        Path("manifests").mkdir(exist_ok=True)
        at = {"west": self.west.bootstrap(), "east": self.east.bootstrap(), "prefix": self.prefix}
        mirrors = ", ".join(f'{{source: "{self.prefix}:{name}", state: {state}}}' for name in self.names)
        topics = "".join(TOPIC.format(name=name, configs=self.configs, **at) for name in self.names)
        text = CLUSTERS.format(**at) + topics + LINK.format(mirrors=mirrors, **at)
        Path("manifests/all.yaml").write_text(text)

    def begin(self, records: int = 20) -> None:
        """Have topics on west with records, and mirrors on east that have them all."""
        self.declare()
        self.did("apply", "--yes")
        self.produce(self.west, "first", records)
        self.mirror()

    def did(self, *command: str) -> Said:
        """Type a command that succeeds."""
        said = self.typed(*command)
        assert said.code == 0, said.out + said.err
        return said

    def mirror(self) -> None:
        self.did("run", "--once", "--only", "mirror")

    def settled(self) -> None:
        again = self.typed("plan", "--detailed-exitcode")
        assert again.code == 0, again.out + again.err

    def address(self, cluster: str, name: str = "orders") -> str:
        return f"mirror/{cluster}/{self.prefix}:{name}"

    def status(self, cluster: str, name: str = "orders") -> str:
        said = self.did("mirror", "describe", self.address(cluster, name), "--format", "json")
        (mirror,) = json.loads(said.out)["mirrors"]
        return str(mirror["mirror_status"])

    def topic(self, name: str = "orders") -> str:
        return f"{self.prefix}.{name}"

    def produce(self, kafka: Kafka, word: str, records: int, *, partition: int | None = None) -> None:
        """Write so many records into every topic there, as a stranger does."""
        producer = Producer({"bootstrap.servers": kafka.bootstrap()})
        for name in self.names:
            for number in range(records):
                at = number % 2 if partition is None else partition
                producer.produce(self.topic(name), f"{word}-{number}", key=f"k{number}", partition=at)
        assert producer.flush(60) == 0

    def read(self, kafka: Kafka, name: str = "orders") -> dict[int, list[str]]:
        """Return what a bare consumer reads of a topic there, record by record, without offsets."""
        found = Place(kafka, self.prefix).read(self.topic(name))
        return {number: [text for _, text in records] for number, records in sorted(found.items())}

    def assert_same(self, records: int) -> None:
        """Compare all topics of both clusters, record by record; each has so many."""
        for name in self.names:
            ours, theirs = self.read(self.west, name), self.read(self.east, name)
            assert ours == theirs, name
            assert sum(map(len, ours.values())) == records, name


@pytest.fixture
def sides(typed: Call, kafka_39: Kafka, kafka_broker: Kafka, kafka_prefix: str) -> Iterator[Sides]:
    yield Sides(typed, kafka_39, kafka_broker, kafka_prefix)
    for broker in (kafka_39, kafka_broker):
        forget_links(broker)


def test_the_way_back_copies_only_what_is_new(sides: Sides) -> None:
    sides.begin()
    sides.did("mirror", "failover", sides.address("east"), "--yes")
    sides.produce(sides.east, "second", 10)
    sides.did("mirror", "restore", sides.address("west"), "--yes")
    assert sides.status("west") == "ACTIVE"
    sides.mirror()
    sides.assert_same(30)
    sides.produce(sides.east, "third", 10)
    sides.mirror()
    sides.assert_same(40)
    sides.did("verify", sides.address("west"))
