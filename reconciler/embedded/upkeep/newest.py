"""Which offset of each key is the newest: keys as 128-bit hashes in sorted arrays, 24 bytes a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import xxhash

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Words = npt.NDArray[np.uint64]
    Offsets = npt.NDArray[np.int64]

_GATHERED: Final = 1 << 20
"""Rows that wait before they are sorted into the rest."""


class NewestOffsets:
    """Offsets by key. Two keys of one hash would be taken for one: 2^-64 for each pair of four thousand million."""

    def __init__(self) -> None:
        """Know no key yet."""
        self._high, self._low = np.empty(0, np.uint64), np.empty(0, np.uint64)
        self._offsets = np.empty(0, np.int64)
        self._waiting: list[tuple[Words, Words, Offsets]] = []
        self._rows = 0

    def is_full(self, keys: int) -> bool:
        """Tell whether it knows at least so many keys."""
        if len(self._offsets) + self._rows < keys:
            return False
        self.settle()
        return len(self._offsets) >= keys

    def add(self, keys: pa.Array, offsets: Offsets) -> None:
        """Learn keys, none of them null, at their offsets."""
        self.add_hashes(*hashed(keys), offsets)

    def add_hashes(self, high: Words, low: Words, offsets: Offsets) -> None:
        """Learn keys by the two halves of their hashes."""
        self._waiting.append((high, low, offsets))
        self._rows += len(offsets)
        if self._rows >= _GATHERED:
            self.settle()

    def settle(self) -> None:
        """Sort what waits into the rest."""
        if not self._waiting:
            return
        high, low, offsets = map(
            np.concatenate, zip((self._high, self._low, self._offsets), *self._waiting, strict=True)
        )
        order = np.lexsort((offsets, low, high))
        high, low, offsets = high[order], low[order], offsets[order]
        is_last = np.ones(len(offsets), np.bool_)
        is_last[:-1] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        self._high, self._low, self._offsets = high[is_last], low[is_last], offsets[is_last]
        self._waiting, self._rows = [], 0

    def of(self, keys: pa.Array) -> Offsets:
        """Return the newest offset of each key, -1 where it is not known; keys are not null."""
        return self.of_hashes(*hashed(keys))

    def of_hashes(self, high: Words, low: Words) -> Offsets:
        """Return the newest offset of each hash, -1 where it is not known."""
        self.settle()
        found = np.full(len(high), -1, np.int64)
        if not len(self._offsets):
            return found
        at = np.searchsorted(self._high, high)
        looking = np.arange(len(high))
        while len(looking):
            looking = looking[at[looking] < len(self._high)]
            looking = looking[self._high[at[looking]] == high[looking]]
            is_same = self._low[at[looking]] == low[looking]
            found[looking[is_same]] = self._offsets[at[looking[is_same]]]
            looking = looking[~is_same]
            at[looking] += 1
        return found


def hashed(keys: pa.Array) -> tuple[Words, Words]:
    """Return both halves of the hash of each key; keys are not null."""
    joined = b"".join(map(xxhash.xxh3_128_digest, keys.to_numpy(zero_copy_only=False).tolist()))
    halves = np.frombuffer(joined, ">u8").astype(np.uint64).reshape(-1, 2)
    return halves[:, 0].copy(), halves[:, 1].copy()
