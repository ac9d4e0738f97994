"""A metric: its name, what it says, and its numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

PREFIX: Final = "reconciler_"
"""What the name of every metric begins with where it is written."""


class Sample(NamedTuple):
    """One number of a metric."""

    labels: tuple[tuple[str, str], ...]
    value: float


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name without our prefix, what it says, and its numbers. A counter only rises."""

    name: str
    help: str
    samples: list[Sample] = field(default_factory=list)
    kind: Literal["gauge", "counter"] = "gauge"

    def add(self, value: float, **labels: str) -> None:
        """Add a number."""
        self.samples.append(Sample(tuple(labels.items()), value))
