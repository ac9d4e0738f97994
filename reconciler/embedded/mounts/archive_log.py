"""An archived topic in object storage as a `TopicLog` and as a `StagedSink`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import orjson

from reconciler.archives.entries import Entry
from reconciler.archives.manifest import Manifest, read_manifest
from reconciler.archives.pages import iter_entries_within
from reconciler.archives.topic_manifest import read_topic_manifest
from reconciler.embedded.objects import check_writes_visible
from reconciler.embedded.segments.parts import find_offset_since, read_part, select_range
from reconciler.embedded.tiered.object_rewrites import SegmentWriter
from reconciler.errors import BrokenInvariantError, UserError
from reconciler.objectstore.register import create_mark
from reconciler.records.hashes import compute_digest
from reconciler.records.log import (
    Bounds,
    Digest,
    Extent,
    ObservedSource,
    OffsetRange,
    SinkPosition,
    StagedRecords,
    TopicLog,
)
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    import pyarrow as pa

    from reconciler.archives.archive import Archive


_EMPTY = Bounds(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ArchiveLog:
    """The log of an archived topic. Picklable."""

    archive: Archive

    @property
    def topic_id(self) -> str:
        """Permanent location of the topic."""
        place = self.archive.location
        return f"{place.cluster_id}/{place.revision}"

    def check_shared(self) -> None:
        """Reject a machine that does not see the object storage."""
        self.archive.check_shared()

    def read_bounds(self, only: Collection[int] | None = None) -> Mapping[int, Bounds]:
        """Return partitions' bounds; one GET for the topic, one per partition."""
        place = self.archive.location
        topic = read_topic_manifest(self.archive.storage, place.cluster_id, place.revision)
        if topic is None:
            message = f"there is no topic at {place} in {self.archive.storage.url}"
            raise UserError(message, hint="See what object storage has: reconciler mount list")
        numbers = [number for number in range(topic.partitions) if only is None or number in only]
        manifests = map_in_parallel(self._read_manifest, numbers, name="manifests")
        return {
            number: _EMPTY if manifest is None else _build_bounds(manifest)
            for number, manifest in zip(numbers, manifests, strict=True)
        }

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield the readable records of `offsets`."""
        for entry, cut in self._iter_pieces(partition, offsets):
            yield from read_part(self.archive.storage, entry, partition, cut)

    def find_offset_at(self, partition: int, timestamp_ms: int) -> int | None:
        """Return the first offset at or after a time."""
        manifest = self._read_manifest(partition)
        whole = OffsetRange(0, 0) if manifest is None else OffsetRange(manifest.start, manifest.end)
        for entry, cut in self._iter_pieces(partition, whole, since_ms=timestamp_ms):
            offset = find_offset_since(self.archive.storage, entry, timestamp_ms, cut)
            if offset is not None:
                return offset
        return None

    def list_extents(self, partition: int, offsets: OffsetRange) -> Iterator[Extent]:
        """Yield an extent per segment, limited to `offsets`."""
        for entry, cut in self._iter_pieces(partition, offsets):
            length = entry.last + 1 - entry.base
            yield Extent(cut, entry.digest.records * cut.length // length, entry.bytes * cut.length // length)

    def read_digests(self, partition: int, offsets: OffsetRange) -> Iterator[Digest]:
        """Yield digests of `offsets`; only segments at its limits are read."""
        for entry, cut in self._iter_pieces(partition, offsets):
            if entry.is_within(cut):
                yield entry.digest.shift(entry.base)
            else:
                for batch in read_part(self.archive.storage, entry, partition, cut):
                    yield compute_digest(batch, base=0)

    def _read_manifest(self, partition: int) -> Manifest | None:
        return read_manifest(self.archive.storage, self.archive.locate_partition(partition))

    def _iter_pieces(
        self, partition: int, offsets: OffsetRange, *, since_ms: int | None = None
    ) -> Iterator[tuple[Entry, OffsetRange]]:
        manifest = self._read_manifest(partition)
        if manifest is None:
            return
        readable = OffsetRange(max(offsets.start, manifest.start), min(offsets.stop, manifest.end))
        for entry in iter_entries_within(self.archive.storage, manifest, readable, since_ms=since_ms):
            yield entry, OffsetRange(max(entry.base, readable.start), min(entry.last + 1, readable.stop))


def _build_bounds(manifest: Manifest) -> Bounds:
    return Bounds(
        manifest.start,
        manifest.start,
        manifest.end,
        manifest.end,
        manifest.epochs,
        min(manifest.compacted_to, manifest.end),
    )


@dataclass(frozen=True, slots=True)
class ArchiveSink:
    """An archived topic as a `StagedSink`. Picklable.

    Records keep their source's offsets; transaction markers and compacted records leave gaps.
    """

    archive: Archive
    partitions: int
    compression: str = "producer"

    def check_shared(self) -> None:
        """Reject a machine that does not see the object storage."""
        self.archive.check_shared()

    def read_ends(self) -> Mapping[int, int]:
        """Return each partition's end; one GET per partition."""
        return {number: one.end for number, one in self.read_positions().items()}

    def read_positions(self, only: Collection[int] | None = None) -> Mapping[int, SinkPosition]:
        """Return partitions' ends, without sources; one GET each."""
        numbers = [number for number in range(self.partitions) if only is None or number in only]
        manifests = map_in_parallel(self._read_manifest, numbers, name="manifests")
        return {
            number: SinkPosition(0 if manifest is None else manifest.end)
            for number, manifest in zip(numbers, manifests, strict=True)
        }

    def follow_source(self, _source: ObservedSource) -> ArchiveSink:
        """Return this sink: an archive stores no source."""
        return self

    def stage(self, partition: int, batches: Iterable[pa.RecordBatch], *, at: OffsetRange | None) -> StagedRecords:
        """Write batches of `RECORD_SCHEMA` as segments with indexes."""
        if at is None:
            raise BrokenInvariantError("an archive must keep the offsets of its source", hint="Please report this.")
        place, archive = self.archive.locate_partition(partition), self.archive
        writer = SegmentWriter(archive.storage, place, 0, compression=self.compression)
        entries = [
            replace(written, is_segment=True) for written in writer.write(select_range(batch, at) for batch in batches)
        ]
        return StagedRecords(
            partition,
            at,
            sum(entry.digest.records for entry in entries),
            sum(entry.bytes for entry in entries),
            sum((entry.digest.shift(entry.base) for entry in entries), Digest()),
            orjson.dumps([entry.to_json() for entry in entries]),
        )

    def stage_copy(self, partition: int, source: TopicLog, offsets: OffsetRange) -> StagedRecords:
        """Stage a range of another log."""
        return self.stage(partition, source.read(partition, offsets), at=offsets)

    def publish(self, staged: Sequence[StagedRecords]) -> Mapping[int, OffsetRange]:
        """Publish staged segments, one swap per partition; return the appended offsets. Repeatable.

        Raises:
            OwnershipLostError: The topic was detached, or another cluster owns it.
        """
        by_partition: dict[int, list[StagedRecords]] = {}
        for one in sorted(staged, key=lambda one: (one.partition, one.at or OffsetRange(0, 0))):
            by_partition.setdefault(one.partition, []).append(one)
        offsets_gained = map_in_parallel(
            lambda number: self._publish_partition(number, by_partition[number]), by_partition, name="publish"
        )
        gained = zip(by_partition, offsets_gained, strict=True)
        return {number: offsets for number, offsets in gained if offsets is not None}

    def mark_complete(self) -> None:
        """Do nothing: a later comparison verifies the copy."""

    def _publish_partition(self, number: int, staged: Sequence[StagedRecords]) -> OffsetRange | None:
        gained: list[OffsetRange] = []
        parts = [[Entry.from_json(document) for document in orjson.loads(one.entries)] for one in staged]
        for one, entries in zip(staged, parts, strict=True):
            check_writes_visible(self.archive.storage, (entry.key for entry in entries), by=one.by)

        def extend(manifest: Manifest) -> Manifest | None:
            gained.clear()
            named, end = {entry.key for entry in manifest.entries}, manifest.end
            added: list[Entry] = []
            for one, entries in zip(staged, parts, strict=True):
                if one.at is None:
                    continue
                if any(entry.key in named for entry in entries):
                    gained.append(one.at)
                elif one.at.start == end:
                    added += entries
                    gained.append(one.at)
                    end = one.at.stop
            if end == manifest.end:
                return None
            return replace(manifest, entries=(*manifest.entries, *added), end=end)

        self.archive.swap(self.archive.locate_partition(number), extend, mark=create_mark())
        return OffsetRange(gained[0].start, gained[-1].stop) if gained else None

    def _read_manifest(self, number: int) -> Manifest | None:
        return read_manifest(self.archive.storage, self.archive.locate_partition(number))
