"""Compaction: of each key the newest record stays, at its offset; of what is deleted a tombstone, for a while.

Closed segments below the last stable offset are cleaned, those of `min.compaction.lag.ms` and older. The newest offset
of every key is learned from the *dirty* part, what lies above `Head.compacted_to`; then both parts are written anew
without what is older. Neighbours become one file of at most `segment.bytes`. Records without a key stay: nothing
supersedes them. Only keys and offsets are held in memory, of about `KEYS` keys; what is beyond waits for the next time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from reconciler.embedded.partition.partfiles import read_keys, read_part
from reconciler.embedded.partition.parts import PartWriter
from reconciler.embedded.partition.rebuilding import Replacement
from reconciler.embedded.partition.replacing import Rewritten, whole_or_gone
from reconciler.embedded.upkeep.cleanable import is_due, to_clean
from reconciler.embedded.upkeep.newest import NewestOffsets
from reconciler.embedded.upkeep.retention import live_entries
from reconciler.embedded.upkeep.segments import segments_of
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.partition.headswaps import Partition
    from reconciler.embedded.producing.admission import Rules
    from reconciler.embedded.upkeep.cleanup import CleanupPolicy
    from reconciler.objectstore.base import ObjectStore

KEYS: Final = 5_000_000
"""As many fit into the 128 MiB that Kafka's cleaner has for them."""


@dataclass(slots=True)
class _Group:
    """Neighbouring parts that become one file."""

    entries: list[Entry]
    bytes: int
    horizon_ms: int | None
    """When the tombstones in it may go; `None`: it has none that stay."""


class Compaction:
    """One pass over one partition, as its head was read."""

    def __init__(self, store: ObjectStore, partition: Partition, policy: CleanupPolicy, rules: Rules) -> None:
        """Say of which partition; nothing is read yet."""
        self._store = store
        self._partition = partition
        self._policy = policy
        self._writer = PartWriter.of(store, rules, partition.number)

    def compacted(self, head: Head, *, now_ms: int) -> Rewritten | None:
        """Write what stays under fresh names; `None`: nothing is to be cleaned yet.

        Raises:
            MissingObjectError: A part or page is not there.
            UserError: A part is damaged.
        """
        segments = segments_of(live_entries(self._store, head), self._policy.limits)
        clean = to_clean(segments, head, self._policy, now_ms=now_ms)
        if not clean:
            return None
        entries = [entry for segment in clean for entry in segment.entries]
        newest, through = self._learned(entries, head.compacted_to)
        with whole_or_gone(self._store) as done:
            for group in self._groups([entry for entry in entries if entry.base < through], head.compacted_to, now_ms):
                replacement = self._cleaned(group, newest, head.compacted_to, now_ms)
                if replacement is not None:
                    done.append(replacement)
        return Rewritten(self._partition, tuple(done), max(through, head.compacted_to))

    def _learned(self, entries: Sequence[Entry], dirty_from: int) -> tuple[NewestOffsets, int]:
        """Return the newest offset of each key of the dirty part, and how far it was read."""
        newest = NewestOffsets()
        for entry in entries:
            if entry.last < dirty_from:
                continue
            for batch in read_keys(self._store, entry, OffsetRange(dirty_from, entry.last + 1)):
                offsets = batch.column("offset").to_numpy()
                has_key = batch.column("key").is_valid()
                newest.add(batch.column("key").filter(has_key), offsets[has_key.to_numpy(zero_copy_only=False)])
                if newest.is_full(KEYS):
                    return newest, int(offsets[-1]) + 1
        return newest, entries[-1].last + 1

    def _groups(self, entries: Iterable[Entry], dirty_from: int, now_ms: int) -> Iterator[_Group]:
        """Yield runs of one epoch that fit into a segment and whose tombstones go at the same time."""
        group: _Group | None = None
        for entry in entries:
            horizon_ms = self._horizon_ms(entry, dirty_from, now_ms)
            if group is not None and self._joins(group, entry, horizon_ms):
                group.entries.append(entry)
                group.bytes += entry.bytes
                group.horizon_ms = horizon_ms if group.horizon_ms is None else group.horizon_ms
                continue
            if group is not None:
                yield group
            group = _Group([entry], entry.bytes, horizon_ms)
        if group is not None:
            yield group

    def _joins(self, group: _Group, entry: Entry, horizon_ms: int | None) -> bool:
        return (
            entry.epoch == group.entries[0].epoch
            and group.bytes + entry.bytes <= self._policy.limits.bytes
            and (horizon_ms is None or group.horizon_ms in {None, horizon_ms})
        )

    def _horizon_ms(self, entry: Entry, dirty_from: int, now_ms: int) -> int | None:
        if entry.horizon_ms is not None:
            return None if is_due(entry, now_ms) else entry.horizon_ms
        return now_ms + self._policy.tombstones_ms if entry.last >= dirty_from else None

    def _cleaned(self, group: _Group, newest: NewestOffsets, dirty_from: int, now_ms: int) -> Replacement | None:
        """Write a group without what is superseded; `None`: all of it stays as it is."""
        first = group.entries[0]
        is_alone = len(group.entries) == 1 and first.is_segment
        if is_alone and first.last < dirty_from and not is_due(first, now_ms) and not self._loses(first, newest):
            return None
        sieve = _Sieve(newest)
        entry = self._writer.write_one(
            kept
            for part in group.entries
            for kept in sieve.kept(
                read_part(self._store, part, self._partition.number, OffsetRange(part.base, part.last + 1)),
                drops_tombstones=is_due(part, now_ms),
            )
        )
        horizon_ms = group.horizon_ms if sieve.tombstones else None
        if entry is None:
            return Replacement.of(group.entries, [])
        if is_alone and not sieve.dropped:
            self._store.delete([entry.key])
            entry = first
            if entry.horizon_ms == horizon_ms:
                return None
        return Replacement.of(
            group.entries, [replace(entry, epoch=first.epoch, is_segment=True, horizon_ms=horizon_ms)]
        )

    def _loses(self, entry: Entry, newest: NewestOffsets) -> bool:
        """Tell whether a part has a record that is superseded; reads keys alone."""
        whole = OffsetRange(entry.base, entry.last + 1)
        return any(not _newest_mask(batch, newest).all() for batch in read_keys(self._store, entry, whole))


class _Sieve:
    """Lets through what stays, and counts."""

    def __init__(self, newest: NewestOffsets) -> None:
        self._newest = newest
        self.dropped = 0
        self.tombstones = 0
        """How many of those stay."""

    def kept(self, batches: Iterable[pa.RecordBatch], *, drops_tombstones: bool) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            stays = _newest_mask(batch, self._newest)
            is_tombstone = _mask(batch.column("key").is_valid()) & _mask(batch.column("value").is_null())
            if drops_tombstones:
                stays &= ~is_tombstone
            self.tombstones += int((stays & is_tombstone).sum())
            self.dropped += int((~stays).sum())
            if stays.all():
                yield batch
            elif stays.any():
                yield batch.filter(pa.array(stays))


def _newest_mask(batch: pa.RecordBatch, newest: NewestOffsets) -> npt.NDArray[np.bool_]:
    """Return which records no later record of their key supersedes."""
    has_key = batch.column("key").is_valid()
    is_keyed = _mask(has_key)
    stays = np.ones(batch.num_rows, np.bool_)
    latest = newest.of(batch.column("key").filter(has_key))
    stays[is_keyed] = latest <= batch.column("offset").to_numpy()[is_keyed]
    return stays


def _mask(column: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
    return found
