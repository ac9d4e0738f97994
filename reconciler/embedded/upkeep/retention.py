"""Retention: whole closed segments expire, oldest first, by time and by size; the open one never does.

The head's start is raised first, by one swap; then parts and emptied pages are deleted. A page that is cut in the
middle stays until all of it has expired.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from reconciler.embedded.partition.headswaps import swap_head
from reconciler.embedded.partition.pages import entries_within, read_page, read_pages
from reconciler.embedded.upkeep.cleanup import UNLIMITED
from reconciler.embedded.upkeep.segments import segments_of
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reconciler.embedded.partition.entries import Entry, PageRef
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.partition.headswaps import Partition
    from reconciler.embedded.upkeep.cleanup import CleanupPolicy
    from reconciler.embedded.upkeep.segments import Segment, SegmentLimits
    from reconciler.objectstore.base import ObjectStore


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
