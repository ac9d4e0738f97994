"""The records of a topic that lies in object storage, as a `TopicLog`: no cluster has to have it mounted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.embedded.partition.pages import entries_within
from reconciler.embedded.partition.partfiles import first_since, read_part
from reconciler.embedded.remote.manifests.manifest import read_manifest
from reconciler.embedded.remote.manifests.topicmanifest import read_topic_manifest
from reconciler.embedded.threads import side_by_side
from reconciler.errors import UserError
from reconciler.records.hashing import digest_of
from reconciler.records.log import Bounds, Extent, OffsetRange

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import pyarrow as pa

    from reconciler.embedded.archiving.archive import Archive
    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.remote.manifests.manifest import Manifest
    from reconciler.records.digest import Digest

_EMPTY = Bounds(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ArchiveLog:
    """One topic, as its manifests have it now. Picklable."""

    archive: Archive

    @property
    def topic_id(self) -> str:
        """Which topic it is: its location is for life."""
        place = self.archive.location
        return f"{place.cluster_id}/{place.revision}"

    def check_shared(self) -> None:
        """Refuse a machine that does not see the object storage."""
        self.archive.check_shared()

    def bounds(self, only: Collection[int] | None = None) -> Mapping[int, Bounds]:
        """Return every partition's bounds: a GET for the topic, and one for each partition.

        Raises:
            UserError: Nothing lies there, or it is damaged.
        """
        place = self.archive.location
        topic = read_topic_manifest(self.archive.storage, place.cluster_id, place.revision)
        if topic is None:
            message = f"there is no topic at {place} in {self.archive.storage.url}"
            raise UserError(message, hint="See what lies there: reconciler mount list")
        numbers = [number for number in range(topic.partitions) if only is None or number in only]
        found = side_by_side(self._manifest, numbers, name="manifests")
        return {
            number: _EMPTY if manifest is None else _bounds(manifest)
            for number, manifest in zip(numbers, found, strict=True)
        }

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield what is readable in `offsets`, in offset order, as batches of `RECORD_SCHEMA`."""
        for entry, cut in self._pieces(partition, offsets):
            yield from read_part(self.archive.storage, entry, partition, cut)

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        """Return the first offset whose record is at or after a time; `None` where all are older."""
        manifest = self._manifest(partition)
        whole = OffsetRange(0, 0) if manifest is None else OffsetRange(manifest.start, manifest.end)
        for entry, cut in self._pieces(partition, whole, since_ms=timestamp_ms):
            found = first_since(self.archive.storage, entry, timestamp_ms, cut)
            if found is not None:
                return found
        return None

    def extents(self, partition: int, offsets: OffsetRange) -> Iterator[Extent]:
        """Yield how `offsets` is stored: one extent a segment, cut at both ends; reads no records."""
        for entry, cut in self._pieces(partition, offsets):
            length = entry.last + 1 - entry.base
            yield Extent(cut, entry.digest.records * cut.length // length, entry.bytes * cut.length // length)

    def digests(self, partition: int, offsets: OffsetRange) -> Iterator[Digest]:
        """Yield digests that together cover `offsets`: kept ones for whole segments, read ones at the ends."""
        for entry, cut in self._pieces(partition, offsets):
            if entry.is_within(cut):
                yield entry.digest.shifted(entry.base)
            else:
                for batch in read_part(self.archive.storage, entry, partition, cut):
                    yield digest_of(batch, base=0)

    def _manifest(self, partition: int) -> Manifest | None:
        return read_manifest(self.archive.storage, self.archive.partition(partition))

    def _pieces(
        self, partition: int, offsets: OffsetRange, *, since_ms: int | None = None
    ) -> Iterator[tuple[Entry, OffsetRange]]:
        """Yield the segments with an offset in a range, and which offsets of each are readable and lie in it."""
        manifest = self._manifest(partition)
        if manifest is None:
            return
        readable = OffsetRange(max(offsets.start, manifest.start), min(offsets.stop, manifest.end))
        for entry in entries_within(self.archive.storage, manifest, readable, since_ms=since_ms):
            yield entry, OffsetRange(max(entry.base, readable.start), min(entry.last + 1, readable.stop))


def _bounds(manifest: Manifest) -> Bounds:
    return Bounds(
        manifest.start,
        manifest.start,
        manifest.end,
        manifest.end,
        manifest.epochs,
        min(manifest.compacted_to, manifest.end),
    )
