"""The remote tier as a cluster reaches it: its object storage, and how what is fetched from there is cached."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reconciler.embedded.remote.manifest import RemotePartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.catalog.entries import ClusterEntry
    from reconciler.embedded.catalog.tiering import TopicLocation
    from reconciler.objectstore.base import ObjectStore


@dataclass(frozen=True, slots=True)
class RemoteTier:
    """Where remote objects are. Picklable: an executor opens the store anew, and caches on its own disk."""

    storage: ObjectStore
    cluster_id: str
    """Of the cluster that reads and writes there."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Of that cluster, as the catalog has them: they say where and how much is cached."""


def remote_tier(storage: ObjectStore | None, cluster_id: str, cluster: ClusterEntry) -> RemoteTier | None:
    """Return the remote tier of a cluster, where it has object storage and was bound to it."""
    if storage is None or cluster.storage_id is None:
        return None
    return RemoteTier(storage, cluster_id, cluster.properties)


def remote_partition(location: TopicLocation, number: int) -> RemotePartition:
    """Return one partition of what lies at a location."""
    return RemotePartition(location.cluster_id, location.revision, number)
