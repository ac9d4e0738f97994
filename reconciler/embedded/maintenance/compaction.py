"""Compaction: keep only the newest record of each key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa
import xxhash

from reconciler.archives.keys import build_index_key
from reconciler.archives.manifest import RemotePartition, check_manifest_owner, read_manifest, remote_partition
from reconciler.archives.objects import missing_offsets_error
from reconciler.archives.pages import iter_entries_within
from reconciler.embedded.segments.parts import PartWriter, read_keys, read_part
from reconciler.embedded.segments.retention import CleanupPolicy, Segment, iter_segments
from reconciler.embedded.segments.rewrites import Replacement
from reconciler.embedded.tiered.object_rewrites import (
    PartitionRewrite,
    RemoteRewrite,
    SegmentWriter,
    delete_parts_on_error,
    delete_segments_on_error,
)
from reconciler.embedded.tiered.remote_tier import RemoteTier, check_has_uploaded_records
from reconciler.lifecycles import TieringState
from reconciler.records.log import OffsetRange
from reconciler.resources.cluster_properties import ENABLED, read_property
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    import numpy.typing as npt

    from reconciler.archives.entries import Entry
    from reconciler.embedded.segments.admission import AppendRules
    from reconciler.embedded.segments.head import Head, Partition
    from reconciler.objectstore.base import ObjectStore


def select_segments_to_clean(
    segments: Iterable[Segment], head: Head, policy: CleanupPolicy, *, now_ms: int
) -> tuple[Segment, ...]:
    """Return the segments to clean, oldest first; empty if none is due.

    Cleaning is due if the dirty part exceeds `min.cleanable.dirty.ratio`, a dirty record is older than
    `max.compaction.lag.ms`, or tombstones can be removed.
    """
    end = _find_cleaning_end(head, policy)
    settled = takewhile(lambda segment: segment.is_closed and segment.last < end, segments)
    candidates = tuple(takewhile(lambda segment: segment.max_ts <= now_ms - policy.min_lag_ms, settled))
    dirty = [segment for segment in candidates if segment.last >= head.compacted_to]
    stored = sum(segment.bytes for segment in candidates)
    is_worth = sum(segment.bytes for segment in dirty) > policy.min_dirty_ratio * stored
    is_late = any(segment.min_ts < now_ms - policy.max_lag_ms for segment in dirty)
    has_due = any(are_tombstones_due(entry, now_ms) for segment in candidates for entry in segment.entries)
    return candidates if (dirty and (is_worth or is_late)) or has_due else ()


def find_next_cleaning_ms(segments: Sequence[Segment], head: Head, policy: CleanupPolicy, *, now_ms: int) -> int | None:
    """Return when cleaning may be due without new records; `None` means never."""
    end = _find_cleaning_end(head, policy)
    settled = [segment for segment in segments if segment.is_closed and segment.last < end]
    times = [segment.max_ts + policy.min_lag_ms for segment in settled]
    times += [segment.min_ts + policy.max_lag_ms + 1 for segment in settled if segment.last >= head.compacted_to]
    times += [entry.horizon_ms for segment in settled for entry in segment.entries if entry.horizon_ms is not None]
    return min((at for at in times if at > now_ms), default=None)


def _find_cleaning_end(head: Head, policy: CleanupPolicy) -> int:
    """Return the offset below which records may be cleaned: stable, and uploaded if the topic uploads (F-R-020)."""
    return min(head.bounds.stable, head.uploaded_to) if policy.keeps_unuploaded else head.bounds.stable


def are_tombstones_due(entry: Entry, now_ms: int) -> bool:
    """Whether a part's tombstones may be removed."""
    return entry.horizon_ms is not None and entry.horizon_ms <= now_ms


if TYPE_CHECKING:
    Words = npt.NDArray[np.uint64]
    Offsets = npt.NDArray[np.int64]

_BUFFERED_ROWS: Final = 1 << 20


