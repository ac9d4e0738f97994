"""What object storage has of a partition, held against its head: the manifest, its pages, and every segment they name.

A head says what is uploaded, and which offsets are there alone; its manifest must have them. The head is read first, so
a manifest that uploads or retention have moved on meanwhile seems to contradict it: it is looked at again then. What
the manifest does not name any more once all is looked at was replaced meanwhile, and is no fault.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reconciler.embedded.catalog.holding import is_closed
from reconciler.embedded.catalog.tiering import tiering_of
from reconciler.embedded.checking.findings import Finding, Kind, Place
from reconciler.embedded.checking.heads import are_numbers, judge_page
from reconciler.embedded.checking.segments import SegmentCheck
from reconciler.embedded.checking.stored import list_below
from reconciler.embedded.partition.pages import read_page
from reconciler.embedded.remote.leaving.truncating import is_uncut
from reconciler.embedded.remote.manifests.manifest import NOBODY, read_manifest
from reconciler.embedded.remote.tier import remote_partition
from reconciler.errors import MissingObjectError, UserError
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.checking.segments import Deep, Suspect
    from reconciler.embedded.partition.entries import Entry, PageRef
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.remote.manifests.manifest import Manifest, RemotePartition
    from reconciler.objectstore.base import ObjectStore


@dataclass(frozen=True, slots=True)
class RemoteCheck:
    """Looks at manifests and segments, from any thread. `storage` is the object storage of the cluster `cluster_id`.

    `deep` reads what a segment holds.
    """

    storage: ObjectStore
    cluster_id: str
    deep: Deep | None = None
    lost: frozenset[str] = frozenset()
    """Topics, by full name, that are known not to be this cluster's: nothing is said of each partition then."""

    def look(self, catalog: Catalog, head: Head, place: Place, *, epoch: int) -> Iterator[Finding]:
        """Yield what is wrong with the remote tier of a partition; `place` and `epoch` are those of its head."""
        if place.topic is None or place.partition is None or place.topic in self.lost:
            return
        tiering = tiering_of(catalog, place.topic, self.cluster_id)
        if tiering is None:
            return
        partition = remote_partition(tiering.location, place.partition)
        there = replace(place, key=partition.key)
        try:
            manifest = read_manifest(self.storage, partition)
        except UserError as error:
            yield Finding(Kind.MANIFEST_DAMAGED, error.message, there, _alone(head, head.start))
            return
        if manifest is None:
            if head.uploaded_to > head.start:
                what = f"it is not there, and the head says that offsets below {head.uploaded_to} are in it"
                yield Finding(Kind.MANIFEST_MISSING, what, there, _alone(head, head.start))
            return
        is_nobodys = manifest.owner == NOBODY
        if manifest.owner != self.cluster_id and not (is_nobodys and is_closed(catalog.topics[place.topic])):
            whose = "nobody" if is_nobodys else f"cluster {manifest.owner}"
            what = f"it belongs to {whose}, and the topic is in the catalog of this cluster"
            yield Finding(Kind.MANIFEST_FOREIGN, what, there, _alone(head, head.start))
            return
        yield from judge_manifest(manifest, head, there)
        if manifest.segments:
            listed = list_below(self.storage, f"{partition.place}/")
            segments = SegmentCheck(listed, head.local_start, tiering.uploads, self.deep)
            yield from self._of_segments(partition, manifest, segments, there, epoch)

    def _of_segments(
        self, partition: RemotePartition, manifest: Manifest, segments: SegmentCheck, there: Place, epoch: int
    ) -> Iterator[Finding]:
        """Yield what is wrong with pages and segments, as far as the manifest names them still."""
        found: list[Finding] = []
        suspects: list[Suspect] = []
        for page in manifest.pages:
            entries: list[Entry] = []
            found += self._of_page(page, replace(there, key=page.key), epoch, entries)
            suspects += segments.suspects(_live(entries, manifest), there)
        suspects += segments.suspects(_live(manifest.entries, manifest), there)
        if found or suspects:
            named = self._named_now(partition, manifest)
            yield from (each for each in found if named is None or each.place.key in named)
            yield from segments.runs(each for each in suspects if named is None or each.entry.key in named)

    def _named_now(self, partition: RemotePartition, before: Manifest) -> set[str] | None:
        """Return the keys that the manifest names now; `None`: it says what it said, or nothing."""
        try:
            manifest = read_manifest(self.storage, partition)
        except UserError:
            return None
        if manifest is None or manifest == before:
            return None
        named = {page.key for page in manifest.pages} | {entry.key for entry in _live(manifest.entries, manifest)}
        for page in manifest.pages:
            with suppress(UserError):
                named |= {entry.key for entry in _live(read_page(self.storage, page), manifest)}
        return named

    def _of_page(self, page: PageRef, place: Place, epoch: int, entries: list[Entry]) -> Iterator[Finding]:
        """Yield what is wrong with a page, and put into `entries` what it names."""
        offsets = (OffsetRange(page.base, page.last + 1),)
        try:
            below = read_page(self.storage, page)
        except MissingObjectError as error:
            yield Finding(Kind.PAGE_MISSING, error.message, place, offsets)
        except UserError as error:
            yield Finding(Kind.PAGE_DAMAGED, error.message, place, offsets)
        else:
            if are_numbers(below):
                entries += below
                yield from judge_page(page, below, place, epoch=epoch)
            else:
                yield Finding(Kind.PAGE_DAMAGED, "a number of it is none", place, offsets)


def judge_manifest(manifest: Manifest, head: Head, place: Place) -> Iterator[Finding]:
    """Yield where a manifest does not have what the head says is in it. Pure."""
    if is_uncut(manifest, head) and manifest.end > head.uploaded_to:
        what = f"it ends at offset {manifest.end}, and the log was cut at {_cut_at(head)}"
        yield Finding(Kind.CUT_UNFINISHED, what, place)
        manifest = replace(manifest, end=min(manifest.end, _cut_at(head)))
    alone = head.start < head.local_start
    if manifest.start > head.start and alone:
        what = f"it begins at offset {manifest.start}, and the log at {head.start}"
        gone = OffsetRange(head.start, min(manifest.start, head.local_start))
        yield Finding(Kind.MANIFEST_SHORT, what, place, (gone,))
    if max(manifest.end, head.start) < head.uploaded_to:
        what = f"it ends at offset {manifest.end}, and the head says that offsets below {head.uploaded_to} are in it"
        yield Finding(Kind.MANIFEST_SHORT, what, place, _alone(head, max(head.start, manifest.end)))
    if manifest.end > head.end:
        what = f"it ends at offset {manifest.end}, and the log at {head.end}"
        yield Finding(Kind.MANIFEST_AHEAD, what, place)
    if manifest.garbage:
        objects = len(manifest.garbage.entries) + sum(page.entries for page in manifest.garbage.pages)
        what = f"{objects:,} segments are to be deleted, and are not yet"
        yield Finding(Kind.GARBAGE_LEFT, what, place, (), objects)


def _cut_at(head: Head) -> int:
    return 0 if head.truncated is None else int(head.truncated["offset"])


def _live(entries: Iterable[Entry], manifest: Manifest) -> list[Entry]:
    """Return the segments that readers may see: retention has deleted what a page still names below the start."""
    return [entry for entry in entries if entry.last >= manifest.start]


def _alone(head: Head, start: int) -> tuple[OffsetRange, ...]:
    """Return the offsets from `start` on that no local part has."""
    return (OffsetRange(start, head.local_start),) if start < head.local_start else ()
