"""Retention of tiered partitions: local and total, expiry, eviction, truncation.

What the manifest has spilled comes first, a page at a time; a page of which nothing or everything goes is not read.
"""

from __future__ import annotations

import heapq
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Final

from reconciler.archives.entries import Entry, PageRef
from reconciler.archives.manifest import (
    Garbage,
    Manifest,
    ManifestSpill,
    ManifestSwap,
    RemotePartition,
    check_own,
    objects_of,
    purge,
    read_manifest,
    remote_partition,
)
from reconciler.archives.objects import look_again
from reconciler.archives.pages import entries_within, read_page
from reconciler.embedded.segments.head import Head, Partition, Spill, read_head, swap_head
from reconciler.embedded.segments.parts import damaged_part, read_part
from reconciler.embedded.segments.retention import (
    CleanupPolicy,
    Expired,
    Segment,
    expired,
    live_bytes,
    live_entries,
    pages_from,
    raise_start,
    raised,
    segments_of,
)
from reconciler.embedded.tiered.object_rewrites import SegmentWriter
from reconciler.embedded.tiered.remote_tier import RemoteTier, is_behind
from reconciler.records.log import OffsetRange
from reconciler.resources.base import UNLIMITED
from reconciler.resources.cluster_properties import property_of

if TYPE_CHECKING:
    from reconciler.archives.location import Tiering
    from reconciler.objectstore.base import ObjectStore


