"""Resources of one cluster that producers, consumers and transactions share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from reconciler.embedded.acl import Kind, Operation, Permissions, find_visible_topic
from reconciler.embedded.segments.gate import RecentHeads
from reconciler.embedded.tiered.remote_tier import RemoteTier, build_remote_tier
from reconciler.runtime.dataclass import dataclass, field

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.model import TopicEntry
    from reconciler.objectstore.base import ObjectStore


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """One cluster as one principal uses it. Thread-safe."""

    store: ObjectStore
    catalog: CatalogRegister
    permissions: Permissions
    now_ms: Callable[[], int]
    cluster_id: str
    storage: ObjectStore | None = None
    cache_folder: str | None = None
    """Default cache folder, an absolute path."""
    heads: RecentHeads = field(default_factory=RecentHeads)

    @property
    def remote(self) -> RemoteTier | None:
        """The remote tier; `None` without object storage."""
        if self.storage is None:
            return None
        return build_remote_tier(self.storage, self.cluster_id, self.catalog.get_cached().cluster, self.cache_folder)

    def topic(self, full_name: str) -> TopicEntry:
        """Return a topic that the caller may describe."""
        catalog = self.catalog.read()
        self.permissions.check_allowed(catalog, Operation.DESCRIBE, Kind.TOPIC, full_name)
        return find_visible_topic(self.permissions, catalog, full_name)
