"""Retention of tiered partitions: expiry, eviction, truncation.

Pages hold a manifest's oldest segments. A page is read only if some of its segments expire and others stay.
"""

from __future__ import annotations

import heapq
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Final

from reconciler.archives.entries import Entry, PageRef
from reconciler.archives.manifest import (
    Garbage,
    Manifest,
    ManifestSpill,
    ManifestSwap,
    RemotePartition,
    check_manifest_owner,
    delete_manifest_garbage,
    iter_object_keys,
    read_manifest,
    remote_partition,
)
from reconciler.archives.objects import retry_if_missing
from reconciler.archives.pages import iter_entries_within, read_page
from reconciler.embedded.segments.head import Head, PageWriter, Partition, read_head, swap_head
from reconciler.embedded.segments.parts import damaged_part_error, read_part
from reconciler.embedded.segments.retention import (
    CleanupPolicy,
    ExpiryResult,
    Segment,
    count_live_bytes,
    iter_expired,
    iter_live_entries,
    iter_segments,
    raise_start,
    select_pages_from,
    with_raised_start,
)
from reconciler.embedded.tiered.object_rewrites import SegmentWriter
from reconciler.embedded.tiered.remote_tier import RemoteTier, lacks_uploaded_records
from reconciler.records.log import OffsetRange
from reconciler.resources.base import UNLIMITED
from reconciler.resources.cluster_properties import read_property
from reconciler.runtime.dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from reconciler.archives.location import TopicTiering
    from reconciler.objectstore.base import ObjectStore


_MAX_INLINE_GARBAGE: Final = 64


@dataclass(frozen=True, slots=True)
class Expiry:
    """New start offset, and when more expires; `due_ms` is `None` if nothing does."""

    start: int
    due_ms: int | None = None


@dataclass(slots=True)
class _ExpiryWalk:
    policy: CleanupPolicy
    start: int
    now_ms: int
    left: int

    def expires(self, item: Entry | PageRef) -> bool:
        """Whether a segment or page expires; a segment across the size limit does (F-R-017)."""
        if item.last < self.start:
            return True
        if not self.policy.expires:
            return False
        is_old = self.policy.retention_ms != UNLIMITED and self.now_ms - item.max_ts > self.policy.retention_ms
        limit = self.policy.retention_bytes
        above = self.left - item.bytes + 1 if isinstance(item, PageRef) else self.left
        return is_old or (limit != UNLIMITED and above > limit)

    def stays_whole(self, page: PageRef) -> bool:
        if not self.policy.expires:
            return page.base >= self.start
        is_young = self.policy.retention_ms == UNLIMITED or self.now_ms - page.min_ts <= self.policy.retention_ms
        is_below = self.policy.retention_bytes == UNLIMITED or self.left <= self.policy.retention_bytes
        return page.base >= self.start and is_young and is_below

    def advance_past(self, item: Entry | PageRef) -> None:
        self.left -= item.bytes
        self.start = max(self.start, item.last + 1)

    def build_expiry(self, before_ms: int) -> Expiry:
        is_never = not self.policy.expires or self.policy.retention_ms == UNLIMITED
        return Expiry(self.start, None if is_never else before_ms + self.policy.retention_ms + 1)


def plan_expiry(
    manifest: Manifest, policy: CleanupPolicy, *, start: int, now_ms: int, read: Callable[[PageRef], Iterable[Entry]]
) -> Expiry:
    """Return the log start after total retention (F-R-016).

    Records below `start` always expire. `read` returns a page's entries.
    """
    walk = _ExpiryWalk(policy, start, now_ms, manifest.stored_bytes)
    for page in manifest.pages:
        if walk.expires(page):
            walk.advance_past(page)
            continue
        if walk.stays_whole(page):
            return walk.build_expiry(page.min_ts)
        for entry in read(page):
            if not walk.expires(entry):
                return walk.build_expiry(entry.max_ts)
            walk.advance_past(entry)
    for entry in manifest.entries:
        if not walk.expires(entry):
            return walk.build_expiry(entry.max_ts)
        walk.advance_past(entry)
    return Expiry(walk.start)


@dataclass(frozen=True, slots=True)
class ExpiredManifest:
    """A manifest whose expired segments became garbage; `pages` are keys of replaced pages."""

    manifest: Manifest
    segments: int
    records: int
    bytes: int
    pages: tuple[str, ...] = ()


