"""How a platform's brokers differ from Apache Kafka's over the same protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    config_names: Mapping[str, str] = field(default_factory=dict)
    """Our name of a topic config → the brokers', where they differ."""
    fixed_at_creation: frozenset[str] = frozenset()
    """Configs whose default is copied into each topic when it is created, and stays with the topic."""

    def to_wire(self, config: str) -> str:
        """Return the brokers' name of a topic config."""
        return self.config_names.get(config, config)

    def from_wire(self, config: str) -> str:
        """Return our name of a topic config."""
        return next((ours for ours, theirs in self.config_names.items() if theirs == config), config)


KAFKA: Final = Dialect("kafka", tells_own=True, replication="reassignment", records_at_once=9_000)
"""The controller accepts 10,000 records per operation: one per topic, partition, config and access rule (6.2)."""
