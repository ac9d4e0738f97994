"""What topics take in each tier, for who may describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.access.operations import Kind, Operation
from reconciler.embedded.access.showing import topic_shown
from reconciler.embedded.remote.report import StorageReport
from reconciler.resources.address import full_name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.resources.address import Address
    from reconciler.resources.storages import TopicStorage


def storages_in(cluster: EmbeddedCluster, topics: Sequence[Address]) -> Iterator[TopicStorage]:
    """Yield what topics take, in their order; the catalog is read once.

    Raises:
        UserError: One does not exist.
        NotAuthorizedError: One may not be described.
    """
    catalog = cluster.catalog.read()
    names = {full_name_of(topic): topic for topic in topics}
    for name in names:
        cluster.permissions.check(catalog, Operation.DESCRIBE, Kind.TOPIC, name)
        topic_shown(cluster.permissions, catalog, name)
    return report_of(cluster, catalog).of(names)


def report_of(cluster: EmbeddedCluster, catalog: Catalog | None = None) -> StorageReport:
    """Return what reports on a cluster, by its catalog as it is now, or was read already."""
    return StorageReport(cluster.store, cluster.storage, catalog or cluster.catalog.read(), cluster.cluster_id)
