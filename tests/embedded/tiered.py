"""A tiered cluster: its local store, its object storage, a clock that can be set, and what both tiers hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reconciler.embedded.catalog.tiering_state import tiering_of
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.segments.pages import all_entries
from reconciler.embedded.tiered.manifest import Manifest, RemotePartition, read_manifest
from reconciler.embedded.tiered.remote_tier import remote_partition
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.samples import ids
from tests.embedded.upkeeping import TOPIC, TWO_PARTS, Clock, append_parts, with_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.catalog.tiering_state import Tiering
    from reconciler.embedded.maintenance.survey import MaintenanceResult
    from reconciler.embedded.segments.entries import Entry
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
        """Create it, or open what is there."""
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

    def tiering(self) -> Tiering:
        """Return what holds for the topic now."""
        found = tiering_of(self.cluster.catalog.read(), TOPIC, self.cluster.cluster_id)
        assert found is not None
        return found

    def remote(self, partition: int = 0) -> RemotePartition:
        """Return where a partition lies in object storage."""
        return remote_partition(self.tiering().location, partition)

    def manifest(self, partition: int = 0) -> Manifest:
        """Return a partition's manifest, which is there."""
        found = read_manifest(self.storage, self.remote(partition))
        assert found is not None
        return found

    def segments(self, partition: int = 0) -> list[Entry]:
        """Return every remote segment that is named, oldest first."""
        return list(all_entries(self.storage, self.manifest(partition)))

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
