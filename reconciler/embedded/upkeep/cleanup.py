"""What a topic's configs ask of upkeep: when its segments close, expire and are compacted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.configs import CONFIGS, set_configs
from reconciler.embedded.catalog.tiering import tiering_of
from reconciler.embedded.upkeep.segments import SegmentLimits

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.catalog.tiering import Tiering

UNLIMITED: Final = -1


@dataclass(frozen=True, slots=True)
class CleanupPolicy:
    """The effective configs of a topic that decide what becomes of its old records. Times in ms."""

    limits: SegmentLimits
    deletes: bool
    compacts: bool
    retention_ms: int
    retention_bytes: int
    """Of each partition; -1, as in `retention_ms`: no limit."""
    min_dirty_ratio: float
    min_lag_ms: int
    max_lag_ms: int
    tombstones_ms: int
    """How long tombstones stay after they were first cleaned."""
    tiering: Tiering | None = None
    """Of a topic that is, or was, tiered."""

    @property
    def expires(self) -> bool:
        """Tell whether records of this topic ever expire."""
        return self.deletes and (self.retention_ms >= 0 or self.retention_bytes >= 0)


def cleanup_policy(catalog: Catalog, full_name: str, cluster_id: str) -> CleanupPolicy:
    """Return what holds for a topic of the cluster `cluster_id` now."""
    found = set_configs(catalog, full_name)

    def value(key: str) -> str:
        return found[key][0] if key in found else CONFIGS[key].default or ""

    kinds = value("cleanup.policy").split(",")
    compacts, segment_ms = "compact" in kinds, int(value("segment.ms"))
    max_lag_ms = int(value("max.compaction.lag.ms"))
    return CleanupPolicy(
        # What must be compacted by a time must be closed by then.
        SegmentLimits(int(value("segment.bytes")), min(segment_ms, max_lag_ms) if compacts else segment_ms),
        deletes="delete" in kinds,
        compacts=compacts,
        retention_ms=int(value("retention.ms")),
        retention_bytes=int(value("retention.bytes")),
        min_dirty_ratio=float(value("min.cleanable.dirty.ratio")),
        min_lag_ms=int(value("min.compaction.lag.ms")),
        max_lag_ms=max_lag_ms,
        tombstones_ms=int(value("delete.retention.ms")),
        tiering=tiering_of(catalog, full_name, cluster_id),
    )
