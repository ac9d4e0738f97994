"""What brokers answer, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

TOPIC: Final = 2
"""Resource type of configs, as of access rules."""
BROKER: Final = 4
OWN: Final = 1
"""Source of a config that a topic sets itself (6.1): only those are declared on it."""


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    """What a cluster says of itself."""

    id: str
    racks: Mapping[int, str | None]
    """The brokers that are alive, and where each stands."""
    operations: frozenset[int]
    """What whoever asks may do with the cluster (codes of access rules)."""

    @property
    def brokers(self) -> tuple[int, ...]:
        """Their numbers."""
        return tuple(self.racks)


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """A topic as the metadata have it; `error` is the broker's code where it tells no more."""

    name: str
    id: str
    is_internal: bool
    replicas: tuple[tuple[int, ...], ...]
    """The brokers of each partition, by number."""
    error: int = 0
    is_led: bool = True
    """Whether every partition has a leader."""
    leaders: tuple[int, ...] = ()
    """The broker that leads each partition; -1: none does."""


@dataclass(frozen=True, slots=True)
class ConfigSeen:
    """One entry of a description of configs; what is sensitive has no value."""

    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool
    type: int = 0


def own_values(configs: Mapping[str, ConfigSeen]) -> dict[str, str]:
    """Return what a topic sets itself."""
    return {key: each.value for key, each in configs.items() if each.source == OWN and each.value is not None}
