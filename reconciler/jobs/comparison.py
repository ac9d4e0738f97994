"""Results of comparing two logs, and the search for the first difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, runtime_checkable

from reconciler.jobs.flows import Piece, iter_pieces
from reconciler.records.log import Bounds, Digest, OffsetRange, TopicLog
from reconciler.runtime.dataclass import dataclass, field, replace

if TYPE_CHECKING:
    import pyarrow as pa


Difference = Literal["partition", "start", "end", "records", "digest"]


@dataclass(frozen=True, slots=True)
class PartitionSide:
    """A partition of one log, up to its last stable offset."""

    start: int
    end: int
    records: int
    digest: Digest


@dataclass(frozen=True, slots=True)
class PartitionComparison:
    """Comparison of a partition. A side is `None` if its log lacks the partition."""

    partition: int
    left: PartitionSide | None
    right: PartitionSide | None
    differences: tuple[Difference, ...] = ()
    first_difference: int | None = None
    """First common offset at which records differ or one is missing, if searched."""
    superseded: int = 0
    """Number of records that compaction removed from only one log."""

    @property
    def is_equal(self) -> bool:
        """Whether the partition is equal in both logs."""
        return not self.differences


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of two logs by partition."""

    partitions: tuple[PartitionComparison, ...]
    is_deep: bool
    """Whether records were read instead of stored digests."""

    @property
    def is_equal(self) -> bool:
        """Whether no partition differs."""
        return all(partition.is_equal for partition in self.partitions)

    @property
    def differing(self) -> tuple[PartitionComparison, ...]:
        """The partitions that differ."""
        return tuple(partition for partition in self.partitions if not partition.is_equal)


@dataclass(slots=True)
class DigestTally:
    """A partition's digests of all offsets, and of offsets that both logs have."""

    whole: Digest = field(default_factory=Digest)
    common: Digest = field(default_factory=Digest)

    def add(self, digest: Digest, *, is_common: bool) -> None:
        """Add a range's digest."""
        self.whole += digest
        if is_common:
            self.common += digest


@dataclass(frozen=True, slots=True)
class PartitionPair:
    """Offset bounds of one partition in both logs."""

    partition: int
    left: Bounds | None
    right: Bounds | None

    @property
    def is_compacted(self) -> bool:
        """Whether compaction may have removed records from one log."""
        return any(bounds is not None and bounds.compacted_to > 0 for bounds in (self.left, self.right))

    def limit_from(self, offset: int) -> PartitionPair:
        """Return the pair without offsets below `offset`."""
        return PartitionPair(
            self.partition, _limit_bounds_from(self.left, offset), _limit_bounds_from(self.right, offset)
        )

    @property
    def common(self) -> OffsetRange:
        """Offsets that both logs have; empty if one log lacks the partition."""
        if self.left is None or self.right is None:
            return OffsetRange(0, 0)
        start = max(self.left.start, self.right.start)
        return OffsetRange(start, max(start, min(self.left.stable, self.right.stable)))

    @property
    def stretches(self) -> tuple[OffsetRange, ...]:
        """The common offsets, and the ranges before and after them, without empty ranges."""
        known = [bounds for bounds in (self.left, self.right) if bounds is not None]
        first = min(bounds.start for bounds in known)
        last = max(first, *(bounds.stable for bounds in known))
        common = self.common
        if not common.length:
            return (OffsetRange(first, last),) if last > first else ()
        cuts = (OffsetRange(first, common.start), common, OffsetRange(common.stop, last))
        return tuple(cut for cut in cuts if cut.length)

    def compare(self, left: DigestTally, right: DigestTally) -> PartitionComparison:
        """Compare the partition by the logs' digests."""
        differing: list[Difference] = []
        if self.left is None or self.right is None:
            differing.append("partition")
        else:
            if self.left.start != self.right.start:
                differing.append("start")
            if self.left.stable != self.right.stable:
                differing.append("end")
        if left.common.records != right.common.records:
            differing.append("records")
        if left.common != right.common:
            differing.append("digest")
        return PartitionComparison(
            self.partition, _build_side(self.left, left), _build_side(self.right, right), tuple(differing)
        )


