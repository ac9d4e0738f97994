"""A cluster whose clock can be set, topics with tiny segments, and what a reader finds in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import Digest, OffsetRange
from tests.embedded.samples import NOW, ids, read

if TYPE_CHECKING:
    from reconciler.embedded.segments.head import Head
    from reconciler.objectstore.base import ObjectStore

DAY = 86_400_000
TOPIC = "orders"
ALL = OffsetRange(0, 1 << 40)
TWO_PARTS = "4500"
"""A `segment.bytes` that two small parts fit into, and three do not."""


@dataclass
class Clock:
    """Stands still until it is moved."""

    now_ms: int = NOW

    def __call__(self) -> int:
        return self.now_ms


def clocked(store: ObjectStore | None = None, clock: Clock | None = None) -> tuple[EmbeddedCluster, Clock]:
    clock = clock or Clock()
    return EmbeddedCluster.create(store or MemoryStore(), now_ms=clock, new_id=ids()), clock


def with_topic(cluster: EmbeddedCluster, *, partitions: int = 1, **configs: str) -> None:
    """Make the topic; configs are written with `_` for `.`."""
    cluster.create_topic(
        TOPIC, partitions=partitions, configs={key.replace("_", "."): value for key, value in configs.items()}
    )


def append(
    cluster: EmbeddedCluster, *records: tuple[str | None, str | None], partition: int = 0, at_ms: int | None = None
) -> None:
    with cluster.producer() as producer:
        for key, value in records:
            producer.send(TOPIC, value, key=key, partition=partition, timestamp_ms=at_ms)


def append_parts(cluster: EmbeddedCluster, count: int, *, partition: int = 0, at_ms: int | None = None) -> None:
    for number in range(count):
        append(cluster, (f"a{number}", f"x{number}"), (f"b{number}", "y"), partition=partition, at_ms=at_ms)


def head_of(cluster: EmbeddedCluster, partition: int = 0) -> Head:
    head = cluster.log(TOPIC).read_head(partition)
    assert head is not None
    return head


def held(cluster: EmbeddedCluster, partition: int = 0) -> list[dict[str, Any]]:
    return read(cluster.log(TOPIC), partition)


def pairs_of(rows: Iterable[dict[str, Any]]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(row["offset"], row["key"], row["value"]) for row in rows]


def digest_in(cluster: EmbeddedCluster, partition: int = 0) -> Digest:
    return sum(cluster.log(TOPIC).read_digests(partition, ALL), Digest())


def parts_in(store: ObjectStore) -> set[str]:
    return {listed.key for listed in store.list("topics/")}


def named_in(cluster: EmbeddedCluster, partitions: int = 1) -> set[str]:
    log = cluster.log(TOPIC)
    heads = [log.read_head(partition) for partition in range(partitions)]
    return {entry.key for head in heads if head is not None for entry in log.iter_local_entries(head, ALL)}


class LateStore:
    """The same objects, a while later by the store's own clock."""

    def __init__(self, inner: ObjectStore, later_ms: int) -> None:
        self._inner = inner
        self._later_ms = later_ms

    def read_clock_ms(self) -> int:
        return self._inner.read_clock_ms() + self._later_ms

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def swept_later(store: ObjectStore, clock: Clock, *, later_ms: int = DAY + 60_000) -> EmbeddedCluster:
    """Sweep the store as it will be in more than a day, and return its cluster."""
    late: Any = LateStore(store, later_ms)
    EmbeddedCluster.open(late, now_ms=clock, new_id=ids()).sweep()
    return EmbeddedCluster.open(store, now_ms=clock, new_id=ids())


def copied(store: ObjectStore) -> MemoryStore:
    copy = MemoryStore()
    for listed in store.list(""):
        stored = store.get(listed.key)
        assert stored is not None
        copy.put(listed.key, stored.body)
    return copy