def expire_below(storage: ObjectStore, manifest: Manifest, start: int, spill: ManifestSpill) -> ExpiredManifest | None:
    """Return the manifest without segments below `start`; `None` if none."""
    whole = [page for page in manifest.pages if page.last < start]
    pages = list(manifest.pages[len(whole) :])
    gone: list[Entry] = []
    emptied: tuple[str, ...] = ()
    if pages and pages[0].base < start:
        page_entries = read_page(storage, pages[0])
        gone = [entry for entry in page_entries if entry.last < start]
        if gone:
            emptied = (pages[0].key,)
            pages[:1] = _write_small_pages(page_entries[len(gone) :], spill)
    gone += [entry for entry in manifest.entries if entry.last < start]
    if not whole and not gone:
        return None
    after = replace(
        manifest,
        start=max(manifest.start, min(start, manifest.end)),
        pages=tuple(pages),
        entries=tuple(entry for entry in manifest.entries if entry.last >= start),
        garbage=add_garbage(manifest.garbage, whole, gone, spill),
    )
    return ExpiredManifest(
        after,
        manifest.segments - after.segments,
        manifest.records - after.records,
        manifest.stored_bytes - after.stored_bytes,
        emptied,
    )


def _write_small_pages(entries: Sequence[Entry], spill: ManifestSpill) -> list[PageRef]:
    pages: list[PageRef] = []
    at, count = 0, _MAX_INLINE_GARBAGE
    while at < len(entries):
        pages.append(spill.write_page(entries[at : at + count]))
        at, count = at + count, 2 * count
    return pages


def add_garbage(garbage: Garbage, pages: Sequence[PageRef], entries: Sequence[Entry], spill: ManifestSpill) -> Garbage:
    """Return the garbage with more pages and entries."""
    if len(entries) > _MAX_INLINE_GARBAGE:
        return Garbage((*garbage.pages, *pages, spill.write_page(entries)), garbage.entries)
    return Garbage((*garbage.pages, *pages), (*garbage.entries, *entries))


def must_truncate(manifest: Manifest, head: Head) -> bool:
    """Whether the manifest lacks the head's last truncation."""
    return manifest.epochs[-1][0] < head.last_truncation_epoch


def truncate_manifest(
    swap: ManifestSwap, place: RemotePartition, head: Head, *, makes: bool = False
) -> Manifest | None:
    """Truncate a manifest to its head's last truncation; return the current manifest.

    Uploads, expiry and compaction call this before they change a manifest. Segments above the new end become garbage;
    one across it is rewritten. `makes` creates a missing manifest, so an earlier upload cannot publish.

    Return `None` if the manifest is missing or has a newer tiered epoch.
    """
    manifest = read_manifest(swap.storage, place)
    if manifest is None and not makes:
        return None
    if manifest is not None and not must_truncate(manifest, head):
        return None if manifest.tiered_epoch > swap.tiering.epoch else manifest
    cut = _ManifestTruncation(swap, place, head)
    after = retry_if_missing(lambda: swap(place, cut))
    cut.delete_unreferenced(after)
    after = after or read_manifest(swap.storage, place)
    if after is None or must_truncate(after, head):
        return None
    delete_manifest_garbage(swap, place, after.garbage)
    return after