def _limit_bounds_from(bounds: Bounds | None, offset: int) -> Bounds | None:
    return None if bounds is None else replace(bounds, start=max(bounds.start, min(offset, bounds.stable)))


def _build_side(bounds: Bounds | None, tally: DigestTally) -> PartitionSide | None:
    if bounds is None:
        return None
    return PartitionSide(bounds.start, bounds.stable, tally.whole.records, tally.whole)


class Records(Protocol):
    """The part of `TopicLog` that a comparison needs."""

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield the records in `offsets`, in order."""
        ...


@runtime_checkable
class RenumberedLog(Protocol):
    """A log that returns records with another log's offsets."""

    foreign: int | None
    """Own offset of the first record that the other log lacks."""


LEFT, RIGHT = 0, 1


@dataclass(frozen=True, slots=True)
class DisputedPartition:
    """A compacted partition whose differences need an explanation. Picklable."""

    logs: tuple[Records, Records]
    pair: PartitionPair
    stored: tuple[TopicLog, TopicLog]
    """The two logs whose extents divide the work into pieces."""

    def list_pieces(self) -> Iterator[tuple[int, Piece]]:
        """Yield (`LEFT` or `RIGHT`, piece) up to both ends: a superseding record may follow the common offsets."""
        for side, bounds in ((LEFT, self.pair.left), (RIGHT, self.pair.right)):
            start = self.pair.common.start
            if bounds is not None and start < bounds.stable:
                offsets = OffsetRange(start, bounds.stable)
                extents = self.stored[side].list_extents(self.pair.partition, offsets)
                yield from ((side, piece) for piece in iter_pieces(self.pair.partition, offsets, extents))


@dataclass(frozen=True, slots=True)
class DisputeResult:
    """Number of differences that compaction explains, and the first other difference."""

    superseded: int
    first_difference: int | None
    foreign: int | None = None
    """Own offset of the first record of a `RenumberedLog` that the other log lacks."""


def pair_partitions(left: Mapping[int, Bounds], right: Mapping[int, Bounds]) -> tuple[PartitionPair, ...]:
    """Return the partitions of both logs in order."""
    return tuple(PartitionPair(number, left.get(number), right.get(number)) for number in sorted({*left, *right}))


_MIN_HALVED: Final = 4096
"""Length of an offset range read instead of halved."""


def sum_stored_digests(log: TopicLog, partition: int, offsets: OffsetRange) -> Digest:
    """Return a range's digest from stored digests."""
    return sum(log.read_digests(partition, offsets), Digest())


def read_digest(log: TopicLog, partition: int, offsets: OffsetRange) -> Digest:
    """Return a range's digest by reading its records."""
    from reconciler.records.hashes import compute_digest  # noqa: PLC0415 - loads numpy

    return sum((compute_digest(batch, base=0) for batch in log.read(partition, offsets)), Digest())


def find_first_difference(
    left: TopicLog, right: TopicLog, partition: int, offsets: OffsetRange, *, is_deep: bool
) -> int | None:
    """Return the first offset whose record differs or is missing, or `None`."""
    digest = read_digest if is_deep else sum_stored_digests
    start, stop = offsets.start, offsets.stop
    while stop - start > _MIN_HALVED:
        middle = (start + stop) // 2
        half = OffsetRange(start, middle)
        if digest(left, partition, half) == digest(right, partition, half):
            start = middle
        else:
            stop = middle
    rest = OffsetRange(start, stop)
    for one, other in zip_longest(
        read_hashed_records(left, partition, rest), read_hashed_records(right, partition, rest)
    ):
        if one != other:
            return min(record.offset for record in (one, other) if record is not None)
    return None


class HashedRecord(NamedTuple):
    """A record's offset and hash."""

    offset: int
    hash: bytes


def read_hashed_records(log: TopicLog, partition: int, offsets: OffsetRange) -> Iterator[HashedRecord]:
    """Yield a range's records as hashes, in order."""
    from reconciler.records.hashes import compute_hashes  # noqa: PLC0415 - loads numpy

    for batch in log.read(partition, offsets):
        for offset, row in zip(batch.column("offset").to_pylist(), compute_hashes(batch), strict=True):
            yield HashedRecord(offset, bytes(row))