_FEW: Final = 64
"""Entries that a manifest names as garbage itself; more go to a page."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """Where the log is to begin, and when, with nothing uploaded until then, more goes by age (`None`: never)."""

    start: int
    due_ms: int | None = None


@dataclass(slots=True)
class _Walk:
    """How far the walk has come: what was left behind, what is left."""

    policy: CleanupPolicy
    start: int
    now_ms: int
    left: int
    """Stored bytes from here on."""

    def goes(self, lying: Entry | PageRef) -> bool:
        """Tell whether all of it goes. The segment that crosses the limit of bytes goes too (F-R-017)."""
        if lying.last < self.start:
            return True
        if not self.policy.expires:
            return False
        is_old = self.policy.retention_ms != UNLIMITED and self.now_ms - lying.max_ts > self.policy.retention_ms
        limit = self.policy.retention_bytes
        # A page goes as a whole where even its last segment, whatever that is, would still go.
        above = self.left - lying.bytes + 1 if isinstance(lying, PageRef) else self.left
        return is_old or (limit != UNLIMITED and above > limit)

    def stays(self, page: PageRef) -> bool:
        """Tell whether nothing of a page goes, as far as is known without reading it."""
        if not self.policy.expires:
            return page.base >= self.start
        is_young = self.policy.retention_ms == UNLIMITED or self.now_ms - page.min_ts <= self.policy.retention_ms
        is_below = self.policy.retention_bytes == UNLIMITED or self.left <= self.policy.retention_bytes
        return page.base >= self.start and is_young and is_below

    def pass_by(self, lying: Entry | PageRef) -> None:
        """Leave it behind."""
        self.left -= lying.bytes
        self.start = max(self.start, lying.last + 1)

    def ended(self, before_ms: int) -> Expiry:
        """Say where it ended: at what has no record older than `before_ms`."""
        is_never = not self.policy.expires or self.policy.retention_ms == UNLIMITED
        return Expiry(self.start, None if is_never else before_ms + self.policy.retention_ms + 1)


def expiry(
    manifest: Manifest,
    policy: CleanupPolicy,
    *,
    start: int,
    now_ms: int,
    read: Callable[[PageRef], Iterable[Entry]],
) -> Expiry:
    """Return where the log begins once the total retention was held to: it may leave nothing (F-R-016).

    `start` is where it begins now: what lies below it goes whatever the policy says. `read` opens a spilled page.
    """
    walk = _Walk(policy, start, now_ms, manifest.stored_bytes)
    for page in manifest.pages:
        if walk.goes(page):
            walk.pass_by(page)
            continue
        if walk.stays(page):
            return walk.ended(page.min_ts)
        for entry in read(page):
            if not walk.goes(entry):
                return walk.ended(entry.max_ts)
            walk.pass_by(entry)
    for entry in manifest.entries:
        if not walk.goes(entry):
            return walk.ended(entry.max_ts)
        walk.pass_by(entry)
    return Expiry(walk.start)


@dataclass(frozen=True, slots=True)
class ExpiredManifest:
    """A manifest without what expired, which is garbage now; `pages` are the keys of those that were written anew."""

    manifest: Manifest
    segments: int
    records: int
    bytes: int
    pages: tuple[str, ...] = ()


def cut_below(storage: ObjectStore, manifest: Manifest, start: int, spill: ManifestSpill) -> ExpiredManifest | None:
    """Return the manifest without the segments that end below `start`; `None`: it names none.

    Raises:
        MissingObjectError: A page is not there.
    """
    whole = [page for page in manifest.pages if page.last < start]
    pages = list(manifest.pages[len(whole) :])
    gone: list[Entry] = []
    emptied: tuple[str, ...] = ()
    if pages and pages[0].base < start:
        found = read_page(storage, pages[0])
        gone = [entry for entry in found if entry.last < start]
        if gone:
            emptied = (pages[0].key,)
            pages[:1] = _reopened(found[len(gone) :], spill)
    gone += [entry for entry in manifest.entries if entry.last < start]
    if not whole and not gone:
        return None
    after = replace(
        manifest,
        start=max(manifest.start, min(start, manifest.end)),
        pages=tuple(pages),
        entries=tuple(entry for entry in manifest.entries if entry.last >= start),
        garbage=marked(manifest.garbage, whole, gone, spill),
    )
    return ExpiredManifest(
        after,
        manifest.segments - after.segments,
        manifest.records - after.records,
        manifest.stored_bytes - after.stored_bytes,
        emptied,
    )


def _reopened(entries: Sequence[Entry], spill: ManifestSpill) -> list[PageRef]:
    """Write what is left of a page, the oldest apart: what is cut next is small, however large the page was."""
    pages: list[PageRef] = []
    at, count = 0, _FEW
    while at < len(entries):
        pages.append(spill.page(entries[at : at + count]))
        at, count = at + count, 2 * count
    return pages


def marked(garbage: Garbage, pages: Sequence[PageRef], entries: Sequence[Entry], spill: ManifestSpill) -> Garbage:
    """Return garbage with more that a manifest names no longer; of many entries a page is made."""
    if len(entries) > _FEW:
        return Garbage((*garbage.pages, *pages, spill.page(entries)), garbage.entries)
    return Garbage((*garbage.pages, *pages), (*garbage.entries, *entries))


# The remote end of a log that was cut: the manifest follows its head, which says where, and in which epoch.
#
# The head is cut first: below its local start a reader takes of the manifest only what lies below the head's end, so
# nobody sees what is named above it. Until the manifest knows of the epoch that began with the cut, nothing of it above
# the cut counts: whoever uploads, expires or compacts settles it first. Segments above become garbage, the one across
# is written anew. A manifest that knows a newer epoch than whoever would add to it was cut meanwhile: nothing is added.


def is_uncut(manifest: Manifest, head: Head) -> bool:
    """Tell whether a head was cut and its manifest does not know yet."""
    return manifest.epochs[-1][0] < head.truncated_in


def settle(swap: ManifestSwap, place: RemotePartition, head: Head, *, makes: bool = False) -> Manifest | None:
    """Let the manifest end where its head was cut, where it does not know yet; return it as it is then.

    Where there is none it is made if it `makes` one: an upload that began before would name its segments there.
    `None`: there is none, or who knows a newer tiering than ours is at it.

    Raises:
        MissingObjectError: A segment or page is not there.
        OwnershipLostError: The partition belongs to another cluster now.
        LostRaceError: Others were faster every time.
    """
    found = read_manifest(swap.storage, place)
    if found is None and not makes:
        return None
    if found is not None and not is_uncut(found, head):
        return None if found.tiered_epoch > swap.tiering.epoch else found
    cut = _RemoteCut(swap, place, head)
    after = look_again(lambda: swap(place, cut))
    cut.clear(after)
    after = after or read_manifest(swap.storage, place)
    if after is None or is_uncut(after, head):
        return None
    purge(swap, place, after.garbage)
    return after


@dataclass
class _RemoteCut:
    """Cuts a manifest, decided anew after a lost race, which reuses what was written."""

    swap: ManifestSwap
    place: RemotePartition
    head: Head
    _written: dict[str, Entry] = field(default_factory=dict)
    _opened: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Write pages of garbage where there is much."""
        self._spill = ManifestSpill(self.swap.storage, self.place, self.swap.tiering.spill_bytes)

    def __call__(self, manifest: Manifest) -> Manifest | None:
        """Return the manifest without what was cut; `None`: it knows already."""
        self._opened.clear()
        head = self.head
        if not is_uncut(manifest, head) or head.truncated is None:
            return None
        if not manifest.tiered_epoch:
            return replace(manifest, start=head.local_start, end=head.local_start, epochs=head.epochs)
        at = min(int(head.truncated["offset"]), manifest.end)
        floor = at if at > manifest.start else 0  # Of a segment that the log's start cut, all goes.
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
            learned=manifest.learned if floor else (0, 0),  # While anything is left, whoever cuts looks at it.
            pages=tuple(page for page in manifest.pages if page.last < floor),
            entries=tuple(
                entry if entry.last < floor else self._below(entry, at) for entry in named if entry.base < floor
            ),
            garbage=marked(manifest.garbage, gone_pages, gone, self._spill),
        )

    def _below(self, entry: Entry, at: int) -> Entry:
        """Write what a segment has below the cut, under the key it lies under."""
        written = self._written.get(entry.key)
        if written is None:
            storage, number = self.swap.storage, self.place.number
            writer = SegmentWriter(storage, self.place, entry.epoch, kms_key_id=entry.kms_key_id)
            found = writer.write_one(read_part(storage, entry, number, OffsetRange(entry.base, at)))
            if found is None:
                raise damaged_part(storage, entry, f"it has no record below offset {at}")
            written = self._written[entry.key] = replace(
                found, epoch=entry.epoch, is_segment=True, horizon_ms=entry.horizon_ms
            )
        return written

    def clear(self, after: Manifest | None) -> None:
        """Delete what no process names now that the manifest is `after` (`None`: as it was)."""
        named = set() if after is None else {entry.key for entry in after.entries}
        unnamed = [entry for entry in self._written.values() if entry.key not in named]
        superfluous = [] if after is None else self._opened
        self.swap.storage.delete([*self._spill.superfluous(after), *superfluous, *objects_of(unnamed)])


