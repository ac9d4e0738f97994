"""Roll segments, and replace parts and remote segments at the same offsets.

The swap makes replaced objects garbage. A reader that misses an object reads the manifest again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, Final

import orjson

from reconciler.archives.entries import STALE_REWRITE_MS, Entry, PageRef
from reconciler.archives.keys import build_index_key, create_segment_key
from reconciler.archives.manifest import (
    Garbage,
    Manifest,
    ManifestSpill,
    ManifestSwap,
    RemotePartition,
    delete_manifest_garbage,
)
from reconciler.archives.objects import retry_if_missing
from reconciler.embedded.objects import check_writes_visible
from reconciler.embedded.segments.head import TAIL, Head, PageWriter, Partition, swap_head
from reconciler.embedded.segments.parts import PART_BYTES, PartWriter, read_part
from reconciler.embedded.segments.retention import CleanupPolicy, Segment, iter_live_entries, iter_segments
from reconciler.embedded.segments.rewrites import Replacement, RunReplacer, WorkTotals
from reconciler.errors import DamagedObjectError, UserError
from reconciler.records.log import Digest, OffsetRange
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.effects import build_process_id

if TYPE_CHECKING:
    import pyarrow as pa

    from reconciler.archives.location import TopicTiering
    from reconciler.embedded.segments.admission import AppendRules
    from reconciler.objectstore.base import ObjectStore


@dataclass(frozen=True, slots=True)
class RemoteRewrite:
    """A partition's stored segments that no manifest references yet."""

    partition: RemotePartition
    cluster_id: str
    """Cluster that owns the partition."""
    tiering: TopicTiering
    """Tiering at the time of writing; a newer tiered epoch prevents publication."""
    replacements: tuple[Replacement, ...]
    is_whole: bool = False
    """Whether this is a compaction, which is never published in part."""
    epoch: int = 0
    """Newest leader epoch that a compaction read; a newer one may have truncated superseding records."""
    learned_to: int = 0
    """End of the offsets that a compaction searched for superseding records."""

    def sum_work(self, applied: Iterable[Replacement]) -> WorkTotals:
        """Return the amounts that a compaction removed, or another rewrite replaced."""
        before = list(applied)
        after = [entry for replacement in before for entry in replacement.added] if self.is_whole else []
        records = sum(replacement.records for replacement in before) - sum(entry.digest.records for entry in after)
        stored = sum(replacement.bytes for replacement in before) - sum(entry.bytes for entry in after)
        return WorkTotals(records, stored, sum(len(replacement.added) for replacement in before))


def list_object_keys(segments: Iterable[str]) -> list[str]:
    """Return the keys of remote segments and their indexes."""
    return [name for key in segments for name in (key, build_index_key(key))]


@contextmanager
def delete_segments_on_error(storage: ObjectStore | None) -> Iterator[list[Replacement]]:
    """Yield a list of replacements; delete their objects if the block fails."""
    done: list[Replacement] = []
    try:
        yield done
    except BaseException:
        if storage is not None:
            storage.delete(list_object_keys(key for one in done for key in one.written))
        raise


def publish_remote(
    storage: ObjectStore, rewrite: RemoteRewrite, *, put_ms: int, now_ms: Callable[[], int]
) -> WorkTotals | None:
    """Publish a rewrite by one swap, then delete the replaced segments; return `None` if nothing was published.

    The oldest object was written at `put_ms`.

    Raises:
        OwnershipLostError: Another cluster owns the partition.
    """
    swap = ManifestSwap(storage, rewrite.cluster_id, rewrite.tiering)
    change = _ManifestRewrite(storage, rewrite, lambda: now_ms() - put_ms > STALE_REWRITE_MS)
    after = retry_if_missing(lambda: swap(rewrite.partition, change))
    applied = () if after is None else change.applied
    dropped = (key for one in rewrite.replacements if one not in applied for key in one.written)
    storage.delete([*change.list_superfluous_pages(after), *list_object_keys(dropped)])
    if after is None:
        return None
    delete_manifest_garbage(swap, rewrite.partition, after.garbage)
    return rewrite.sum_work(applied)


