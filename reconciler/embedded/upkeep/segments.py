"""Segments: a partition's parts as runs of one epoch, each of which closes for good. Pure.

A run closes when the next part would take it past `segment.bytes` of stored bytes, when that part's newest record is
more than `segment.ms` younger than the run's first, when it is of another epoch, and where one file holds all of a run
already. The last one is open whatever its age or size: it grows, and nothing in it expires.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from reconciler.embedded.partition.entries import Entry


@dataclass(frozen=True, slots=True)
class SegmentLimits:
    """What closes a segment: stored bytes, and ms between the times of its first and its newest record."""

    bytes: int
    ms: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of parts of one epoch, oldest first, at least one."""

    entries: tuple[Entry, ...]
    is_closed: bool

    @property
    def base(self) -> int:
        """Its first offset that has a record."""
        return self.entries[0].base

    @property
    def last(self) -> int:
        """Its last offset that has a record."""
        return self.entries[-1].last

    @property
    def epoch(self) -> int:
        """The epoch all of it was written in."""
        return self.entries[0].epoch

    @property
    def bytes(self) -> int:
        """What its parts take in the store."""
        return sum(entry.bytes for entry in self.entries)

    @property
    def records(self) -> int:
        """How many records it holds."""
        return sum(entry.digest.records for entry in self.entries)

    @property
    def min_ts(self) -> int:
        """The time of its oldest record."""
        return min(entry.min_ts for entry in self.entries)

    @property
    def max_ts(self) -> int:
        """The time of its newest record."""
        return max(entry.max_ts for entry in self.entries)

    @property
    def is_one_file(self) -> bool:
        """Tell whether it was made one file: such a segment is taken over as it is."""
        return len(self.entries) == 1 and self.entries[0].is_segment


def segments_of(entries: Iterable[Entry], limits: SegmentLimits) -> Iterator[Segment]:
    """Yield the segments of a partition's parts, oldest first, reading no further than asked; only the last is open.

    Where a run begins depends on the parts before it alone, so a closed segment stays what it is while the log grows,
    and when older segments expire or are made one file.
    """
    run: list[Entry] = []
    size = 0
    for entry in entries:
        if run and not _joins(run, size, entry, limits):
            yield Segment(tuple(run), is_closed=True)
            run, size = [], 0
        run.append(entry)
        size += entry.bytes
    if run:
        yield Segment(tuple(run), is_closed=False)


def _joins(run: Sequence[Entry], size: int, entry: Entry, limits: SegmentLimits) -> bool:
    first = run[0]
    return (
        not (first.is_segment or entry.is_segment)
        and entry.epoch == first.epoch
        and size + entry.bytes <= limits.bytes
        and entry.max_ts - first.min_ts <= limits.ms
    )
