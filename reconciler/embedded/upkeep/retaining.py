"""The retention job on one partition: what expires of it, on whichever tier that lies, what may leave the local one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.embedded.remote.leaving.evicting import Evictable, evictable
from reconciler.embedded.remote.leaving.retaining import TieredPartition
from reconciler.embedded.remote.storagefile import check_given
from reconciler.embedded.remote.tier import remote_tier
from reconciler.embedded.upkeep.retention import Expired, expired, live_bytes, live_entries, next_expiry_ms, retain
from reconciler.embedded.upkeep.segments import segments_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.tiering import Tiering
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.upkeep.surveying import Lying
    from reconciler.objectstore.base import ObjectStore


@dataclass(frozen=True, slots=True)
class Retaining:
    """Decides and acts for one pass. Safe from any thread."""

    store: ObjectStore
    storage: ObjectStore | None
    cluster_id: str
    catalog: CatalogRegister
    """As it was last read."""
    now_ms: Callable[[], int]

    def look(self, lying: Lying, head: Head) -> tuple[Expired | None, int | None]:
        """Let go of what has expired of a partition; return what went, or when to look again.

        Raises:
            UserError: Something of it is remote, and the object storage is not at hand.
            OwnershipLostError: Its remote part belongs to another cluster now.
        """
        now_ms = self.now_ms()
        if lying.policy.tiering is not None:
            return self._tiered(lying, lying.policy.tiering).retain(head, now_ms=now_ms)
        segments = segments_of(live_entries(self.store, head), lying.policy.limits)
        stored, stable = live_bytes(self.store, head), head.bounds.stable
        gone = expired(segments, lying.policy, stored_bytes=stored, stable=stable, now_ms=now_ms)
        if next(gone, None) is None:
            return None, next_expiry_ms(self.store, head, lying.policy)
        return retain(self.store, lying.partition, lying.policy, now_ms=now_ms), now_ms

    def evictable(self, lying: Lying, head: Head) -> Evictable:
        """Return what may leave the local tier of a partition."""
        if lying.policy.tiering is None:
            return Evictable()
        tier = self._tiered(lying, lying.policy.tiering)
        head, manifest = tier.sound(head)
        return evictable(self.store, head, lying.policy, lambda: tier.same_below(head, manifest), now_ms=self.now_ms())

    def _tiered(self, lying: Lying, tiering: Tiering) -> TieredPartition:
        cluster = self.catalog.known().cluster
        check_given(self.storage, cluster.storage_id)
        remote = remote_tier(self.storage, self.cluster_id, cluster)
        return TieredPartition(self.store, lying.partition, lying.policy, tiering, remote)
