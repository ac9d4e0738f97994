"""Compare logs by the order of records if offsets differ or a log was compacted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from reconciler.embedded.maintenance.compaction import NewestOffsets, hash_keys, to_bool_array
from reconciler.errors import RetryableError
from reconciler.jobs.comparison import (
    LEFT,
    RIGHT,
    Comparison,
    Difference,
    DisputedPartition,
    DisputeResult,
    PartitionComparison,
    PartitionPair,
    PartitionSide,
    Records,
    RenumberedLog,
    read_digest,
    read_hashed_records,
)
from reconciler.jobs.flows import Piece, iter_pieces, iter_rounds
from reconciler.jobs.progress import JobProgress, Report, ignore_progress
from reconciler.jobs.stage import Engine, Tasks, stopped_work_error
from reconciler.records.hashes import compute_digest, compute_hashes
from reconciler.records.log import MAX_OFFSET, Bounds, CompactingLog, Digest, OffsetRange, Spans, TopicLog
from reconciler.runtime.dataclass import dataclass, field, replace

if TYPE_CHECKING:
    import numpy.typing as npt

    from reconciler.records.offset_map import OffsetMap


_DESCRIPTION: Final = "reconciler: compare records"


def compute_digest_in(engine: Engine, log: TopicLog, ranges: Mapping[int, OffsetRange]) -> Digest:
    """Return the digest of offset ranges by reading their records."""
    work = [
        piece
        for number, offsets in ranges.items()
        for piece in iter_pieces(number, offsets, log.list_extents(number, offsets))
    ]
    tasks = Tasks(engine)
    with tasks.choose_engine(sum(piece.stored_bytes for piece in work), _DESCRIPTION):
        digests, error = tasks.run(work, partial(_digest_pieces, log), what="comparing records")
    if error is not None:
        raise error
    return sum(digests, Digest())


def _digest_pieces(log: TopicLog, pieces: Sequence[Piece]) -> Iterator[Digest]:
    log.check_shared()
    for piece in pieces:
        yield read_digest(log, piece.partition, piece.offsets)


# A missing record is no difference if compaction may have removed it: its log is compacted beyond the record's offset,
# and the record is a tombstone or has a successor with the same key.


_MAX_HELD: Final = 2_000_000
"""Maximum missing records in memory. Their successors are then searched in the logs."""


def explain_differences(engine: Engine, doubts: Sequence[DisputedPartition]) -> dict[int, DisputeResult]:
    """Compare the records of disputed partitions, in this process or in a Spark job."""
    whole = [doubt for doubt in doubts if doubt.pair.left is not None and doubt.pair.right is not None]
    stored = sum(piece.stored_bytes for doubt in whole for _, piece in doubt.list_pieces())
    if not whole or not engine.needs_spark(stored):
        return {doubt.pair.partition: explain_partition_differences(*doubt.logs, doubt.pair) for doubt in doubts}
    from reconciler.jobs.superseded import explain_in_spark  # noqa: PLC0415 - brings PySpark

    lacking = {item.pair.partition: DisputeResult(0, item.pair.common.start) for item in doubts if item not in whole}
    try:
        return {**lacking, **explain_in_spark(engine.start_spark(stored), whole)}
    except RetryableError as failure:
        raise (stopped_work_error("comparing records") if engine.is_stopped() else failure) from failure


def explain_partition_differences(left: Records, right: Records, pair: PartitionPair) -> DisputeResult:
    """Compare the records at common offsets, and find out which differences compaction explains."""
    if pair.left is None or pair.right is None:
        return DisputeResult(0, pair.common.start)
    missing_right = _MissingRecords((left, right), pair, pair.right.compacted_to)
    missing_left = _MissingRecords((left, right), pair, pair.left.compacted_to)
    for ours, theirs in _align_batches(left.read(pair.partition, pair.common), right.read(pair.partition, pair.common)):
        missing_right.add_missing(_select_only_in(ours, theirs))
        missing_left.add_missing(_select_only_in(theirs, ours))
        first = _find_first_unequal(ours, theirs)
        if first is not None:
            first = _min_offset(first, missing_left.find_unexplained(), missing_right.find_unexplained())
            return DisputeResult(0, first, _foreign_offset(left))
    first = _min_offset(missing_left.find_unexplained(), missing_right.find_unexplained())
    return DisputeResult(missing_left.explained + missing_right.explained, first, _foreign_offset(left))


def _foreign_offset(log: Records) -> int | None:
    return log.foreign if isinstance(log, RenumberedLog) else None


@dataclass(slots=True)
class _MissingRecords:
    logs: tuple[Records, Records]
    pair: PartitionPair
    compacted_to: int
    explained: int = 0
    _first: int | None = None
    _sought: list[tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], npt.NDArray[np.int64]]] = field(
        default_factory=list
    )
    _held: int = 0

    def add_missing(self, records: pa.RecordBatch) -> None:
        if not records.num_rows:
            return
        offsets = records.column("offset").to_numpy()
        has_key = to_bool_array(records.column("key").is_valid())
        is_gone = has_key & (offsets < self.compacted_to)
        self._add_unexplained(offsets[~is_gone])
        is_tombstone = to_bool_array(records.column("value").is_null())
        self.explained += int((is_gone & is_tombstone).sum())
        is_sought = is_gone & ~is_tombstone
        if is_sought.any():
            high, low = hash_keys(records.column("key").filter(pa.array(is_sought)))
            self._sought.append((high, low, offsets[is_sought]))
            self._held += len(high)
        if self._held >= _MAX_HELD:
            self._search_keys()

    def find_unexplained(self) -> int | None:
        self._search_keys()
        return self._first

    def _search_keys(self) -> None:
        if not self._sought:
            return
        high, low, offsets = (np.concatenate(columns) for columns in zip(*self._sought, strict=True))
        self._sought, self._held = [], 0
        wanted, later = NewestOffsets(), NewestOffsets()
        wanted.add_hashes(high, low, offsets)
        for batch in self._read_records_from(int(offsets.min()) + 1):
            has_key = batch.column("key").is_valid()
            keyed = batch.column("offset").to_numpy()[to_bool_array(has_key)]
            if len(keyed):
                both = hash_keys(batch.column("key").filter(has_key))
                is_wanted = wanted.find_offsets_by_hash(*both) >= 0
                later.add_hashes(both[0][is_wanted], both[1][is_wanted], keyed[is_wanted])
        is_superseded = later.find_offsets_by_hash(high, low) > offsets
        self.explained += int(is_superseded.sum())
        self._add_unexplained(offsets[~is_superseded])

    def _read_records_from(self, start: int) -> Iterator[pa.RecordBatch]:
        for log, bounds in zip(self.logs, (self.pair.left, self.pair.right), strict=True):
            if bounds is not None:
                yield from log.read(self.pair.partition, OffsetRange(start, bounds.stable))

    def _add_unexplained(self, offsets: npt.NDArray[np.int64]) -> None:
        if len(offsets):
            self._first = _min_offset(self._first, int(offsets.min()))


def _align_batches(
    left: Iterator[pa.RecordBatch], right: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    ours, theirs = next(left, None), next(right, None)
    while ours is not None and theirs is not None:
        stop = min(_last_offset(ours), _last_offset(theirs)) + 1
        (taken, ours), (their_part, theirs) = _split_batch(ours, stop), _split_batch(theirs, stop)
        yield taken, their_part
        ours = ours if ours.num_rows else next(left, None)
        theirs = theirs if theirs.num_rows else next(right, None)
    for rest, others in ((ours, left), (theirs, right)):
        batch = rest
        while batch is not None:
            nothing = batch.slice(0, 0)
            yield (batch, nothing) if others is left else (nothing, batch)
            batch = next(others, None)


def _split_batch(batch: pa.RecordBatch, stop: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    at = int(np.searchsorted(batch.column("offset").to_numpy(), stop))
    return batch.slice(0, at), batch.slice(at)


def _last_offset(batch: pa.RecordBatch) -> int:
    return int(batch.column("offset")[-1].as_py())


def _find_first_unequal(ours: pa.RecordBatch, theirs: pa.RecordBatch) -> int | None:
    offsets, at_ours, at_theirs = np.intersect1d(
        ours.column("offset").to_numpy(), theirs.column("offset").to_numpy(), assume_unique=True, return_indices=True
    )
    if not len(offsets):
        return None
    differs = (compute_hashes(ours)[at_ours] != compute_hashes(theirs)[at_theirs]).any(axis=1)
    return int(offsets[differs][0]) if differs.any() else None


def _select_only_in(ours: pa.RecordBatch, theirs: pa.RecordBatch) -> pa.RecordBatch:
    is_shared = np.isin(ours.column("offset").to_numpy(), theirs.column("offset").to_numpy(), assume_unique=True)
    return ours.filter(pa.array(~is_shared))


def _min_offset(*offsets: int | None) -> int | None:
    return min((offset for offset in offsets if offset is not None), default=None)


def find_compacted_to(log: TopicLog, partition: int) -> int:
    """Return the offset below which superseded records may be missing; unlimited if a log does not report it."""
    if isinstance(log, CompactingLog):
        return MAX_OFFSET if log.may_lack_records() else 0
    return log.read_bounds([partition])[partition].compacted_to


def read_compacted_bounds(log: TopicLog, only: Collection[int] | None = None) -> Mapping[int, Bounds]:
    """Return bounds by partition, with unlimited `compacted_to` if a log does not report it."""
    if isinstance(log, CompactingLog) and log.may_lack_records():
        return {number: replace(bounds, compacted_to=MAX_OFFSET) for number, bounds in log.read_bounds(only).items()}
    return log.read_bounds(only)


def align_by_map(copy: TopicLog, source: TopicLog, number: int, spans: Spans) -> DisputedPartition | None:
    """Renumber a copy by the offset map. Return `None` without a map or without compaction."""
    offsets, whole = spans.offsets, spans.right
    if offsets is None:
        return None
    reaches = find_compacted_to(copy, number), find_compacted_to(source, number)
    if not any(reaches):
        return None
    end = source.read_bounds([number])[number].stable
    ours = Bounds(whole.start, whole.start, whole.stop, whole.stop, compacted_to=reaches[0])
    theirs = Bounds(whole.start, whole.start, end, end, compacted_to=reaches[1])
    view = _SourceOrderLog(copy, spans.left, offsets)
    return DisputedPartition((view, source), PartitionPair(number, ours, theirs), (source, source))


def find_first_difference_in_copy(why: DisputeResult, offsets: OffsetMap) -> int | None:
    """Return the copy's offset at the first difference, or `None`."""
    first = why.first_difference
    if first is None:
        return why.foreign
    at = offsets.find_target(first)
    return _min_offset(offsets.find_target_end(first) if at is None else at, why.foreign)


