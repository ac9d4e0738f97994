"""What a cluster has, at a glance: names and shapes, light enough for tens of thousands of topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from reconciler.resources.address import Address


class Following(NamedTuple):
    """What a mirror follows, and the state it is in."""

    state: str
    link: str
    source: str
    """`<cluster>/<full name>`."""


class TopicShown(NamedTuple):
    """One topic or mirror."""

    address: Address
    partitions: int
    replication_factor: int | None
    """`None`: the platform does not say, or it is its source's."""
    records: int | None = None
    """`None`: not measured; as `bytes`."""
    bytes: int | None = None
    following: Following | None = None
    """`None`: it is an ordinary topic."""


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything of one cluster that may be described, sorted; without what topics hold."""

    topics: Sequence[TopicShown] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Full name → its own configs."""
