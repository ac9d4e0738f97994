"""The result of comparing two logs, and where they differ first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, runtime_checkable

from reconciler.jobs.flows import Piece, pieces_of
from reconciler.records.hashes import digest_of, hashes_of
from reconciler.records.log import Bounds, Digest, OffsetRange, TopicLog

if TYPE_CHECKING:
    import pyarrow as pa


Difference = Literal["partition", "start", "end", "records", "digest"]


@dataclass(frozen=True, slots=True)
class Side:
    """A partition as one log has it, up to its last stable offset."""

    start: int
    end: int
    records: int
    digest: Digest


@dataclass(frozen=True, slots=True)
class PartitionComparison:
    """One partition of both logs; `None`: that log does not have it.

    `records` and `digest` are compared over the offsets both have, so that a log which is merely behind shows only in
    `end`.
    """

    partition: int
    left: Side | None
    right: Side | None
    differences: tuple[Difference, ...] = ()
    first_difference: int | None = None
    """The first offset, among those both have, whose record only one has or is not the same; looked for in some."""
    superseded: int = 0
    """Records that only one log has, because the other was compacted: no difference."""

    @property
    def is_equal(self) -> bool:
        """Tell whether nothing differs."""
        return not self.differences


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two logs, partition by partition, lowest first. `is_deep`: every record was read."""

    partitions: tuple[PartitionComparison, ...]
    is_deep: bool

    @property
    def is_equal(self) -> bool:
        """Tell whether no partition differs."""
        return all(partition.is_equal for partition in self.partitions)

    @property
    def differing(self) -> tuple[PartitionComparison, ...]:
        """Return the partitions that differ."""
        return tuple(partition for partition in self.partitions if not partition.is_equal)


@dataclass(slots=True)
class Tally:
    """The digests of one partition of one log, gathered: of everything, and of the offsets both logs have."""

    whole: Digest = field(default_factory=Digest)
    common: Digest = field(default_factory=Digest)

    def add(self, digest: Digest, *, is_common: bool) -> None:
        """Count a range."""
        self.whole += digest
        if is_common:
            self.common += digest


@dataclass(frozen=True, slots=True)
class Pair:
    """One partition of two logs, and what was read of it."""

    partition: int
    left: Bounds | None
    right: Bounds | None

    @property
    def is_compacted(self) -> bool:
        """Tell whether one of the logs may lack records that the other still has."""
        return any(bounds is not None and bounds.compacted_to > 0 for bounds in (self.left, self.right))

    def since(self, offset: int) -> Pair:
        """Return what lies at or after an offset."""
        return Pair(self.partition, _since(self.left, offset), _since(self.right, offset))

    @property
    def common(self) -> OffsetRange:
        """The offsets both have; empty where one lacks the partition."""
        if self.left is None or self.right is None:
            return OffsetRange(0, 0)
        start = max(self.left.start, self.right.start)
        return OffsetRange(start, max(start, min(self.left.stable, self.right.stable)))

    @property
    def stretches(self) -> tuple[OffsetRange, ...]:
        """What either has: before the common offsets, these, and after them; without the empty ones."""
        found = [bounds for bounds in (self.left, self.right) if bounds is not None]
        first = min(bounds.start for bounds in found)
        last = max(first, *(bounds.stable for bounds in found))
        common = self.common
        if not common.length:
            return (OffsetRange(first, last),) if last > first else ()
        cuts = (OffsetRange(first, common.start), common, OffsetRange(common.stop, last))
        return tuple(cut for cut in cuts if cut.length)

    def compared(self, left: Tally, right: Tally) -> PartitionComparison:
        """Return what differs."""
        found: list[Difference] = []
        if self.left is None or self.right is None:
            found.append("partition")
        else:
            if self.left.start != self.right.start:
                found.append("start")
            if self.left.stable != self.right.stable:
                found.append("end")
        if left.common.records != right.common.records:
            found.append("records")
        if left.common != right.common:
            found.append("digest")
        return PartitionComparison(self.partition, _side(self.left, left), _side(self.right, right), tuple(found))


