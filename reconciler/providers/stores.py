"""Object stores that clusters declare, opened for whoever acts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.objectstore.opening import open_store
from reconciler.objectstore.readonly import read_only
from reconciler.objectstore.settings import Patience, StoreSettings

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.providers.base import Edge
    from reconciler.resources.locations import LocationSpec


def opened(location: LocationSpec, edge: Edge, patience: Patience | None = None) -> ObjectStore:
    """Open a store, for who may only read as one that cannot be written to."""
    settings = StoreSettings(
        location.url,
        location.region,
        location.endpoint,
        location.force_path_style,
        location.kms_key_id,
        patience=patience or Patience(),
    )
    store = open_store(settings.resolved(edge.folder))
    return read_only(store, edge.now_ms) if edge.is_reader else store