@dataclass
class _ManifestTruncation:
    swap: ManifestSwap
    place: RemotePartition
    head: Head
    _written: dict[str, Entry] = field(default_factory=dict)
    _opened: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._spill = ManifestSpill(self.swap.storage, self.place, self.swap.tiering.spill_bytes)

    def __call__(self, manifest: Manifest) -> Manifest | None:
        self._opened.clear()
        head = self.head
        if not must_truncate(manifest, head) or head.truncated is None:
            return None
        if not manifest.tiered_epoch:
            return replace(manifest, start=head.local_start, end=head.local_start, epochs=head.epochs)
        at = min(int(head.truncated["offset"]), manifest.end)
        floor = at if at > manifest.start else 0
        across = next((page for page in manifest.pages if page.base < floor <= page.last), None)
        named = (*(() if across is None else read_page(self.swap.storage, across)), *manifest.entries)
        if across is not None:
            self._opened.append(across.key)
        gone_pages = [page for page in manifest.pages if page.last >= floor and page is not across]
        gone = [entry for entry in named if entry.last >= floor]
        return replace(
            manifest,
            start=min(manifest.start, at),
            end=at,
            epochs=head.epochs,
            compacted_to=min(manifest.compacted_to, at),
            learned=manifest.learned if floor else (0, 0),  # Compaction may have removed older records below `at`.
            pages=tuple(page for page in manifest.pages if page.last < floor),
            entries=tuple(
                entry if entry.last < floor else self._write_below(entry, at) for entry in named if entry.base < floor
            ),
            garbage=add_garbage(manifest.garbage, gone_pages, gone, self._spill),
        )

    def _write_below(self, entry: Entry, at: int) -> Entry:
        written = self._written.get(entry.key)
        if written is None:
            storage, number = self.swap.storage, self.place.number
            writer = SegmentWriter(storage, self.place, entry.epoch, kms_key_id=entry.kms_key_id)
            entry_below = writer.write_one(read_part(storage, entry, number, OffsetRange(entry.base, at)))
            if entry_below is None:
                raise damaged_part_error(storage, entry, f"it has no record below offset {at}")
            written = self._written[entry.key] = replace(
                entry_below, epoch=entry.epoch, is_segment=True, horizon_ms=entry.horizon_ms
            )
        return written

    def delete_unreferenced(self, after: Manifest | None) -> None:
        named = set() if after is None else {entry.key for entry in after.entries}
        unnamed = [entry for entry in self._written.values() if entry.key not in named]
        superfluous = [] if after is None else self._opened
        self.swap.storage.delete([*self._spill.list_superfluous_pages(after), *superfluous, *iter_object_keys(unnamed)])


@dataclass(frozen=True, slots=True)
class EvictionCandidates:
    """Segments that the local tier may drop, oldest first."""

    segments: tuple[Segment, ...] = ()
    beyond: int = 0
    is_held: bool = False
    """Whether other segments exceed the targets, but differ from their remote copies."""


@dataclass(frozen=True, slots=True)
class EvictionResult:
    """Result of an eviction, in stored bytes."""

    local_start: int
    segments: int
    bytes: int


def build_local_policy(policy: CleanupPolicy) -> CleanupPolicy:
    """Return a policy whose limits are the topic's local targets."""
    targets = policy.tiering.targets if policy.tiering is not None else None
    local_ms = None if targets is None else targets.local_ms
    local_bytes = None if targets is None else targets.local_bytes
    return replace(
        policy,
        deletes=True,
        retention_ms=UNLIMITED if local_ms is None else local_ms,
        retention_bytes=UNLIMITED if local_bytes is None else local_bytes,
    )


def find_evictable_segments(
    store: ObjectStore, head: Head, policy: CleanupPolicy, same_below: Callable[[], int], *, now_ms: int
) -> EvictionCandidates:
    """Return the segments that the local tier may drop.

    They are closed and uploaded (F-R-021). In a compacted log the remote copy must be equal, since an older copy has
    records that compaction removed. `same_below` returns the offset below which both tiers are equal.
    """
    segments = iter_segments(iter_live_entries(store, head), policy.limits)
    copied = list(takewhile(lambda segment: segment.is_closed and segment.last < head.uploaded_to, segments))
    limits = build_local_policy(policy)
    beyond = list(
        iter_expired(copied, limits, stored_bytes=count_live_bytes(store, head), stable=head.uploaded_to, now_ms=now_ms)
    )
    if not copied or not (policy.compacts or head.compacted_to):
        return EvictionCandidates(tuple(copied), len(beyond))
    same = same_below()
    is_same = not policy.compacts and same >= head.compacted_to
    free = copied if is_same else [segment for segment in copied if segment.last < same]
    return EvictionCandidates(tuple(free), min(len(beyond), len(free)), is_held=len(beyond) > len(free))


def find_equal_end(store: ObjectStore, head: Head, storage: ObjectStore, manifest: Manifest) -> int:
    """Return the offset below which both tiers are equal."""
    remote = iter_entries_within(storage, manifest, OffsetRange(head.local_start, head.end))
    return find_first_differing_offset(iter_live_entries(store, head), remote, start=head.local_start)


def find_first_differing_offset(local: Iterable[Entry], remote: Iterable[Entry], *, start: int) -> int:
    """Return the offset below which offsets, digests and tombstone horizons are equal."""
    reached = start
    for mine, theirs in zip(local, remote, strict=False):
        # Remote compaction needs the tombstone horizons of evicted segments.
        ours = mine.base, mine.last, mine.digest, mine.horizon_ms
        if ours != (theirs.base, theirs.last, theirs.digest, theirs.horizon_ms):
            return max(reached, min(mine.base, theirs.base))
        reached = mine.last + 1
    return reached