# Eviction: what object storage has too leaves the local tier, oldest first; where the log begins stays.
#
# Only closed segments go, and only what is uploaded: what is not stays, even past its retention (F-R-021). Where keys
# are compacted, both copies must be the same, for a reader goes from one to the other: an older copy has records again
# that were compacted away.


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
    # Of a topic that is compacted no more, copies of what never was may be merged: they hold the same records.
    is_same = not policy.compacts and same >= head.compacted_to
    free = copied if is_same else [segment for segment in copied if segment.last < same]
    return Evictable(tuple(free), min(len(beyond), len(free)), is_held=len(beyond) > len(free))


def same_below(store: ObjectStore, head: Head, storage: ObjectStore, manifest: Manifest) -> int:
    """Return the offset below which both tiers hold the same from the local start on, entry by entry."""
    remote = entries_within(storage, manifest, OffsetRange(head.local_start, head.end))
    return agreeing_to(live_entries(store, head), remote, start=head.local_start)


def agreeing_to(local: Iterable[Entry], remote: Iterable[Entry], *, start: int) -> int:
    """Return how far entries are the same from `start` on: base, last, digest, and when tombstones may go. Pure."""
    reached = start
    for mine, theirs in zip(local, remote, strict=False):
        # Compaction goes by when tombstones may go where the segment lies in object storage alone.
        ours = mine.base, mine.last, mine.digest, mine.horizon_ms
        if ours != (theirs.base, theirs.last, theirs.digest, theirs.horizon_ms):
            return max(reached, min(mine.base, theirs.base))  # Neither has anything below.
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


