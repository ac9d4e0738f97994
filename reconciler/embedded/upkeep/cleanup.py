"""What a topic's configs ask of upkeep: when its segments close, expire and are compacted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.configs import CONFIGS, set_configs
from reconciler.embedded.catalog.syncing import follows_starts
from reconciler.embedded.catalog.tiering import tiering_of
from reconciler.embedded.upkeep.segments import SegmentLimits
from reconciler.lifecycles.tiering import TieringState
from reconciler.resources.clusterproperties import ENABLED, UPLOADS, property_of
from reconciler.resources.tierrules import switches_in

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
    is_pausing: bool = False
    """Whether its uploads pause, and go on one day: what is not uploaded waits for them."""

    @property
    def expires(self) -> bool:
        """Tell whether records of this topic ever expire."""
        return self.deletes and (self.retention_ms >= 0 or self.retention_bytes >= 0)

    @property
    def is_bounded(self) -> bool:
        """Tell whether retention has anything to do with it: expiry, on either tier, or what was to be deleted."""
        return self.expires or self.tiering is not None

    @property
    def waits(self) -> bool:
        """Tell whether what is not uploaded stays, however old it is (F-R-021)."""
        return self.is_pausing or (self.tiering is not None and self.tiering.uploads)

    @property
    def evicts(self) -> bool:
        """Tell whether what is uploaded leaves the local tier once it is beyond the local targets."""
        return self.tiering is not None and self.tiering.uploads


def cleanup_policy(catalog: Catalog, full_name: str, cluster_id: str) -> CleanupPolicy:
    """Return what holds for a topic of the cluster `cluster_id` now."""
    found = set_configs(catalog, full_name)

    def value(key: str) -> str:
        return found[key][0] if key in found else CONFIGS[key].default or ""

    kinds = value("cleanup.policy").split(",")
    compacts, segment_ms = "compact" in kinds, int(value("segment.ms"))
    max_lag_ms = int(value("max.compaction.lag.ms"))
    tiering = tiering_of(catalog, full_name, cluster_id)
    targets = None if tiering is None else tiering.targets
    return CleanupPolicy(
        # What must be compacted by a time must be closed by then.
        SegmentLimits(int(value("segment.bytes")), min(segment_ms, max_lag_ms) if compacts else segment_ms),
        # Of a mirror that begins where its source does, whoever copies it lets go of what expired there.
        deletes="delete" in kinds and not follows_starts(catalog, catalog.topics[full_name]),
        compacts=compacts,
        # A tiered topic's rules may raise its total to what it keeps locally.
        retention_ms=int(value("retention.ms")) if targets is None else _limit(targets.total_ms),
        retention_bytes=int(value("retention.bytes")) if targets is None else _limit(targets.total_bytes),
        min_dirty_ratio=float(value("min.cleanable.dirty.ratio")),
        min_lag_ms=int(value("min.compaction.lag.ms")),
        max_lag_ms=max_lag_ms,
        tombstones_ms=int(value("delete.retention.ms")),
        tiering=tiering,
        is_pausing=tiering is not None and _is_pausing(catalog, full_name, tiering),
    )


def _limit(target: int | None) -> int:
    return UNLIMITED if target is None else target


def _is_pausing(catalog: Catalog, full_name: str, tiering: Tiering) -> bool:
    properties = catalog.cluster.properties
    is_tiered = catalog.cluster.storage_id is not None and property_of(properties, ENABLED) == "true"
    is_writing = tiering.state is TieringState.ENABLED and switches_in(set_configs(catalog, full_name)).write
    return is_tiered and is_writing and property_of(properties, UPLOADS) != "true"