def evict_segments(store: ObjectStore, partition: Partition, segments: Sequence[Segment]) -> EvictionResult | None:
    """Remove segments from the local tier by one swap, then delete their parts; return `None` if nothing changed.

    If another process replaced a part, it and all later ones stay.
    """
    chosen = {entry.key for segment in segments for entry in segment.entries}
    spill = PageWriter(store, partition.topic_id, partition.number)
    gone: list[Entry] = []
    emptied: list[str] = []
    remaining_pages: set[str] = set()

    def raise_local_start(head: Head) -> Head | None:
        entries = iter_live_entries(store, head)
        gone[:] = takewhile(lambda entry: entry.key in chosen and entry.last < head.uploaded_to, entries)
        remaining_pages.clear()
        if not gone:
            return None
        after, emptied[:] = _remove_local_entries(store, head, gone[-1].last + 1, spill)
        remaining_pages.update(page.key for page in after.pages)
        return after

    is_done = swap_head(store, partition, raise_local_start)
    unnamed = [key for key in spill.used_keys if not is_done or key not in remaining_pages]
    if not is_done:
        store.delete(unnamed)
        return None
    store.delete([*(entry.key for entry in gone), *emptied, *unnamed])
    last = gone[-1].last
    count = sum(segment.last <= last for segment in segments)
    return EvictionResult(last + 1, count, sum(entry.bytes for entry in gone))


def _remove_local_entries(
    store: ObjectStore, head: Head, local_start: int, spill: PageWriter
) -> tuple[Head, list[str]]:
    pages, emptied = select_pages_from(store, head.pages, local_start)
    if pages and pages[0].base < local_start:
        left = [entry for entry in read_page(store, pages[0]) if entry.last >= local_start]
        emptied.append(pages[0].key)
        pages[:1] = [spill.write_leaf(left)] if left else []
    entries = tuple(entry for entry in head.entries if entry.last >= local_start)
    return replace(head, local_start=local_start, pages=tuple(pages), entries=entries), emptied


_RETRY_MS: Final = 10 * 60_000
"""Retry interval while object storage lacks uploaded records."""


