"""The remote tier as a cluster reaches it: its object storage, and how what is fetched from there is cached."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reconciler.embedded.remote.connections import bounded, connections_to
from reconciler.embedded.remote.manifests.manifest import RemotePartition
from reconciler.resources.clusterproperties import property_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.catalog.entries import ClusterEntry
    from reconciler.embedded.catalog.tiering import TopicLocation
    from reconciler.embedded.remote.connections import Connections
    from reconciler.objectstore.base import ObjectStore

_CONNECTIONS: Final = "cloud_storage_max_connections"


@dataclass(frozen=True, slots=True)
class RemoteTier:
    """Where remote objects are. Picklable: an executor opens the store anew, and caches on its own disk."""

    storage: ObjectStore
    cluster_id: str
    """Of the cluster that reads and writes there."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Of that cluster, as the catalog has them: they say where and how much is cached."""
    cache_folder: str | None = None
    """Where it is cached unless they say it; `None`: among temporary files."""

    @property
    def connections(self) -> Connections:
        """Those that uploads and downloads of this process share."""
        return connections_to(self.storage.url, int(property_of(self.properties, _CONNECTIONS) or 1))


def remote_tier(
    storage: ObjectStore | None, cluster_id: str, cluster: ClusterEntry, cache_folder: str | None = None
) -> RemoteTier | None:
    """Return the remote tier of a cluster, where it has object storage and was bound to it."""
    if storage is None or cluster.storage_id is None:
        return None
    connections = int(property_of(cluster.properties, _CONNECTIONS) or 1)
    return RemoteTier(bounded(storage, connections), cluster_id, cluster.properties, cache_folder)


def remote_partition(location: TopicLocation, number: int) -> RemotePartition:
    """Return one partition of what lies at a location."""
    return RemotePartition(location.cluster_id, location.revision, number)
