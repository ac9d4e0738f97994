"""Topics whose records lie in object storage, the cluster that wrote them gone or not, and what is made of them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reconciler.archives.keys import build_index_key
from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import Manifest, ManifestSwap, RemotePartition, read_manifest
from reconciler.archives.pages import iter_all_entries
from reconciler.archives.recoverable import check_recoverable
from reconciler.archives.topic_manifest import write_topic_manifest
from reconciler.embedded.catalog.tiering_state import build_topic_manifest, find_tiering
from reconciler.embedded.catalog.topics import TopicShape, recover_topic
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.samples import NOW, numbered, read
from tests.embedded.stores import DiedError, WatchedStore
from tests.embedded.tiered.tiered_cluster import TIERED, archive, tiered_cluster

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore

TOPIC = "shop:orders"
OTHER_ID = "00000000-0000-4000-9000-000000000000"


def source_in(
    storage: ObjectStore, *, parts: int = 3, partitions: int = 1, store: ObjectStore | None = None, **configs: str
) -> EmbeddedCluster:
    """Return a cluster with one topic, all of which lies in object storage, too; configs with `_` for `.`."""
    cluster = tiered_cluster(store, storage)
    cluster.create_namespace("shop")
    named = {key.replace("_", "."): value for key, value in configs.items()}
    cluster.create_topic(TOPIC, partitions=partitions, configs={**TIERED, **named})
    for partition in range(partitions):
        fill(cluster, parts, partition=partition)
        archive(cluster, TOPIC, partition)
    say(cluster)
    return cluster


def fill(cluster: EmbeddedCluster, parts: int, *, partition: int = 0, first: int = 0) -> None:
    """Append parts of four records with keys, times and headers."""
    sink = cluster.sink(TOPIC)
    for number in range(parts):
        sink.publish([sink.stage(partition, [numbered(first + 4 * number, 4, partition=partition)], at=None)])


def say(cluster: EmbeddedCluster, full_name: str = TOPIC) -> None:
    """Let object storage say what the topic is."""
    assert cluster.storage is not None
    write_topic_manifest(cluster.storage, build_topic_manifest(cluster.catalog.read(), full_name, cluster.cluster_id))


def location_in(cluster: EmbeddedCluster, full_name: str = TOPIC) -> str:
    return f"{full_name}/{cluster.cluster_id}/{cluster.catalog.read().topics[full_name].revision}"


def another(
    storage: ObjectStore, store: ObjectStore | None = None, *, cluster_id: str = OTHER_ID, at_ms: int = NOW
) -> EmbeddedCluster:
    """Return another cluster that shares the object storage."""
    numbers = iter(range(1, 1000))
    cluster = EmbeddedCluster.create(
        store or MemoryStore(),
        cluster_id,
        now_ms=lambda: at_ms,
        new_id=lambda: f"{cluster_id[:24]}{next(numbers):012}",
        storage=storage,
    )
    if cluster.catalog.read().cluster.storage_id is None:
        cluster.alter_cluster({"cloud_storage_enabled": "true"})
        cluster.create_namespace("shop")
    return cluster


def begun(storage: ObjectStore, location: str, store: ObjectStore | None = None, **configs: str) -> EmbeddedCluster:
    """Return another cluster that has said it recovers the topic, and done no more."""
    cluster = another(storage, store)
    found = check_recoverable(storage, TopicLocation.parse(location), cluster.cluster_id)
    shape = TopicShape(partitions=found.partitions, configs=configs)
    cluster.catalog.commit(
        lambda draft: recover_topic(
            draft, TOPIC, shape, topic_id="begun", location=found.location, original=found.configs
        )
    )
    return cluster


def records_in(cluster: EmbeddedCluster, full_name: str = TOPIC) -> dict[int, list[dict[str, Any]]]:
    log = cluster.log(full_name)
    return {partition: read(log, partition) for partition in log.read_bounds()}


def contents_of(store: ObjectStore, prefix: str = "") -> Mapping[str, bytes]:
    found = {listed.key: store.get(listed.key) for listed in store.list(prefix)}
    return {key: stored.body for key, stored in found.items() if stored is not None}


def manifest_of(cluster: EmbeddedCluster, partition: int = 0, *, made_by: str = OTHER_ID) -> Manifest:
    assert cluster.storage is not None
    found = read_manifest(cluster.storage, RemotePartition(made_by, 1, partition))
    assert found is not None
    return found


def remote_objects(storage: ObjectStore, cluster_id: str = OTHER_ID) -> set[str]:
    return set(contents_of(storage, f"topics/{cluster_id}/1/"))


def named_objects(cluster: EmbeddedCluster, partitions: int = 1) -> set[str]:
    """Return every object that is named below the location of the one topic."""
    assert cluster.storage is not None
    named = {f"topics/{OTHER_ID}/1/topic.json"}
    for partition in range(partitions):
        manifest = manifest_of(cluster, partition)
        segments = [entry.key for entry in iter_all_entries(cluster.storage, manifest)]
        named |= {RemotePartition(OTHER_ID, 1, partition).key, *(page.key for page in manifest.pages)}
        named |= {*segments, *(key.replace(".parquet", ".index") for key in segments)}
    return named


def drop_first(cluster: EmbeddedCluster, count: int) -> None:
    """Let a topic's first remote segments expire, as retention does: the manifest first, then the objects."""
    assert cluster.storage is not None
    partition = RemotePartition(cluster.cluster_id, 1, 0)
    found = read_manifest(cluster.storage, partition)
    assert found is not None
    tiering = find_tiering(cluster.catalog.read(), TOPIC, cluster.cluster_id)
    assert tiering is not None
    rest = found.entries[count:]
    ManifestSwap(cluster.storage, cluster.cluster_id, tiering)(
        partition, lambda held: replace(held, entries=rest, start=rest[0].base)
    )
    gone = found.entries[:count]
    cluster.storage.delete([key for entry in gone for key in (entry.key, build_index_key(entry.key))])


class Fuse:
    """Lets a process die at its write number `at`, before it or, where it was `done`, after it; to any store."""

    def __init__(self, at: int, *, done: bool) -> None:
        self._at, self._done = at, done
        self._writes = 0
        self._lock = threading.Lock()

    def on(self, store: ObjectStore) -> WatchedStore:
        return WatchedStore(store, after=self._tick) if self._done else WatchedStore(store, before=self._tick)

    def _tick(self, _what: str, _key: str) -> None:
        with self._lock:
            number, self._writes = self._writes, self._writes + 1
        if number >= self._at:
            raise DiedError