class Survivors(Protocol):
    """Decides which records survive: those without a later record of their key."""

    def mask_survivors(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Mask a batch's surviving records by `offset` and `key`."""
        ...


class NewestOffsets:
    """Newest offset per key, by 128-bit hash; sorted arrays take 24 bytes per key.

    Keys with equal hashes would be confused; with four billion keys the probability is about 2^-64.
    """

    def __init__(self) -> None:
        self._high, self._low = np.empty(0, np.uint64), np.empty(0, np.uint64)
        self._offsets = np.empty(0, np.int64)
        self._waiting: list[tuple[Words, Words, Offsets]] = []
        self._rows = 0

    def is_full(self, keys: int) -> bool:
        """Whether at least `keys` keys are stored."""
        if len(self._offsets) + self._rows < keys:
            return False
        self.sort_buffered()
        return len(self._offsets) >= keys

    def add(self, keys: pa.Array, offsets: Offsets) -> None:
        """Add offsets of keys; keys must not be null."""
        self.add_hashes(*hash_keys(keys), offsets)

    def add_hashes(self, high: Words, low: Words, offsets: Offsets) -> None:
        """Add keys by both halves of their hashes."""
        self._waiting.append((high, low, offsets))
        self._rows += len(offsets)
        if self._rows >= _BUFFERED_ROWS:
            self.sort_buffered()

    def sort_buffered(self) -> None:
        """Merge buffered rows into the sorted arrays."""
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

    def find_offsets(self, keys: pa.Array) -> Offsets:
        """Return each key's newest offset, or -1; keys must not be null."""
        return self.find_offsets_by_hash(*hash_keys(keys))

    def find_offsets_by_hash(self, high: Words, low: Words) -> Offsets:
        """Return each hash's newest offset, or -1."""
        self.sort_buffered()
        offsets = np.full(len(high), -1, np.int64)
        if not len(self._offsets):
            return offsets
        at = np.searchsorted(self._high, high)
        looking = np.arange(len(high))
        while len(looking):
            looking = looking[at[looking] < len(self._high)]
            looking = looking[self._high[at[looking]] == high[looking]]
            is_same = self._low[at[looking]] == low[looking]
            offsets[looking[is_same]] = self._offsets[at[looking[is_same]]]
            looking = looking[~is_same]
            at[looking] += 1
        return offsets

    def mask_survivors(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Mask records not older than their key's newest offset."""
        has_key = batch.column("key").is_valid()
        is_keyed = to_bool_array(has_key)
        stays = np.ones(batch.num_rows, np.bool_)
        latest = self.find_offsets(batch.column("key").filter(has_key))
        stays[is_keyed] = latest <= batch.column("offset").to_numpy()[is_keyed]
        return stays


class SurvivingOffsets:
    """Offsets of the surviving records of one file.

    Records without a key survive, and records from offset `through` on, whose keys were not read.
    """

    def __init__(self, offsets: Offsets, through: int) -> None:
        self._offsets, self._through = np.sort(offsets), through

    def mask_survivors(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Mask a batch's surviving records."""
        offsets = batch.column("offset").to_numpy()
        stays = np.isin(offsets, self._offsets, assume_unique=True)
        stays |= offsets >= self._through
        stays |= to_bool_array(batch.column("key").is_null())
        return stays


def hash_keys(keys: pa.Array) -> tuple[Words, Words]:
    """Return both halves of each key's hash; keys must not be null."""
    joined = b"".join(map(xxhash.xxh3_128_digest, keys.to_numpy(zero_copy_only=False).tolist()))
    halves = np.frombuffer(joined, ">u8").astype(np.uint64).reshape(-1, 2)
    return halves[:, 0].copy(), halves[:, 1].copy()


class RecordFilter:
    """Filters out superseded records and counts tombstones."""

    def __init__(self, survivors: Survivors) -> None:
        self._survivors = survivors
        self.dropped = 0
        self.tombstones = 0

    def filter_records(self, batches: Iterable[pa.RecordBatch], *, tombstones_to: int) -> Iterator[pa.RecordBatch]:
        """Yield the surviving records, without tombstones below offset `tombstones_to`."""
        for batch in batches:
            stays = self._survivors.mask_survivors(batch)
            is_tombstone = to_bool_array(batch.column("key").is_valid()) & to_bool_array(
                batch.column("value").is_null()
            )
            stays &= ~(is_tombstone & (batch.column("offset").to_numpy() < tombstones_to))
            self.tombstones += int((stays & is_tombstone).sum())
            self.dropped += int((~stays).sum())
            if stays.all():
                yield batch
            elif stays.any():
                yield batch.filter(pa.array(stays))


def to_bool_array(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Convert a boolean column to a NumPy array."""
    values: npt.NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
    return values


def is_log_reachable(head: Head, policy: CleanupPolicy, remote: RemoteTier | None) -> bool:
    """Whether a partition's whole log can be rewritten now.

    Tombstones must stay while either tier has older records of their keys.
    """
    if head.start == head.local_start:
        return True
    if remote is None or policy.tiering is None or policy.tiering.state is TieringState.DISABLING:
        return False
    return read_property(remote.properties, ENABLED) == "true"


def find_remote_partition(policy: CleanupPolicy, partition: Partition) -> RemotePartition | None:
    """Return a partition's remote location; `None` if its topic was never tiered."""
    return None if policy.tiering is None else remote_partition(policy.tiering.location, partition.number)


def read_remote_only_entries(head: Head, place: RemotePartition | None, remote: RemoteTier | None) -> tuple[Entry, ...]:
    """Return segments with records that only object storage has, oldest first."""
    if head.start == head.local_start or place is None or remote is None:
        return ()
    manifest = read_manifest(remote.storage, place)
    if manifest is None:
        raise missing_offsets_error(remote.storage, place.key, head.start, head.local_start - 1)
    check_manifest_owner(place, manifest, remote.cluster_id)
    check_has_uploaded_records(manifest, head, place, place)
    return tuple(iter_entries_within(remote.storage, manifest, OffsetRange(head.start, head.local_start)))


def iter_all_segments(
    store: ObjectStore, head: Head, remote: tuple[Entry, ...], policy: CleanupPolicy
) -> Iterator[Segment]:
    """Yield both tiers' segments, oldest first."""
    for entry in remote:
        yield Segment((entry,), is_closed=True)
    yield from iter_segments(iter_entries_within(store, head, OffsetRange(head.local_start, head.end)), policy.limits)


MAX_LEARNED_KEYS: Final = 5_000_000
"""Maximum keys per pass, about as many as Kafka's log cleaner holds in 128 MiB."""


@dataclass(frozen=True, slots=True)
class CleaningPart:
    """A part or remote segment to clean below offset `stop`, and its store."""

    entry: Entry
    store: ObjectStore
    stop: int
    is_remote: bool


@dataclass(slots=True)
class CleaningGroup:
    """Neighbouring parts of one tier to rewrite into one file."""

    parts: list[CleaningPart]
    bytes: int
    horizon_ms: int | None
    """Time when its tombstones may be removed; `None` without tombstones."""

    @property
    def entries(self) -> list[Entry]:
        """Entries of the parts."""
        return [part.entry for part in self.parts]

    @property
    def first(self) -> CleaningPart:
        """The oldest part."""
        return self.parts[0]


@dataclass(frozen=True, slots=True)
class CompactionScope:
    """Input of one compaction of a partition. Picklable."""

    parts: tuple[CleaningPart, ...]
    dirty_from: int
    through: int
    """Keys of records up to this offset are read."""
    now_ms: int
    epoch: int
    start: int

    def live_range(self, entry: Entry) -> OffsetRange:
        """Return a part's offsets still in the log."""
        return OffsetRange(max(entry.base, self.start), entry.last + 1)


@dataclass(frozen=True, slots=True)
class GroupRewrite:
    """A group's replacement; `None` if its parts stay."""

    is_remote: bool
    replacement: Replacement | None


class Compaction:
    """Compacts one partition, based on one read of its head.

    It cleans closed segments below the last stable offset that are older than `min.compaction.lag.ms`. It reads each
    key's newest offset from the dirty part, which begins at `Head.compacted_to`. Then it rewrites clean and dirty parts
    into files of at most `segment.bytes`. Keys beyond `MAX_LEARNED_KEYS` wait for the next pass, or for Spark
    (`jobs/compaction.py`).

    Remote-only records in `[start, local_start)` are cleaned, too; remote copies of local records are uploaded again
    instead. While a topic uploads, only uploaded records supersede others, so object storage alone has each key's
    newest value. New objects are stored first. One manifest swap publishes the remote ones, then one head swap
    publishes the local ones with `compacted_to`. Invariants of every intermediate state:

    1. A record is removed only while the log has a later record of its key at or above `compacted_to`. The later record
    is removed only by a newer one, by retention after all older records, or as a tombstone in a later pass.

    2. A tombstone is removed only when no older record of its key remains. The swap that sets its horizon removes older
    records of its tier; the first swap already removed remote ones. Removed records never return: rewrites require
    unchanged parts, and evictions require equal remote copies.

    3. `compacted_to` rises last. If the second swap fails, the next pass reads the same dirty part again.

    A mirror is a prefix of its source's log, so both agree on superseded records. `restore_cut.py` explains restores.
    """

    def __init__(
        self,
        store: ObjectStore,
        partition: Partition,
        policy: CleanupPolicy,
        rules: AppendRules,
        remote: RemoteTier | None = None,
    ) -> None:
        self._store = store
        self._partition = partition
        self._policy = policy
        self._rules = rules
        self._remote = remote
        self._place = find_remote_partition(policy, partition)

    def write_compacted(self, head: Head, *, now_ms: int) -> PartitionRewrite | None:
        """Write the surviving records of both tiers; return `None` if nothing is to be cleaned."""
        cleaning = self.plan_scope(head, now_ms=now_ms)
        if cleaning is None:
            return None
        newest, through = self._read_newest_offsets(cleaning.parts, cleaning.dirty_from)
        cleaning = replace(cleaning, through=through)
        return self.combine_rewrites(
            cleaning, (self.clean_group(cleaning, group, newest) for group in self.iter_groups(cleaning))
        )

    def plan_scope(self, head: Head, *, now_ms: int) -> CompactionScope | None:
        """Return the parts to clean; `None` if none."""
        if not is_log_reachable(head, self._policy, self._remote):
            return None
        remote = read_remote_only_entries(head, self._place, self._remote)
        clean = select_segments_to_clean(
            iter_all_segments(self._store, head, remote, self._policy), head, self._policy, now_ms=now_ms
        )
        if not clean:
            return None
        parts = tuple(self._iter_cleaning_parts(clean, remote, head.local_start))
        return CompactionScope(parts, head.compacted_to, parts[-1].stop, now_ms, head.epochs[-1][0], head.start)

    def combine_rewrites(self, cleaning: CompactionScope, cleaned: Iterable[GroupRewrite]) -> PartitionRewrite:
        """Combine all groups' rewrites; if one fails, delete the objects of the others."""
        storage = None if self._remote is None else self._remote.storage
        with delete_parts_on_error(self._store) as near, delete_segments_on_error(storage) as far:
            for one in cleaned:
                if one.replacement is not None:
                    (far if one.is_remote else near).append(one.replacement)
        through = max(cleaning.through, cleaning.dirty_from)
        remotely = self._build_remote_rewrite(tuple(far), cleaning.epoch, through)
        return PartitionRewrite(self._partition, tuple(near), through, remotely, epoch=cleaning.epoch)

    def _build_remote_rewrite(self, done: tuple[Replacement, ...], epoch: int, through: int) -> RemoteRewrite | None:
        if not done or self._remote is None or self._place is None or self._policy.tiering is None:
            return None
        cluster_id = self._remote.cluster_id
        tiering = self._policy.tiering
        return RemoteRewrite(self._place, cluster_id, tiering, done, is_whole=True, epoch=epoch, learned_to=through)

    def _iter_cleaning_parts(
        self, clean: Iterable[Segment], remote: Iterable[Entry], local_start: int
    ) -> Iterator[CleaningPart]:
        remote_keys = {entry.key for entry in remote}
        for segment in clean:
            for entry in segment.entries:
                if self._remote is not None and entry.key in remote_keys:
                    yield CleaningPart(entry, self._remote.storage, min(entry.last + 1, local_start), is_remote=True)
                else:
                    yield CleaningPart(entry, self._store, entry.last + 1, is_remote=False)

    def _read_newest_offsets(self, parts: Sequence[CleaningPart], dirty_from: int) -> tuple[NewestOffsets, int]:
        newest = NewestOffsets()
        for part in parts:
            if part.stop <= dirty_from:
                continue
            for batch in read_keys(part.store, part.entry, OffsetRange(dirty_from, part.stop)):
                offsets = batch.column("offset").to_numpy()
                has_key = batch.column("key").is_valid()
                newest.add(batch.column("key").filter(has_key), offsets[to_bool_array(has_key)])
                if newest.is_full(MAX_LEARNED_KEYS):
                    return newest, int(offsets[-1]) + 1
        return newest, parts[-1].stop

    def iter_groups(self, cleaning: CompactionScope) -> Iterator[CleaningGroup]:
        """Yield groups of neighbouring parts that fit into a segment.

        All have the same epoch, tier and tombstone horizon.
        """
        group: CleaningGroup | None = None
        for part in cleaning.parts:
            if part.entry.base >= cleaning.through:
                break
            horizon_ms = self._compute_horizon_ms(part.entry, cleaning.dirty_from, cleaning.now_ms)
            if group is not None and self._extends_group(group, part, horizon_ms):
                group.parts.append(part)
                group.bytes += part.entry.bytes
                group.horizon_ms = horizon_ms if group.horizon_ms is None else group.horizon_ms
                continue
            if group is not None:
                yield group
            group = CleaningGroup([part], part.entry.bytes, horizon_ms)
        if group is not None:
            yield group

    def _extends_group(self, group: CleaningGroup, part: CleaningPart, horizon_ms: int | None) -> bool:
        return (
            part.is_remote == group.first.is_remote
            and part.entry.epoch == group.first.entry.epoch
            and group.bytes + part.entry.bytes <= self._policy.limits.bytes
            and (horizon_ms is None or group.horizon_ms in {None, horizon_ms})
        )

    def _compute_horizon_ms(self, entry: Entry, dirty_from: int, now_ms: int) -> int | None:
        if entry.horizon_ms is not None:
            return None if are_tombstones_due(entry, now_ms) else entry.horizon_ms
        return now_ms + self._policy.tombstones_ms if entry.last >= dirty_from else None

    def clean_group(self, cleaning: CompactionScope, group: CleaningGroup, survivors: Survivors) -> GroupRewrite:
        """Write a group without its superseded records."""
        return GroupRewrite(group.first.is_remote, self._write_replacement(cleaning, group, survivors))

    def _write_replacement(
        self, cleaning: CompactionScope, group: CleaningGroup, survivors: Survivors
    ) -> Replacement | None:
        dirty_from, now_ms = cleaning.dirty_from, cleaning.now_ms
        first = group.first.entry
        is_alone = len(group.parts) == 1 and (first.is_segment or group.first.is_remote)
        is_clean = is_alone and first.last < dirty_from and not are_tombstones_due(first, now_ms)
        if is_clean and not _has_superseded(group.first, cleaning.live_range(first), survivors):
            return None
        sieve = RecordFilter(survivors)
        entry = self._make_writer(group).write_one(
            records
            for part in group.parts
            for records in sieve.filter_records(
                read_part(part.store, part.entry, self._partition.number, cleaning.live_range(part.entry)),
                # Tombstones from `through` on stay, since older records of their keys may remain.
                tombstones_to=cleaning.through if are_tombstones_due(part.entry, now_ms) else 0,
            )
        )
        horizon_ms = group.horizon_ms if sieve.tombstones else None
        if entry is None:
            return Replacement.of(group.entries, [])
        if is_alone and entry.digest.records == first.digest.records:
            group.first.store.delete([entry.key, *([build_index_key(entry.key)] if group.first.is_remote else [])])
            entry = first
            if entry.horizon_ms == horizon_ms:
                return None
        return Replacement.of(
            group.entries, [replace(entry, epoch=first.epoch, is_segment=True, horizon_ms=horizon_ms)]
        )

    def _make_writer(self, group: CleaningGroup) -> PartWriter:
        if self._place is None or not group.first.is_remote:
            return PartWriter.of(self._store, self._rules, self._partition.number)
        return SegmentWriter.for_partition(group.first.store, self._rules, self._place, group.first.entry.epoch)


def _has_superseded(part: CleaningPart, offsets: OffsetRange, survivors: Survivors) -> bool:
    return any(not survivors.mask_survivors(batch).all() for batch in read_keys(part.store, part.entry, offsets))
