"""What topics hold, for plans: sizes by age, and where the offsets of those lie that are, or were, tiered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.embedded.partition.sizes import size_of
from reconciler.embedded.remote.measuring.shares import manifests_of
from reconciler.resources.address import full_name_of
from reconciler.resources.measures import Measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.resources.address import Address
    from reconciler.resources.measures import Measures

MEASURED_PARTITIONS: Final = 1_000
"""How many partitions one `measure` reads; what is beyond stays unmeasured."""


def measured(cluster: EmbeddedCluster, addresses: Sequence[Address]) -> Measures:
    """Return what topics hold, those asked for first before the others, as long as partitions are left to look at."""
    catalog, left = cluster.catalog.read(), MEASURED_PARTITIONS
    found: dict[Address, Measure] = {}
    for address in addresses:
        topic = catalog.topics.get(full_name_of(address))
        if topic is None or topic.partitions > left:
            continue
        left -= topic.partitions
        manifest_of = manifests_of(cluster.storage, catalog, full_name_of(address), cluster.cluster_id)
        size = size_of(cluster.store, topic.id, manifest_of)
        tiered = () if topic.tiering is None else size.tiered
        found[address] = Measure(size.bytes, size.records, (), size.ages, size.local_only_bytes, tiered)
    return found
