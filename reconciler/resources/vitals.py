"""What a cluster's instruments say: sizes, lags and what is pending, as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reconciler.resources.address import Address


class TopicVitals(NamedTuple):
    """One topic or mirror; offsets, records and bytes are sums over its partitions."""

    address: Address
    partitions: int
    start: int
    end: int
    records: int
    bytes: int
    source: Address | None = None
    """Of a mirror: the topic it follows."""


class GroupLag(NamedTuple):
    """How many offsets a group has still to read of a topic."""

    group: str
    topic: str
    lag: int


@dataclass(frozen=True, slots=True)
class Vitals:
    """Everything of one cluster; `measured` and `lags` are bounded, what is beyond is only counted."""

    topics: int
    partitions: int
    measured: Sequence[TopicVitals] = ()
    unmeasured: int = 0
    """Topics beyond the bounds."""
    groups: int = 0
    lags: Sequence[GroupLag] = ()
    unmeasured_groups: int = 0
    open_transactions: int = 0
    """In the partitions of measured topics."""
    pending_deletions: int = 0
    """Topics that are marked and not yet deleted."""
    pending_rewrites: int = 0
