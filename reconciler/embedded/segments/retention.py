"""Retention by time and size.

One swap raises a head's start; then unreferenced parts and pages are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from reconciler.archives.location import TopicTiering
from reconciler.archives.pages import iter_entries_within, read_page, read_pages
from reconciler.embedded.catalog.tiering_state import find_tiering
from reconciler.embedded.catalog.topic_configs import CONFIGS, find_explicit_configs, syncs_start_offsets
from reconciler.embedded.segments.head import Head, Partition, swap_head
from reconciler.lifecycles import TieringState
from reconciler.records.log import OffsetRange
from reconciler.resources.base import UNLIMITED
from reconciler.resources.tiering_policy import read_switches
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    from reconciler.archives.entries import Entry, PageRef
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.objectstore.base import ObjectStore


@dataclass(frozen=True, slots=True)
class SegmentLimits:
    """Limits that close a segment: stored bytes, and ms from its first to its newest record."""

    bytes: int
    ms: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Neighbouring parts of one leader epoch, oldest first."""

    entries: tuple[Entry, ...]
    is_closed: bool

    @property
    def base(self) -> int:
        """Offset of the first record."""
        return self.entries[0].base

    @property
    def last(self) -> int:
        """Offset of the last record."""
        return self.entries[-1].last

    @property
    def epoch(self) -> int:
        """Leader epoch."""
        return self.entries[0].epoch

    @property
    def bytes(self) -> int:
        """Stored bytes."""
        return sum(entry.bytes for entry in self.entries)

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(entry.digest.records for entry in self.entries)

    @property
    def min_ts(self) -> int:
        """Oldest record timestamp in ms."""
        return min(entry.min_ts for entry in self.entries)

    @property
    def max_ts(self) -> int:
        """Newest record timestamp in ms."""
        return max(entry.max_ts for entry in self.entries)

    @property
    def is_one_file(self) -> bool:
        """Whether one file already holds the segment."""
        return len(self.entries) == 1 and self.entries[0].is_segment


def iter_segments(entries: Iterable[Entry], limits: SegmentLimits) -> Iterator[Segment]:
    """Yield a partition's segments, oldest first. Only the last segment, which never expires, is open.

    A segment ends before a part that would exceed `segment.bytes`, is more than `segment.ms` younger than the first
    record, has another epoch, or is a whole segment. Closed segments never change.
    """
    run: list[Entry] = []
    size = 0
    for entry in entries:
        if run and not _extends_segment(run, size, entry, limits):
            yield Segment(tuple(run), is_closed=True)
            run, size = [], 0
        run.append(entry)
        size += entry.bytes
    if run:
        yield Segment(tuple(run), is_closed=False)


def _extends_segment(run: Sequence[Entry], size: int, entry: Entry, limits: SegmentLimits) -> bool:
    first = run[0]
    return (
        not (first.is_segment or entry.is_segment)
        and entry.epoch == first.epoch
        and size + entry.bytes <= limits.bytes
        and entry.max_ts - first.min_ts <= limits.ms
    )


@dataclass(frozen=True, slots=True)
class CleanupPolicy:
    """Topic configs for retention and compaction. Times are in ms."""

    limits: SegmentLimits
    deletes: bool
    compacts: bool
    retention_ms: int
    retention_bytes: int
    """Limit per partition; -1 means no limit, as in `retention_ms`."""
    min_dirty_ratio: float
    min_lag_ms: int
    max_lag_ms: int
    tombstones_ms: int
    tiering: TopicTiering | None = None
    is_upload_paused: bool = False

    @property
    def expires(self) -> bool:
        """Whether records can expire."""
        return self.deletes and (self.retention_ms >= 0 or self.retention_bytes >= 0)

    @property
    def has_retention(self) -> bool:
        """Whether retention applies to either tier."""
        return self.expires or self.tiering is not None

    @property
    def keeps_unuploaded(self) -> bool:
        """Whether records stay until they are uploaded (F-R-021)."""
        return self.is_upload_paused or (self.tiering is not None and self.tiering.uploads)

    @property
    def evicts(self) -> bool:
        """Whether uploaded records leave the local tier."""
        return self.tiering is not None and self.tiering.uploads


