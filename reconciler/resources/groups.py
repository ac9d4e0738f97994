"""Consumer groups, their offsets, and offset resets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, assert_never

from reconciler.runtime.dataclass import dataclass

READING_MS: Final = 24 * 60 * 60 * 1000
"""A group counts as reading for this time in ms after its last commit."""


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """Offsets of a group in one partition."""

    topic: str
    partition: int
    committed: int | None
    """Null without a commit. May be outside the log."""
    start: int
    stable: int
    """Last stable offset, the limit for `read_committed`."""
    end: int
    at_ms: int | None = None
    """Time of the group's own commit in ms. Null if a reset or link set the offset."""
    metadata: str = ""

    @property
    def lag(self) -> int | None:
        """Number of unread offsets, including deleted offsets; `None` without a commit."""
        return None if self.committed is None else max(0, self.stable - self.committed)

    @property
    def next_readable_offset(self) -> int | None:
        """Next offset to read within the current log; `None` without a commit."""
        return None if self.committed is None else min(max(self.committed, self.start), self.end)


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """Consumer group, in all topics or one."""

    name: str
    is_reading: bool
    """Whether the group committed within 24 hours."""
    last_commit_ms: int | None
    """Time of the group's own last commit in ms. Null without commits."""
    offsets: tuple[GroupOffset, ...]
    type: str | None = None
    """`classic`, `consumer`, `share`, or another type that brokers report. Null if the platform has only one type."""

    @property
    def is_share(self) -> bool:
        """Whether members share partitions (KIP-932), so the group has no offsets to set or copy."""
        return self.type == "share"

    @property
    def lag(self) -> int:
        """Number of unread offsets in partitions with a commit."""
        return sum(offset.lag or 0 for offset in self.offsets)

    def list_recently_read(self, now_ms: int) -> frozenset[str]:
        """Return the topics in which the group committed within 24 hours."""
        return frozenset(
            offset.topic for offset in self.offsets if offset.at_ms is not None and now_ms - offset.at_ms < READING_MS
        )


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """Reset to the start of the log."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """Reset to the end of the log."""


@dataclass(frozen=True, slots=True)
class ToTime:
    """Reset to the first record at or after a time."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class ToOffset:
    """Reset to an offset, or to the nearest offset in the log."""

    offset: int


@dataclass(frozen=True, slots=True)
class ByShift:
    """Move commits by a number of offsets, back if negative. Partitions without a commit do not change."""

    offsets: int


Reset: TypeAlias = ToEarliest | ToLatest | ToTime | ToOffset | ByShift


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """Effect of a reset on one partition. `before` is `None` without a commit."""

    topic: str
    partition: int
    before: int | None
    after: int


def plan_offset_move(row: GroupOffset, reset: Reset, at_time: Callable[[int], int | None]) -> OffsetMove | None:
    """Return a reset's effect on one partition; `None` if nothing changes.

    `at_time` returns the first offset at or after a time; `None` if all records are older.
    """
    after: int | None
    match reset:
        case ToEarliest():
            after = row.start
        case ToLatest():
            after = row.stable
        case ToOffset(offset=offset):
            after = offset
        case ToTime(at_ms=at_ms):
            first_offset = at_time(at_ms)
            after = row.stable if first_offset is None else first_offset
        case ByShift(offsets=offsets):
            after = None if row.committed is None else row.committed + offsets
        case _:
            assert_never(reset)
    if after is None:
        return None
    after = min(max(after, row.start), row.stable)
    return None if after == row.committed else OffsetMove(row.topic, row.partition, row.committed, after)
