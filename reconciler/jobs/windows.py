"""A part of a log: what lies at or after some offsets, for comparing what is new without the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import pyarrow as pa

    from reconciler.records.digest import Digest
    from reconciler.records.log import Bounds, Extent, TopicLog


@dataclass(frozen=True)
class Since:
    """Another log from `starts` on, by partition; what is not among them has all it has. Picklable as that is."""

    log: TopicLog
    starts: Mapping[int, int]

    @property
    def topic_id(self) -> str | None:
        """Which topic it is."""
        return self.log.topic_id

    def check_shared(self) -> None:
        """Refuse a machine that does not see it."""
        self.log.check_shared()

    def bounds(self, only: Collection[int] | None = None) -> Mapping[int, Bounds]:
        """Return every partition's bounds; none begins before its start."""
        return {
            number: replace(found, start=max(found.start, min(self.starts.get(number, 0), found.end)))
            for number, found in self.log.bounds(only).items()
        }

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield what is readable in `offsets`."""
        return self.log.read(partition, self._cut(partition, offsets))

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        """Return the first offset whose record is at or after a time, or its start where that is later."""
        found = self.log.offset_for_time(partition, timestamp_ms)
        return None if found is None else max(found, self.starts.get(partition, 0))

    def extents(self, partition: int, offsets: OffsetRange) -> Iterator[Extent]:
        """Yield how `offsets` is stored."""
        return self.log.extents(partition, self._cut(partition, offsets))

    def digests(self, partition: int, offsets: OffsetRange) -> Iterator[Digest]:
        """Yield digests that together cover `offsets`."""
        return self.log.digests(partition, self._cut(partition, offsets))

    def _cut(self, partition: int, offsets: OffsetRange) -> OffsetRange:
        start = max(offsets.start, self.starts.get(partition, 0))
        return OffsetRange(start, max(start, offsets.stop))
