"""What was measured of live resources, so that a plan can say what an action would cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from reconciler.resources.address import Address


@dataclass(frozen=True, slots=True)
class Measure:
    """Size and use of one topic; counts are of all its partitions."""

    bytes: int
    records: int
    groups: tuple[str, ...] | None = ()
    """Consumer groups that are reading it; `None`: we cannot tell."""
    ages: tuple[tuple[int, int], ...] = ()
    """(newest timestamp in ms, bytes) of its oldest-first stretches, at most 100."""


Measures: TypeAlias = Mapping[Address, Measure]
"""An address that is absent was not measured: we cannot tell."""