def _since(bounds: Bounds | None, offset: int) -> Bounds | None:
    return None if bounds is None else replace(bounds, start=max(bounds.start, min(offset, bounds.stable)))


def _side(bounds: Bounds | None, tally: Tally) -> Side | None:
    if bounds is None:
        return None
    return Side(bounds.start, bounds.stable, tally.whole.records, tally.whole)


class Records(Protocol):
    """What is read of a log to compare it."""

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield what is readable in `offsets`, in order."""
        ...


@runtime_checkable
class Renumbered(Protocol):
    """A log read by the numbers of another one: some of its records may have none there."""

    foreign: int | None
    """The first of those that was read, by its own number."""


LEFT, RIGHT = 0, 1


@dataclass(frozen=True, slots=True)
class Doubt:
    """A partition of two logs, one of which was compacted: what only one has is to be explained. Picklable."""

    logs: tuple[Records, Records]
    pair: Pair
    stored: tuple[TopicLog, TopicLog]
    """By whose extents each of them is read in parts."""

    def parts(self) -> Iterator[tuple[int, Piece]]:
        """Yield what is to be read of each side: from where both begin, as what supersedes a record may come later."""
        for side, bounds in ((LEFT, self.pair.left), (RIGHT, self.pair.right)):
            start = self.pair.common.start
            if bounds is not None and start < bounds.stable:
                offsets = OffsetRange(start, bounds.stable)
                extents = self.stored[side].extents(self.pair.partition, offsets)
                yield from ((side, piece) for piece in pieces_of(self.pair.partition, offsets, extents))


@dataclass(frozen=True, slots=True)
class Explained:
    """How many records only one log has and the other once had; the first offset that this does not explain."""

    superseded: int
    first_difference: int | None
    foreign: int | None = None
    """The first record, by its own number, that has none in the other log."""


def pairs(left: Mapping[int, Bounds], right: Mapping[int, Bounds]) -> tuple[Pair, ...]:
    """Return the partitions of either log, lowest first."""
    return tuple(Pair(number, left.get(number), right.get(number)) for number in sorted({*left, *right}))


# Where two logs begin to differ: halves of a range are compared by digest until what is left can be read.


_READ: Final = 4096
"""Ranges this short are read instead of halved."""


def kept_digest(log: TopicLog, partition: int, offsets: OffsetRange) -> Digest:
    """Return the digest of a range from what the log keeps."""
    return sum(log.digests(partition, offsets), Digest())


def read_digest(log: TopicLog, partition: int, offsets: OffsetRange) -> Digest:
    """Return the digest of a range from its records."""
    return sum((digest_of(batch, base=0) for batch in log.read(partition, offsets)), Digest())


def first_difference(
    left: TopicLog, right: TopicLog, partition: int, offsets: OffsetRange, *, is_deep: bool
) -> int | None:
    """Return the first offset whose record only one log has, or whose records differ; `None` where none does."""
    digest = read_digest if is_deep else kept_digest
    start, stop = offsets.start, offsets.stop
    while stop - start > _READ:
        middle = (start + stop) // 2
        half = OffsetRange(start, middle)
        if digest(left, partition, half) == digest(right, partition, half):
            start = middle
        else:
            stop = middle
    rest = OffsetRange(start, stop)
    for one, other in zip_longest(hashed_records(left, partition, rest), hashed_records(right, partition, rest)):
        if one != other:
            return min(record.offset for record in (one, other) if record is not None)
    return None


class HashedRecord(NamedTuple):
    """A record by its offset and the hash of all of it."""

    offset: int
    hash: bytes


def hashed_records(log: TopicLog, partition: int, offsets: OffsetRange) -> Iterator[HashedRecord]:
    """Yield what is readable in a range, in order."""
    for batch in log.read(partition, offsets):
        for offset, row in zip(batch.column("offset").to_pylist(), hashes_of(batch), strict=True):
            yield HashedRecord(offset, bytes(row))
