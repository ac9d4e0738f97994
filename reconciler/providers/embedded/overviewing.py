"""Names and shapes of all that a catalog has: what a listing needs, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.access.operations import Kind, Operation
from reconciler.resources.address import Address
from reconciler.resources.mirrorstates import status_of
from reconciler.resources.overviews import Following, Overview, TopicShown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.access.permissions import Permissions
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.resources.linkentries import LinkEntry, MirrorEntry


def overview_in(catalog: Catalog, cluster: str, who: Permissions) -> Overview:
    """Return names and shapes of everything in a catalog that may be described."""
    links = {entry.id: (link, entry) for link, entry in catalog.links.items()}
    shown = [
        TopicShown(Address(f"topic/{cluster}/{name}"), entry.partitions, entry.replication_factor)
        if entry.follows is None
        else _mirror(Address(f"mirror/{cluster}/{name}"), entry.partitions, entry.follows, links)
        for name, entry in sorted(catalog.topics.items())
        if entry.follows is None or entry.follows.link_id in links
        if who.is_super_user or who.may(catalog, Operation.DESCRIBE, Kind.TOPIC, name)
    ]
    namespaces = {
        name: entry.configs
        for name, entry in sorted(catalog.namespaces.items())
        if who.may(catalog, Operation.DESCRIBE, Kind.NAMESPACE, name)
    }
    return Overview(shown, namespaces)


def _mirror(
    address: Address, partitions: int, mirror: MirrorEntry, links: Mapping[str, tuple[str, LinkEntry]]
) -> TopicShown:
    name, link = links[mirror.link_id]
    following = Following(status_of(mirror, link), name, f"{link.source_cluster}/{mirror.source}")
    return TopicShown(address, partitions, None, following=following)
