"""Retention and cleanup of segments by time and size. Pure.

The head's start is raised first, by one swap; then parts and emptied pages are deleted. A page that is cut in the
middle stays until all of it has expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from reconciler.archives.location import Tiering
from reconciler.archives.pages import entries_within, read_page, read_pages
from reconciler.embedded.catalog.tiering_state import tiering_of
from reconciler.embedded.catalog.topic_configs import CONFIGS, follows_starts, set_configs
from reconciler.embedded.segments.head import Head, Partition, swap_head
from reconciler.lifecycles import TieringState
from reconciler.records.log import OffsetRange
from reconciler.resources.base import UNLIMITED
from reconciler.resources.tiering_policy import switches_in

if TYPE_CHECKING:
    from reconciler.archives.entries import Entry, PageRef
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.objectstore.base import ObjectStore


# Segments: a partition's parts as runs of one epoch, each of which closes for good. Pure.
#
# A run closes when the next part would take it past `segment.bytes` of stored bytes, when that part's newest record is
# more than `segment.ms` younger than the run's first, when it is of another epoch, and where one file holds all of a
# run already. The last one is open whatever its age or size: it grows, and nothing in it expires.


@dataclass(frozen=True, slots=True)
class SegmentLimits:
    """What closes a segment: stored bytes, and ms between the times of its first and its newest record."""

    bytes: int
    ms: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of parts of one epoch, oldest first, at least one."""

    entries: tuple[Entry, ...]
    is_closed: bool

    @property
    def base(self) -> int:
        """Its first offset that has a record."""
        return self.entries[0].base

    @property
    def last(self) -> int:
        """Its last offset that has a record."""
        return self.entries[-1].last

    @property
    def epoch(self) -> int:
        """The epoch all of it was written in."""
        return self.entries[0].epoch

    @property
    def bytes(self) -> int:
        """What its parts take in the store."""
        return sum(entry.bytes for entry in self.entries)

    @property
    def records(self) -> int:
        """How many records it holds."""
        return sum(entry.digest.records for entry in self.entries)

    @property
    def min_ts(self) -> int:
        """The time of its oldest record."""
        return min(entry.min_ts for entry in self.entries)

    @property
    def max_ts(self) -> int:
        """The time of its newest record."""
        return max(entry.max_ts for entry in self.entries)

    @property
    def is_one_file(self) -> bool:
        """Tell whether it was made one file: such a segment is taken over as it is."""
        return len(self.entries) == 1 and self.entries[0].is_segment


def segments_of(entries: Iterable[Entry], limits: SegmentLimits) -> Iterator[Segment]:
    """Yield the segments of a partition's parts, oldest first, reading no further than asked; only the last is open.

    Where a run begins depends on the parts before it alone, so a closed segment stays what it is while the log grows,
    and when older segments expire or are made one file.
    """
    run: list[Entry] = []
    size = 0
    for entry in entries:
        if run and not _joins(run, size, entry, limits):
            yield Segment(tuple(run), is_closed=True)
            run, size = [], 0
        run.append(entry)
        size += entry.bytes
    if run:
        yield Segment(tuple(run), is_closed=False)


def _joins(run: Sequence[Entry], size: int, entry: Entry, limits: SegmentLimits) -> bool:
    first = run[0]
    return (
        not (first.is_segment or entry.is_segment)
        and entry.epoch == first.epoch
        and size + entry.bytes <= limits.bytes
        and entry.max_ts - first.min_ts <= limits.ms
    )


# What a topic's configs ask of upkeep: when its segments close, expire and are compacted.


