"""What stays of records when keys are compacted: those that no later one supersedes, and tombstones for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from reconciler.embedded.upkeep.newest import NewestOffsets


class Sieve:
    """Lets through what stays, and counts."""

    def __init__(self, newest: NewestOffsets) -> None:
        """Know the newest offset of each key."""
        self._newest = newest
        self.dropped = 0
        self.tombstones = 0
        """How many of those stay."""

    def kept(self, batches: Iterable[pa.RecordBatch], *, drops_tombstones: bool) -> Iterator[pa.RecordBatch]:
        """Yield what stays of batches of records."""
        for batch in batches:
            stays = newest_mask(batch, self._newest)
            is_tombstone = mask(batch.column("key").is_valid()) & mask(batch.column("value").is_null())
            if drops_tombstones:
                stays &= ~is_tombstone
            self.tombstones += int((stays & is_tombstone).sum())
            self.dropped += int((~stays).sum())
            if stays.all():
                yield batch
            elif stays.any():
                yield batch.filter(pa.array(stays))


def newest_mask(batch: pa.RecordBatch, newest: NewestOffsets) -> npt.NDArray[np.bool_]:
    """Return which records no later record of their key supersedes; a batch of `offset` and `key` at least."""
    has_key = batch.column("key").is_valid()
    is_keyed = mask(has_key)
    stays = np.ones(batch.num_rows, np.bool_)
    latest = newest.of(batch.column("key").filter(has_key))
    stays[is_keyed] = latest <= batch.column("offset").to_numpy()[is_keyed]
    return stays


def mask(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return a column of booleans as an array."""
    found: npt.NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
    return found
