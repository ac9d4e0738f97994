"""A tiered cluster: its local store, its object storage, a clock that can be set, and what both tiers hold."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.archives.keys import build_index_key, create_segment_key
from reconciler.archives.location import TopicTiering
from reconciler.archives.manifest import Manifest, ManifestSwap, RemotePartition, read_manifest, remote_partition
from reconciler.archives.pages import iter_all_entries
from reconciler.embedded.catalog.tiering_state import find_tiering
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.segments import parts
from reconciler.embedded.segments.head import PRODUCERS, Head, Partition, head_register, swap_head
from reconciler.embedded.segments.parts import PartWriter
from reconciler.embedded.segments.retention import read_cleanup_policy
from reconciler.embedded.tiered.remote_retention import TieredPartition
from reconciler.embedded.tiered.remote_tier import build_remote_tier
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.schema import RECORD_SCHEMA
from tests.embedded.maintenance.tiny_segments import TOPIC, TWO_PARTS, Clock, append_parts, head_of, with_topic
from tests.embedded.samples import NOW, ids, rows_of

if TYPE_CHECKING:
    from reconciler.archives.entries import Entry
    from reconciler.embedded.maintenance.survey import MaintenanceResult
    from reconciler.objectstore.base import ObjectStore


BOTH: Mapping[str, str] = {"remote.write": "true", "remote.read": "true"}


@dataclass
class Tiered:
    """One cluster and its object storage."""

    store: ObjectStore = field(default_factory=MemoryStore)
    storage: ObjectStore = field(default_factory=MemoryStore)
    clock: Clock = field(default_factory=Clock)
    cluster: EmbeddedCluster = field(init=False)

    def __post_init__(self) -> None:
        self.cluster = EmbeddedCluster.create(self.store, now_ms=self.clock, new_id=ids(), storage=self.storage)

    def opened(self, store: ObjectStore | None = None, storage: ObjectStore | None = None) -> EmbeddedCluster:
        """Open it anew, maybe through stores that watch or fail."""
        return EmbeddedCluster.open(
            store or self.store, now_ms=self.clock, new_id=ids(), storage=storage or self.storage
        )

    def switch_on(self, **properties: str) -> None:
        """Switch tiered storage on, and set other cluster properties by their names without `cloud_storage_`."""
        named = {f"cloud_storage_{name}": value for name, value in properties.items()}
        self.cluster.alter_cluster({"cloud_storage_enabled": "true", **named})

    def fill(self, parts: int, *, partition: int = 0) -> None:
        """Append parts of two records each: by twos they are a segment, as `tiered` makes the topic."""
        append_parts(self.cluster, parts, partition=partition)

    def upload(self, *, rolls: bool = True) -> MaintenanceResult:
        """Do one pass of what brings closed segments to object storage."""
        upkeep = self.cluster.upkeep()
        if rolls:
            upkeep.roll()
        return upkeep.upload()

    def tiering(self) -> TopicTiering:
        found = find_tiering(self.cluster.catalog.read(), TOPIC, self.cluster.cluster_id)
        assert found is not None
        return found

    def remote(self, partition: int = 0) -> RemotePartition:
        """Return where a partition lies in object storage."""
        return remote_partition(self.tiering().location, partition)

    def manifest(self, partition: int = 0) -> Manifest:
        found = read_manifest(self.storage, self.remote(partition))
        assert found is not None
        return found

    def segments(self, partition: int = 0) -> list[Entry]:
        """Return every remote segment that is named, oldest first."""
        return list(iter_all_entries(self.storage, self.manifest(partition)))

    def objects(self) -> set[str]:
        """Return the keys of all remote segments and indexes that are there, named or not."""
        return {listed.key for listed in self.storage.list("topics/") if listed.key.endswith((".parquet", ".index"))}


def tiered(*, partitions: int = 1, storage: ObjectStore | None = None, **configs: str) -> Tiered:
    """Return a cluster with tiered storage and one tiered topic of tiny segments; configs with `_` for `.`."""
    found = Tiered(storage=storage or MemoryStore())
    found.switch_on()
    with_topic(
        found.cluster,
        partitions=partitions,
        **{"segment_bytes": TWO_PARTS, **{key.replace(".", "_"): value for key, value in BOTH.items()}, **configs},
    )
    return found


def begin_at(it: Tiered, start: int) -> None:
    """Let the log of the first partition begin at an offset, on both tiers, as a mirror's does where its source's."""
    catalog, cluster = it.cluster.catalog.read(), it.cluster
    policy = read_cleanup_policy(catalog, TOPIC, cluster.cluster_id)
    remote = build_remote_tier(it.storage, cluster.cluster_id, catalog.cluster)
    tier = TieredPartition(it.store, Partition(TOPIC, cluster.topic(TOPIC).id, 0), policy, it.tiering(), remote)
    tier.expire_to(*tier.read_agreeing_state(head_of(cluster)), start)


# A topic of which the older part lies in object storage alone: parts copied there as they are, then evicted.


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
    head = archived_head(cluster, full_name, partition)
    wanted = [entry for entry in iter_all_entries(cluster.store, head) if to is None or entry.last < to]
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

    tiering = find_tiering(cluster.catalog.read(), full_name, cluster.cluster_id)
    assert tiering is not None
    ManifestSwap(storage, cluster.cluster_id, tiering)(place, extended)
    _swap(cluster, full_name, partition, uploaded_to=end)


def evict(cluster: EmbeddedCluster, full_name: str, partition: int = 0, *, to: int | None = None) -> None:
    """Forget local parts that end below `to`, and delete them; the rest of the head stays."""
    head = archived_head(cluster, full_name, partition)
    start = head.end if to is None else to
    lying = list(iter_all_entries(cluster.store, head))
    kept = tuple(entry for entry in lying if entry.last >= start)
    _swap(cluster, full_name, partition, pages=(), entries=kept, local_start=start)
    cluster.store.delete([*(entry.key for entry in lying if entry.last < start), *(page.key for page in head.pages)])


def expire(cluster: EmbeddedCluster, full_name: str, partition: int = 0, *, to: int) -> None:
    """Raise the start of the log and delete the segments below it."""
    storage, place = storage_of(cluster), place_of(cluster, full_name, partition)
    local_start = max(to, archived_head(cluster, full_name, partition).local_start)
    _swap(cluster, full_name, partition, start=to, local_start=local_start)
    gone: list[str] = []

    def expired(manifest: Manifest) -> Manifest:
        gone[:] = [entry.key for entry in manifest.entries if entry.last < to]
        kept = tuple(entry for entry in manifest.entries if entry.last >= to)
        return replace(manifest, start=to, entries=kept)

    tiering = find_tiering(cluster.catalog.read(), full_name, cluster.cluster_id)
    assert tiering is not None
    ManifestSwap(storage, cluster.cluster_id, tiering)(place, expired)
    storage.delete([*gone, *map(build_index_key, gone)])


def cached_in(folder: Path, *, chunk: str = "16384", **properties: str) -> dict[str, str | None]:
    """Return properties under which a small cache lies in a folder; others go without `cloud_storage_`."""
    named = {f"cloud_storage_{name}": value for name, value in properties.items()}
    return {"cloud_storage_cache_directory": str(folder), "cloud_storage_cache_chunk_size": chunk, **named}


def in_segments(cluster: EmbeddedCluster, full_name: str, count: int) -> list[dict[str, Any]]:
    """Make a topic that lies in so many remote segments, all of one content; return the records of the first.

    Each has ten row groups of some 13 KB.
    """
    cluster.create_topic(full_name, partitions=1, configs={**TIERED, "compression.type": "uncompressed"})
    batches = [records(first, 100) for first in range(0, 1000, 100)]
    body, entry = segment_of(batches)
    storage, place = storage_of(cluster), place_of(cluster, full_name)
    length = entry.last + 1
    entries = tuple(
        _named(storage, place, replace(entry, base=n * length, last=n * length + entry.last), body)
        for n in range(count)
    )
    tiering = find_tiering(cluster.catalog.read(), full_name, cluster.cluster_id)
    assert tiering is not None
    end = count * length
    ManifestSwap(storage, cluster.cluster_id, tiering)(place, lambda held: replace(held, end=end, entries=entries))
    register = head_register(cluster.store, cluster.topic(full_name).id, 0)
    head = Head(PRODUCERS, local_start=end, end=end, is_settled=True, uploaded_to=end)
    register.update(lambda _held: head.to_json(), mark="made")
    return rows_of(batches)


def records(first: int, count: int) -> pa.RecordBatch:
    offsets = range(first, first + count)
    made = [
        {
            "partition": 0,
            "offset": n,
            "timestamp_ms": NOW + n,
            "timestamp_type": 0,
            "key": None,
            "value": hashlib.shake_128(b"%d" % n).digest(120),
            "headers": [],
        }
        for n in offsets
    ]
    return pa.RecordBatch.from_pylist(made, schema=RECORD_SCHEMA)


def segment_of(batches: Sequence[pa.RecordBatch]) -> tuple[bytes, Entry]:
    """Return a file whose row groups are these batches, and the entry that tells of it."""
    store = MemoryStore()
    writer = PartWriter(store, "made", 0, compression="uncompressed", limit=1 << 30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "GROUP_ROWS", batches[0].num_rows)
        (entry,) = writer.write(iter(batches))
    found = store.get(entry.key)
    assert found is not None
    return found.body, entry


def _named(storage: ObjectStore, place: RemotePartition, entry: Entry, body: bytes) -> Entry:
    key = create_segment_key(place.key_prefix, (entry.base, entry.last), len(body), entry.epoch)
    storage.put(key, body)
    storage.put(build_index_key(key), footer_of(body))
    return replace(entry, key=key, is_segment=True)


def place_of(cluster: EmbeddedCluster, full_name: str, partition: int = 0) -> RemotePartition:
    tiering = find_tiering(cluster.catalog.read(), full_name, cluster.cluster_id)
    assert tiering is not None
    return remote_partition(tiering.location, partition)


def storage_of(cluster: EmbeddedCluster) -> ObjectStore:
    assert cluster.storage is not None
    return cluster.storage


def archived_head(cluster: EmbeddedCluster, full_name: str, partition: int = 0) -> Head:
    head = cluster.log(full_name).read_head(partition)
    assert head is not None
    return head


def _uploaded(cluster: EmbeddedCluster, storage: ObjectStore, place: RemotePartition, entry: Entry) -> Entry:
    found = cluster.store.get(entry.key)
    assert found is not None
    return _named(storage, place, replace(entry, producer=None, txn=None), found.body)


def footer_of(body: bytes) -> bytes:
    """Return the end of a Parquet file: its metadata, their length and the magic word."""
    length = int.from_bytes(body[-8:-4], "little")
    assert pq.read_metadata(pa.BufferReader(body[-length - 8 :])).num_rows
    return body[-length - 8 :]


def _swap(cluster: EmbeddedCluster, full_name: str, number: int, **fields: object) -> None:
    partition = Partition(full_name, cluster.topic(full_name).id, number)
    assert swap_head(cluster.store, partition, lambda head: replace(head, **fields))  # type: ignore[arg-type]  # fields by name


# Records that lie in object storage alone: what uploading and evicting leave behind, written by hand.


def put_remote(it: Tiered, upto: int, *, partition: int = 0) -> tuple[Entry, ...]:
    """Copy every local part below offset `upto` to object storage; nothing names the copies yet."""
    copies: list[Entry] = []
    for entry in head_of(it.cluster, partition).entries:
        if entry.last < upto:
            key = create_segment_key(
                it.remote(partition).key_prefix, (entry.base, entry.last), entry.bytes, entry.epoch
            )
            it.storage.copy_from(key, it.store, entry.key)
            it.storage.put(build_index_key(key), b"footer")
            copies.append(replace(entry, key=key, is_segment=True))
    return tuple(copies)


def name_remote(it: Tiered, copies: tuple[Entry, ...], *, partition: int = 0) -> Manifest | None:
    """Name copies in the manifest, which then ends after them."""

    def named(manifest: Manifest) -> Manifest:
        return replace(manifest, end=copies[-1].last + 1, entries=(*manifest.entries, *copies))

    return ManifestSwap(it.storage, it.cluster.cluster_id, it.tiering())(it.remote(partition), named)


def upload_by_hand(it: Tiered, upto: int, *, evicts: int = 0, partition: int = 0) -> None:
    """Have the remote tier hold every record below `upto`, and the local one none below `evicts`."""
    name_remote(it, put_remote(it, upto, partition=partition), partition=partition)

    def evicted(head: Head) -> Head:
        kept = tuple(entry for entry in head.entries if entry.base >= evicts)
        return replace(head, uploaded_to=upto, local_start=max(head.local_start, evicts), entries=kept)

    topic_id = it.cluster.catalog.read().topics[TOPIC].id
    assert swap_head(it.store, Partition(TOPIC, topic_id, partition), evicted)
