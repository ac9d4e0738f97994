"""What tiered topics leave behind in object storage when they are deleted as they are now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.catalog.tiering import doomed_location, location_of
from reconciler.resources.inventory import RemoteLegacy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.catalog.tables import Catalog


def legacies_in(catalog: Catalog, cluster_id: str) -> Mapping[str, RemoteLegacy]:
    """Return what becomes of the remote objects of the topics that are, or were, tiered, by full name."""
    return {
        name: RemoteLegacy(
            str(location_of(name, entry, cluster_id)),
            is_deleted=doomed_location(catalog, name, cluster_id) is not None,
        )
        for name, entry in catalog.topics.items()
        if entry.tiering is not None
    }
