"""Logs of which a side was compacted: what only one of them has must be superseded.

An offset that only one log has is no difference where the other was compacted beyond it and a later record of its key
is in either, or where it is a tombstone, which goes in the end without a successor. What supersedes it is judged by the
same rule, so the newest record of a key is in both, or deletes it. Offsets that both have must be equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa

from reconciler.embedded.upkeep.newest import NewestOffsets, hashed
from reconciler.records.hashing import hashes_of
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from reconciler.jobs.comparison import Pair

_HELD: Final = 2_000_000
"""Records that wait to be found superseded; of more, a part of a log is read once more."""


class Records(Protocol):
    """What is needed of a log."""

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield what is readable in `offsets`, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Explained:
    """How many records only one log has and the other once had; the first offset that this does not explain."""

    superseded: int
    first_difference: int | None


def explained(left: Records, right: Records, pair: Pair) -> Explained:
    """Compare what both logs have of the offsets both span, record for record; reads all of it."""
    if pair.left is None or pair.right is None:
        return Explained(0, pair.common.start)
    missing_right = _Missing((left, right), pair, pair.right.compacted_to)
    missing_left = _Missing((left, right), pair, pair.left.compacted_to)
    for ours, theirs in _side_by_side(left.read(pair.partition, pair.common), right.read(pair.partition, pair.common)):
        first = _first_unequal(ours, theirs)
        if first is not None:
            return Explained(0, _earliest(first, missing_left.unexplained(), missing_right.unexplained()))
        missing_right.seek(_only(ours, theirs))
        missing_left.seek(_only(theirs, ours))
    first = _earliest(missing_left.unexplained(), missing_right.unexplained())
    return Explained(missing_left.found + missing_right.found, first)


@dataclass(slots=True)
class _Missing:
    """Records that one log lacks, until a later record of their key is found."""

    logs: tuple[Records, Records]
    pair: Pair
    compacted_to: int
    """How far the log that lacks them was compacted."""
    found: int = 0
    _first: int | None = None
    _sought: list[tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], npt.NDArray[np.int64]]] = field(
        default_factory=list
    )
    _held: int = 0

    def seek(self, records: pa.RecordBatch) -> None:
        """Take records that are not there."""
        if not records.num_rows:
            return
        offsets = records.column("offset").to_numpy()
        has_key = _mask(records.column("key").is_valid())
        is_gone = has_key & (offsets < self.compacted_to)
        self._miss(offsets[~is_gone])
        is_tombstone = _mask(records.column("value").is_null())
        self.found += int((is_gone & is_tombstone).sum())
        is_sought = is_gone & ~is_tombstone
        if is_sought.any():
            high, low = hashed(records.column("key").filter(pa.array(is_sought)))
            self._sought.append((high, low, offsets[is_sought]))
            self._held += len(high)
        if self._held >= _HELD:
            self._look()

    def unexplained(self) -> int | None:
        """Return the first offset that nothing supersedes."""
        self._look()
        return self._first

    def _look(self) -> None:
        """Read the keys that come after the first of those sought."""
        if not self._sought:
            return
        high, low, offsets = (np.concatenate(columns) for columns in zip(*self._sought, strict=True))
        self._sought, self._held = [], 0
        wanted, later = NewestOffsets(), NewestOffsets()
        wanted.add_hashes(high, low, offsets)
        for batch in self._from(int(offsets.min()) + 1):
            has_key = batch.column("key").is_valid()
            keyed = batch.column("offset").to_numpy()[_mask(has_key)]
            if len(keyed):
                both = hashed(batch.column("key").filter(has_key))
                is_wanted = wanted.of_hashes(*both) >= 0
                later.add_hashes(both[0][is_wanted], both[1][is_wanted], keyed[is_wanted])
        is_superseded = later.of_hashes(high, low) > offsets
        self.found += int(is_superseded.sum())
        self._miss(offsets[~is_superseded])

    def _from(self, start: int) -> Iterator[pa.RecordBatch]:
        """Yield what either log has from an offset on."""
        for log, bounds in zip(self.logs, (self.pair.left, self.pair.right), strict=True):
            if bounds is not None:
                yield from log.read(self.pair.partition, OffsetRange(start, bounds.stable))

    def _miss(self, offsets: npt.NDArray[np.int64]) -> None:
        if len(offsets):
            self._first = _earliest(self._first, int(offsets.min()))


def _side_by_side(
    left: Iterator[pa.RecordBatch], right: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield what both have of the same offsets, stretch by stretch."""
    ours, theirs = next(left, None), next(right, None)
    while ours is not None and theirs is not None:
        stop = min(_last(ours), _last(theirs)) + 1
        (taken, ours), (given, theirs) = _cut(ours, stop), _cut(theirs, stop)
        yield taken, given
        ours = ours if ours.num_rows else next(left, None)
        theirs = theirs if theirs.num_rows else next(right, None)
    for rest, others in ((ours, left), (theirs, right)):
        batch = rest
        while batch is not None:
            nothing = batch.slice(0, 0)
            yield (batch, nothing) if others is left else (nothing, batch)
            batch = next(others, None)


def _cut(batch: pa.RecordBatch, stop: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    at = int(np.searchsorted(batch.column("offset").to_numpy(), stop))
    return batch.slice(0, at), batch.slice(at)


def _last(batch: pa.RecordBatch) -> int:
    return int(batch.column("offset")[-1].as_py())


def _first_unequal(ours: pa.RecordBatch, theirs: pa.RecordBatch) -> int | None:
    """Return the first offset that both have and that differs."""
    offsets, at_ours, at_theirs = np.intersect1d(
        ours.column("offset").to_numpy(), theirs.column("offset").to_numpy(), assume_unique=True, return_indices=True
    )
    if not len(offsets):
        return None
    differs = (hashes_of(ours)[at_ours] != hashes_of(theirs)[at_theirs]).any(axis=1)
    return int(offsets[differs][0]) if differs.any() else None


def _only(ours: pa.RecordBatch, theirs: pa.RecordBatch) -> pa.RecordBatch:
    is_shared = np.isin(ours.column("offset").to_numpy(), theirs.column("offset").to_numpy(), assume_unique=True)
    return ours.filter(pa.array(~is_shared))


def _earliest(*offsets: int | None) -> int | None:
    return min((offset for offset in offsets if offset is not None), default=None)


def _mask(column: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
    return found
