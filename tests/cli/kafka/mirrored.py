"""Two Kafka clusters, and a topic of the first that is mirrored to the second: what trouble is made for."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Producer

from tests.cli.kafka.conftest import WORKSPACE
from tests.jobs.kafka.copies import Place

if TYPE_CHECKING:
    from tests.cli.conftest import Call, Said
    from tests.servers.kafka import Kafka

FILES: Final = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: west}}
spec: {west}
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: east}}
spec: {east}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {{name: {prefix}, cluster: west}}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {{name: {prefix}, cluster: east}}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: orders, namespace: {prefix}, cluster: west}}
spec: {{partitions: 2, replicationFactor: 1, configs: {{retention.ms: -1}}}}
---
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {{name: link-{prefix}, cluster: east}}
spec:
  source: west
  mirrorTopics: [{mirrors}]
"""
RECORDS: Final = 16_000
_RANDOM_BYTES: Final = 450
"""Of each value: compression must not make little of it."""


@dataclass
class Pair:
    """Both clusters, the commands typed there, and what strangers do."""

    typed: Call
    west: Kafka
    east: Kafka
    prefix: str

    def declare(self, **reached: dict[str, Any]) -> None:
        """Write the files; how a cluster is reached, if not in clear."""
        plain = {
            name: {"bootstrapServers": [kafka.bootstrap()]}
            for name, kafka in (("west", self.west), ("east", self.east))
        }
        Path("reconciler.yaml").write_text(WORKSPACE)
        Path("manifests").mkdir(exist_ok=True)
        clusters = {**plain, **reached}
        specs = {name: json.dumps({"provider": "kafka", "kafka": each}) for name, each in clusters.items()}
        mirrors = f'{{source: "{self.prefix}:orders", state: mirroring}}'
        Path("manifests/all.yaml").write_text(FILES.format(prefix=self.prefix, mirrors=mirrors, **specs))

    def begin(self, **reached: dict[str, Any]) -> None:
        """Declare and apply, and have records that nobody has copied yet."""
        self.declare(**reached)
        done = self.typed("apply", "--yes")
        assert done.code == 0, done.err
        self.produce()

    @property
    def topic(self) -> str:
        return f"{self.prefix}.orders"

    def produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.west.bootstrap(), "queue.buffering.max.messages": 2 * RECORDS})
        for number in range(RECORDS):
            value = base64.b64encode(os.urandom(_RANDOM_BYTES))
            producer.produce(self.topic, value, key=f"k{number}", partition=number % 2)
        assert producer.flush(60) == 0

    def mirror(self) -> Said:
        return self.typed("run", "--once", "--only", "mirror")

    def assert_mirrored(self) -> None:
        """Mirror as before, and compare what a stranger reads of both; then nothing is left to do."""
        again = self.mirror()
        assert again.code == 0, again.out + again.err
        ours, theirs = (self._read(kafka) for kafka in (self.west, self.east))
        assert {number: len(found) for number, found in theirs.items()} == {0: RECORDS // 2, 1: RECORDS // 2}
        assert ours == theirs
        planned = self.typed("plan", "--detailed-exitcode")
        assert planned.code == 0, planned.out + planned.err

    def _read(self, kafka: Kafka) -> dict[int, list[str]]:
        found = Place(kafka, self.prefix).read(self.topic)
        return {number: [text for _, text in records] for number, records in found.items()}