@dataclass(frozen=True, slots=True)
class TieredPartition:
    """A partition of a topic that was ever tiered.

    The head's start rises first, then the manifest's; then objects are deleted. Without uploads, remote segments expire
    first.
    """

    store: ObjectStore
    partition: Partition
    policy: CleanupPolicy
    tiering: TopicTiering
    remote: RemoteTier | None

    @property
    def place(self) -> RemotePartition:
        """Location in object storage."""
        return remote_partition(self.tiering.location, self.partition.number)

    def apply_retention(self, head: Head, *, now_ms: int) -> tuple[ExpiryResult | None, int | None]:
        """Apply retention; return the result, or when to check again in ms (`None`: never)."""
        uploaded_to = head.uploaded_to
        head, manifest = self.read_agreeing_state(head)
        total = self._plan_total_expiry(head, manifest, now_ms)
        gone = self.expire_to(head, manifest, total.start)
        if gone is not None:
            # The head read before may reference pages deleted since.
            newer_head = read_head(self.store, self.partition.topic_id, self.partition.number)
            if newer_head is None:
                return gone, None
            head, manifest = self.read_agreeing_state(newer_head)
        free = find_evictable_segments(
            self.store, head, self.policy, lambda: self.find_equal_end(head, manifest), now_ms=now_ms
        )
        evicted = evict_segments(self.store, self.partition, free.segments[: free.beyond]) if self._is_strict else None
        if gone is not None or evicted is not None:
            return _combine_results(head, gone, evicted), None
        local_ms = _find_next_local_expiry_ms(free.segments, self.policy) if self._is_strict else None
        if (self._is_strict and free.is_held) or head.uploaded_to < uploaded_to:
            local_ms = now_ms + _RETRY_MS
        return None, min((at for at in (total.due_ms, local_ms) if at is not None), default=None)

    def read_own_manifest(self) -> Manifest:
        """Return the current manifest; an empty one if it is missing."""
        current = None if self.remote is None else read_manifest(self.remote.storage, self.place)
        if current is None or self.remote is None:
            return Manifest(self.tiering.location.cluster_id)
        check_manifest_owner(self.place, current, self.remote.cluster_id)
        return current

    def read_agreeing_state(self, head: Head) -> tuple[Head, Manifest]:
        """Return the head, with `uploaded_to` limited to the manifest's end, and the manifest."""
        manifest = self.read_own_manifest()
        if self.remote is not None and must_truncate(manifest, head):
            settled = truncate_manifest(self._make_swap(self.remote), self.place, head)
            manifest = Manifest(manifest.owner) if settled is None else settled
        if self.remote is None or not lacks_uploaded_records(manifest, head):
            return head, manifest
        return replace(head, uploaded_to=manifest.end), Manifest(manifest.owner)

    def find_equal_end(self, head: Head, manifest: Manifest) -> int:
        """Return the offset below which both tiers are equal."""
        if self.remote is None:
            return head.local_start
        return find_equal_end(self.store, head, self.remote.storage, manifest)

    @property
    def _is_strict(self) -> bool:
        return self.policy.evicts and self.tiering.targets.is_strict

    def _plan_total_expiry(self, head: Head, manifest: Manifest, now_ms: int) -> Expiry:
        target = Expiry(head.start)
        if self.remote is not None:
            storage = self.remote.storage
            target = plan_expiry(
                manifest, self.policy, start=head.start, now_ms=now_ms, read=lambda page: read_page(storage, page)
            )
            # Remote records above `uploaded_to` may belong to another cluster's log.
            target = replace(target, start=min(target.start, max(head.start, head.uploaded_to)))
        return target if self.policy.keeps_unuploaded else self._plan_common_expiry(head, manifest, target, now_ms)

    def _plan_common_expiry(self, head: Head, manifest: Manifest, target: Expiry, now_ms: int) -> Expiry:
        left, _ = with_raised_start(self.store, head, max(head.start, target.start))
        stored = self._count_remote_bytes(manifest, target.start, head.local_start) + count_live_bytes(self.store, left)
        segments = list(self._iter_log(head, manifest, target.start, now_ms, stored))
        start = segments[-1].last + 1 if segments else target.start
        after = next(self._iter_segments(head, manifest, start), None)
        if not self.policy.expires or self.policy.retention_ms == UNLIMITED or after is None or not after.is_closed:
            return Expiry(start)
        return Expiry(start, after.max_ts + self.policy.retention_ms + 1)

    def _iter_log(self, head: Head, manifest: Manifest, start: int, now_ms: int, stored: int) -> Iterator[Segment]:
        segments = self._iter_segments(head, manifest, start)
        return iter_expired(segments, self.policy, stored_bytes=stored, stable=head.bounds.stable, now_ms=now_ms)

    def _iter_segments(self, head: Head, manifest: Manifest, start: int) -> Iterator[Segment]:
        storage = None if self.remote is None else self.remote.storage
        below = OffsetRange(start, max(start, head.local_start))
        remote = () if storage is None else iter_entries_within(storage, manifest, below)
        local = (entry for entry in iter_live_entries(self.store, head) if entry.last >= start)
        return chain(
            (Segment((entry,), is_closed=True) for entry in remote if below.length),
            iter_segments(local, self.policy.limits),
        )

    def _count_remote_bytes(self, manifest: Manifest, start: int, stop: int) -> int:
        total = 0
        for page in manifest.pages:
            if start <= page.base and page.last < stop:
                total += page.bytes
            elif self.remote is not None and page.last >= start and page.base < stop:
                entries = read_page(self.remote.storage, page)
                total += sum(entry.bytes for entry in entries if entry.last >= start and entry.base < stop)
        return total + sum(entry.bytes for entry in manifest.entries if entry.last >= start and entry.base < stop)

    def expire_to(self, head: Head, manifest: Manifest, start: int) -> ExpiryResult | None:
        """Raise the log start on both tiers and delete records below it; return `None` if nothing changed."""
        local = (
            raise_start(self.store, self.partition, start, self.policy.limits)
            if start > head.start
            else ExpiryResult(head.start)
        )
        if local is None:
            return None  # The process that sealed the head also changes the manifest.
        cut = self._expire_manifest(manifest, local.start)
        after = manifest if cut is None else cut.manifest
        is_purged = self.remote is not None and delete_manifest_garbage(
            self._make_swap(self.remote), self.place, after.garbage
        )
        if cut is None and not local.segments and not is_purged:
            return None
        taken = (0, 0, 0) if cut is None else (cut.segments, cut.records, cut.bytes)
        left = _sum_garbage(manifest) if is_purged else (0, 0, 0)
        return ExpiryResult(
            local.start,
            local.segments + taken[0] + left[0],
            local.records + taken[1] + left[1],
            local.bytes + taken[2] + left[2],
        )

    def _make_swap(self, remote: RemoteTier) -> ManifestSwap:
        return ManifestSwap(remote.storage, remote.cluster_id, self.tiering)

    def _expire_manifest(self, current: Manifest, start: int) -> ExpiredManifest | None:
        oldest: list[PageRef | Entry] = [*current.pages[:1], *current.entries[:1]]
        if self.remote is None or not any(item.base < start for item in oldest):
            return None
        storage = self.remote.storage
        spill = ManifestSpill(storage, self.place, self.tiering.spill_bytes)
        cut: ExpiredManifest | None = None

        def remove_expired(manifest: Manifest) -> Manifest | None:
            nonlocal cut
            cut = expire_below(storage, manifest, start, spill)
            return None if cut is None else cut.manifest

        after = self._make_swap(self.remote)(self.place, remove_expired)
        storage.delete([*spill.list_superfluous_pages(after), *(() if after is None or cut is None else cut.pages)])
        return None if after is None else cut


