"""Compare two logs by end offsets, counts and digests of each partition."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from reconciler.jobs.comparison import (
    Comparison,
    DigestTally,
    DisputedPartition,
    DisputeResult,
    PartitionComparison,
    PartitionPair,
    find_first_difference,
    pair_partitions,
    read_digest,
    sum_stored_digests,
)
from reconciler.jobs.flows import Piece, iter_pieces, iter_rounds
from reconciler.jobs.ordered import explain_differences, read_compacted_bounds
from reconciler.jobs.progress import JobProgress, Report, ignore_progress
from reconciler.jobs.stage import Engine, Tasks
from reconciler.records.log import Bounds, Digest, Extent, OffsetRange, TopicLog
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class DigestPair:
    """Digests of one range in both logs. The range is within or outside the common offsets."""

    partition: int
    offsets: OffsetRange
    left: Digest
    right: Digest


def iter_stored_digests(left: TopicLog, right: TopicLog, both: Sequence[PartitionPair]) -> Iterator[DigestPair]:
    """Yield stored digests of both logs by range."""
    for pair in both:
        for stretch in pair.stretches:
            ours = sum_stored_digests(left, pair.partition, stretch) if pair.left else Digest()
            theirs = sum_stored_digests(right, pair.partition, stretch) if pair.right else Digest()
            yield DigestPair(pair.partition, stretch, ours, theirs)


class DeepReader:
    """Computes digests of all records of both logs, one task per range."""

    def __init__(self, left: TopicLog, right: TopicLog, both: Sequence[PartitionPair], progress: Report) -> None:
        self._progress = progress
        self._pieces = [piece for pair in both for piece in _list_pieces(left, right, pair)]
        lacking = (
            frozenset(pair.partition for pair in both if pair.left is None),
            frozenset(pair.partition for pair in both if pair.right is None),
        )
        self._read = partial(digest_pieces, left, right, lacking)

    def read_digests(self, engine: Engine) -> Iterator[DigestPair]:
        """Yield digests of the same offset ranges of both logs. Reports progress."""
        began = engine.clock()
        done: list[DigestPair] = []
        for taken in self._run_rounds(engine):
            for reading in taken:
                done.append(reading)
                yield reading
            self._report_progress(done, engine.clock() - began)

    def _run_rounds(self, engine: Engine) -> Iterator[list[DigestPair]]:
        if not self._pieces:
            return
        tasks = Tasks(engine)
        with tasks.choose_engine(sum(piece.stored_bytes for piece in self._pieces), "reconciler: verify"):
            for pieces in iter_rounds(self._pieces, tasks.budget):
                began = engine.clock()
                readings, error = tasks.run(pieces, self._read, what="comparing records")
                if error is not None:
                    raise error
                tasks.budget.adapt(pieces, engine.clock() - began, cores=tasks.cores)
                yield readings

    def _report_progress(self, done: Sequence[DigestPair], seconds: float) -> None:
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


def digest_pieces(
    left: TopicLog, right: TopicLog, lacking: tuple[frozenset[int], frozenset[int]], pieces: Sequence[Piece]
) -> Iterator[DigestPair]:
    """Yield digests of pieces in both logs. `lacking`: partitions that each log lacks."""
    left.check_shared()
    right.check_shared()
    for piece in pieces:
        number, offsets = piece.partition, piece.offsets
        ours = Digest() if number in lacking[0] else read_digest(left, number, offsets)
        theirs = Digest() if number in lacking[1] else read_digest(right, number, offsets)
        yield DigestPair(number, offsets, ours, theirs)


def _list_pieces(left: TopicLog, right: TopicLog, pair: PartitionPair) -> Iterator[Piece]:
    for stretch in pair.stretches:
        log = left if pair.left is not None and pair.left.start <= stretch.start < pair.left.stable else right
        yield from iter_pieces(pair.partition, stretch, log.list_extents(pair.partition, stretch))


@dataclass(frozen=True)
class LogSince:
    """A log without offsets below `starts`. Partitions not in `starts` are complete. Picklable."""

    log: TopicLog
    starts: Mapping[int, int]

    @property
    def topic_id(self) -> str | None:
        """Topic id, or `None`."""
        return self.log.topic_id

    def check_shared(self) -> None:
        """Raise if this machine cannot read the log."""
        self.log.check_shared()

    def read_bounds(self, only: Collection[int] | None = None) -> Mapping[int, Bounds]:
        """Return partitions' bounds."""
        return {
            number: replace(bounds, start=max(bounds.start, min(self.starts.get(number, 0), bounds.end)))
            for number, bounds in read_compacted_bounds(self.log, only).items()
        }

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield the records in `offsets`."""
        return self.log.read(partition, self._limit_range(partition, offsets))

    def find_offset_at(self, partition: int, timestamp_ms: int) -> int | None:
        """Return the first offset at or after a time."""
        offset = self.log.find_offset_at(partition, timestamp_ms)
        return None if offset is None else max(offset, self.starts.get(partition, 0))

    def list_extents(self, partition: int, offsets: OffsetRange) -> Iterator[Extent]:
        """Yield the stored extents of `offsets`."""
        return self.log.list_extents(partition, self._limit_range(partition, offsets))

    def read_digests(self, partition: int, offsets: OffsetRange) -> Iterator[Digest]:
        """Yield digests that cover `offsets`."""
        return self.log.read_digests(partition, self._limit_range(partition, offsets))

    def _limit_range(self, partition: int, offsets: OffsetRange) -> OffsetRange:
        start = max(offsets.start, self.starts.get(partition, 0))
        return OffsetRange(start, max(start, offsets.stop))


_MAX_LOCATED: Final = 10


def compare_logs(
    engine: Engine,
    left: TopicLog,
    right: TopicLog,
    *,
    deep: bool = False,
    since: Mapping[int, int] | None = None,
    progress: Report = ignore_progress,
) -> Comparison:
    """Compare two logs up to their last stable offsets, by stored digests or (`deep`) by records.

    If compacted partitions differ, records from `since` on are read to check that compaction explains the differences.
    """
    both = tuple(
        pair.limit_from((since or {}).get(pair.partition, 0)) if pair.is_compacted else pair
        for pair in pair_partitions(read_compacted_bounds(left), read_compacted_bounds(right))
    )
    if deep:
        readings = list(DeepReader(left, right, both, progress).read_digests(engine))
    else:
        readings = list(iter_stored_digests(left, right, both))
    tallies = _sum_digests(both, readings)
    at = _find_first_differing_ranges(both, readings)
    in_doubt = [pair for pair in both if _is_in_doubt(pair, *tallies[pair.partition])]
    whys = explain_differences(engine, [DisputedPartition((left, right), pair, (left, right)) for pair in in_doubt])
    results = [_compare_pair(pair, tallies[pair.partition], whys.get(pair.partition)) for pair in both]
    return Comparison(tuple(_locate_differences(left, right, results, at, is_deep=deep)), deep)


def _is_in_doubt(pair: PartitionPair, ours: DigestTally, theirs: DigestTally) -> bool:
    return pair.is_compacted and ours.common != theirs.common


def _compare_pair(
    pair: PartitionPair, tallies: tuple[DigestTally, DigestTally], why: DisputeResult | None
) -> PartitionComparison:
    comparison = pair.compare(*tallies)
    if why is None:
        return comparison
    if why.first_difference is not None:
        return replace(comparison, first_difference=why.first_difference)
    rest = tuple(difference for difference in comparison.differences if difference not in {"records", "digest"})
    return replace(comparison, differences=rest, superseded=why.superseded)


def _sum_digests(
    both: Sequence[PartitionPair], readings: Sequence[DigestPair]
) -> dict[int, tuple[DigestTally, DigestTally]]:
    common = {pair.partition: pair.common for pair in both}
    tallies = {pair.partition: (DigestTally(), DigestTally()) for pair in both}
    for reading in readings:
        is_common = common[reading.partition].contains(reading.offsets)
        for tally, digest in zip(tallies[reading.partition], (reading.left, reading.right), strict=True):
            tally.add(digest, is_common=is_common)
    return tallies


def _find_first_differing_ranges(
    both: Sequence[PartitionPair], readings: Sequence[DigestPair]
) -> dict[int, OffsetRange]:
    common = {pair.partition: pair.common for pair in both}
    first: dict[int, OffsetRange] = {}
    for reading in readings:
        if reading.left != reading.right and common[reading.partition].contains(reading.offsets):
            first[reading.partition] = min(reading.offsets, first.get(reading.partition, reading.offsets))
    return first


def _locate_differences(
    left: TopicLog,
    right: TopicLog,
    results: Sequence[PartitionComparison],
    at: Mapping[int, OffsetRange],
    *,
    is_deep: bool,
) -> Iterator[PartitionComparison]:
    looked_for = sorted(at)[:_MAX_LOCATED]
    for result in results:
        is_open = {"records", "digest"} & set(result.differences) and result.first_difference is None
        if is_open and result.partition in looked_for:
            offset = find_first_difference(left, right, result.partition, at[result.partition], is_deep=is_deep)
            yield replace(result, first_difference=offset)
        else:
            yield result