@dataclass
class _SourceOrderLog:
    copy: TopicLog
    within: OffsetRange
    offsets: OffsetMap
    foreign: int | None = None

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        start, stop = (self.offsets.find_target(at) for at in (offsets.start, min(offsets.stop, self.offsets.through)))
        if start is None or stop is None:
            return
        within = OffsetRange(max(start, self.within.start), min(stop, self.within.stop))
        if not within.length:
            return
        for batch in self.copy.read(partition, within):
            yield from self._renumber_batch(batch)

    def _renumber_batch(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        targets = batch.column("offset").to_numpy()
        sources = self.offsets.find_sources(targets)
        is_known = sources >= 0
        if not is_known.all():
            at = int(targets[~is_known][0])
            self.foreign = at if self.foreign is None else min(at, self.foreign)
        if is_known.any():
            known = batch.filter(pa.array(is_known))
            column = known.schema.get_field_index("offset")
            numbers = pa.array(sources[is_known].astype(np.int64))
            yield known.set_column(column, known.schema.field(column), numbers)


# Transaction markers shift offsets differently in both logs, so records are compared by position.


_MAX_LOCATED: Final = 10


@dataclass(frozen=True, slots=True)
class _SidedPiece:
    side: int
    piece: Piece

    @property
    def cost(self) -> int:
        return self.piece.cost


@dataclass(frozen=True, slots=True)
class _PieceDigest:
    side: int
    partition: int
    start: int
    digest: Digest


def verify_renumbered(
    engine: Engine, left: TopicLog, right: TopicLog, spans: Mapping[int, Spans], *, progress: Report = ignore_progress
) -> Comparison:
    """Compare ranges of two logs by the order of records. `progress` counts the right log."""
    logs = (left, right)
    ranges = [(number, (span.left, span.right)) for number, span in sorted(spans.items())]
    work = [
        _SidedPiece(side, piece)
        for number, both in ranges
        for side in (LEFT, RIGHT)
        if both[side].length
        for piece in iter_pieces(number, both[side], logs[side].list_extents(number, both[side]))
    ]
    digests = _sum_by_partition(_read_digests(engine, logs, work, progress))
    results = _explain_differences(
        engine, logs, spans, [_compare_in_order(number, both, digests) for number, both in ranges]
    )
    is_open = [result.partition for result in results if not result.is_equal and result.first_difference is None]
    located = is_open[:_MAX_LOCATED]
    return Comparison(
        tuple(_locate_difference(logs, spans, result) if result.partition in located else result for result in results),
        is_deep=True,
    )


def make_whole_spans(left: Mapping[int, Bounds], right: Mapping[int, Bounds]) -> dict[int, Spans]:
    """Return the complete ranges of all partitions; empty for a missing partition."""

    def to_range(bounds: Bounds | None) -> OffsetRange:
        return OffsetRange(0, 0) if bounds is None else OffsetRange(bounds.start, bounds.stable)

    return {
        number: Spans(to_range(left.get(number)), to_range(right.get(number))) for number in sorted({*left, *right})
    }


def _read_digests(
    engine: Engine, logs: tuple[TopicLog, TopicLog], work: Sequence[_SidedPiece], progress: Report
) -> Iterator[_PieceDigest]:
    if not work:
        return
    tasks, began, done = Tasks(engine), engine.clock(), 0
    records = sum(one.piece.records for one in work if one.side == RIGHT)
    stored, read = sum(one.piece.stored_bytes for one in work), 0
    with tasks.choose_engine(stored, _DESCRIPTION):
        for some in iter_rounds(work, tasks.budget):
            begun = engine.clock()
            digests, error = tasks.run(some, partial(_digest_task, logs), what="comparing records")
            if error is not None:
                raise error
            yield from digests
            tasks.budget.adapt(some, engine.clock() - begun, cores=tasks.cores)
            done += sum(item.digest.records for item in digests if item.side == RIGHT)
            read += sum(one.piece.stored_bytes for one in some)
            progress(JobProgress(done, records, read, stored, engine.clock() - began))


def _digest_task(logs: tuple[TopicLog, TopicLog], work: Sequence[_SidedPiece]) -> Iterator[_PieceDigest]:
    for log in logs:
        log.check_shared()
    for one in work:
        piece, digest = one.piece, Digest()
        for batch in logs[one.side].read(piece.partition, piece.offsets):
            digest += compute_digest(_number_positions(batch, digest.records), base=0)
        yield _PieceDigest(one.side, piece.partition, piece.offsets.start, digest)


def _number_positions(batch: pa.RecordBatch, before: int) -> pa.RecordBatch:
    numbers = pa.array(np.arange(before, before + batch.num_rows, dtype=np.int64))
    at = batch.schema.get_field_index("offset")
    return batch.set_column(at, batch.schema.field(at), numbers)


def _sum_by_partition(readings: Iterator[_PieceDigest]) -> dict[tuple[int, int], Digest]:
    digests: dict[tuple[int, int], Digest] = {}
    for reading in sorted(readings, key=lambda item: (item.side, item.partition, item.start)):
        before = digests.get((reading.side, reading.partition), Digest())
        digests[reading.side, reading.partition] = before + reading.digest.shift(before.records)
    return digests


def _compare_in_order(
    number: int, both: tuple[OffsetRange, OffsetRange], digests: Mapping[tuple[int, int], Digest]
) -> PartitionComparison:
    sides = [
        PartitionSide(span.start, span.stop, digest.records, digest)
        for span, digest in ((both[side], digests.get((side, number), Digest())) for side in (LEFT, RIGHT))
    ]
    differing: list[Difference] = []
    if sides[LEFT].records != sides[RIGHT].records:
        differing.append("records")
    if sides[LEFT].digest != sides[RIGHT].digest:
        differing.append("digest")
    return PartitionComparison(number, sides[LEFT], sides[RIGHT], tuple(differing))


def _explain_differences(
    engine: Engine, logs: tuple[TopicLog, TopicLog], spans: Mapping[int, Spans], results: Sequence[PartitionComparison]
) -> list[PartitionComparison]:
    doubts = [align_by_map(*logs, item.partition, spans[item.partition]) for item in results if not item.is_equal]
    whys = explain_differences(engine, [doubt for doubt in doubts if doubt is not None])
    explained_results = []
    for result in results:
        why, offsets = whys.get(result.partition), spans[result.partition].offsets
        if why is None or offsets is None:
            explained_results.append(result)
        elif (first := find_first_difference_in_copy(why, offsets)) is None:
            explained_results.append(replace(result, differences=(), superseded=why.superseded))
        else:
            explained_results.append(replace(result, first_difference=first))
    return explained_results


def _locate_difference(
    logs: tuple[TopicLog, TopicLog], spans: Mapping[int, Spans], result: PartitionComparison
) -> PartitionComparison:
    number, both = result.partition, spans[result.partition]
    ours, theirs = (
        read_hashed_records(logs[LEFT], number, both.left),
        read_hashed_records(logs[RIGHT], number, both.right),
    )
    for one, other in zip_longest(ours, theirs):
        if one is None:
            return replace(result, first_difference=both.left.stop)
        if other is None or one.hash != other.hash:
            return replace(result, first_difference=one.offset)
    return result


_WINDOW: Final = 4096


def find_agreed_ends_by_map(
    logs: tuple[TopicLog, TopicLog],
    bounds: tuple[Mapping[int, Bounds], Mapping[int, Bounds]],
    maps: Mapping[int, OffsetMap],
    ends: Mapping[int, int],
) -> dict[int, int]:
    """Return, by partition, the first source offset at which the copy differs, or the offset in `ends`.

    Records that retention or compaction removed are ignored.
    """
    compact = [isinstance(log, CompactingLog) and log.may_lack_records() for log in logs]
    agreed: dict[int, int] = {}
    for number, end in ends.items():
        ours, theirs = bounds[0][number], bounds[1][number]
        is_compacted = any(compact) or max(ours.compacted_to, theirs.compacted_to) > 0
        low = max(ours.start, maps[number].find_source(theirs.start))
        agreed[number] = _find_agreed_end(logs, number, maps[number], OffsetRange(low, end), is_compacted=is_compacted)
    return agreed


def _find_agreed_end(
    logs: tuple[TopicLog, TopicLog], partition: int, offsets: OffsetMap, whole: OffsetRange, *, is_compacted: bool
) -> int:
    agreed = stop = whole.stop
    low, window = whole.start, _WINDOW
    while stop > low:
        within = OffsetRange(max(low, stop - window), stop)
        wrong = _find_first_difference(logs, partition, offsets, within, is_compacted=is_compacted)
        if wrong is None:
            return agreed
        agreed = wrong
        if wrong > within.start:
            return agreed
        stop, window = within.start, 2 * window
    return agreed


def _find_first_difference(
    logs: tuple[TopicLog, TopicLog], partition: int, offsets: OffsetMap, within: OffsetRange, *, is_compacted: bool
) -> int | None:
    source, copy = logs
    ours = dict(read_hashed_records(source, partition, within))
    pieces = [stretch for stretch in offsets if stretch.source < within.stop and stretch.source_end > within.start]
    theirs: dict[int, bytes] = {}
    if pieces:
        target_range = OffsetRange(pieces[0].target, pieces[-1].target_end)
        hashes = dict(read_hashed_records(copy, partition, target_range))
        sources = offsets.find_sources(np.fromiter(hashes, np.int64, len(hashes)))
        theirs = {
            int(at): value
            for at, value in zip(sources, hashes.values(), strict=True)
            if within.start <= at < within.stop
        }
    wrong = {at for at in ours.keys() & theirs.keys() if ours[at] != theirs[at]}
    if not is_compacted:
        wrong |= ours.keys() ^ theirs.keys()
    return min(wrong, default=None)
