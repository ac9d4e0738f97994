"""Several clusters that share one object storage, and the topics that travel between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reconciler.embedded.catalog.tiering_state import get_topic_location
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.mounts.mounts import Mount, Mounts
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.maintenance.tiny_segments import Clock
from tests.embedded.samples import ids
from tests.embedded.tiered.tiered_cluster import BOTH

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore

CLICKS = "shop:eu:clicks"


@dataclass
class Bucket:
    """One object storage and the clusters `west` and `east`; more are made by `cluster`."""

    storage: ObjectStore = field(default_factory=MemoryStore)
    clock: Clock = field(default_factory=Clock)
    stores: dict[str, ObjectStore] = field(default_factory=dict)
    new_id: Callable[[], str] = field(default_factory=ids)

    @property
    def west(self) -> EmbeddedCluster:
        return self.cluster("west")

    @property
    def east(self) -> EmbeddedCluster:
        return self.cluster("east")

    def cluster(
        self, name: str, *, storage: ObjectStore | None = None, store: ObjectStore | None = None
    ) -> EmbeddedCluster:
        """Open a cluster anew, as another process would; a new one is tiered, has a namespace, and lies in `store`."""
        is_new = name not in self.stores
        store = self.stores.setdefault(name, MemoryStore() if store is None else store)
        opened = EmbeddedCluster.create(store, now_ms=self.clock, new_id=self.new_id, storage=storage or self.storage)
        if is_new:
            opened.alter_cluster({"cloud_storage_enabled": "true"})
            opened.create_namespace("shop")
            opened.create_namespace("shop:eu")
        return opened

    def filled(
        self,
        full_name: str = CLICKS,
        records: int = 3,
        *,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Make a tiered topic of `west` with records in each partition; return its location once it is detached."""
        self.west.create_topic(full_name, partitions=partitions, configs={**BOTH, **(configs or {})})
        with self.west.producer() as producer:
            for number in range(records):
                for partition in range(partitions):
                    producer.send(full_name, f"v{number}".encode(), key=f"k{number}".encode(), partition=partition)
        return self.location(full_name)

    def location(self, full_name: str = CLICKS, cluster: str = "west") -> str:
        """Return where a topic lies in object storage."""
        opened = self.cluster(cluster)
        return str(get_topic_location(full_name, opened.topics()[full_name], opened.cluster_id))

    def location_of_only(self) -> str:
        """Return where the one topic lies that was ever detached."""
        (found,) = self.west.mounts.list_detached()
        return str(found.location)

    def unmounted(self, full_name: str = CLICKS, cluster: str = "west") -> str:
        """Unmount a topic, to the end; return its location."""
        location, mounts = self.location(full_name, cluster), self.cluster(cluster).mounts
        assert mounts.drive(mounts.unmount(full_name)) is None
        return location

    def mounted(self, location: str, full_name: str = CLICKS, cluster: str = "east") -> None:
        mounts = self.cluster(cluster).mounts
        assert mounts.drive(mounts.mount(Mount(location, full_name))) is None

    def values(self, full_name: str = CLICKS, cluster: str = "west") -> list[tuple[int, int, bytes | None]]:
        """Return partition, offset and value of every record that is readable."""
        return sorted((each.partition, each.offset, each.value) for each in self.cluster(cluster).consume(full_name))


def owners(bucket: Bucket, full_name: str = CLICKS) -> list[str]:
    """Return the clusters on which a topic can be read."""
    return [name for name in bucket.stores if full_name in bucket.cluster(name).topics()]


__all__ = ["CLICKS", "Bucket", "Mount", "Mounts", "owners"]