def _sum_garbage(manifest: Manifest) -> tuple[int, int, int]:
    """Return segments, records and bytes of garbage.

    Records count only if the manifest is empty; otherwise they were rewritten or already counted.
    """
    garbage = manifest.garbage
    is_emptied = not (manifest.pages or manifest.entries)
    segments = sum(page.entries for page in garbage.pages) + len(garbage.entries)
    records = sum(page.records for page in garbage.pages) + sum(entry.digest.records for entry in garbage.entries)
    stored = sum(page.bytes for page in garbage.pages) + sum(entry.bytes for entry in garbage.entries)
    return segments, records if is_emptied else 0, stored


def _combine_results(head: Head, gone: ExpiryResult | None, evicted: EvictionResult | None) -> ExpiryResult:
    expired_part = ExpiryResult(head.start) if gone is None else gone
    if evicted is None:
        return expired_part
    return ExpiryResult(
        expired_part.start,
        expired_part.segments + evicted.segments,
        expired_part.records,
        expired_part.bytes + evicted.bytes,
    )


def _find_next_local_expiry_ms(segments: tuple[Segment, ...], policy: CleanupPolicy) -> int | None:
    limit = build_local_policy(policy).retention_ms
    return None if limit == UNLIMITED or not segments else segments[0].max_ts + limit + 1


_FOLDER: Final = "file://"
_WHOLE: Final = 100.0


def measure_disk_under(store: ObjectStore) -> int | None:
    """Return the size of a store's disk in bytes; `None` without a disk."""
    if not store.url.startswith(_FOLDER):
        return None
    return shutil.disk_usage(store.url.removeprefix(_FOLDER)).total


def read_local_capacity(properties: Mapping[str, str], disk_bytes: int | None) -> int | None:
    """Return the capacity for local data in bytes (F-R-024); `None` means no limit.

    The smaller target applies. The default percentage leaves space for the cache and a reserve (F-R-025).
    """
    limits: list[int] = []
    in_bytes = read_property(properties, "retention_local_target_capacity_bytes")
    if in_bytes is not None:
        limits.append(int(in_bytes))
    if disk_bytes is not None:
        limits.append(int(disk_bytes * _read_percent(properties) / _WHOLE))
    return min(limits, default=None)


def _read_percent(properties: Mapping[str, str]) -> float:
    percent = read_property(properties, "retention_local_target_capacity_percent")
    if percent is not None:
        return float(percent)
    taken = ("cloud_storage_cache_size_percent", "disk_reservation_percent")
    return max(0.0, _WHOLE - sum(float(read_property(properties, name) or 0) for name in taken))


def plan_evictions(candidates: Sequence[EvictionCandidates], excess: int) -> list[int]:
    """Return how many segments to evict per partition to free `excess` bytes.

    Those beyond their local target go first, then the oldest.
    """
    counts = [0] * len(candidates)
    waiting = [_rank(candidate, 0, number) for number, candidate in enumerate(candidates) if candidate.segments]
    heapq.heapify(waiting)
    while waiting and excess > 0:
        *_, number = heapq.heappop(waiting)
        candidate = candidates[number]
        excess -= candidate.segments[counts[number]].bytes
        counts[number] += 1
        if counts[number] < len(candidate.segments):
            heapq.heappush(waiting, _rank(candidate, counts[number], number))
    return counts


def _rank(one: EvictionCandidates, at: int, number: int) -> tuple[bool, int, int]:
    return at >= one.beyond, one.segments[at].max_ts, number
