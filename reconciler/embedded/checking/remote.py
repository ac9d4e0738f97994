"""What object storage says of a partition, held against its head: shallowly, for scrubbing looks at each object.

A head says what is uploaded, and which offsets are there alone; its manifest must have them. The head is read first, so
a manifest that uploads or retention have moved on meanwhile seems to contradict it: it is looked at again then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reconciler.embedded.catalog.tiering import tiering_of
from reconciler.embedded.checking.findings import Finding, Kind, Place
from reconciler.embedded.checking.heads import are_numbers, judge_page
from reconciler.embedded.partition.pages import read_page
from reconciler.embedded.remote.manifests.manifest import read_manifest
from reconciler.embedded.remote.tier import remote_partition
from reconciler.errors import MissingObjectError, UserError
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.partition.entries import PageRef
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.remote.manifests.manifest import Manifest
    from reconciler.objectstore.base import ObjectStore


@dataclass(frozen=True, slots=True)
class RemoteCheck:
    """Looks at manifests, from any thread. `storage` is the object storage of the cluster `cluster_id`."""

    storage: ObjectStore
    cluster_id: str

    def look(self, catalog: Catalog, head: Head, place: Place, *, epoch: int) -> Iterator[Finding]:
        """Yield what the manifest of a partition lacks; `place` is that of its head, `epoch` of the head's register."""
        if place.topic is None or place.partition is None:
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
        if manifest.owner != self.cluster_id:
            what = f"it belongs to cluster {manifest.owner}, and the topic is in the catalog of this one"
            yield Finding(Kind.MANIFEST_FOREIGN, what, there, _alone(head, head.start))
            return
        yield from judge_manifest(manifest, head, there)
        for page in manifest.pages:
            yield from self._of_page(page, replace(there, key=page.key), epoch)

    def _of_page(self, page: PageRef, place: Place, epoch: int) -> Iterator[Finding]:
        offsets = (OffsetRange(page.base, page.last + 1),)
        try:
            entries = read_page(self.storage, page)
        except MissingObjectError as error:
            yield Finding(Kind.PAGE_MISSING, error.message, place, offsets)
        except UserError as error:
            yield Finding(Kind.PAGE_DAMAGED, error.message, place, offsets)
        else:
            if are_numbers(entries):
                yield from judge_page(page, entries, place, epoch=epoch)
            else:
                yield Finding(Kind.PAGE_DAMAGED, "a number of it is none", place, offsets)


def judge_manifest(manifest: Manifest, head: Head, place: Place) -> Iterator[Finding]:
    """Yield where a manifest does not have what the head says is in it. Pure."""
    alone = head.start < head.local_start
    if manifest.start > head.start and alone:
        what = f"it begins at offset {manifest.start}, and the log at {head.start}"
        gone = OffsetRange(head.start, min(manifest.start, head.local_start))
        yield Finding(Kind.MANIFEST_SHORT, what, place, (gone,))
    if manifest.end < head.uploaded_to:
        what = f"it ends at offset {manifest.end}, and the head says that offsets below {head.uploaded_to} are in it"
        yield Finding(Kind.MANIFEST_SHORT, what, place, _alone(head, max(head.start, manifest.end)))
    if manifest.end > head.end:
        what = f"it ends at offset {manifest.end}, and the log at {head.end}"
        yield Finding(Kind.MANIFEST_AHEAD, what, place)
    if manifest.garbage:
        objects = len(manifest.garbage.entries) + sum(page.entries for page in manifest.garbage.pages)
        what = f"{objects:,} segments are to be deleted, and are not yet"
        yield Finding(Kind.GARBAGE_LEFT, what, place, (), objects)


def _alone(head: Head, start: int) -> tuple[OffsetRange, ...]:
    """Return the offsets from `start` on that no local part has."""
    return (OffsetRange(start, head.local_start),) if start < head.local_start else ()
