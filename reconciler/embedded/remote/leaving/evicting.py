"""Eviction: what object storage has too leaves the local tier, oldest first; where the log begins stays.

Only closed segments go, and only what is uploaded: what is not stays, even past its retention (F-R-021). Where keys
are compacted, both copies must be the same, for a reader goes from one to the other: an older copy has records again
that were compacted away.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from reconciler.embedded.partition.headswaps import swap_head
from reconciler.embedded.partition.pages import entries_within, read_page
from reconciler.embedded.partition.spilling import Spill
from reconciler.embedded.upkeep.cleanup import UNLIMITED
from reconciler.embedded.upkeep.retention import expired, live_bytes, live_entries, pages_from
from reconciler.embedded.upkeep.segments import segments_of
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.partition.headswaps import Partition
    from reconciler.embedded.remote.manifests.manifest import Manifest
    from reconciler.embedded.upkeep.cleanup import CleanupPolicy
    from reconciler.embedded.upkeep.segments import Segment
    from reconciler.objectstore.base import ObjectStore


@dataclass(frozen=True, slots=True)
class Evictable:
    """The closed segments of a partition that may leave the local tier, oldest first."""

    segments: tuple[Segment, ...] = ()
    beyond: int = 0
    """So many of them, the first, are beyond the local targets."""
    is_held: bool = False
    """Whether more would be beyond the targets, and its copy in object storage is another one."""


@dataclass(frozen=True, slots=True)
class Evicted:
    """What left the local tier of a partition; bytes are stored bytes."""

    local_start: int
    segments: int
    bytes: int


def local_policy(policy: CleanupPolicy) -> CleanupPolicy:
    """Return a tiered topic's policy with its local targets for limits."""
    targets = policy.tiering.targets if policy.tiering is not None else None
    local_ms = None if targets is None else targets.local_ms
    local_bytes = None if targets is None else targets.local_bytes
    return replace(
        policy,
        deletes=True,
        retention_ms=UNLIMITED if local_ms is None else local_ms,
        retention_bytes=UNLIMITED if local_bytes is None else local_bytes,
    )


def evictable(
    store: ObjectStore, head: Head, policy: CleanupPolicy, same_below: Callable[[], int], *, now_ms: int
) -> Evictable:
    """Look at what may leave the local tier of a partition.

    `same_below` tells up to which offset both tiers hold the same; it is asked only where keys were ever compacted.
    """
    segments = segments_of(live_entries(store, head), policy.limits)
    copied = list(takewhile(lambda segment: segment.is_closed and segment.last < head.uploaded_to, segments))
    limits = local_policy(policy)
    beyond = list(expired(copied, limits, stored_bytes=live_bytes(store, head), stable=head.uploaded_to, now_ms=now_ms))
    if not copied or not (policy.compacts or head.compacted_to):
        return Evictable(tuple(copied), len(beyond))
    same = same_below()
    free = [segment for segment in copied if segment.last < same]
    return Evictable(tuple(free), min(len(beyond), len(free)), is_held=len(beyond) > len(free))


def same_below(store: ObjectStore, head: Head, storage: ObjectStore, manifest: Manifest) -> int:
    """Return the offset below which both tiers hold the same from the local start on, entry by entry."""
    remote = entries_within(storage, manifest, OffsetRange(head.local_start, head.end))
    return agreeing_to(live_entries(store, head), remote, start=head.local_start)


def agreeing_to(local: Iterable[Entry], remote: Iterable[Entry], *, start: int) -> int:
    """Return how far entries are the same from `start` on: base, last, digest, and when tombstones may go. Pure."""
    reached = start
    for mine, theirs in zip(local, remote, strict=False):
        if (mine.base, mine.last, mine.digest) != (theirs.base, theirs.last, theirs.digest):
            break
        if mine.horizon_ms != theirs.horizon_ms:
            break  # Compaction goes by it where the segment lies in object storage alone.
        reached = mine.last + 1
    return reached


def evict(store: ObjectStore, partition: Partition, segments: Sequence[Segment]) -> Evicted | None:
    """Let segments leave the local tier by one swap, then delete their parts; `None`: others were faster.

    What others put in the place of a part meanwhile stays, with all that lies behind it.

    Raises:
        MissingObjectError: A page is not there.
        LostRaceError: Others were faster every time.
    """
    chosen = {entry.key for segment in segments for entry in segment.entries}
    spill = Spill(store, partition.topic_id, partition.number)
    gone: list[Entry] = []
    emptied: list[str] = []
    kept: set[str] = set()

    def raised_locally(head: Head) -> Head | None:
        found = live_entries(store, head)
        gone[:] = takewhile(lambda entry: entry.key in chosen and entry.last < head.uploaded_to, found)
        kept.clear()
        if not gone:
            return None
        after, emptied[:] = _without_local(store, head, gone[-1].last + 1, spill)
        kept.update(page.key for page in after.pages)
        return after

    is_done = swap_head(store, partition, raised_locally)
    unnamed = [key for key in spill.keys if not is_done or key not in kept]
    if not is_done:
        store.delete(unnamed)
        return None
    store.delete([*(entry.key for entry in gone), *emptied, *unnamed])
    last = gone[-1].last
    count = sum(segment.last <= last for segment in segments)
    return Evicted(last + 1, count, sum(entry.bytes for entry in gone))


def _without_local(store: ObjectStore, head: Head, local_start: int, spill: Spill) -> tuple[Head, list[str]]:
    """Return a head whose local tier begins later, and the keys of the pages it names no more.

    A page that is cut is written anew: below the local start a head names nothing.
    """
    pages, emptied = pages_from(store, head.pages, local_start)
    if pages and pages[0].base < local_start:
        left = [entry for entry in read_page(store, pages[0]) if entry.last >= local_start]
        emptied.append(pages[0].key)
        pages[:1] = [spill.leaf(left)] if left else []
    entries = tuple(entry for entry in head.entries if entry.last >= local_start)
    return replace(head, local_start=local_start, pages=tuple(pages), entries=entries), emptied
