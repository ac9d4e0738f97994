"""Which segments of a compacted partition are to be cleaned, and when the next ones will be. Pure."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.upkeep.cleanup import CleanupPolicy
    from reconciler.embedded.upkeep.segments import Segment


def to_clean(segments: Iterable[Segment], head: Head, policy: CleanupPolicy, *, now_ms: int) -> tuple[Segment, ...]:
    """Return all segments a cleaning goes over, oldest first; none where it is not worth it yet.

    It is where the dirty part is larger than `min.cleanable.dirty.ratio` of all, where something dirty is older than
    `max.compaction.lag.ms`, and where tombstones may go.
    """
    end = _end(head, policy)
    settled = takewhile(lambda segment: segment.is_closed and segment.last < end, segments)
    found = tuple(takewhile(lambda segment: segment.max_ts <= now_ms - policy.min_lag_ms, settled))
    dirty = [segment for segment in found if segment.last >= head.compacted_to]
    stored = sum(segment.bytes for segment in found)
    is_worth = sum(segment.bytes for segment in dirty) > policy.min_dirty_ratio * stored
    is_late = any(segment.min_ts < now_ms - policy.max_lag_ms for segment in dirty)
    has_due = any(is_due(entry, now_ms) for segment in found for entry in segment.entries)
    return found if (dirty and (is_worth or is_late)) or has_due else ()


def next_cleaning_ms(segments: Sequence[Segment], head: Head, policy: CleanupPolicy, *, now_ms: int) -> int | None:
    """Return when, without anything being written, there may be something to clean next; `None`: never."""
    end = _end(head, policy)
    settled = [segment for segment in segments if segment.is_closed and segment.last < end]
    times = [segment.max_ts + policy.min_lag_ms for segment in settled]
    times += [segment.min_ts + policy.max_lag_ms + 1 for segment in settled if segment.last >= head.compacted_to]
    times += [entry.horizon_ms for segment in settled for entry in segment.entries if entry.horizon_ms is not None]
    return min((at for at in times if at > now_ms), default=None)


def _end(head: Head, policy: CleanupPolicy) -> int:
    """Return where cleaning ends: at what is not decided, and at what is not uploaded yet (F-R-020)."""
    return min(head.bounds.stable, head.uploaded_to) if policy.waits else head.bounds.stable


def is_due(entry: Entry, now_ms: int) -> bool:
    """Tell whether the tombstones of a part may go."""
    return entry.horizon_ms is not None and entry.horizon_ms <= now_ms
