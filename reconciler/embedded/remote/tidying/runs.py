"""Which neighbours in the remote tier are worth being one object. Pure.

A run is of segments that are each smaller than `high`, of one epoch, one after the other without a gap, and together
not larger than `high`. It is merged where it is larger than `low`, and where what follows ends it: nothing better will
come. At the end of the log a run up to `low` waits for more. So does one of which the first segment is more than half:
it was merged before, and would be written again with every segment that comes. Once the next does not fit, it is.

A gap is any offset between two segments that neither has. Whether it is of an aborted transaction, or of records that
were never uploaded, the manifest does not tell, and an object across it would hide the difference: none is ever made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.resources.clusterproperties import property_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from reconciler.embedded.partition.entries import Entry

_LOW_PERCENT: Final = 50
_LOWERED_PERCENT: Final = 80
"""Of `high`, where what is set as `low` is not below it."""


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """Stored bytes: `high` is the largest a merged segment may be, runs up to `low` wait for more."""

    high: int
    low: int


def merge_limits(properties: Mapping[str, str], segment_bytes: int) -> MergeLimits:
    """Return what holds for a topic: the cluster's word, else its own `segment.bytes` and half of that (F-R-064)."""
    target = property_of(properties, "cloud_storage_segment_size_target")
    least = property_of(properties, "cloud_storage_segment_size_min")
    high = segment_bytes if target is None else int(target)
    low = high * _LOW_PERCENT // 100 if least is None else int(least)
    return MergeLimits(high, low if low < high else high * _LOWERED_PERCENT // 100)


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbours that may become one object: as many as fit, maybe one alone."""

    entries: tuple[Entry, ...]
    is_last: bool
    """Whether the log ends with it."""

    @property
    def bytes(self) -> int:
        """What they take in the store."""
        return sum(entry.bytes for entry in self.entries)

    @property
    def is_open(self) -> bool:
        """Tell whether anything may ever become of it."""
        return self.is_last or len(self.entries) > 1

    def is_worth(self, limits: MergeLimits) -> bool:
        """Tell whether it is to become one object now."""
        if len(self.entries) == 1 or not self.is_last:
            return len(self.entries) > 1
        return self.bytes > limits.low and 2 * self.entries[0].bytes <= self.bytes


def runs_to_merge(entries: Iterable[Entry], limits: MergeLimits) -> Iterator[tuple[Entry, ...]]:
    """Yield the runs that are to become one object each, oldest first."""
    return (run.entries for run in runs_of(entries, limits) if run.is_worth(limits))


def runs_of(entries: Iterable[Entry], limits: MergeLimits) -> Iterator[Run]:
    """Yield all runs of segments that are smaller than `high`, oldest first. Where one begins, looking may begin."""
    run: list[Entry] = []
    size = 0
    for entry in entries:
        if run and not (_follows(run[-1], entry) and size + entry.bytes <= limits.high):
            yield Run(tuple(run), is_last=False)
            run, size = [], 0
        if entry.bytes < limits.high:
            run.append(entry)
            size += entry.bytes
    if run:
        yield Run(tuple(run), is_last=True)


def _follows(before: Entry, entry: Entry) -> bool:
    return entry.base == before.last + 1 and entry.epoch == before.epoch
