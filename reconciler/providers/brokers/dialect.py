"""How a platform's brokers differ from Apache Kafka's over the same protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Dialect:
    """Differences of one platform. What depends on the version of a cluster is read from its brokers instead."""

    platform: str
    tells_own: bool
    """Whether the source of a config says that it was set; if not, a set value may be reported as a default."""
    replication: Literal["reassignment", "config"]
    """How the number of replicas changes: by moving replicas, or by the config `replication.factor`."""
    records_at_once: int | None
    """Limit of metadata records per request; `None`: no limit."""


KAFKA: Final = Dialect("kafka", tells_own=True, replication="reassignment", records_at_once=9_000)
"""The controller accepts 10,000 records per operation: one per topic, partition, config and access rule (6.2)."""