@dataclass(frozen=True, slots=True)
class CleanupPolicy:
    """The effective configs of a topic that decide what becomes of its old records. Times in ms."""

    limits: SegmentLimits
    deletes: bool
    compacts: bool
    retention_ms: int
    retention_bytes: int
    """Of each partition; -1, as in `retention_ms`: no limit."""
    min_dirty_ratio: float
    min_lag_ms: int
    max_lag_ms: int
    tombstones_ms: int
    """How long tombstones stay after they were first cleaned."""
    tiering: Tiering | None = None
    """Of a topic that is, or was, tiered."""
    is_pausing: bool = False
    """Whether its uploads pause, and go on one day: what is not uploaded waits for them."""

    @property
    def expires(self) -> bool:
        """Tell whether records of this topic ever expire."""
        return self.deletes and (self.retention_ms >= 0 or self.retention_bytes >= 0)

    @property
    def is_bounded(self) -> bool:
        """Tell whether retention has anything to do with it: expiry, on either tier, or what was to be deleted."""
        return self.expires or self.tiering is not None

    @property
    def waits(self) -> bool:
        """Tell whether what is not uploaded stays, however old it is (F-R-021)."""
        return self.is_pausing or (self.tiering is not None and self.tiering.uploads)

    @property
    def evicts(self) -> bool:
        """Tell whether what is uploaded leaves the local tier once it is beyond the local targets."""
        return self.tiering is not None and self.tiering.uploads


def cleanup_policy(catalog: Catalog, full_name: str, cluster_id: str) -> CleanupPolicy:
    """Return what holds for a topic of the cluster `cluster_id` now."""
    found = set_configs(catalog, full_name)

    def value(key: str) -> str:
        return found[key][0] if key in found else CONFIGS[key].default or ""

    kinds = value("cleanup.policy").split(",")
    compacts, segment_ms = "compact" in kinds, int(value("segment.ms"))
    max_lag_ms = int(value("max.compaction.lag.ms"))
    tiering = tiering_of(catalog, full_name, cluster_id)
    targets = None if tiering is None else tiering.targets
    return CleanupPolicy(
        # What must be compacted by a time must be closed by then.
        SegmentLimits(int(value("segment.bytes")), min(segment_ms, max_lag_ms) if compacts else segment_ms),
        # Of a mirror that begins where its source does, whoever copies it lets go of what expired there.
        deletes="delete" in kinds and not follows_starts(catalog, catalog.topics[full_name]),
        compacts=compacts,
        # A tiered topic's rules may raise its total to what it keeps locally.
        retention_ms=int(value("retention.ms")) if targets is None else _limit(targets.total_ms),
        retention_bytes=int(value("retention.bytes")) if targets is None else _limit(targets.total_bytes),
        min_dirty_ratio=float(value("min.cleanable.dirty.ratio")),
        min_lag_ms=int(value("min.compaction.lag.ms")),
        max_lag_ms=max_lag_ms,
        tombstones_ms=int(value("delete.retention.ms")),
        tiering=tiering,
        is_pausing=tiering is not None and _is_pausing(catalog, full_name, tiering),
    )


def _limit(target: int | None) -> int:
    return UNLIMITED if target is None else target


def _is_pausing(catalog: Catalog, full_name: str, tiering: Tiering) -> bool:
    is_writing = tiering.state is TieringState.ENABLED and switches_in(set_configs(catalog, full_name)).write
    return is_writing and not tiering.uploads and catalog.cluster.storage_id is not None


@dataclass(frozen=True, slots=True)
class Expired:
    """What retention took from one partition; bytes are stored bytes."""

    start: int
    """Where the log begins now."""
    segments: int = 0
    records: int = 0
    bytes: int = 0


def expired(
    segments: Iterable[Segment], policy: CleanupPolicy, *, stored_bytes: int, stable: int, now_ms: int
) -> Iterator[Segment]:
    """Yield the segments that may go, oldest first: those too old, and those above the limit of bytes. Pure.

    Whichever limit removes more decides; what is left is above `retention.bytes` only where the open segment is.
    """
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


def next_expiry_ms(store: ObjectStore, head: Head, policy: CleanupPolicy) -> int | None:
    """Return when the oldest segment will be too old if nothing is written until then; `None`: never."""
    if not policy.deletes or policy.retention_ms == UNLIMITED:
        return None
    oldest = next(segments_of(live_entries(store, head), policy.limits), None)
    return None if oldest is None or not oldest.is_closed else oldest.max_ts + policy.retention_ms + 1


