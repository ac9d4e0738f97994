"""What topics take in each tier, for who may describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.access.operations import Kind, Operation
from reconciler.embedded.access.showing import topic_shown
from reconciler.embedded.catalog.tiering import hides_remote
from reconciler.embedded.partition.head import NEVER_WRITTEN
from reconciler.embedded.remote.measuring.report import StorageReport
from reconciler.providers.base import Standing
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


def standing_of(cluster: EmbeddedCluster, topic: Address) -> Standing:
    """Return where the partitions of a topic begin and end for readers, and what they hold.

    Raises:
        UserError: It does not exist.
        NotAuthorizedError: It may not be described.
    """
    name, catalog = full_name_of(topic), cluster.catalog.read()
    cluster.permissions.check(catalog, Operation.DESCRIBE, Kind.TOPIC, name)
    entry, report = topic_shown(cluster.permissions, catalog, name), report_of(cluster, catalog)
    heads, manifests = report.read([name])
    storage, hides = report.topic(name, topic, heads, manifests), hides_remote(catalog, name)
    bounds = {
        number: heads[entry.id, number].bounds if (entry.id, number) in heads else NEVER_WRITTEN
        for number in range(entry.partitions)
    }
    shown = {number: each.only_local() if hides else each for number, each in bounds.items()}
    return Standing(shown, storage.log_records, storage.log_bytes, storage)


def report_of(cluster: EmbeddedCluster, catalog: Catalog | None = None) -> StorageReport:
    """Return what reports on a cluster, by its catalog as it is now, or was read already."""
    return StorageReport(cluster.store, cluster.storage, catalog or cluster.catalog.read(), cluster.cluster_id)