def read_cleanup_policy(catalog: Catalog, full_name: str, cluster_id: str) -> CleanupPolicy:
    """Return a topic's current cleanup policy."""
    configs = find_explicit_configs(catalog, full_name)

    def value(key: str) -> str:
        return configs[key][0] if key in configs else CONFIGS[key].default or ""

    kinds = value("cleanup.policy").split(",")
    compacts, segment_ms = "compact" in kinds, int(value("segment.ms"))
    max_lag_ms = int(value("max.compaction.lag.ms"))
    tiering = find_tiering(catalog, full_name, cluster_id)
    targets = None if tiering is None else tiering.targets
    return CleanupPolicy(
        # Compaction reads only closed segments, so `max.compaction.lag.ms` also limits how long one stays open.
        SegmentLimits(int(value("segment.bytes")), min(segment_ms, max_lag_ms) if compacts else segment_ms),
        # If a link syncs start offsets, the mirror expires no records itself.
        deletes="delete" in kinds and not syncs_start_offsets(catalog, catalog.topics[full_name]),
        compacts=compacts,
        # The total limits of a tiered topic are at least its local targets.
        retention_ms=int(value("retention.ms")) if targets is None else _limit_or_unlimited(targets.total_ms),
        retention_bytes=int(value("retention.bytes")) if targets is None else _limit_or_unlimited(targets.total_bytes),
        min_dirty_ratio=float(value("min.cleanable.dirty.ratio")),
        min_lag_ms=int(value("min.compaction.lag.ms")),
        max_lag_ms=max_lag_ms,
        tombstones_ms=int(value("delete.retention.ms")),
        tiering=tiering,
        is_upload_paused=tiering is not None and _are_uploads_paused(catalog, full_name, tiering),
    )


def _limit_or_unlimited(target: int | None) -> int:
    return UNLIMITED if target is None else target


def _are_uploads_paused(catalog: Catalog, full_name: str, tiering: TopicTiering) -> bool:
    is_writing = (
        tiering.state is TieringState.ENABLED and read_switches(find_explicit_configs(catalog, full_name)).write
    )
    return is_writing and not tiering.uploads and catalog.cluster.storage_id is not None


@dataclass(frozen=True, slots=True)
class ExpiryResult:
    """Result of retention, in stored bytes."""

    start: int
    segments: int = 0
    records: int = 0
    bytes: int = 0


def iter_expired(
    segments: Iterable[Segment], policy: CleanupPolicy, *, stored_bytes: int, stable: int, now_ms: int
) -> Iterator[Segment]:
    """Yield the segments that retention deletes, oldest first."""
    if not policy.expires:
        return
    left = stored_bytes
    for segment in takewhile(lambda segment: segment.is_closed and segment.last < stable, segments):
        is_old = policy.retention_ms != UNLIMITED and now_ms - segment.max_ts > policy.retention_ms
        is_above = policy.retention_bytes != UNLIMITED and left > policy.retention_bytes
        if not (is_old or is_above):
            return
        left -= segment.bytes
        yield segment


def find_next_expiry_ms(store: ObjectStore, head: Head, policy: CleanupPolicy) -> int | None:
    """Return when the oldest segment expires without new records; `None` means never."""
    if not policy.deletes or policy.retention_ms == UNLIMITED:
        return None
    oldest = next(iter_segments(iter_live_entries(store, head), policy.limits), None)
    return None if oldest is None or not oldest.is_closed else oldest.max_ts + policy.retention_ms + 1


