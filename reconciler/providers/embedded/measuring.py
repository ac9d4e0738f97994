"""What topics hold, for plans: sizes by age, and where the offsets of those lie that are, or were, tiered."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from reconciler.embedded.keys import HEADS, heads_prefix, topic_of_head
from reconciler.embedded.partition.sizes import size_of
from reconciler.embedded.remote.measuring.shares import manifests_of
from reconciler.resources.address import full_name_of
from reconciler.resources.measures import Measure

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.address import Address
    from reconciler.resources.measures import Measures

MEASURED_PARTITIONS: Final = 1_000
"""How many partitions one `measure` reads; what is beyond stays unmeasured. Those never written to hold nothing."""

_NOTHING: Final = Measure(0, 0)


def measured(cluster: EmbeddedCluster, addresses: Sequence[Address]) -> Measures:
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
            size = size_of(cluster.store, topic.id, manifest_of)
            tiered = () if topic.tiering is None else size.tiered
            found[address] = Measure(
                size.bytes, size.records, (), size.ages, size.local_only_bytes, tiered, size.positions
            )
    return found


def _written(store: ObjectStore, ids: Collection[str]) -> Mapping[str, int]:
    """Return how many partitions of topics have a head, by the topic's id: one listing, however many topics."""
    if not ids:
        return {}
    prefix = heads_prefix(*ids) if len(ids) == 1 else HEADS
    return Counter(topic_of_head(listed.key) for listed in store.list(prefix))
