"""Scrub: check a manifest against stored objects.

The manifest is read again before a fault is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.archives.keys import build_index_key
from reconciler.archives.manifest import (
    Manifest,
    RemotePartition,
    check_manifest_owner,
    read_manifest,
    remote_partition,
)
from reconciler.archives.pages import iter_entries_within, read_page
from reconciler.embedded.segments.parts import read_part
from reconciler.embedded.segments.rewrites import Replacement
from reconciler.embedded.tiered.object_rewrites import (
    RemoteRewrite,
    SegmentWriter,
    delete_segments_on_error,
    publish_remote,
    read_footer,
)
from reconciler.embedded.tiered.remote_tier import RemoteTier, lacks_uploaded_records
from reconciler.errors import MissingObjectError, UserError
from reconciler.records.log import OffsetRange
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    from reconciler.archives.entries import Entry, PageRef
    from reconciler.archives.location import TopicTiering
    from reconciler.embedded.segments.admission import AppendRules
    from reconciler.embedded.segments.head import Head
    from reconciler.objectstore.base import ObjectStore


class ScrubFault(StrEnum):
    """Faults that a scrub finds."""

    MANIFEST = "the manifest cannot be read"
    SHORT = "the manifest does not have all that was uploaded"
    PAGE = "a page of the manifest cannot be read"
    SEGMENT_MISSING = "the segment is not there"
    SEGMENT_DIFFERS = "the segment differs from its manifest"
    INDEX = "the index of the segment is missing or unreadable"


@dataclass(frozen=True, slots=True)
class ScrubFinding:
    """One fault, repaired or not."""

    fault: ScrubFault
    key: str
    offsets: OffsetRange
    why: str = ""
    is_local: bool = False
    """Whether the local tier has all of these records."""
    is_mended: bool = False
    records: int = 0
    bytes: int = 0

    @property
    def error(self) -> UserError:
        """Error for an unrepaired fault."""
        where = f"offsets {self.offsets.start} to {self.offsets.stop - 1}"
        what = f"{where} are in the local tier alone" if self.is_local else f"{where} cannot be read"
        why = f": {self.why}" if self.why else ""
        hint = f"Restore {self.key} from a version or copy of the bucket, then: reconciler run --once --only scrub"
        return UserError(f"{what}: {self.key}: {self.fault}{why}", hint=hint)


@dataclass(frozen=True)
class PartitionScrub:
    """Scrubs one partition."""

    store: ObjectStore
    remote: RemoteTier
    tiering: TopicTiering
    rules: AppendRules
    number: int
    now_ms: Callable[[], int]

    @property
    def _place(self) -> RemotePartition:
        return remote_partition(self.tiering.location, self.number)

    def scrub_partition(self, head: Head) -> list[ScrubFinding]:
        """Check all referenced objects; repair and return faults."""
        storage, alone = self.remote.storage, OffsetRange(head.start, max(head.start, head.local_start))
        try:
            manifest = read_manifest(storage, self._place)
        except UserError as error:
            return [ScrubFinding(ScrubFault.MANIFEST, self._place.key, alone, error.message, is_local=not alone.length)]
        if manifest is None:
            return [self._report_short_manifest(0, head, "it is not there")] if head.uploaded_to or alone.length else []
        check_manifest_owner(self._place, manifest, self.remote.cluster_id)
        if lacks_uploaded_records(manifest, head) and manifest.tiered_epoch <= self.tiering.epoch:
            why = f"it ends at offset {manifest.end}, and everything below {head.uploaded_to} was uploaded"
            return [self._report_short_manifest(manifest.end, head, why)]
        sizes = {listed.key: listed.size for listed in storage.list(f"{self._place.key_prefix}/")}
        findings = [finding for page in manifest.pages for finding in self._check_page(page)]
        suspects = [entry for entry in _iter_entries(storage, manifest) if self._is_suspect(entry, sizes)]
        return [*findings, *self._confirm_and_repair(suspects, head)] if suspects else findings

    def _report_short_manifest(self, end: int, head: Head, why: str) -> ScrubFinding:
        start = max(head.start, end)
        is_here = start >= head.local_start
        lacking = OffsetRange(start, max(start, head.uploaded_to if is_here else head.local_start))
        fault = ScrubFault.SHORT if end else ScrubFault.MANIFEST
        return ScrubFinding(fault, self._place.key, lacking, why, is_local=is_here)

    def _check_page(self, page: PageRef) -> Iterator[ScrubFinding]:
        try:
            read_page(self.remote.storage, page)
        except UserError as error:
            yield ScrubFinding(ScrubFault.PAGE, page.key, OffsetRange(page.base, page.last + 1), error.message)

    def _is_suspect(self, entry: Entry, sizes: Mapping[str, int]) -> bool:
        return sizes.get(entry.key) != entry.bytes or not self._has_index(entry)

    def _has_index(self, entry: Entry) -> bool:
        stored = self.remote.storage.get(build_index_key(entry.key))
        try:
            return (
                stored is not None and pq.read_metadata(pa.BufferReader(stored.body)).num_rows == entry.digest.records
            )
        except (pa.ArrowException, OSError):
            return False

    def _confirm_and_repair(self, suspects: Sequence[Entry], head: Head) -> list[ScrubFinding]:
        storage = self.remote.storage
        again = read_manifest(storage, self._place)
        named = set() if again is None else {entry.key for entry in _iter_entries(storage, again)}
        lost: list[tuple[Entry, ScrubFinding]] = []
        findings: list[ScrubFinding] = []
        for entry in suspects:
            if entry.key not in named:
                continue
            listing = next((one for one in storage.list(entry.key) if one.key == entry.key), None)
            offsets = OffsetRange(entry.base, entry.last + 1)
            is_here = offsets.start >= head.local_start and offsets.stop <= head.end
            if listing is None:
                lost.append((entry, ScrubFinding(ScrubFault.SEGMENT_MISSING, entry.key, offsets, is_local=is_here)))
            elif listing.size != entry.bytes:
                why = f"it has {listing.size:,} bytes, not {entry.bytes:,}"
                lost.append(
                    (entry, ScrubFinding(ScrubFault.SEGMENT_DIFFERS, entry.key, offsets, why, is_local=is_here))
                )
            elif not self._has_index(entry):
                findings.append(self._rebuild_index(entry, offsets))
        return [*findings, *self._upload_again(lost, head)]

    def _rebuild_index(self, entry: Entry, offsets: OffsetRange) -> ScrubFinding:
        storage, key = self.remote.storage, build_index_key(entry.key)
        try:
            footer = read_footer(storage, entry.key, entry.bytes)
        except UserError as error:
            return ScrubFinding(ScrubFault.SEGMENT_DIFFERS, entry.key, offsets, error.message)
        storage.delete([key])
        storage.put(key, footer, kms_key_id=entry.kms_key_id)
        return ScrubFinding(ScrubFault.INDEX, key, offsets, is_mended=True)

    def _upload_again(self, lost: Iterable[tuple[Entry, ScrubFinding]], head: Head) -> Iterator[ScrubFinding]:
        put_ms = self.now_ms()
        for entry, finding in lost:
            # Above `uploaded_to`, the log of a restored cluster may have other records.
            if not finding.is_local or entry.last >= head.uploaded_to or not self.tiering.uploads:
                yield finding
                continue
            with delete_segments_on_error(self.remote.storage) as done:
                done.append(Replacement.of([entry], self._upload_local_records(entry, head)))
            rewrite = RemoteRewrite(self._place, self.remote.cluster_id, self.tiering, tuple(done))
            totals = publish_remote(self.remote.storage, rewrite, put_ms=put_ms, now_ms=self.now_ms)
            if totals is None:
                yield finding
            else:
                yield replace(finding, is_mended=True, records=totals.records, bytes=totals.bytes)

    def _upload_local_records(self, entry: Entry, head: Head) -> list[Entry]:
        offsets = OffsetRange(entry.base, entry.last + 1)
        parts = list(iter_entries_within(self.store, head, offsets))
        writer = SegmentWriter.for_partition(self.remote.storage, self.rules, self._place, entry.epoch)
        written = writer.write_one(
            batch for part in parts for batch in read_part(self.store, part, self.number, offsets)
        )
        return [] if written is None else [written.as_segment(parts, entry.epoch)]


def _iter_entries(storage: ObjectStore, manifest: Manifest) -> Iterator[Entry]:
    for page in manifest.pages:
        try:
            yield from read_page(storage, page)
        except (MissingObjectError, UserError):
            continue
    yield from manifest.entries
