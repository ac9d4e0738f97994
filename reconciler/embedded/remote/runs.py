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
    from collections.abc import Iterable, Iterator, Mapping, Sequence

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


def runs_to_merge(entries: Iterable[Entry], limits: MergeLimits) -> Iterator[tuple[Entry, ...]]:
    """Yield the runs that are to become one object each, oldest first."""
    for run, is_last in _runs(entries, limits):
        if len(run) > 1 and (not is_last or _is_worth(run, limits)):
            yield run


def settled_before(entries: Iterable[Entry], limits: MergeLimits) -> int | None:
    """Return the offset before which nothing will ever be merged, unless limits change; `None`: there is no entry."""
    first: int | None = None
    for run, is_last in _runs(entries, limits):
        if len(run) > 1 or is_last:
            return run[0].base
        first = run[-1].last + 1
    return first


def _runs(entries: Iterable[Entry], limits: MergeLimits) -> Iterator[tuple[tuple[Entry, ...], bool]]:
    """Yield every longest run of those that may be merged, alone ones too, and whether the log ends with it."""
    run: list[Entry] = []
    size = 0
    for entry in entries:
        if run and not (_follows(run[-1], entry) and size + entry.bytes <= limits.high):
            yield tuple(run), False
            run, size = [], 0
        if entry.bytes < limits.high:
            run.append(entry)
            size += entry.bytes
    if run:
        yield tuple(run), True


def _follows(before: Entry, entry: Entry) -> bool:
    return entry.base == before.last + 1 and entry.epoch == before.epoch


def _is_worth(run: Sequence[Entry], limits: MergeLimits) -> bool:
    size = sum(entry.bytes for entry in run)
    return size > limits.low and 2 * run[0].bytes <= size
