"""What a migration works with: one cluster, its object storage, and who may stop it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.remote.tier import RemoteTier
    from reconciler.embedded.upkeep.passes import Spread, Upkeep
    from reconciler.objectstore.base import ObjectStore


@dataclass(frozen=True)
class Means:
    """One cluster and its object storage, for whoever drives a migration. Safe to use from any thread."""

    store: ObjectStore
    catalog: CatalogRegister
    cluster_id: str
    remote: RemoteTier
    upkeep: Upkeep
    now_ms: Callable[[], int]
    may_go_on: Callable[[], None] = lambda: None
    """Asked before every write, from any thread; may raise: whoever comes next goes on."""
    spread: Spread | None = None
    """Where much is uploaded."""
    flushed: Callable[[int], object] = lambda _stored: None
    """Told, from any thread, of stored bytes that were uploaded."""

    @property
    def storage(self) -> ObjectStore:
        """The object storage."""
        return self.remote.storage
