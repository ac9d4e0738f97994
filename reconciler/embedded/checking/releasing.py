"""Mending what a migration that is gone has left: its hold on topics here, its claim on topics in object storage.

A hold goes only where object storage still says that the topic is this cluster's: to open one that was let go of would
have two clusters write to it. A claim goes only where no topic of the cluster is at its location.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.embedded.catalog.tiering import location_of
from reconciler.embedded.checking.migrations import migration_of
from reconciler.embedded.checking.owners import left_claims
from reconciler.embedded.mounting.claims import unclaim_topic
from reconciler.embedded.mounting.ownership import Ownership, Owning, ownerships, read_ownership
from reconciler.embedded.remote.manifests.manifest import read_manifest
from reconciler.embedded.remote.tier import remote_partition
from reconciler.embedded.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.embedded.catalog.entries import TopicEntry
    from reconciler.embedded.catalog.tables import Catalog, Draft
    from reconciler.embedded.cluster import EmbeddedCluster


def take_holds_off(cluster: EmbeddedCluster) -> list[str]:
    """Take off holds that no migration takes off, where that is safe; return the topics, by full name.

    Raises:
        UserError: A register of one is damaged; nothing was changed.
    """
    catalog = cluster.catalog.read()
    safe = {topic.id for name, topic in catalog.topics.items() if _is_stale(catalog, topic) and _is_ours(cluster, name)}
    done: list[str] = []

    def decide(draft: Draft) -> None:
        done.clear()
        for name, topic in list(draft.topics.items()):
            if topic.id in safe and _is_stale(draft, topic):
                draft.put_topic(name, replace(topic, hold=None))
                done.append(name)

    if safe:
        cluster.catalog.commit(decide)
    return sorted(done)


def give_claims_back(cluster: EmbeddedCluster) -> list[str]:
    """Let topics be detached again that this cluster claimed for a migration that is gone; return their locations."""
    remote = cluster.remote
    if remote is None:
        return []
    found = {key: each for key, each in ownerships(remote.storage) if isinstance(each, Ownership)}
    # Read after the registers: whoever claimed had its migration in the catalog before.
    left = [each for _, each in left_claims(cluster.catalog.read(), cluster.cluster_id, found)]
    for each in left:
        unclaim_topic(remote.storage, each.location, cluster.cluster_id, each.claim or "", cluster.now_ms())
    return sorted(str(each.location) for each in left)


def _is_stale(catalog: Catalog | Draft, topic: TopicEntry) -> bool:
    return topic.hold is not None and migration_of(catalog, topic) is None


def _is_ours(cluster: EmbeddedCluster, full_name: str) -> bool:
    """Tell whether a topic and all of its partitions are this cluster's; where nobody can tell, they are not."""
    topic, remote = cluster.topic(full_name), cluster.remote
    if topic.hold is not None and not topic.hold.is_closed:
        return True  # Clients have gone on: nothing was let go of yet.
    if remote is None:
        return False
    location, cluster_id = location_of(full_name, topic, cluster.cluster_id), cluster.cluster_id
    found = read_ownership(remote.storage, location)
    has_it = (
        location.cluster_id == cluster_id
        if found is None
        else (found.state, found.owner) == (Owning.MOUNTED, cluster_id)
    )
    places = (remote_partition(location, number) for number in range(topic.partitions))
    manifests = side_by_side(lambda place: read_manifest(remote.storage, place), places, name="owners")
    return has_it and all(manifest is None or manifest.owner == cluster_id for manifest in manifests)