# Retention of a tiered partition: the total one on what object storage has, the local one on what lies here.
#
# The head's start is raised first, then the manifest lets go of what expired, then objects are deleted: at no moment is
# an offset readable whose record is gone. Where nothing is uploaded any more both tiers are one log, whose total
# retention takes remote segments first and closed local ones then.


_AGAIN_MS: Final = 10 * 60_000
"""When something is looked at again that only a change in object storage makes possible."""


@dataclass(frozen=True, slots=True)
class TieredPartition:
    """One partition of a topic that is, or was, tiered. `remote` is `None` where the cluster has no object storage."""

    store: ObjectStore
    partition: Partition
    policy: CleanupPolicy
    tiering: Tiering
    remote: RemoteTier | None

    @property
    def place(self) -> RemotePartition:
        """Which it is in object storage."""
        return remote_partition(self.tiering.location, self.partition.number)

    def retain(self, head: Head, *, now_ms: int) -> tuple[Expired | None, int | None]:
        """Bring a partition to its limits; return what went, or when to look again although nothing was written.

        Raises:
            MissingObjectError: A page of the head or the manifest is not there.
            OwnershipLostError: The partition belongs to another cluster now.
            LostRaceError: Others were faster every time.
        """
        uploaded_to = head.uploaded_to
        head, manifest = self.sound(head)
        total = self._total(head, manifest, now_ms)
        gone = self.expire(head, manifest, total.start)
        if gone is not None:
            # Pages that both named until now may be deleted.
            found = read_head(self.store, self.partition.topic_id, self.partition.number)
            if found is None:
                return gone, None
            head, manifest = self.sound(found)
        free = evictable(self.store, head, self.policy, lambda: self.same_below(head, manifest), now_ms=now_ms)
        evicted = evict(self.store, self.partition, free.segments[: free.beyond]) if self._is_strict else None
        if gone is not None or evicted is not None:
            return _together(head, gone, evicted), None
        local_ms = _next_local_ms(free.segments, self.policy) if self._is_strict else None
        if (self._is_strict and free.is_held) or head.uploaded_to < uploaded_to:
            local_ms = now_ms + _AGAIN_MS
        return None, min((at for at in (total.due_ms, local_ms) if at is not None), default=None)

    def manifest(self) -> Manifest:
        """Return the manifest as it is now; one that holds nothing where there is none.

        Raises:
            OwnershipLostError: The partition belongs to another cluster now: nothing is let go of by what that names.
        """
        found = None if self.remote is None else read_manifest(self.remote.storage, self.place)
        if found is None or self.remote is None:
            return Manifest(self.tiering.location.cluster_id)
        check_own(self.place, found, self.remote.cluster_id)
        return found

    def sound(self, head: Head) -> tuple[Head, Manifest]:
        """Return the manifest, and the head with no more uploaded than it names.

        Where it lacks something, the right one is elsewhere: nothing that the wrong one names is let go of.
        """
        manifest = self.manifest()
        if self.remote is not None and is_uncut(manifest, head):
            # A process that cut the log died before its remote part was.
            found = settle(self._swap(self.remote), self.place, head)
            manifest = Manifest(manifest.owner) if found is None else found
        if self.remote is None or not is_behind(manifest, head):
            return head, manifest
        return replace(head, uploaded_to=manifest.end), Manifest(manifest.owner)

    def same_below(self, head: Head, manifest: Manifest) -> int:
        """Return the offset below which both tiers hold the same."""
        if self.remote is None:
            return head.local_start
        return same_below(self.store, head, self.remote.storage, manifest)

    @property
    def _is_strict(self) -> bool:
        return self.policy.evicts and self.tiering.targets.is_strict

    def _total(self, head: Head, manifest: Manifest, now_ms: int) -> Expiry:
        found = Expiry(head.start)
        if self.remote is not None:
            storage = self.remote.storage
            found = expiry(
                manifest, self.policy, start=head.start, now_ms=now_ms, read=lambda page: read_page(storage, page)
            )
            # What the head does not know as uploaded may be others' records: uploads tell.
            found = replace(found, start=min(found.start, max(head.start, head.uploaded_to)))
        return found if self.policy.waits else self._of_both(head, manifest, found, now_ms)

    def _of_both(self, head: Head, manifest: Manifest, found: Expiry, now_ms: int) -> Expiry:
        """Go on where the remote walk ended, over the one log that both tiers are."""
        left, _ = raised(self.store, head, max(head.start, found.start))
        stored = self._remote_bytes(manifest, found.start, head.local_start) + live_bytes(self.store, left)
        segments = list(self._log(head, manifest, found.start, now_ms, stored))
        start = segments[-1].last + 1 if segments else found.start
        after = next(self._segments(head, manifest, start), None)
        if not self.policy.expires or self.policy.retention_ms == UNLIMITED or after is None or not after.is_closed:
            return Expiry(start)
        return Expiry(start, after.max_ts + self.policy.retention_ms + 1)

    def _log(self, head: Head, manifest: Manifest, start: int, now_ms: int, stored: int) -> Iterator[Segment]:
        segments = self._segments(head, manifest, start)
        return expired(segments, self.policy, stored_bytes=stored, stable=head.bounds.stable, now_ms=now_ms)

    def _segments(self, head: Head, manifest: Manifest, start: int) -> Iterator[Segment]:
        """Yield the segments of both tiers from `start` on: remote ones below the local start, local ones above."""
        storage = None if self.remote is None else self.remote.storage
        below = OffsetRange(start, max(start, head.local_start))
        remote = () if storage is None else entries_within(storage, manifest, below)
        local = (entry for entry in live_entries(self.store, head) if entry.last >= start)
        return chain(
            (Segment((entry,), is_closed=True) for entry in remote if below.length),
            segments_of(local, self.policy.limits),
        )

    def _remote_bytes(self, manifest: Manifest, start: int, stop: int) -> int:
        """Sum up what object storage has of a range; a page that lies across an end is read."""
        total = 0
        for page in manifest.pages:
            if start <= page.base and page.last < stop:
                total += page.bytes
            elif self.remote is not None and page.last >= start and page.base < stop:
                entries = read_page(self.remote.storage, page)
                total += sum(entry.bytes for entry in entries if entry.last >= start and entry.base < stop)
        return total + sum(entry.bytes for entry in manifest.entries if entry.last >= start and entry.base < stop)

    def expire(self, head: Head, manifest: Manifest, start: int) -> Expired | None:
        """Raise the log's start, and let go of what lies below it."""
        local = (
            raise_start(self.store, self.partition, start, self.policy.limits)
            if start > head.start
            else Expired(head.start)
        )
        if local is None:
            return None  # A process that sealed the head acts on all of it.
        cut = self._cut(manifest, local.start)
        after = manifest if cut is None else cut.manifest
        is_purged = self.remote is not None and purge(self._swap(self.remote), self.place, after.garbage)
        if cut is None and not local.segments and not is_purged:
            return None
        taken = (0, 0, 0) if cut is None else (cut.segments, cut.records, cut.bytes)
        left = _purged(manifest) if is_purged else (0, 0, 0)
        return Expired(
            local.start,
            local.segments + taken[0] + left[0],
            local.records + taken[1] + left[1],
            local.bytes + taken[2] + left[2],
        )

    def _swap(self, remote: RemoteTier) -> ManifestSwap:
        return ManifestSwap(remote.storage, remote.cluster_id, self.tiering)

    def _cut(self, found: Manifest, start: int) -> ExpiredManifest | None:
        """Swap the manifest: what ends below `start` becomes garbage."""
        oldest: list[PageRef | Entry] = [*found.pages[:1], *found.entries[:1]]
        if self.remote is None or not any(each.base < start for each in oldest):
            return None
        storage = self.remote.storage
        spill = ManifestSpill(storage, self.place, self.tiering.spill_bytes)
        cut: ExpiredManifest | None = None

        def without(manifest: Manifest) -> Manifest | None:
            nonlocal cut
            cut = cut_below(storage, manifest, start, spill)
            return None if cut is None else cut.manifest

        after = self._swap(self.remote)(self.place, without)
        storage.delete([*spill.superfluous(after), *(() if after is None or cut is None else cut.pages)])
        return None if after is None else cut


