"""What producers, consumers and transactions need of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reconciler.embedded.acl import Kind, Operation, Permissions, topic_shown
from reconciler.embedded.segments.gate import RecentHeads
from reconciler.embedded.tiered.remote_tier import RemoteTier, remote_tier

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.model import TopicEntry
    from reconciler.objectstore.base import ObjectStore


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """One cluster, for one who acts. Safe to share between threads."""

    store: ObjectStore
    catalog: CatalogRegister
    permissions: Permissions
    now_ms: Callable[[], int]
    cluster_id: str
    storage: ObjectStore | None = None
    """The object storage of its remote tier."""
    cache_folder: str | None = None
    """Where what is fetched from object storage is cached, unless a property says it; a full path."""
    heads: RecentHeads = field(default_factory=RecentHeads)
    """What all its writers share: appends of several threads to one partition are one swap."""

    @property
    def remote(self) -> RemoteTier | None:
        """The remote tier, where the cluster has object storage and was bound to it."""
        if self.storage is None:
            return None  # and the catalog is not read for that
        return remote_tier(self.storage, self.cluster_id, self.catalog.known().cluster, self.cache_folder)

    def topic(self, full_name: str) -> TopicEntry:
        """Return a topic.

        Raises:
            UserError: It does not exist.
            NotAuthorizedError: It may not be described, be it there or not.
        """
        catalog = self.catalog.read()
        self.permissions.check(catalog, Operation.DESCRIBE, Kind.TOPIC, full_name)
        return topic_shown(self.permissions, catalog, full_name)