class _ManifestRewrite:
    def __init__(self, storage: ObjectStore, rewrite: RemoteRewrite, is_stale: Callable[[], bool]) -> None:
        self._storage = storage
        self._rewrite = rewrite
        self._is_stale = is_stale
        self._spill = ManifestSpill(storage, rewrite.partition, rewrite.tiering.spill_bytes)
        self._gone_pages: list[str] = []
        self.applied: tuple[Replacement, ...] = ()

    def __call__(self, manifest: Manifest) -> Manifest | None:
        if self._is_stale():
            return None
        rebuilding = RunReplacer(self._storage, manifest, manifest.start, self._rewrite.replacements)
        self.applied, self._gone_pages = rebuilding.applied, rebuilding.gone_pages
        is_all = len(self.applied) == len(self._rewrite.replacements)
        if not self.applied or (self._rewrite.is_whole and not is_all):
            return None
        if self._rewrite.is_whole and manifest.epochs[-1][0] > self._rewrite.epoch:
            return None
        pages, entries = rebuilding.rebuild(self._write_leaves)
        garbage = Garbage(manifest.garbage.pages, (*manifest.garbage.entries, *rebuilding.removed_entries))
        # A truncation may need `learned` before the head stores `compacted_to`.
        learned = max(manifest.learned, (self._rewrite.epoch, self._rewrite.learned_to), key=lambda known: known[1])
        return replace(manifest, learned=learned, pages=tuple(pages), entries=entries, garbage=garbage)

    def list_superfluous_pages(self, after: Manifest | None) -> list[str]:
        return [*(() if after is None else self._gone_pages), *self._spill.list_superfluous_pages(after)]

    def _write_leaves(self, entries: Sequence[Entry]) -> list[PageRef]:
        pages: list[PageRef] = []
        taken: list[Entry] = []
        size = 0
        for entry in entries:
            taken.append(entry)
            size += len(orjson.dumps(entry.to_json()))
            if size >= self._rewrite.tiering.spill_bytes:
                pages.append(self._spill.write_page(taken))
                taken, size = [], 0
        return [*pages, self._spill.write_page(taken)] if taken else pages


_TAIL_BYTES: Final = 8
_LIKELY_FOOTER: Final = 64 * 1024
_MAGIC: Final = b"PAR1"


class SegmentWriter(PartWriter):
    """Writes remote segments; the footer serves as index."""

    def __init__(
        self,
        storage: ObjectStore,
        remote: RemotePartition,
        epoch: int,
        *,
        compression: str = "producer",
        kms_key_id: str | None = None,
    ) -> None:
        super().__init__(
            storage, str(remote), remote.number, compression=compression, limit=PART_BYTES, kms_key_id=kms_key_id
        )
        self._remote = remote
        self._epoch = epoch

    @classmethod
    def for_partition(
        cls, storage: ObjectStore, rules: AppendRules, remote: RemotePartition, epoch: int
    ) -> SegmentWriter:
        """Return a writer with a topic's codec and KMS key."""
        return cls(storage, remote, epoch, compression=rules.compression, kms_key_id=rules.kms_key_id)

    def _choose_key(self, offsets: tuple[int, int], stored_bytes: int) -> str:
        return create_segment_key(self._remote.key_prefix, offsets, stored_bytes, self._epoch)

    def _put_file(self, key: str, body: memoryview) -> None:
        super()._put_file(key, body)
        footer = bytes(body[-parse_footer_length(bytes(body[-_TAIL_BYTES:])) :])
        self._store.put(build_index_key(key), footer, kms_key_id=self._kms_key_id)


