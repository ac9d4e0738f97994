"""Names and shapes of all that a catalog has: what a listing needs, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.access.operations import Kind, Operation
from reconciler.resources.address import Address
from reconciler.resources.overviews import Overview, TopicShown

if TYPE_CHECKING:
    from reconciler.embedded.access.permissions import Permissions
    from reconciler.embedded.catalog.tables import Catalog


def overview_in(catalog: Catalog, cluster: str, who: Permissions) -> Overview:
    """Return names and shapes of everything in a catalog that may be described."""
    links = {entry.id for entry in catalog.links.values()}
    shown = [
        TopicShown(Address(f"topic/{cluster}/{name}"), entry.partitions, entry.replication_factor)
        if entry.follows is None
        else TopicShown(Address(f"mirror/{cluster}/{name}"), entry.partitions, None)
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