def _purged(manifest: Manifest) -> tuple[int, int, int]:
    """Return the segments, records and bytes that waited to be deleted.

    Where the manifest still names something, what waits was written anew, or counted by who let go of it.
    """
    garbage = manifest.garbage
    is_emptied = not (manifest.pages or manifest.entries)
    segments = sum(page.entries for page in garbage.pages) + len(garbage.entries)
    records = sum(page.records for page in garbage.pages) + sum(entry.digest.records for entry in garbage.entries)
    stored = sum(page.bytes for page in garbage.pages) + sum(entry.bytes for entry in garbage.entries)
    return segments, records if is_emptied else 0, stored


def _together(head: Head, gone: Expired | None, evicted: Evicted | None) -> Expired:
    found = Expired(head.start) if gone is None else gone
    if evicted is None:
        return found
    return Expired(found.start, found.segments + evicted.segments, found.records, found.bytes + evicted.bytes)


def _next_local_ms(segments: tuple[Segment, ...], policy: CleanupPolicy) -> int | None:
    """Return when the oldest segment that may be evicted will be beyond the local target; `None`: never."""
    limit = local_policy(policy).retention_ms
    return None if limit == UNLIMITED or not segments else segments[0].max_ts + limit + 1


# How much local data may take in all, and what of it leaves first where it takes more. Pure, but for the disk.


