"""Which configs a mirror takes from its source: always, unless left out, or only when listed."""

from __future__ import annotations

from typing import Final

ALWAYS_SYNCED: Final = (
    "cleanup.policy",
    "max.message.bytes",
    "message.timestamp.difference.max.ms",
    "message.timestamp.type",
)
"""Equal to the source at all times, as is the number of partitions; any list of synced configs must hold them."""

SYNCED_BY_DEFAULT: Final = (
    *ALWAYS_SYNCED,
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
)
"""What a link syncs when it lists nothing."""

NEVER_SYNCED: Final = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "replication.factor",
)
"""The destination's own."""

_OF_TIERS: Final = (
    "confluent.placement.",
    "confluent.tier.",
    "initial.retention.local.",
    "local.retention.",
    "redpanda.remote.",
    "remote.",
    "retention.local.",
)
"""How the configs of tiers and placement begin, on any platform."""


def is_never_synced(key: str) -> bool:
    """Tell whether a config is the destination's own: where its records lie, and what of them may be deleted there."""
    return key in NEVER_SYNCED or key.startswith(_OF_TIERS)
