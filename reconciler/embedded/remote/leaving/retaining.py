"""Retention of a tiered partition: the total one on what object storage has, the local one on what lies here.

The head's start is raised first, then the manifest lets go of what expired, then objects are deleted: at no moment is
an offset readable whose record is gone. Where nothing is uploaded any more both tiers are one log, whose total
retention takes remote segments first and closed local ones then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from reconciler.embedded.partition.head import read_head
from reconciler.embedded.partition.pages import entries_within, read_page
from reconciler.embedded.remote.leaving.evicting import Evicted, evict, evictable, local_policy, same_below
from reconciler.embedded.remote.leaving.expiring import Cut, Expiry, cut_below, expiry
from reconciler.embedded.remote.leaving.truncating import is_uncut, settle
from reconciler.embedded.remote.manifests.agreement import is_behind
from reconciler.embedded.remote.manifests.manifest import Manifest, read_manifest
from reconciler.embedded.remote.manifests.owning import check_own
from reconciler.embedded.remote.manifests.purging import purge
from reconciler.embedded.remote.manifests.spilling import ManifestSpill
from reconciler.embedded.remote.manifests.swaps import ManifestSwap
from reconciler.embedded.remote.tier import remote_partition
from reconciler.embedded.upkeep.cleanup import UNLIMITED
from reconciler.embedded.upkeep.retention import Expired, expired, live_bytes, live_entries, raise_start
from reconciler.embedded.upkeep.segments import Segment, segments_of
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.embedded.catalog.tiering import Tiering
    from reconciler.embedded.partition.entries import Entry, PageRef
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.partition.headswaps import Partition
    from reconciler.embedded.remote.manifests.manifest import RemotePartition
    from reconciler.embedded.remote.tier import RemoteTier
    from reconciler.embedded.upkeep.cleanup import CleanupPolicy
    from reconciler.objectstore.base import ObjectStore

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
            # Whoever cut the log died before its remote part was.
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
        stored = self._remote_bytes(manifest, found.start, head.local_start) + live_bytes(self.store, head)
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
            return None  # Whoever sealed the head acts on all of it.
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

    def _cut(self, found: Manifest, start: int) -> Cut | None:
        """Swap the manifest: what ends below `start` becomes garbage."""
        oldest: list[PageRef | Entry] = [*found.pages[:1], *found.entries[:1]]
        if self.remote is None or not any(each.base < start for each in oldest):
            return None
        storage = self.remote.storage
        spill = ManifestSpill(storage, self.place, self.tiering.spill_bytes)
        cut: Cut | None = None

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
