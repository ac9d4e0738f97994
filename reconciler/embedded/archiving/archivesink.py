"""Where a topic of another platform is written in object storage: staged by many tasks, named by one swap a partition.

Offsets stay: what a source lacks (transaction markers, compacted records) stays a gap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import orjson

from reconciler.embedded.keys import fresh_mark
from reconciler.embedded.partition.entries import Entry
from reconciler.embedded.partition.partfiles import within
from reconciler.embedded.remote.manifests.manifest import read_manifest
from reconciler.embedded.remote.manifests.segmentfiles import SegmentWriter
from reconciler.embedded.threads import side_by_side
from reconciler.errors import BrokenInvariantError
from reconciler.records.digest import Digest
from reconciler.records.log import OffsetRange, Reached, Staged

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from reconciler.embedded.archiving.archive import Archive
    from reconciler.embedded.remote.manifests.manifest import Manifest
    from reconciler.records.log import SourceSeen, TopicLog


@dataclass(frozen=True, slots=True)
class ArchiveSink:
    """One topic, as a `StagedSink`. Picklable."""

    archive: Archive
    partitions: int
    compression: str = "producer"
    """The topic's `compression.type`."""

    def check_shared(self) -> None:
        """Refuse a machine whose segments the driver would not find."""
        self.archive.check_shared()

    def ends(self) -> Mapping[int, int]:
        """Return each partition's end: a GET for each."""
        return {number: one.end for number, one in self.reached().items()}

    def reached(self, only: Collection[int] | None = None) -> Mapping[int, Reached]:
        """Return the same; which topic it was copied from stands with whoever archives it."""
        numbers = [number for number in range(self.partitions) if only is None or number in only]
        found = side_by_side(self._manifest, numbers, name="manifests")
        return {
            number: Reached(0 if manifest is None else manifest.end)
            for number, manifest in zip(numbers, found, strict=True)
        }

    def following(self, _source: SourceSeen) -> ArchiveSink:
        """Return the same."""
        return self

    def stage(self, partition: int, batches: Iterable[pa.RecordBatch], *, at: OffsetRange | None) -> Staged:
        """Write batches of `RECORD_SCHEMA`, in offset order, as segments under fresh names, each with its index."""
        if at is None:
            raise BrokenInvariantError("an archive keeps the offsets of its source", hint="Please report this.")
        place, archive = self.archive.partition(partition), self.archive
        writer = SegmentWriter(archive.storage, place, 0, compression=self.compression)
        entries = [replace(each, is_segment=True) for each in writer.write(within(batch, at) for batch in batches)]
        return Staged(
            partition,
            at,
            sum(entry.digest.records for entry in entries),
            sum(entry.bytes for entry in entries),
            sum((entry.digest.shifted(entry.base) for entry in entries), Digest()),
            orjson.dumps([entry.to_json() for entry in entries]),
        )

    def stage_copy(self, partition: int, source: TopicLog, offsets: OffsetRange) -> Staged:
        """Stage a range of another log at the same offsets."""
        return self.stage(partition, source.read(partition, offsets), at=offsets)

    def publish(self, staged: Sequence[Staged]) -> Mapping[int, OffsetRange]:
        """Name staged segments, one swap a partition, and return what each partition gained.

        A range goes in only where its `at.start` is the end, which becomes `at.stop`; publishing twice does it once.

        Raises:
            OwnershipLostError: The topic was detached, or taken away: nothing is written to it any more.
        """
        by_partition: dict[int, list[Staged]] = {}
        for one in sorted(staged, key=lambda one: (one.partition, one.at or OffsetRange(0, 0))):
            by_partition.setdefault(one.partition, []).append(one)
        found = side_by_side(lambda number: self._name(number, by_partition[number]), by_partition, name="publish")
        gained = zip(by_partition, found, strict=True)
        return {number: offsets for number, offsets in gained if offsets is not None}

    def complete(self) -> None:
        """Do nothing: whether all is there is found by comparing."""

    def _name(self, number: int, staged: Sequence[Staged]) -> OffsetRange | None:
        gained: list[OffsetRange] = []

        def extended(manifest: Manifest) -> Manifest | None:
            gained.clear()
            named, end = {entry.key for entry in manifest.entries}, manifest.end
            added: list[Entry] = []
            for one in staged:
                entries = [Entry.from_json(kept) for kept in orjson.loads(one.entries)]
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

        self.archive.swap(self.archive.partition(number), extended, mark=fresh_mark())
        return OffsetRange(gained[0].start, gained[-1].stop) if gained else None

    def _manifest(self, number: int) -> Manifest | None:
        return read_manifest(self.archive.storage, self.archive.partition(number))