def delete_expired(
    store: ObjectStore, partition: Partition, policy: CleanupPolicy, *, now_ms: int
) -> ExpiryResult | None:
    """Delete a partition's expired segments; return `None` if none."""
    done: ExpiryResult | None = None
    doomed: list[str] = []

    def cut(head: Head) -> Head | None:
        nonlocal done, doomed
        segments = iter_segments(iter_live_entries(store, head), policy.limits)
        stored = count_live_bytes(store, head)
        gone = list(iter_expired(segments, policy, stored_bytes=stored, stable=head.bounds.stable, now_ms=now_ms))
        if not gone:
            done = None
            return None
        done = ExpiryResult(
            gone[-1].last + 1,
            len(gone),
            sum(segment.records for segment in gone),
            sum(segment.bytes for segment in gone),
        )
        after, pages = with_raised_start(store, head, done.start)
        doomed = [entry.key for segment in gone for entry in segment.entries] + pages
        return after

    if not swap_head(store, partition, cut):
        return None
    store.delete(doomed)
    return done


def raise_start(store: ObjectStore, partition: Partition, start: int, limits: SegmentLimits) -> ExpiryResult | None:
    """Raise the log start, at most to the last stable offset, and delete local parts below it.

    Return `None` if the partition is sealed.
    """
    done: ExpiryResult | None = None
    doomed: list[str] = []

    def cut(head: Head) -> Head | None:
        nonlocal done
        doomed.clear()
        new = min(start, head.bounds.stable)
        done = ExpiryResult(max(new, head.start))
        if new <= head.start:
            return None
        gone = [entry for entry in iter_live_entries(store, head) if entry.last < new]
        own = [entry for entry in gone if entry.last >= head.uploaded_to]
        records = sum(entry.digest.records for entry in own)
        segments = len(list(iter_segments(own, limits)))
        done = ExpiryResult(new, segments, records, sum(entry.bytes for entry in gone))
        after, pages = with_raised_start(store, head, new)
        doomed.extend([*(entry.key for entry in gone), *pages])
        return after

    swap_head(store, partition, cut)
    store.delete(doomed)
    return done


def with_raised_start(store: ObjectStore, head: Head, start: int) -> tuple[Head, list[str]]:
    """Return the head with a later start, and keys of unreferenced pages."""
    pages, emptied = select_pages_from(store, head.pages, start)
    after = replace(
        head,
        start=start,
        local_start=max(head.local_start, start),
        pages=tuple(pages),
        entries=tuple(entry for entry in head.entries if entry.last >= start),
    )
    return after, emptied


def select_pages_from(store: ObjectStore, pages: Iterable[PageRef], start: int) -> tuple[list[PageRef], list[str]]:
    """Return the pages with offsets from `start` on, and the keys of all others.

    A page of pages across `start` is replaced by its pages.
    """
    remaining: list[PageRef] = []
    emptied: list[str] = []
    for page in pages:
        if page.base >= start or (page.level == 0 and page.last >= start):
            remaining.append(page)
        elif page.level == 0:
            emptied.append(page.key)
        elif page.last < start:
            emptied += [below.key for below in _walk_pages(store, page)]
        else:
            lower, gone = select_pages_from(store, read_pages(store, page), start)
            remaining += lower
            emptied += [*gone, page.key]
    return remaining, emptied


def _walk_pages(store: ObjectStore, page: PageRef) -> Iterator[PageRef]:
    for below in read_pages(store, page) if page.level else ():
        yield from _walk_pages(store, below)
    yield page


def iter_live_entries(store: ObjectStore, head: Head) -> Iterator[Entry]:
    """Yield the entries that readers see, oldest first."""
    return iter_entries_within(store, head, OffsetRange(head.start, head.end))


def count_live_bytes(store: ObjectStore, head: Head) -> int:
    """Return the stored bytes that readers see."""
    dead = [
        entry.bytes
        for page in _iter_leaf_pages_below(store, head.pages, head.start)
        for entry in read_page(store, page)
        if entry.last < head.start
    ]
    return head.stored_bytes - sum(dead)


def _iter_leaf_pages_below(store: ObjectStore, pages: Iterable[PageRef], start: int) -> Iterator[PageRef]:
    for page in pages:
        if page.base < start:
            if page.level:
                yield from _iter_leaf_pages_below(store, read_pages(store, page), start)
            else:
                yield page
