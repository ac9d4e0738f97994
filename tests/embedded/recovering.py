"""Topics whose records lie in object storage, the cluster that wrote them gone or not, and what is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconciler.embedded.catalog.recovering import recover_topic
from reconciler.embedded.catalog.tiering import TopicLocation
from reconciler.embedded.catalog.topics import TopicShape
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.remote.locating import recoverable
from reconciler.embedded.remote.topicmanifest import TopicManifest, write_topic_manifest
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.archiving import TIERED, archive, tiered_cluster
from tests.embedded.samples import NOW, numbered, read

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    write_topic_manifest(cluster.storage, TopicManifest.of(cluster.catalog.read(), full_name, cluster.cluster_id))


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
    found = recoverable(storage, TopicLocation.parse(location), cluster.cluster_id)
    shape = TopicShape(partitions=found.partitions, configs=configs)
    cluster.catalog.commit(
        lambda draft: recover_topic(draft, TOPIC, shape, topic_id="begun", location=found.location, found=found.configs)
    )
    return cluster


def records_in(cluster: EmbeddedCluster, full_name: str = TOPIC) -> dict[int, list[dict[str, Any]]]:
    log = cluster.log(full_name)
    return {partition: read(log, partition) for partition in log.bounds()}


def contents_of(store: ObjectStore, prefix: str = "") -> Mapping[str, bytes]:
    """Return every object below a prefix."""
    found = {listed.key: store.get(listed.key) for listed in store.list(prefix)}
    return {key: stored.body for key, stored in found.items() if stored is not None}
