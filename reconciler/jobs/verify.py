"""Compare two logs: counts, ends and digests by partition.

By default digests that the logs keep are added up, which reads no whole parts; `deep` reads every record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from reconciler.jobs.comparison import (
    Comparison,
    Doubt,
    Explained,
    Pair,
    PartitionComparison,
    Tally,
    first_difference,
    kept_digest,
    pairs,
    read_digest,
)
from reconciler.jobs.flows import Piece, pieces_of, rounds
from reconciler.jobs.ordered import bounds_as_compacted, explanations
from reconciler.jobs.progress import JobProgress, Report, unseen
from reconciler.jobs.stage import Engine, Tasks
from reconciler.records.log import Bounds, Digest, Extent, OffsetRange, TopicLog

if TYPE_CHECKING:
    import pyarrow as pa


# Digests of ranges of two logs: from what they keep, or by reading every record in Spark tasks.


@dataclass(frozen=True, slots=True)
class Reading:
    """What both logs have in a range that lies either within the offsets both have, or outside."""

    partition: int
    offsets: OffsetRange
    left: Digest
    right: Digest


def kept_readings(left: TopicLog, right: TopicLog, both: Sequence[Pair]) -> Iterator[Reading]:
    """Yield what both logs keep of every stretch, without reading whole parts."""
    for pair in both:
        for stretch in pair.stretches:
            ours = kept_digest(left, pair.partition, stretch) if pair.left else Digest()
            theirs = kept_digest(right, pair.partition, stretch) if pair.right else Digest()
            yield Reading(pair.partition, stretch, ours, theirs)


class DeepReading:
    """Reads every record of both logs, each range of both in one task, and digests them."""

    def __init__(self, left: TopicLog, right: TopicLog, both: Sequence[Pair], progress: Report) -> None:
        self._progress = progress
        self._pieces = [piece for pair in both for piece in _pieces(left, right, pair)]
        lacking = (
            frozenset(pair.partition for pair in both if pair.left is None),
            frozenset(pair.partition for pair in both if pair.right is None),
        )
        self._read = partial(read_pieces, left, right, lacking)

    def readings(self, engine: Engine) -> Iterator[Reading]:
        """Yield what was read, in rounds."""
        began = engine.clock()
        done: list[Reading] = []
        for taken in self._rounds(engine):
            for reading in taken:
                done.append(reading)
                yield reading
            self._tell(done, engine.clock() - began)

    def _rounds(self, engine: Engine) -> Iterator[list[Reading]]:
        if not self._pieces:
            return
        tasks = Tasks(engine)
        with tasks.over(sum(piece.stored_bytes for piece in self._pieces), "reconciler: verify"):
            for pieces in rounds(self._pieces, tasks.budget):
                began = engine.clock()
                found, error = tasks.run(pieces, self._read, what="comparing records")
                if error is not None:
                    raise error
                tasks.budget.learn(pieces, engine.clock() - began, cores=tasks.cores)
                yield found

    def _tell(self, done: Sequence[Reading], seconds: float) -> None:
        share = sum(reading.offsets.length for reading in done) / sum(piece.offsets.length for piece in self._pieces)
        stored = sum(piece.stored_bytes for piece in self._pieces)
        self._progress(
            JobProgress(
                records=sum(reading.left.records for reading in done),
                records_total=sum(piece.records for piece in self._pieces),
                bytes=int(stored * share),
                bytes_total=stored,
                seconds=seconds,
            )
        )


def read_pieces(
    left: TopicLog, right: TopicLog, lacking: tuple[frozenset[int], frozenset[int]], pieces: Sequence[Piece]
) -> Iterator[Reading]:
    """Do one task: read pieces of both logs, wherever it runs. `lacking`: the partitions each of them lacks."""
    left.check_shared()
    right.check_shared()
    for piece in pieces:
        number, offsets = piece.partition, piece.offsets
        ours = Digest() if number in lacking[0] else read_digest(left, number, offsets)
        theirs = Digest() if number in lacking[1] else read_digest(right, number, offsets)
        yield Reading(number, offsets, ours, theirs)


def _pieces(left: TopicLog, right: TopicLog, pair: Pair) -> Iterator[Piece]:
    for stretch in pair.stretches:
        log = left if pair.left is not None and pair.left.start <= stretch.start < pair.left.stable else right
        yield from pieces_of(pair.partition, stretch, log.extents(pair.partition, stretch))


# A part of a log: what lies at or after some offsets, for comparing what is new without the rest.


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
        """Return every partition's bounds, with how far it may be compacted; none begins before its start."""
        return {
            number: replace(found, start=max(found.start, min(self.starts.get(number, 0), found.end)))
            for number, found in bounds_as_compacted(self.log, only).items()
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


_LOCATED: Final = 10
"""Of how many partitions it is looked up where they begin to differ."""


def verify(
    engine: Engine,
    left: TopicLog,
    right: TopicLog,
    *,
    deep: bool = False,
    since: Mapping[int, int] | None = None,
    progress: Report = unseen,
) -> Comparison:
    """Compare two logs up to their last stable offsets as they are now.

    Where a partition was compacted, kept digests tell less, and records are read to see that what only one log has is
    superseded in the other; `since` says from which offset on that is of interest. Else `engine` is used only when
    `deep`.

    Raises:
        UserError: A log is gone, or an executor does not see it.
        RetryableError: Spark gave up.
    """
    both = tuple(
        pair.since((since or {}).get(pair.partition, 0)) if pair.is_compacted else pair
        for pair in pairs(bounds_as_compacted(left), bounds_as_compacted(right))
    )
    if deep:
        readings = list(DeepReading(left, right, both, progress).readings(engine))
    else:
        readings = list(kept_readings(left, right, both))
    tallies = _tallied(both, readings)
    at = _first_differing(both, readings)
    in_doubt = [pair for pair in both if _is_in_doubt(pair, *tallies[pair.partition])]
    whys = explanations(engine, [Doubt((left, right), pair, (left, right)) for pair in in_doubt])
    results = [_compared(pair, tallies[pair.partition], whys.get(pair.partition)) for pair in both]
    return Comparison(tuple(_located(left, right, results, at, is_deep=deep)), deep)


def _is_in_doubt(pair: Pair, ours: Tally, theirs: Tally) -> bool:
    """Tell whether records differ where compaction may be why."""
    return pair.is_compacted and ours.common != theirs.common


def _compared(pair: Pair, tallies: tuple[Tally, Tally], why: Explained | None) -> PartitionComparison:
    """Return what differs of one partition; what compaction explains does not."""
    found = pair.compared(*tallies)
    if why is None:
        return found
    if why.first_difference is not None:
        return replace(found, first_difference=why.first_difference)
    rest = tuple(difference for difference in found.differences if difference not in {"records", "digest"})
    return replace(found, differences=rest, superseded=why.superseded)


def _tallied(both: Sequence[Pair], readings: Sequence[Reading]) -> dict[int, tuple[Tally, Tally]]:
    common = {pair.partition: pair.common for pair in both}
    tallies = {pair.partition: (Tally(), Tally()) for pair in both}
    for reading in readings:
        is_common = common[reading.partition].holds(reading.offsets)
        for tally, digest in zip(tallies[reading.partition], (reading.left, reading.right), strict=True):
            tally.add(digest, is_common=is_common)
    return tallies


def _first_differing(both: Sequence[Pair], readings: Sequence[Reading]) -> dict[int, OffsetRange]:
    """Return the first range of each partition, among what both logs have, that is not the same."""
    common = {pair.partition: pair.common for pair in both}
    first: dict[int, OffsetRange] = {}
    for reading in readings:
        if reading.left != reading.right and common[reading.partition].holds(reading.offsets):
            first[reading.partition] = min(reading.offsets, first.get(reading.partition, reading.offsets))
    return first


def _located(
    left: TopicLog,
    right: TopicLog,
    results: Sequence[PartitionComparison],
    at: Mapping[int, OffsetRange],
    *,
    is_deep: bool,
) -> Iterator[PartitionComparison]:
    """Add to the first partitions whose records differ where they begin to."""
    looked_for = sorted(at)[:_LOCATED]
    for result in results:
        is_open = {"records", "digest"} & set(result.differences) and result.first_difference is None
        if is_open and result.partition in looked_for:
            found = first_difference(left, right, result.partition, at[result.partition], is_deep=is_deep)
            yield replace(result, first_difference=found)
        else:
            yield result