def read_footer(store: ObjectStore, key: str, size: int) -> bytes:
    """Return a Parquet file's footer by one or two requests."""
    start = max(0, size - _LIKELY_FOOTER)
    tail = store.get_range(key, start, size - start)
    if len(tail) != size - start or not tail.endswith(_MAGIC) or parse_footer_length(tail) > size:
        why = f"it does not end as a Parquet file of {size:,} bytes does"
        message = f"{store.url}: object {key} is damaged: {why}"
        error = DamagedObjectError(message, hint="Restore it from a copy of the store.")
        error.key, error.url, error.why = key, store.url, why
        raise error
    wanted = parse_footer_length(tail)
    return tail[-wanted:] if wanted <= len(tail) else store.get_range(key, size - wanted, wanted)


def parse_footer_length(tail: bytes) -> int:
    """Return the footer's length, from the file's last eight bytes."""
    return int.from_bytes(tail[-_TAIL_BYTES:-4], "little") + _TAIL_BYTES


@dataclass(frozen=True, slots=True)
class PartitionRewrite:
    """A partition's stored parts that no head references yet."""

    partition: Partition
    replacements: tuple[Replacement, ...]
    compacted_to: int | None = None
    """Offset below which a compaction leaves each key once; `None` for other rewrites."""
    remote: RemoteRewrite | None = None
    """Remote rewrite to publish first; if it fails, nothing else is published."""
    changes_key: bool = False
    epoch: int = 0
    written_by: str = field(default_factory=build_process_id, compare=False)

    def has_key(self, kms_key_id: str | None) -> bool:
        """Whether all written objects use this KMS key."""
        written = {key for replacement in self.replacements for key in replacement.written}
        added = (entry for replacement in self.replacements for entry in replacement.added if entry.key in written)
        return all(entry.kms_key_id == kms_key_id for entry in added)

    def sum_work(self, applied: Iterable[Replacement]) -> WorkTotals:
        """Return the amounts that applied replacements removed or rewrote."""
        before = [replacement for replacement in applied if replacement.written or self.compacted_to is not None]
        after = (
            [entry for replacement in before for entry in replacement.added] if self.compacted_to is not None else []
        )
        records = sum(replacement.records for replacement in before) - sum(entry.digest.records for entry in after)
        return WorkTotals(
            records, sum(replacement.bytes for replacement in before) - sum(entry.bytes for entry in after)
        )


@contextmanager
def delete_parts_on_error(store: ObjectStore) -> Iterator[list[Replacement]]:
    """Yield a list of replacements; delete their objects if the block fails."""
    done: list[Replacement] = []
    try:
        yield done
    except BaseException:
        store.delete([key for one in done for key in one.written])
        raise


def publish_local(
    store: ObjectStore, rewritten: PartitionRewrite, *, put_ms: int, now_ms: Callable[[], int]
) -> WorkTotals | None:
    """Publish rewritten parts by one swap, then delete replaced objects; return `None` if nothing was published.

    The oldest object was written at `put_ms`.
    """
    check_writes_visible(store, (key for one in rewritten.replacements for key in one.written), by=rewritten.written_by)
    change: _HeadRewrite | None = None
    pages: dict[bytes, PageRef] = {}  # Retries reuse pages: the swap without a response may name them.

    def rewrite_head(head: Head) -> Head | None:
        nonlocal change
        change = None
        if now_ms() - put_ms > STALE_REWRITE_MS or not (rewritten.changes_key or rewritten.has_key(head.kms_key_id)):
            return None
        replacement = _HeadRewrite(store, rewritten, head, pages)
        after = replacement.build_head()
        if after is not None:
            change = replacement
        return after

    if not swap_head(store, rewritten.partition, rewrite_head):
        change = None
    applied = () if change is None else change.applied
    named = () if change is None else change.written
    dropped = [key for one in rewritten.replacements if one not in applied for key in one.written]
    unnamed = [page.key for page in pages.values() if page.key not in named]
    store.delete([*(() if change is None else change.list_superfluous_keys), *unnamed, *dropped])
    return None if change is None else rewritten.sum_work(applied)


