"""Uploading: segments of one partition copied to object storage, under fresh names. Nothing here names them.

A segment that is one file is copied as it is, by the store where both can; of several parts one file is made. What was
uploaded before its segment was closed is left out: remote segments never overlap. Each goes with its index, the footer
of its Parquet file.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.embedded.keys import index_key, segment_key
from reconciler.embedded.partition.pages import entries_within
from reconciler.embedded.partition.partfiles import read_part
from reconciler.embedded.remote.manifests.segmentfiles import SegmentWriter, footer_of
from reconciler.embedded.remote.tier import remote_partition
from reconciler.embedded.upkeep.rolling import merged_digest
from reconciler.embedded.upkeep.segments import Segment, segments_of
from reconciler.errors import UserError
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reconciler.embedded.catalog.tiering import Tiering
    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.partition.headswaps import Partition
    from reconciler.embedded.producing.admission import Rules
    from reconciler.embedded.remote.manifests.manifest import RemotePartition
    from reconciler.embedded.upkeep.segments import SegmentLimits
    from reconciler.objectstore.base import ObjectStore

_AT_ONCE: Final = 4
"""Segments of one partition copied side by side: the store does the copying, we wait for it."""


@dataclass(frozen=True, slots=True)
class Uploaded:
    """Segments of one partition that were put: durable, and named by nobody yet. Picklable."""

    partition: Partition
    remote: RemotePartition
    offsets: OffsetRange
    """What they hold everything of; the manifest that takes them over ends where it begins."""
    entries: tuple[Entry, ...]
    epochs: tuple[tuple[int, int], ...]
    tiering: Tiering
    """What held for the topic when they were put."""

    @property
    def keys(self) -> list[str]:
        """Every object that was put."""
        return [key for entry in self.entries for key in (entry.key, index_key(entry.key))]


def to_upload(
    entries: Iterable[Entry], limits: SegmentLimits, *, stable: int, takes_open: bool = False
) -> Iterator[Segment]:
    """Yield the segments to upload of entries the manifest does not have: closed ones below the last stable offset.

    `takes_open`: what is stable of the open segment, too. Pure.
    """
    for segment in segments_of(entries, limits):
        if segment.is_closed and segment.last < stable:
            yield segment
            continue
        rest = tuple(entry for entry in segment.entries if entry.last < stable)
        if takes_open and rest:
            yield Segment(rest, is_closed=False)
        return


@dataclass(frozen=True)
class Upload:
    """Copies what lies in a range of one partition's offsets to object storage."""

    store: ObjectStore
    storage: ObjectStore
    partition: Partition
    tiering: Tiering
    rules: Rules

    @property
    def remote(self) -> RemotePartition:
        """Where it goes."""
        return remote_partition(self.tiering.location, self.partition.number)

    def put(self, head: Head, limits: SegmentLimits, offsets: OffsetRange) -> Uploaded:
        """Put every segment, or what of it lies in the range, with its index; nothing of it is named yet.

        Raises:
            MissingObjectError: A part or page is not there.
            UserError: A part is damaged, or the storage cannot encrypt as the namespace asks.
        """
        # What expired since the manifest ends may still be named by a page that was cut.
        start = min(max(offsets.start, head.local_start), offsets.stop)
        segments = list(segments_of(entries_within(self.store, head, OffsetRange(start, offsets.stop)), limits))
        done: list[Entry] = []

        def put(segment: Segment) -> None:
            entry = self._segment(segment, offsets)
            if entry is not None:
                done.append(entry)

        try:
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="upload") as threads:
                list(threads.map(put, segments))
        except BaseException:
            self.storage.delete([key for entry in done for key in (entry.key, index_key(entry.key))])
            raise
        entries = tuple(sorted(done, key=lambda entry: entry.base))
        return Uploaded(self.partition, self.remote, offsets, entries, head.epochs, self.tiering)

    def _segment(self, segment: Segment, offsets: OffsetRange) -> Entry | None:
        first = segment.entries[0]
        if len(segment.entries) == 1 and first.is_within(offsets):
            return self.copy(first)
        return self._one_file(segment, offsets)

    def copy(self, entry: Entry) -> Entry:
        """Put a file as it is, with its index.

        Raises:
            MissingObjectError: It is not there.
            UserError: It is damaged, or the storage cannot encrypt as the namespace asks.
        """
        kms_key_id = self.rules.kms_key_id
        key = segment_key(self.remote.place, (entry.base, entry.last), entry.bytes, entry.epoch)
        footer = footer_of(self.store, entry.key, entry.bytes)
        self.storage.copy_in(key, self.store, entry.key, kms_key_id=kms_key_id)
        self.storage.put(index_key(key), footer, kms_key_id=kms_key_id)
        return replace(entry, key=key, producer=None, txn=None, is_segment=True, kms_key_id=kms_key_id)

    def _one_file(self, segment: Segment, offsets: OffsetRange) -> Entry | None:
        """Make one file of what lies in the range; `None`: nothing is left of it there."""
        writer = SegmentWriter.under(self.storage, self.rules, self.remote, segment.epoch)
        written = writer.write_one(
            batch for entry in segment.entries for batch in read_part(self.store, entry, self.partition.number, offsets)
        )
        is_whole = all(entry.is_within(offsets) for entry in segment.entries)
        if written is None and not is_whole:
            return None
        if written is None or (is_whole and written.digest != merged_digest(segment.entries)):
            self.storage.delete([] if written is None else [written.key, index_key(written.key)])
            where = f"{self.partition}, offsets {segment.base} to {segment.last}"
            message = f"{self.store.url}: {where}: its records are not those whose digest the head keeps"
            raise UserError(message, hint="Restore its parts from a copy of the store; nothing was uploaded.")
        horizons = [entry.horizon_ms for entry in segment.entries if entry.horizon_ms is not None]
        horizon_ms = max(horizons) if horizons else None
        return replace(written, epoch=segment.epoch, is_segment=True, horizon_ms=horizon_ms)
