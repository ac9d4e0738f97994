"""Differences between a platform's brokers and Apache Kafka's in the same protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Dialect:
    """Differences of one platform. Those that depend on a cluster's version are read from its brokers."""

    platform: str
    tells_own: bool
    """Whether config sources show which values were set. Otherwise a set value may be reported as a default."""
    replication: Literal["reassignment", "config"]
    """How the number of replicas changes: by reassignment, or by the config `replication.factor`."""
    records_at_once: int | None
    """Limit of metadata records per request; `None` means no limit."""
    config_names: Mapping[str, str] = field(default_factory=dict)
    """Names of topic configs on the brokers by their name in files, if they differ."""
    fixed_at_creation: frozenset[str] = frozenset()
    """Configs whose default is copied into each topic at its creation."""

    def to_wire(self, config: str) -> str:
        """Return the brokers' name of a topic config."""
        return self.config_names.get(config, config)

    def from_wire(self, config: str) -> str:
        """Return the name that files use for a broker's topic config."""
        return next((ours for ours, theirs in self.config_names.items() if theirs == config), config)


KAFKA: Final = Dialect("kafka", tells_own=True, replication="reassignment", records_at_once=9_000)
"""Apache Kafka.

Its controller accepts 10,000 records per operation: topics, partitions, configs, access rules (6.2).
"""