_FOLDER: Final = "file://"
_WHOLE: Final = 100.0


def disk_under(store: ObjectStore) -> int | None:
    """Return how many bytes the disk under a store has; `None`: it is no folder of a disk, and has no end."""
    if not store.url.startswith(_FOLDER):
        return None
    return shutil.disk_usage(store.url.removeprefix(_FOLDER)).total


def capacity_of(properties: Mapping[str, str], disk_bytes: int | None) -> int | None:
    """Return how many bytes local data may take (F-R-024); `None`: no limit.

    The smaller of both targets holds. That in percent is, unless it is set, what cache and reservation leave of the
    disk (F-R-025); it means nothing where there is no disk.
    """
    limits: list[int] = []
    in_bytes = property_of(properties, "retention_local_target_capacity_bytes")
    if in_bytes is not None:
        limits.append(int(in_bytes))
    if disk_bytes is not None:
        limits.append(int(disk_bytes * _percent(properties) / _WHOLE))
    return min(limits, default=None)


def _percent(properties: Mapping[str, str]) -> float:
    percent = property_of(properties, "retention_local_target_capacity_percent")
    if percent is not None:
        return float(percent)
    taken = ("cloud_storage_cache_size_percent", "disk_reservation_percent")
    return max(0.0, _WHOLE - sum(float(property_of(properties, name) or 0) for name in taken))


def first_to_go(found: Sequence[Evictable], excess: int) -> list[int]:
    """Return how many segments of each partition are to leave, for `excess` bytes to be freed as far as they can.

    What is beyond its local target goes first, then what is within; of both the oldest of all partitions.
    """
    counts = [0] * len(found)
    waiting = [_rank(one, 0, number) for number, one in enumerate(found) if one.segments]
    heapq.heapify(waiting)
    while waiting and excess > 0:
        *_, number = heapq.heappop(waiting)
        one = found[number]
        excess -= one.segments[counts[number]].bytes
        counts[number] += 1
        if counts[number] < len(one.segments):
            heapq.heappush(waiting, _rank(one, counts[number], number))
    return counts


def _rank(one: Evictable, at: int, number: int) -> tuple[bool, int, int]:
    return at >= one.beyond, one.segments[at].max_ts, number