def retain(store: ObjectStore, partition: Partition, policy: CleanupPolicy, *, now_ms: int) -> Expired | None:
    """Delete what has expired of one partition; `None`: nothing has.

    Raises:
        MissingObjectError: A page is not there.
        LostRaceError: Others were faster every time.
    """
    done: Expired | None = None
    doomed: list[str] = []

    def cut(head: Head) -> Head | None:
        nonlocal done, doomed
        segments = segments_of(live_entries(store, head), policy.limits)
        stored = live_bytes(store, head)
        gone = list(expired(segments, policy, stored_bytes=stored, stable=head.bounds.stable, now_ms=now_ms))
        if not gone:
            done = None
            return None
        done = Expired(
            gone[-1].last + 1,
            len(gone),
            sum(segment.records for segment in gone),
            sum(segment.bytes for segment in gone),
        )
        after, pages = raised(store, head, done.start)
        doomed = [entry.key for segment in gone for entry in segment.entries] + pages
        return after

    if not swap_head(store, partition, cut):
        return None
    store.delete(doomed)
    return done


def raise_start(store: ObjectStore, partition: Partition, start: int, limits: SegmentLimits) -> Expired | None:
    """Let a log begin at `start`, as far as it is stable, then delete the local parts below; `None`: it is sealed.

    A record that object storage has too is counted with its manifest.

    Raises:
        MissingObjectError: A page is not there.
        LostRaceError: Others were faster every time.
    """
    done: Expired | None = None
    doomed: list[str] = []

    def cut(head: Head) -> Head | None:
        nonlocal done
        doomed.clear()
        new = min(start, head.bounds.stable)
        done = Expired(max(new, head.start))
        if new <= head.start:
            return None
        gone = [entry for entry in live_entries(store, head) if entry.last < new]
        own = [entry for entry in gone if entry.last >= head.uploaded_to]
        records = sum(entry.digest.records for entry in own)
        segments = len(list(segments_of(own, limits)))
        done = Expired(new, segments, records, sum(entry.bytes for entry in gone))
        after, pages = raised(store, head, new)
        doomed.extend([*(entry.key for entry in gone), *pages])
        return after

    swap_head(store, partition, cut)
    store.delete(doomed)
    return done


def raised(store: ObjectStore, head: Head, start: int) -> tuple[Head, list[str]]:
    """Return a head whose log begins later, and the keys of the pages it names no more, a page after those below it."""
    pages, emptied = pages_from(store, head.pages, start)
    after = replace(
        head,
        start=start,
        local_start=max(head.local_start, start),
        pages=tuple(pages),
        entries=tuple(entry for entry in head.entries if entry.last >= start),
    )
    return after, emptied


def pages_from(store: ObjectStore, pages: Iterable[PageRef], start: int) -> tuple[list[PageRef], list[str]]:
    """Return the pages that hold something from `start` on, and the keys of those that do not.

    A page of pages that is cut gives place to what it names; a page of entries that is cut stays.
    """
    kept: list[PageRef] = []
    emptied: list[str] = []
    for page in pages:
        if page.base >= start or (page.level == 0 and page.last >= start):
            kept.append(page)
        elif page.level == 0:
            emptied.append(page.key)
        elif page.last < start:
            emptied += [below.key for below in _all_below(store, page)]
        else:
            lower, gone = pages_from(store, read_pages(store, page), start)
            kept += lower
            emptied += [*gone, page.key]
    return kept, emptied


def _all_below(store: ObjectStore, page: PageRef) -> Iterator[PageRef]:
    for below in read_pages(store, page) if page.level else ():
        yield from _all_below(store, below)
    yield page


def live_entries(store: ObjectStore, head: Head) -> Iterator[Entry]:
    """Yield the entries a reader can see, oldest first; pages are read one by one, as far as asked."""
    return entries_within(store, head, OffsetRange(head.start, head.end))


def live_bytes(store: ObjectStore, head: Head) -> int:
    """Return what the parts that a reader can see take in the store."""
    dead = [
        entry.bytes
        for page in _cut_pages(store, head.pages, head.start)
        for entry in read_page(store, page)
        if entry.last < head.start
    ]
    return head.stored_bytes - sum(dead)


def _cut_pages(store: ObjectStore, pages: Iterable[PageRef], start: int) -> Iterator[PageRef]:
    for page in pages:
        if page.base < start:
            if page.level:
                yield from _cut_pages(store, read_pages(store, page), start)
            else:
                yield page
