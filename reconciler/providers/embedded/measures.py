"""Measures and storage of an embedded cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from reconciler.embedded.acl import Kind, Operation, topic_shown
from reconciler.embedded.catalog.tiering_state import hides_remote
from reconciler.embedded.keys import HEADS, heads_prefix, topic_of_head
from reconciler.embedded.segments.head import NEVER_WRITTEN
from reconciler.embedded.tiered.usage import StorageReport, manifests_of, size_of
from reconciler.providers.protocol import Standing
from reconciler.resources.address import Address, full_name_of
from reconciler.resources.measures import NO_CUTS, Cuts, Measure, Measures, TopicStorage

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore


MEASURED_PARTITIONS: Final = 1_000
"""How many partitions one `measure` reads; what is beyond stays unmeasured. Those never written to hold nothing."""

_NOTHING: Final = Measure(0, 0)


def measured(cluster: EmbeddedCluster, addresses: Sequence[Address], cuts: Cuts = NO_CUTS) -> Measures:
    """Return what topics hold, those asked for first before the others, as long as partitions are left to look at."""
    catalog, left = cluster.catalog.read(), MEASURED_PARTITIONS
    names = {address: full_name_of(address) for address in addresses}
    topics = {address: catalog.topics[name] for address, name in names.items() if name in catalog.topics}
    written = _written(cluster.store, {topic.id for topic in topics.values()})
    found: dict[Address, Measure] = {}
    for address, topic in topics.items():
        heads = written.get(topic.id, 0)
        if heads == 0:
            found[address] = _NOTHING
        elif heads <= left:
            left -= heads
            manifest_of = manifests_of(cluster.storage, catalog, names[address], cluster.cluster_id)
            size = size_of(cluster.store, topic.id, manifest_of, cuts.get(address, ()))
            tiered = () if topic.tiering is None else size.tiered
            newest_ms = max((newest for newest, _ in size.ages), default=None)
            found[address] = Measure(
                size.bytes,
                size.records,
                ages=size.ages,
                local_only_bytes=size.local_only_bytes,
                tiered=tiered,
                positions=size.positions,
                newest_ms=newest_ms,
                older=size.older,
            )
    return found


def _written(store: ObjectStore, ids: Collection[str]) -> Mapping[str, int]:
    """Return how many partitions of topics have a head, by the topic's id: one listing, however many topics."""
    if not ids:
        return {}
    prefix = heads_prefix(*ids) if len(ids) == 1 else HEADS
    return Counter(topic_of_head(listed.key) for listed in store.list(prefix))


# What topics take in each tier, for who may describe them.


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
