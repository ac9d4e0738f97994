"""Consumer groups: their offsets, and where these can be reset to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

READING_MS: Final = 24 * 60 * 60 * 1000
"""A group is reading while its last commit is younger than this."""


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """One partition of a topic as a group reads it. `stable` is what `read_committed` may reach."""

    topic: str
    partition: int
    committed: int | None
    """Null: never committed. On Kafka it may be outside the log."""
    start: int
    stable: int
    """What read_committed may reach."""
    end: int
    at_ms: int | None = None
    """When it committed that. Null: never, or it was set by a reset or a link."""
    metadata: str = ""

    @property
    def lag(self) -> int | None:
        """How many offsets it has still to read, also those that are gone; `None` where it never committed."""
        return None if self.committed is None else max(0, self.stable - self.committed)

    @property
    def reads_on(self) -> int | None:
        """The next offset it can read, within the log as it is now; `None` where it never committed."""
        return None if self.committed is None else min(max(self.committed, self.start), self.end)


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """One group, of all topics or of one. There may be no membership to ask: *reading* is a commit within 24 hours."""

    name: str
    is_reading: bool
    """It committed within the last 24 hours."""
    last_commit_ms: int | None
    """Null: it never committed itself."""
    offsets: tuple[GroupOffset, ...]
    type: str | None = None
    """`classic`, `consumer`, `share`, or as brokers call it. Null: the platform has one type."""

    @property
    def is_share(self) -> bool:
        """Whether its members share partitions (KIP-932): it commits no offsets to be set or carried elsewhere."""
        return self.type == "share"

    @property
    def lag(self) -> int:
        """How many offsets it has still to read, of the partitions it committed."""
        return sum(offset.lag or 0 for offset in self.offsets)

    def topics_read(self, now_ms: int) -> frozenset[str]:
        """Return the topics of which it committed within 24 hours."""
        return frozenset(
            offset.topic for offset in self.offsets if offset.at_ms is not None and now_ms - offset.at_ms < READING_MS
        )


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """Read everything again."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """Read only what comes from now on."""


@dataclass(frozen=True, slots=True)
class ToTime:
    """Read from the first record at or after a time."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class ToOffset:
    """Read from an offset, or from the nearest one the log has."""

    offset: int


@dataclass(frozen=True, slots=True)
class ByShift:
    """Read so many offsets further on, or (negative) further back; only what was committed."""

    offsets: int


Reset: TypeAlias = ToEarliest | ToLatest | ToTime | ToOffset | ByShift


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """What a reset does to one partition; `before` is `None` where the group never committed it."""

    topic: str
    partition: int
    before: int | None
    after: int


def move_of(row: GroupOffset, reset: Reset, at_time: Callable[[int], int | None]) -> OffsetMove | None:
    """Return what a reset would set of one partition, within its log as it is now; `None`: it stays.

    `at_time` finds the first offset at or after a time, `None` where all are older.
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
