"""Which chunks of a segment are evicted: Redpanda's three strategies. Never one that a reader shares. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from reconciler.errors import BrokenInvariantError
from reconciler.resources.clusterproperties import property_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Strategy: TypeAlias = Literal["eager", "capped", "predictive"]
_STRATEGIES: Final[tuple[Strategy, ...]] = get_args(Strategy)


@dataclass(frozen=True, slots=True)
class Hydrated:
    """A chunk that is cached. `start` is its first byte in the segment."""

    start: int
    used_ns: int
    """When it was used last, by the clock of the file system."""
    is_shared: bool = False
    """Whether a reader holds it."""
    needed_by: int = 0
    """How many readers will come to it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The strategy of a cluster, and how much of a segment it leaves."""

    strategy: Strategy = "eager"
    ratio: float = 0.7
    few_chunks: int = 5

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Rule:
        """Read it from cluster properties."""
        name = property_of(properties, "cloud_storage_chunk_eviction_strategy")
        strategy = next((each for each in _STRATEGIES if each == name), None)
        if strategy is None:
            raise BrokenInvariantError(f"no strategy of eviction: {name}", hint="Please report it.")
        ratio = float(property_of(properties, "cloud_storage_hydrated_chunks_per_segment_ratio") or 0)
        few = int(property_of(properties, "cloud_storage_min_chunks_per_segment_threshold") or 0)
        return cls(strategy, ratio, few)

    def most(self, chunks: int) -> int:
        """Return how many of a segment's chunks may be cached; all, where it has few."""
        return chunks if chunks < self.few_chunks else max(1, math.floor(chunks * self.ratio))

    def evicted(self, hydrated: Sequence[Hydrated], chunks: int) -> list[Hydrated]:
        """Return what goes of a segment of so many chunks, in that order.

        `eager`: all that nobody shares. `capped`: so many that no more are left than may be, whichever. `predictive`:
        as many, those first that the fewest readers will come to, of those the one that was used longest ago.
        """
        unshared = [chunk for chunk in hydrated if not chunk.is_shared]
        if self.strategy == "eager":
            return unshared
        surplus = max(0, len(hydrated) - self.most(chunks))
        if self.strategy == "predictive":
            unshared.sort(key=lambda chunk: (chunk.needed_by, chunk.used_ns, chunk.start))
        return unshared[:surplus]
