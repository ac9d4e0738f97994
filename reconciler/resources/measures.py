"""What was measured of live resources, so that a plan can say what an action would cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from reconciler.resources.address import Address
from reconciler.resources.standing import Positions


@dataclass(frozen=True, slots=True)
class TieredPartition:
    """Where the offsets of a partition that is, or was, tiered lie: below `local_start` in the remote tier alone."""

    number: int
    start: int
    local_start: int
    uploaded_to: int
    """What is local below this offset is remote, too; what is gone from there on was never remote."""
    remote_bytes: int
    """Of what lies in the remote tier alone."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Size and use of one topic; counts are of all its partitions, and of what lies in two tiers once."""

    bytes: int
    records: int
    groups: tuple[str, ...] | None = ()
    """Consumer groups that are reading it; `None`: we cannot tell."""
    ages: tuple[tuple[int, int], ...] = ()
    """(newest timestamp in ms, bytes) of its oldest-first stretches, at most 100."""
    local_only_bytes: int = 0
    """What an upload would have to copy."""
    tiered: tuple[TieredPartition, ...] = ()
    """The partitions ever written to of a topic that is, or was, tiered."""
    positions: Positions = field(default_factory=dict)
    """Where its partitions stand that were ever written to."""
    committed: Mapping[str, Mapping[int, int]] | None = None
    """Where each consumer group goes on reading, by partition; `None`: not asked for, or we cannot tell."""


Measures: TypeAlias = Mapping[Address, Measure]
"""An address that is absent was not measured: we cannot tell."""
