"""Compaction: keep the newest record of each key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa
import xxhash

from reconciler.archives.keys import index_key
from reconciler.archives.manifest import RemotePartition, check_own, read_manifest, remote_partition
from reconciler.archives.objects import missing_offsets
from reconciler.archives.pages import entries_within
from reconciler.embedded.segments.parts import PartWriter, read_keys, read_part
from reconciler.embedded.segments.retention import CleanupPolicy, Segment, segments_of
from reconciler.embedded.segments.rewrites import Replacement
from reconciler.embedded.tiered.object_rewrites import (
    RemoteRewrite,
    Rewritten,
    SegmentWriter,
    whole_or_deleted,
    whole_or_gone,
)
from reconciler.embedded.tiered.remote_tier import RemoteTier, check_not_behind
from reconciler.lifecycles import TieringState
from reconciler.records.log import OffsetRange
from reconciler.resources.cluster_properties import ENABLED, property_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from reconciler.archives.entries import Entry
    from reconciler.embedded.segments.admission import Rules
    from reconciler.embedded.segments.head import Head, Partition
    from reconciler.objectstore.base import ObjectStore


def to_clean(segments: Iterable[Segment], head: Head, policy: CleanupPolicy, *, now_ms: int) -> tuple[Segment, ...]:
    """Return all segments a cleaning goes over, oldest first; none where it is not worth it yet.

    It is where the dirty part is larger than `min.cleanable.dirty.ratio` of all, where something dirty is older than
    `max.compaction.lag.ms`, and where tombstones may go.
    """
    end = _end(head, policy)
    settled = takewhile(lambda segment: segment.is_closed and segment.last < end, segments)
    found = tuple(takewhile(lambda segment: segment.max_ts <= now_ms - policy.min_lag_ms, settled))
    dirty = [segment for segment in found if segment.last >= head.compacted_to]
    stored = sum(segment.bytes for segment in found)
    is_worth = sum(segment.bytes for segment in dirty) > policy.min_dirty_ratio * stored
    is_late = any(segment.min_ts < now_ms - policy.max_lag_ms for segment in dirty)
    has_due = any(is_due(entry, now_ms) for segment in found for entry in segment.entries)
    return found if (dirty and (is_worth or is_late)) or has_due else ()


def next_cleaning_ms(segments: Sequence[Segment], head: Head, policy: CleanupPolicy, *, now_ms: int) -> int | None:
    """Return when, without anything being written, there may be something to clean next; `None`: never."""
    end = _end(head, policy)
    settled = [segment for segment in segments if segment.is_closed and segment.last < end]
    times = [segment.max_ts + policy.min_lag_ms for segment in settled]
    times += [segment.min_ts + policy.max_lag_ms + 1 for segment in settled if segment.last >= head.compacted_to]
    times += [entry.horizon_ms for segment in settled for entry in segment.entries if entry.horizon_ms is not None]
    return min((at for at in times if at > now_ms), default=None)


def _end(head: Head, policy: CleanupPolicy) -> int:
    """Return where cleaning ends: at what is not decided, and at what is not uploaded yet (F-R-020)."""
    return min(head.bounds.stable, head.uploaded_to) if policy.waits else head.bounds.stable


def is_due(entry: Entry, now_ms: int) -> bool:
    """Tell whether the tombstones of a part may go."""
    return entry.horizon_ms is not None and entry.horizon_ms <= now_ms


# Which offset of each key is the newest: keys as 128-bit hashes in sorted arrays, 24 bytes a key.


if TYPE_CHECKING:
    Words = npt.NDArray[np.uint64]
    Offsets = npt.NDArray[np.int64]

_GATHERED: Final = 1 << 20
"""Rows that wait before they are sorted into the rest."""


class Survivors(Protocol):
    """Knows which records no later record of their key supersedes."""

    def among(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return which they are of a batch of `offset` and `key` at least."""
        ...


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

    def among(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return which records no later one supersedes: all but those at a lower offset than their key's newest."""
        has_key = batch.column("key").is_valid()
        is_keyed = mask(has_key)
        stays = np.ones(batch.num_rows, np.bool_)
        latest = self.of(batch.column("key").filter(has_key))
        stays[is_keyed] = latest <= batch.column("offset").to_numpy()[is_keyed]
        return stays


class SurvivingOffsets:
    """The offsets, within one file, of the newest records of their keys; as many as the file has, not the log.

    Of records at `through` and above nothing was learned: they stay, as those without a key do.
    """

    def __init__(self, offsets: Offsets, through: int) -> None:
        """Sort them."""
        self._offsets, self._through = np.sort(offsets), through

    def among(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return which records no later one supersedes."""
        offsets = batch.column("offset").to_numpy()
        stays = np.isin(offsets, self._offsets, assume_unique=True)
        stays |= offsets >= self._through
        stays |= mask(batch.column("key").is_null())
        return stays


def hashed(keys: pa.Array) -> tuple[Words, Words]:
    """Return both halves of the hash of each key; keys are not null."""
    joined = b"".join(map(xxhash.xxh3_128_digest, keys.to_numpy(zero_copy_only=False).tolist()))
    halves = np.frombuffer(joined, ">u8").astype(np.uint64).reshape(-1, 2)
    return halves[:, 0].copy(), halves[:, 1].copy()


# What stays of records when keys are compacted: those that no later one supersedes, and tombstones for a while.


class Sieve:
    """Lets through what stays, and counts."""

    def __init__(self, survivors: Survivors) -> None:
        """Know what stays."""
        self._survivors = survivors
        self.dropped = 0
        self.tombstones = 0
        """How many of those stay."""

    def kept(self, batches: Iterable[pa.RecordBatch], *, tombstones_to: int) -> Iterator[pa.RecordBatch]:
        """Yield what stays of batches of records; tombstones below `tombstones_to` do not."""
        for batch in batches:
            stays = self._survivors.among(batch)
            is_tombstone = mask(batch.column("key").is_valid()) & mask(batch.column("value").is_null())
            stays &= ~(is_tombstone & (batch.column("offset").to_numpy() < tombstones_to))
            self.tombstones += int((stays & is_tombstone).sum())
            self.dropped += int((~stays).sum())
            if stays.all():
                yield batch
            elif stays.any():
                yield batch.filter(pa.array(stays))


def mask(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return a column of booleans as an array."""
    found: npt.NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
    return found


# The whole log of a partition for who compacts it: what only object storage has, then what lies here.


def is_reached(head: Head, policy: CleanupPolicy, remote: RemoteTier | None) -> bool:
    """Tell whether all of a partition's log can be read and written anew now.

    Not what lies in object storage alone where there is none, where it is switched off, and while tiering is being
    switched off: a tombstone must not go while an older record of its key may be left there.
    """
    if head.start == head.local_start:
        return True
    if remote is None or policy.tiering is None or policy.tiering.state is TieringState.DISABLING:
        return False
    return property_of(remote.properties, ENABLED) == "true"


def place_of(policy: CleanupPolicy, partition: Partition) -> RemotePartition | None:
    """Return where a partition lies in object storage; `None`: its topic was never tiered."""
    return None if policy.tiering is None else remote_partition(policy.tiering.location, partition.number)


def remote_entries(head: Head, place: RemotePartition | None, remote: RemoteTier | None) -> tuple[Entry, ...]:
    """Return the segments of which something is nowhere but in object storage, oldest first.

    Raises:
        MissingObjectError: The manifest, or a page of it, is not there.
        OwnershipLostError: It belongs to another cluster now.
        UserError: It is damaged, or lacks what was uploaded.
    """
    if head.start == head.local_start or place is None or remote is None:
        return ()
    manifest = read_manifest(remote.storage, place)
    if manifest is None:
        raise missing_offsets(remote.storage, place.key, head.start, head.local_start - 1)
    check_own(place, manifest, remote.cluster_id)
    check_not_behind(manifest, head, place, place)
    return tuple(entries_within(remote.storage, manifest, OffsetRange(head.start, head.local_start)))


def whole_segments(
    store: ObjectStore, head: Head, remote: tuple[Entry, ...], policy: CleanupPolicy
) -> Iterator[Segment]:
    """Yield the segments of both tiers, oldest first; what is remote is closed."""
    for entry in remote:
        yield Segment((entry,), is_closed=True)
    yield from segments_of(entries_within(store, head, OffsetRange(head.local_start, head.end)), policy.limits)


# Compaction: of each key the newest record stays, at its offset; of what is deleted a tombstone, for a while.
#
# Closed segments below the last stable offset are cleaned, those of `min.compaction.lag.ms` and older. The newest
# offset of every key is learned from the *dirty* part, what lies above `Head.compacted_to`; then both parts are written
# anew without what is older. Neighbours become one file of at most `segment.bytes`. Records without a key stay: nothing
# supersedes them. Only keys and offsets are held in memory, of about `KEYS` keys; what is beyond waits for the next
# time, or is compacted by Spark at once (`jobs/compaction.py`): its tasks hold the offsets of one file each.
#
# **Across tiers.** The log is what object storage alone has, `[start, local_start)`, then what lies here. Both are
# learned from and cleaned. Remote copies of what lies here too are not touched: what was compacted is uploaded once
# more. While a topic uploads, nothing is learned from what is not uploaded yet: object storage alone has the newest
# value of each key too, as far as it was ever told. Objects are put first, then one swap of the manifest names those
# of the remote part, all or none, and one swap of the head those of the local part, all or none, with `compacted_to`.
# Whoever dies before the first swap has changed nothing; before the second, nothing but the remote part. That this is
# right at any moment rests on three things:
#
# 1. *A record goes only when a later one of its key is in the log.* What supersedes lies at or above `compacted_to`
#    as it was read, and leaves the log by nothing but a later record, retention, which takes what is older first, or
#    as a tombstone by the second swap of a later pass. So a reader finds the newest value of each key, whatever mix
#    of compacted and raw segments it meets.
# 2. *A tombstone goes only when no older record of its key is left.* It goes once it is due, and becomes due only by
#    a horizon that a swap has set. A remote tombstone's older records are all remote: the swap that sets its horizon
#    drops them too. A local one's are remote or local: the remote ones went by the first swap, before its horizon was
#    set by the second. Older records never come back: whatever is replaced must lie there as it was read, and what
#    was evicted since is in the remote tier as it was here (`tiered/remote_retention.py`), so a run that holds it
#    fits no more.
# 3. *`compacted_to` rises last.* Below it no key comes twice in either tier. Where the second swap fails, the next
#    pass learns the same dirty part again, from wherever it lies by then, and cleans what is left.
#
# **Mirrors** are compacted here, not by their sources: what they hold was copied before the source compacted it. A
# mirror is a beginning of its source's log, so what supersedes a record here supersedes it there too, and each may
# clean before the other does: offsets stay, and whoever compares both calls such records superseded, not different. A
# restore cuts a log's end, and with it what superseded; where that happened it cuts all (`restore_cut.py`),
# and what was read of the log before is not published after it.


KEYS: Final = 5_000_000
"""As many fit into the 128 MiB that Kafka's cleaner has for them."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part that is cleaned, and where it lies."""

    entry: Entry
    store: ObjectStore
    stop: int
    """Its records from here on lie locally too."""
    is_remote: bool


@dataclass(slots=True)
class Group:
    """Neighbouring parts of one tier that become one file."""

    pieces: list[Piece]
    bytes: int
    horizon_ms: int | None
    """When the tombstones in it may go; `None`: it has none that stay."""

    @property
    def entries(self) -> list[Entry]:
        """What becomes one file."""
        return [piece.entry for piece in self.pieces]

    @property
    def first(self) -> Piece:
        """The oldest of them."""
        return self.pieces[0]


@dataclass(frozen=True, slots=True)
class Cleaning:
    """What one pass over a partition goes over. Picklable."""

    pieces: tuple[Piece, ...]
    dirty_from: int
    through: int
    """Up to where keys are learned."""
    now_ms: int
    epoch: int
    """The newest of the log."""
    start: int
    """Where the log begins: what a part has below goes."""

    def live(self, entry: Entry) -> OffsetRange:
        """Return the offsets of a part that are in the log."""
        return OffsetRange(max(entry.base, self.start), entry.last + 1)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What takes the place of a group; `None`: all of it stays as it is."""

    is_remote: bool
    replacement: Replacement | None


class Compaction:
    """One pass over one partition, as its head was read."""

    def __init__(
        self,
        store: ObjectStore,
        partition: Partition,
        policy: CleanupPolicy,
        rules: Rules,
        remote: RemoteTier | None = None,
    ) -> None:
        """Say of which partition, and where its remote part is; nothing is read yet."""
        self._store = store
        self._partition = partition
        self._policy = policy
        self._rules = rules
        self._remote = remote
        self._place = place_of(policy, partition)

    def compacted(self, head: Head, *, now_ms: int) -> Rewritten | None:
        """Write what stays under fresh names, in each tier; `None`: nothing is to be cleaned yet.

        Raises:
            MissingObjectError: A part, a page or the manifest is not there.
            UserError: A part is damaged.
        """
        cleaning = self.cleaning(head, now_ms=now_ms)
        if cleaning is None:
            return None
        newest, through = self._learned(cleaning.pieces, cleaning.dirty_from)
        cleaning = replace(cleaning, through=through)
        return self.rewritten(cleaning, (self.cleaned(cleaning, group, newest) for group in self.groups(cleaning)))

    def cleaning(self, head: Head, *, now_ms: int) -> Cleaning | None:
        """Return what is to be cleaned; `None`: nothing is yet.

        Raises:
            As of `compacted`.
        """
        if not is_reached(head, self._policy, self._remote):
            return None
        there = remote_entries(head, self._place, self._remote)
        clean = to_clean(whole_segments(self._store, head, there, self._policy), head, self._policy, now_ms=now_ms)
        if not clean:
            return None
        pieces = tuple(self._pieces(clean, there, head.local_start))
        return Cleaning(pieces, head.compacted_to, pieces[-1].stop, now_ms, head.epochs[-1][0], head.start)

    def rewritten(self, cleaning: Cleaning, cleaned: Iterable[Cleaned]) -> Rewritten:
        """Gather what was written of all groups, in their order; where one fails, what the others wrote is deleted."""
        storage = None if self._remote is None else self._remote.storage
        with whole_or_gone(self._store) as here, whole_or_deleted(storage) as far:
            for one in cleaned:
                if one.replacement is not None:
                    (far if one.is_remote else here).append(one.replacement)
        through = max(cleaning.through, cleaning.dirty_from)
        remotely = self._remotely(tuple(far), cleaning.epoch, through)
        return Rewritten(self._partition, tuple(here), through, remotely, epoch=cleaning.epoch)

    def _remotely(self, done: tuple[Replacement, ...], epoch: int, through: int) -> RemoteRewrite | None:
        if not done or self._remote is None or self._place is None or self._policy.tiering is None:
            return None
        cluster_id = self._remote.cluster_id
        tiering = self._policy.tiering
        return RemoteRewrite(self._place, cluster_id, tiering, done, is_whole=True, epoch=epoch, learned_to=through)

    def _pieces(self, clean: Iterable[Segment], remote: Iterable[Entry], local_start: int) -> Iterator[Piece]:
        there = {entry.key for entry in remote}
        for segment in clean:
            for entry in segment.entries:
                if self._remote is not None and entry.key in there:
                    yield Piece(entry, self._remote.storage, min(entry.last + 1, local_start), is_remote=True)
                else:
                    yield Piece(entry, self._store, entry.last + 1, is_remote=False)

    def _learned(self, pieces: Sequence[Piece], dirty_from: int) -> tuple[NewestOffsets, int]:
        """Return the newest offset of each key of the dirty part, and how far it was read."""
        newest = NewestOffsets()
        for piece in pieces:
            if piece.stop <= dirty_from:
                continue
            for batch in read_keys(piece.store, piece.entry, OffsetRange(dirty_from, piece.stop)):
                offsets = batch.column("offset").to_numpy()
                has_key = batch.column("key").is_valid()
                newest.add(batch.column("key").filter(has_key), offsets[mask(has_key)])
                if newest.is_full(KEYS):
                    return newest, int(offsets[-1]) + 1
        return newest, pieces[-1].stop

    def groups(self, cleaning: Cleaning) -> Iterator[Group]:
        """Yield runs of one epoch and tier that fit into a segment and whose tombstones go at the same time."""
        group: Group | None = None
        for piece in cleaning.pieces:
            if piece.entry.base >= cleaning.through:
                break
            horizon_ms = self._horizon_ms(piece.entry, cleaning.dirty_from, cleaning.now_ms)
            if group is not None and self._joins(group, piece, horizon_ms):
                group.pieces.append(piece)
                group.bytes += piece.entry.bytes
                group.horizon_ms = horizon_ms if group.horizon_ms is None else group.horizon_ms
                continue
            if group is not None:
                yield group
            group = Group([piece], piece.entry.bytes, horizon_ms)
        if group is not None:
            yield group

    def _joins(self, group: Group, piece: Piece, horizon_ms: int | None) -> bool:
        return (
            piece.is_remote == group.first.is_remote
            and piece.entry.epoch == group.first.entry.epoch
            and group.bytes + piece.entry.bytes <= self._policy.limits.bytes
            and (horizon_ms is None or group.horizon_ms in {None, horizon_ms})
        )

    def _horizon_ms(self, entry: Entry, dirty_from: int, now_ms: int) -> int | None:
        if entry.horizon_ms is not None:
            return None if is_due(entry, now_ms) else entry.horizon_ms
        return now_ms + self._policy.tombstones_ms if entry.last >= dirty_from else None

    def cleaned(self, cleaning: Cleaning, group: Group, survivors: Survivors) -> Cleaned:
        """Write a group without what is superseded."""
        return Cleaned(group.first.is_remote, self._replacement(cleaning, group, survivors))

    def _replacement(self, cleaning: Cleaning, group: Group, survivors: Survivors) -> Replacement | None:
        """Return what takes the place of a group; `None`: all of it stays as it is."""
        dirty_from, now_ms = cleaning.dirty_from, cleaning.now_ms
        first = group.first.entry
        is_alone = len(group.pieces) == 1 and (first.is_segment or group.first.is_remote)
        is_clean = is_alone and first.last < dirty_from and not is_due(first, now_ms)
        if is_clean and not _loses(group.first, cleaning.live(first), survivors):
            return None
        sieve = Sieve(survivors)
        entry = self._writer(group).write_one(
            kept
            for piece in group.pieces
            for kept in sieve.kept(
                read_part(piece.store, piece.entry, self._partition.number, cleaning.live(piece.entry)),
                # Beyond what was learned, older records of the key may be left.
                tombstones_to=cleaning.through if is_due(piece.entry, now_ms) else 0,
            )
        )
        horizon_ms = group.horizon_ms if sieve.tombstones else None
        if entry is None:
            return Replacement.of(group.entries, [])
        if is_alone and entry.digest.records == first.digest.records:
            group.first.store.delete([entry.key, *([index_key(entry.key)] if group.first.is_remote else [])])
            entry = first
            if entry.horizon_ms == horizon_ms:
                return None
        return Replacement.of(
            group.entries, [replace(entry, epoch=first.epoch, is_segment=True, horizon_ms=horizon_ms)]
        )

    def _writer(self, group: Group) -> PartWriter:
        if self._place is None or not group.first.is_remote:
            return PartWriter.of(self._store, self._rules, self._partition.number)
        return SegmentWriter.under(group.first.store, self._rules, self._place, group.first.entry.epoch)


def _loses(piece: Piece, offsets: OffsetRange, survivors: Survivors) -> bool:
    """Tell whether a part has a record in a range that is superseded; reads keys alone."""
    return any(not survivors.among(batch).all() for batch in read_keys(piece.store, piece.entry, offsets))
