"""A topic of which the older part lies in object storage alone: parts copied there as they are, then evicted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.embedded.catalog.tiering import tiering_of
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.keys import index_key, segment_key
from reconciler.embedded.partition.headswaps import Partition, swap_head
from reconciler.embedded.partition.pages import all_entries
from reconciler.embedded.remote.manifestswaps import ManifestSwap
from reconciler.embedded.remote.tier import remote_partition
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.samples import NOW, ids

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.remote.manifest import Manifest, RemotePartition
    from reconciler.objectstore.base import ObjectStore

TIERED = {"remote.write": "true", "remote.read": "true"}
ON = {"cloud_storage_enabled": "true"}


def tiered_cluster(
    store: ObjectStore | None = None,
    storage: ObjectStore | None = None,
    properties: Mapping[str, str | None] | None = None,
) -> EmbeddedCluster:
    """Return a cluster bound to object storage, tiering switched on."""
    cluster = EmbeddedCluster.create(
        store or MemoryStore(), now_ms=lambda: NOW, new_id=ids(), storage=storage or MemoryStore()
    )
    cluster.alter_cluster({**ON, **(properties or {})})
    return cluster


def archive(cluster: EmbeddedCluster, full_name: str, partition: int = 0, *, to: int | None = None) -> None:
    """Copy every local part that ends below `to` into object storage, and name it there and in the head."""
    storage, place = storage_of(cluster), place_of(cluster, full_name, partition)
    head = head_of(cluster, full_name, partition)
    wanted = [entry for entry in all_entries(cluster.store, head) if to is None or entry.last < to]
    added = [_uploaded(cluster, storage, place, entry) for entry in wanted]
    end = head.end if to is None else to

    def extended(manifest: Manifest) -> Manifest:
        known = {entry.base for entry in manifest.entries}
        return replace(
            manifest,
            end=end,
            epochs=head.epochs,
            entries=(*manifest.entries, *(each for each in added if each.base not in known)),
        )

    tiering = tiering_of(cluster.catalog.read(), full_name, cluster.cluster_id)
    assert tiering is not None
    ManifestSwap(storage, cluster.cluster_id, tiering)(place, extended)
    _swap(cluster, full_name, partition, uploaded_to=end)


def evict(cluster: EmbeddedCluster, full_name: str, partition: int = 0, *, to: int | None = None) -> None:
    """Forget local parts that end below `to`, and delete them; the rest of the head stays."""
    head = head_of(cluster, full_name, partition)
    start = head.end if to is None else to
    lying = list(all_entries(cluster.store, head))
    kept = tuple(entry for entry in lying if entry.last >= start)
    _swap(cluster, full_name, partition, pages=(), entries=kept, local_start=start)
    cluster.store.delete([*(entry.key for entry in lying if entry.last < start), *(page.key for page in head.pages)])


def place_of(cluster: EmbeddedCluster, full_name: str, partition: int = 0) -> RemotePartition:
    tiering = tiering_of(cluster.catalog.read(), full_name, cluster.cluster_id)
    assert tiering is not None
    return remote_partition(tiering.location, partition)


def storage_of(cluster: EmbeddedCluster) -> ObjectStore:
    assert cluster.storage is not None
    return cluster.storage


def head_of(cluster: EmbeddedCluster, full_name: str, partition: int = 0) -> Head:
    head = cluster.log(full_name).head(partition)
    assert head is not None
    return head


def _uploaded(cluster: EmbeddedCluster, storage: ObjectStore, place: RemotePartition, entry: Entry) -> Entry:
    found = cluster.store.get(entry.key)
    assert found is not None
    key = segment_key(place.place, (entry.base, entry.last), len(found.body), entry.epoch)
    storage.put(key, found.body)
    storage.put(index_key(key), footer_of(found.body))
    return replace(entry, key=key, producer=None, txn=None, is_segment=True)


def footer_of(body: bytes) -> bytes:
    """Return the end of a Parquet file: its metadata, their length and the magic word."""
    length = int.from_bytes(body[-8:-4], "little")
    assert pq.read_metadata(pa.BufferReader(body[-length - 8 :])).num_rows
    return body[-length - 8 :]


def _swap(cluster: EmbeddedCluster, full_name: str, number: int, **fields: object) -> None:
    partition = Partition(full_name, cluster.topic(full_name).id, number)
    assert swap_head(cluster.store, partition, lambda head: replace(head, **fields))  # type: ignore[arg-type]  # fields by name
