"""A digest of records that can be added, shifted and compared without reading them again.

Two sums mod 2^128 of h, a 128-bit hash of (timestamp, key, value, headers): Σh, and Σ(offset)·h. Parts keep them
over offsets from their base; any other base is reached by arithmetic, so borders of parts do not show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MODULUS: Final = 1 << 128


@dataclass(frozen=True, slots=True)
class Digest:
    """Count and sums of some records; offsets in `weighted` are counted from the base its maker chose."""

    records: int = 0
    total: int = 0
    weighted: int = 0

    def shifted(self, base: int) -> Digest:
        """Return the digest with `base` added to every offset."""
        return Digest(self.records, self.total, (self.weighted + base * self.total) % _MODULUS)

    def __add__(self, other: Digest) -> Digest:
        """Return the digest of both, where both count offsets from the same base."""
        return Digest(
            self.records + other.records,
            (self.total + other.total) % _MODULUS,
            (self.weighted + other.weighted) % _MODULUS,
        )
