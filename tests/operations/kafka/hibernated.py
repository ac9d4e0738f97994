"""A workspace with a Kafka cluster and an embedded one that share an object storage, and a topic that travels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Producer

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.directory import DirectoryStore
from reconciler.providers.kafka import KafkaProvider
from reconciler.providers.protocol import Edge
from reconciler.records.log import OffsetRange, TopicLog
from reconciler.resources.address import address_of
from reconciler.resources.cluster import Cluster
from tests.embedded.samples import ids

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.operations.plan import PlanResult
    from tests.servers.kafka import Kafka

SITES = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: live}
spec:
  provider: kafka
  kafka: {bootstrapServers: ["BOOTSTRAP"]}
  objectStorage: "file://bucket"
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: cold}
spec:
  embedded: {root: "file://.clusters/cold"}
  objectStorage: "file://bucket"
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: PREFIX, cluster: cold}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: PREFIX, cluster: live}
"""
TOPIC = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, namespace: PREFIX, cluster: live}
spec: {partitions: 3, replicationFactor: 1, configs: {retention.ms: infinite}}
"""
MOUNTING = """\
apiVersion: reconciler/v1
kind: Mounting
metadata: {name: orders, namespace: PREFIX, cluster: CLUSTER}
spec: {state: STATE}
"""
OLD_MS: Final = 1_500_000_000_000
"""The time of the first record: long ago, so that what a restore leaves to the target's retention is gone."""
RECORDS: Final = 60


@dataclass
class Site:
    """What a person would do there."""

    bench: Bench
    kafka: Kafka
    prefix: str

    @property
    def topic(self) -> str:
        return f"{self.prefix}:orders"

    @property
    def physical(self) -> str:
        return f"{self.prefix}.orders"

    @property
    def cold(self) -> EmbeddedCluster:
        storage = DirectoryStore(self.bench.folder / "bucket")
        root = DirectoryStore(self.bench.folder / ".clusters" / "cold")
        return EmbeddedCluster.open(root, now_ms=self.bench.invocation.now_ms, new_id=ids(), storage=storage)

    @property
    def live(self) -> KafkaProvider:
        """The Kafka cluster as the files declare it."""
        spec = {
            "provider": "kafka",
            "kafka": {"bootstrapServers": self.kafka.bootstrap().split(",")},
            "objectStorage": f"file://{self.bench.folder}/bucket",
        }
        declared = Cluster.model_validate({"metadata": {"name": "live"}, "spec": spec})
        invocation = self.bench.invocation
        known = frozenset({address_of("namespace", "live", self.prefix)})
        edge = Edge(self.bench.folder, {}, invocation.new_id, invocation.now_ms, declared=known)
        return KafkaProvider(declared, edge)

    @property
    def log(self) -> TopicLog:
        return self.live.open_log(address_of("topic", "live", self.topic))

    def write(self, name: str, text: str) -> None:
        text = text.replace("PREFIX", self.prefix).replace("BOOTSTRAP", self.kafka.bootstrap().replace(",", '", "'))
        self.bench.write(f"manifests/{name}.yaml", text)

    def declare(self, cluster: str, state: str | None, **spec: str) -> None:
        """Declare a mounting of a cluster, or take it out of the files."""
        path = self.bench.folder / f"manifests/mounting-{cluster}.yaml"
        if state is None:
            path.unlink(missing_ok=True)
            return
        more = "".join(f", {key}: {value!r}" for key, value in spec.items())
        text = MOUNTING.replace("CLUSTER", cluster).replace("STATE}", f"{state}{more}}}")
        self.write(path.stem, text)

    def apply(self) -> None:
        applied = self.bench.apply()
        assert applied.verdict is None, applied.verdict
        assert self.planned() == []

    def planned(self) -> list[str]:
        return [action.id for action in self.plan().plan.actions]

    def plan(self) -> PlanResult:
        return self.bench.plan()

    def produce(self, records: int = RECORDS, *, first: int = 0) -> None:
        """Write records of every shape, some in transactions, a third of which are aborted."""
        plain = Producer({"bootstrap.servers": self.kafka.bootstrap()})
        paying = Producer({"bootstrap.servers": self.kafka.bootstrap(), "transactional.id": self.prefix})
        paying.init_transactions(30)
        for number in range(first, first + records):
            if number % 10 == 9:
                paying.begin_transaction()
                paying.produce(self.physical, **record(number))
                assert paying.flush(30) == 0  # One that was never sent is not written, and its transaction never began.
                paying.abort_transaction(30) if number % 30 == 29 else paying.commit_transaction(30)
            else:
                plain.produce(self.physical, **record(number))
        assert plain.flush(30) == 0

    def seen(self, count: int) -> list[str]:
        """Return what a stranger reads on Kafka, without offsets, in the order of each partition."""
        lines = [line.split("\t") for line in self.kafka.consumed(self.physical, count)]
        return sorted("\t".join(field for field in line if not field.startswith("Offset:")) for line in lines)


def record(number: int) -> dict[str, Any]:
    """Return a record; keys and values are absent, empty or neither, and so are headers."""
    return {
        "key": None if number % 5 == 0 else b"" if number % 5 == 1 else f"k{number}".encode(),
        "value": None if number % 7 == 0 else b"" if number % 7 == 1 else f"v{number:05}".encode(),
        "partition": number % 3,
        "timestamp": OLD_MS + number,
        "headers": [("h", b"1"), ("none", None), ("h", b"")] if number % 3 else None,
    }


def read_all(log: TopicLog) -> dict[int, list[dict[str, Any]]]:
    """Return every record of a log, by partition."""
    return {
        number: [
            row for batch in log.read(number, OffsetRange(bounds.start, bounds.stable)) for row in batch.to_pylist()
        ]
        for number, bounds in log.read_bounds().items()
    }


def unnumbered(records: dict[int, list[dict[str, Any]]]) -> dict[int, list[dict[str, Any]]]:
    return {
        number: [{key: value for key, value in row.items() if key != "offset"} for row in rows]
        for number, rows in records.items()
    }