class _HeadRewrite:
    def __init__(
        self, store: ObjectStore, rewritten: PartitionRewrite, head: Head, pages: dict[bytes, PageRef]
    ) -> None:
        self._rewritten = rewritten
        self._head = head
        self._spill = PageWriter(store, rewritten.partition.topic_id, rewritten.partition.number, pages)
        self._rebuilding = RunReplacer(store, head, head.local_start, rewritten.replacements)
        self.applied = self._rebuilding.applied

    @property
    def written(self) -> tuple[str, ...]:
        return self._spill.used_keys

    @property
    def list_superfluous_keys(self) -> list[str]:
        return [entry.key for entry in self._rebuilding.removed_entries] + self._rebuilding.gone_pages

    def build_head(self) -> Head | None:
        compacted_to = self._rewritten.compacted_to
        if compacted_to is None:
            return self._rebuild_head() if self.applied else None
        is_whole = len(self.applied) == len(self._rewritten.replacements)
        if not is_whole or compacted_to > self._head.end or self._head.last_truncation_epoch > self._rewritten.epoch:
            return None
        head = self._rebuild_head() if self.applied else self._head
        return replace(head, compacted_to=max(head.compacted_to, compacted_to))

    def _rebuild_head(self) -> Head:
        pages, entries = self._rebuilding.rebuild(self._write_leaves)
        return replace(self._head, pages=self._spill.pack_pages(pages), entries=entries)

    def _write_leaves(self, entries: Sequence[Entry]) -> list[PageRef]:
        return [self._spill.write_leaf(entries[at : at + TAIL]) for at in range(0, len(entries), TAIL)]


def iter_segments_to_roll(segments: Iterable[Segment], *, stable: int) -> Iterator[Segment]:
    """Yield closed segments of several files that end before the offset `stable`."""
    for segment in takewhile(lambda segment: segment.is_closed and segment.last < stable, segments):
        if not segment.is_one_file:
            yield segment


def count_bytes_to_roll(store: ObjectStore, head: Head, policy: CleanupPolicy) -> int | None:
    """Return how many bytes a roll would write; `None` if it would write nothing."""
    waiting = list(
        iter_segments_to_roll(iter_segments(iter_live_entries(store, head), policy.limits), stable=head.bounds.stable)
    )
    return sum(segment.bytes for segment in waiting if len(segment.entries) > 1) if waiting else None


def write_rolled(
    store: ObjectStore, head: Head, partition: Partition, policy: CleanupPolicy, rules: AppendRules
) -> PartitionRewrite:
    """Store each segment to roll as one file; no head references it yet."""
    waiting = iter_segments_to_roll(
        iter_segments(iter_live_entries(store, head), policy.limits), stable=head.bounds.stable
    )
    writer = PartWriter.of(store, rules, partition.number)
    with delete_parts_on_error(store) as done:
        for segment in waiting:
            done.append(Replacement.of(segment.entries, [_write_segment(store, segment, partition, writer)]))
    return PartitionRewrite(partition, tuple(done))


def _write_segment(store: ObjectStore, segment: Segment, partition: Partition, writer: PartWriter) -> Entry:
    if len(segment.entries) == 1:
        return replace(segment.entries[0], is_segment=True)
    written = writer.write_one(read_parts(store, segment.entries, partition.number))
    if written is None or written.digest != merge_digests(segment.entries):
        store.delete([] if written is None else [written.key])
        offsets = f"{partition}, offsets {segment.base} to {segment.last}"
        message = f"{store.url}: {offsets}: its records do not match the digest in the head"
        raise UserError(message, hint="Restore its parts from a copy of the store; nothing was changed.")
    return written.as_segment(segment.entries, segment.epoch)


def read_parts(store: ObjectStore, entries: Iterable[Entry], partition: int) -> Iterator[pa.RecordBatch]:
    """Yield the records of parts in order."""
    for entry in entries:
        yield from read_part(store, entry, partition, OffsetRange(entry.base, entry.last + 1))


def merge_digests(entries: tuple[Entry, ...]) -> Digest:
    """Return the digest of neighbouring parts, relative to their first offset."""
    base = entries[0].base
    return sum((entry.digest.shift(entry.base - base) for entry in entries), Digest())
