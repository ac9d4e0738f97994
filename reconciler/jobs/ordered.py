"""Compare logs by the order of records, where offsets differ or a side was compacted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from reconciler.embedded.maintenance.compaction import NewestOffsets, hashed, mask
from reconciler.errors import RetryableError
from reconciler.jobs.comparison import (
    LEFT,
    RIGHT,
    Comparison,
    Difference,
    Doubt,
    Explained,
    Pair,
    PartitionComparison,
    Records,
    Renumbered,
    Side,
    hashed_records,
    read_digest,
)
from reconciler.jobs.flows import Piece, pieces_of, rounds
from reconciler.jobs.progress import JobProgress, Report, unseen
from reconciler.jobs.stage import Engine, Tasks, left_out
from reconciler.records.hashes import digest_of, hashes_of
from reconciler.records.log import MAX_OFFSET, Bounds, Compacting, Digest, OffsetRange, Spans, TopicLog

if TYPE_CHECKING:
    import numpy.typing as npt

    from reconciler.records.offset_map import OffsetMap


_WORDS: Final = "reconciler: compare records"


def digest_in(engine: Engine, log: TopicLog, ranges: Mapping[int, OffsetRange]) -> Digest:
    """Return the digest of ranges of a log, by partition; every record is read.

    Raises:
        RetryableError: Spark gave up, or the log does not answer.
    """
    work = [
        piece
        for number, offsets in ranges.items()
        for piece in pieces_of(number, offsets, log.extents(number, offsets))
    ]
    tasks = Tasks(engine)
    with tasks.over(sum(piece.stored_bytes for piece in work), _WORDS):
        found, error = tasks.run(work, partial(_digests, log), what="comparing records")
    if error is not None:
        raise error
    return sum(found, Digest())


def _digests(log: TopicLog, pieces: Sequence[Piece]) -> Iterator[Digest]:
    log.check_shared()
    for piece in pieces:
        yield read_digest(log, piece.partition, piece.offsets)


# Logs of which a side was compacted: what only one of them has must be superseded.
#
# An offset that only one log has is no difference where the other was compacted beyond it and a later record of its key
# is in either, or where it is a tombstone, which goes in the end without a successor. What supersedes it is judged by
# the same rule, so the newest record of a key is in both, or deletes it. Offsets that both have must be equal.


_HELD: Final = 2_000_000
"""Records that wait to be found superseded; of more, a part of a log is read once more."""


def explanations(engine: Engine, doubts: Sequence[Doubt]) -> dict[int, Explained]:
    """Compare partitions, record for record, and return what came of each; in Spark all at once, of any size.

    Raises:
        RetryableError: Spark gave up, or a log does not answer.
    """
    whole = [doubt for doubt in doubts if doubt.pair.left is not None and doubt.pair.right is not None]
    stored = sum(piece.stored_bytes for doubt in whole for _, piece in doubt.parts())
    if not whole or not engine.starts_spark(stored):
        return {doubt.pair.partition: explained(*doubt.logs, doubt.pair) for doubt in doubts}
    from reconciler.jobs.superseded import explained_in  # noqa: PLC0415 - brings PySpark

    lacking = {each.pair.partition: Explained(0, each.pair.common.start) for each in doubts if each not in whole}
    try:
        return {**lacking, **explained_in(engine.spark(stored), whole)}
    except RetryableError as failure:
        raise (left_out("comparing records") if engine.is_stopped() else failure) from failure


def explained(left: Records, right: Records, pair: Pair) -> Explained:
    """Compare what both logs have of the offsets both span, record for record; reads all of it."""
    if pair.left is None or pair.right is None:
        return Explained(0, pair.common.start)
    missing_right = _Missing((left, right), pair, pair.right.compacted_to)
    missing_left = _Missing((left, right), pair, pair.left.compacted_to)
    for ours, theirs in _side_by_side(left.read(pair.partition, pair.common), right.read(pair.partition, pair.common)):
        missing_right.seek(_only(ours, theirs))
        missing_left.seek(_only(theirs, ours))
        first = _first_unequal(ours, theirs)
        if first is not None:
            first = _earliest(first, missing_left.unexplained(), missing_right.unexplained())
            return Explained(0, first, _foreign_in(left))
    first = _earliest(missing_left.unexplained(), missing_right.unexplained())
    return Explained(missing_left.found + missing_right.found, first, _foreign_in(left))


def _foreign_in(log: Records) -> int | None:
    return log.foreign if isinstance(log, Renumbered) else None


@dataclass(slots=True)
class _Missing:
    """Records that one log lacks, until a later record of their key is found."""

    logs: tuple[Records, Records]
    pair: Pair
    compacted_to: int
    """How far the log that lacks them was compacted."""
    found: int = 0
    _first: int | None = None
    _sought: list[tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], npt.NDArray[np.int64]]] = field(
        default_factory=list
    )
    _held: int = 0

    def seek(self, records: pa.RecordBatch) -> None:
        """Take records that are not there."""
        if not records.num_rows:
            return
        offsets = records.column("offset").to_numpy()
        has_key = mask(records.column("key").is_valid())
        is_gone = has_key & (offsets < self.compacted_to)
        self._miss(offsets[~is_gone])
        is_tombstone = mask(records.column("value").is_null())
        self.found += int((is_gone & is_tombstone).sum())
        is_sought = is_gone & ~is_tombstone
        if is_sought.any():
            high, low = hashed(records.column("key").filter(pa.array(is_sought)))
            self._sought.append((high, low, offsets[is_sought]))
            self._held += len(high)
        if self._held >= _HELD:
            self._look()

    def unexplained(self) -> int | None:
        """Return the first offset that nothing supersedes."""
        self._look()
        return self._first

    def _look(self) -> None:
        """Read the keys that come after the first of those sought."""
        if not self._sought:
            return
        high, low, offsets = (np.concatenate(columns) for columns in zip(*self._sought, strict=True))
        self._sought, self._held = [], 0
        wanted, later = NewestOffsets(), NewestOffsets()
        wanted.add_hashes(high, low, offsets)
        for batch in self._from(int(offsets.min()) + 1):
            has_key = batch.column("key").is_valid()
            keyed = batch.column("offset").to_numpy()[mask(has_key)]
            if len(keyed):
                both = hashed(batch.column("key").filter(has_key))
                is_wanted = wanted.of_hashes(*both) >= 0
                later.add_hashes(both[0][is_wanted], both[1][is_wanted], keyed[is_wanted])
        is_superseded = later.of_hashes(high, low) > offsets
        self.found += int(is_superseded.sum())
        self._miss(offsets[~is_superseded])

    def _from(self, start: int) -> Iterator[pa.RecordBatch]:
        """Yield what either log has from an offset on."""
        for log, bounds in zip(self.logs, (self.pair.left, self.pair.right), strict=True):
            if bounds is not None:
                yield from log.read(self.pair.partition, OffsetRange(start, bounds.stable))

    def _miss(self, offsets: npt.NDArray[np.int64]) -> None:
        if len(offsets):
            self._first = _earliest(self._first, int(offsets.min()))


def _side_by_side(
    left: Iterator[pa.RecordBatch], right: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield what both have of the same offsets, stretch by stretch."""
    ours, theirs = next(left, None), next(right, None)
    while ours is not None and theirs is not None:
        stop = min(_last(ours), _last(theirs)) + 1
        (taken, ours), (given, theirs) = _cut(ours, stop), _cut(theirs, stop)
        yield taken, given
        ours = ours if ours.num_rows else next(left, None)
        theirs = theirs if theirs.num_rows else next(right, None)
    for rest, others in ((ours, left), (theirs, right)):
        batch = rest
        while batch is not None:
            nothing = batch.slice(0, 0)
            yield (batch, nothing) if others is left else (nothing, batch)
            batch = next(others, None)


def _cut(batch: pa.RecordBatch, stop: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    at = int(np.searchsorted(batch.column("offset").to_numpy(), stop))
    return batch.slice(0, at), batch.slice(at)


def _last(batch: pa.RecordBatch) -> int:
    return int(batch.column("offset")[-1].as_py())


def _first_unequal(ours: pa.RecordBatch, theirs: pa.RecordBatch) -> int | None:
    """Return the first offset that both have and that differs."""
    offsets, at_ours, at_theirs = np.intersect1d(
        ours.column("offset").to_numpy(), theirs.column("offset").to_numpy(), assume_unique=True, return_indices=True
    )
    if not len(offsets):
        return None
    differs = (hashes_of(ours)[at_ours] != hashes_of(theirs)[at_theirs]).any(axis=1)
    return int(offsets[differs][0]) if differs.any() else None


def _only(ours: pa.RecordBatch, theirs: pa.RecordBatch) -> pa.RecordBatch:
    is_shared = np.isin(ours.column("offset").to_numpy(), theirs.column("offset").to_numpy(), assume_unique=True)
    return ours.filter(pa.array(~is_shared))


def _earliest(*offsets: int | None) -> int | None:
    return min((offset for offset in offsets if offset is not None), default=None)


# A copy that numbers its records anew, read by the offsets of its source: so both are compared offset by offset.
#
# What its map does not know was written by another process, and no compaction explains it.


def compacted_to(log: TopicLog, partition: int) -> int:
    """Return below which offset a log may lack what later records supersede; brokers do not say how far they came."""
    if isinstance(log, Compacting):
        return MAX_OFFSET if log.compacts() else 0
    return log.bounds([partition])[partition].compacted_to


def bounds_as_compacted(log: TopicLog, only: Collection[int] | None = None) -> Mapping[int, Bounds]:
    """Return every partition's bounds, with below which offset it may lack what later records supersede."""
    if isinstance(log, Compacting) and log.compacts():
        return {number: replace(bounds, compacted_to=MAX_OFFSET) for number, bounds in log.bounds(only).items()}
    return log.bounds(only)


def realigned(copy: TopicLog, source: TopicLog, number: int, spans: Spans) -> Doubt | None:
    """Return a copy and its source along the map of both; `None`: there is none, or neither is ever compacted."""
    offsets, whole = spans.offsets, spans.right
    if offsets is None:
        return None
    reaches = compacted_to(copy, number), compacted_to(source, number)
    if not any(reaches):
        return None
    end = source.bounds([number])[number].stable
    # How far an embedded copy was compacted is said in offsets of its own; only Kafka numbers anew.
    ours = Bounds(whole.start, whole.start, whole.stop, whole.stop, compacted_to=reaches[0])
    theirs = Bounds(whole.start, whole.start, end, end, compacted_to=reaches[1])
    view = _Realigned(copy, spans.left, offsets)
    return Doubt((view, source), Pair(number, ours, theirs), (source, source))


def first_of_copy(found: Explained, offsets: OffsetMap) -> int | None:
    """Return where a copy begins to differ, by the numbers of its own; behind what its map knows where that ends."""
    first = found.first_difference
    if first is None:
        return found.foreign
    at = offsets.target_of(first)
    return _earliest(offsets.target_below(first) if at is None else at, found.foreign)


@dataclass
class _Realigned:
    """What `explained` reads of a log: records of the copy at the offsets that the source gave them."""

    copy: TopicLog
    within: OffsetRange
    offsets: OffsetMap
    foreign: int | None = None
    """The first record, by the copy's number, that was not copied from the source."""

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield what was copied of a range of the source."""
        start, stop = (self.offsets.target_of(at) for at in (offsets.start, min(offsets.stop, self.offsets.through)))
        if start is None or stop is None:
            return
        within = OffsetRange(max(start, self.within.start), min(stop, self.within.stop))
        if not within.length:
            return
        for batch in self.copy.read(partition, within):
            yield from self._moved(batch)

    def _moved(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        targets = batch.column("offset").to_numpy()
        sources = self.offsets.sources_of(targets)
        is_known = sources >= 0
        if not is_known.all():
            at = int(targets[~is_known][0])
            self.foreign = at if self.foreign is None else min(at, self.foreign)
        if is_known.any():
            kept = batch.filter(pa.array(is_known))
            column = kept.schema.get_field_index("offset")
            numbers = pa.array(sources[is_known].astype(np.int64))
            yield kept.set_column(column, kept.schema.field(column), numbers)


# Comparing logs that number their records differently: by the order of records, never by their offsets.
#
# What transactions leave out on either side does not count, nor what compaction took, where a map tells which record of
# one is which of the other. Each record is weighed by how many come before it in its range; pieces are read on their
# own, and moved to their place once it is known how many came before them.


_LOCATED: Final = 10
"""Of how many partitions it is looked up where they begin to differ."""


@dataclass(frozen=True, slots=True)
class _Work:
    """A piece of one of the logs."""

    side: int
    piece: Piece

    @property
    def cost(self) -> int:
        return self.piece.cost


@dataclass(frozen=True, slots=True)
class _Read:
    """The digest of a piece, its records weighed from 0."""

    side: int
    partition: int
    start: int
    digest: Digest


def verify_renumbered(
    engine: Engine, left: TopicLog, right: TopicLog, spans: Mapping[int, Spans], *, progress: Report = unseen
) -> Comparison:
    """Compare ranges of two logs, record by record in their order; `progress` counts the records of the right one.

    Raises:
        UserError: A log is gone, or an executor does not see it.
        RetryableError: Brokers or Spark gave up.
    """
    logs = (left, right)
    ranges = [(number, (each.left, each.right)) for number, each in sorted(spans.items())]
    work = [
        _Work(side, piece)
        for number, both in ranges
        for side in (LEFT, RIGHT)
        if both[side].length
        for piece in pieces_of(number, both[side], logs[side].extents(number, both[side]))
    ]
    digests = _summed(_readings(engine, logs, work, progress))
    results = _explained(engine, logs, spans, [_compared_in_order(number, both, digests) for number, both in ranges])
    is_open = [result.partition for result in results if not result.is_equal and result.first_difference is None]
    located = is_open[:_LOCATED]
    return Comparison(
        tuple(_located(logs, spans, result) if result.partition in located else result for result in results),
        is_deep=True,
    )


def whole_spans(left: Mapping[int, Bounds], right: Mapping[int, Bounds]) -> dict[int, Spans]:
    """Return all of two logs that nothing is known of, partition by partition; one that lacks it has nothing there."""

    def whole(bounds: Bounds | None) -> OffsetRange:
        return OffsetRange(0, 0) if bounds is None else OffsetRange(bounds.start, bounds.stable)

    return {number: Spans(whole(left.get(number)), whole(right.get(number))) for number in sorted({*left, *right})}


def _readings(
    engine: Engine, logs: tuple[TopicLog, TopicLog], work: Sequence[_Work], progress: Report
) -> Iterator[_Read]:
    if not work:
        return
    tasks, began, done = Tasks(engine), engine.clock(), 0
    records = sum(one.piece.records for one in work if one.side == RIGHT)
    stored, read = sum(one.piece.stored_bytes for one in work), 0
    with tasks.over(stored, _WORDS):
        for some in rounds(work, tasks.budget):
            begun = engine.clock()
            found, error = tasks.run(some, partial(_read, logs), what="comparing records")
            if error is not None:
                raise error
            yield from found
            tasks.budget.learn(some, engine.clock() - begun, cores=tasks.cores)
            done += sum(each.digest.records for each in found if each.side == RIGHT)
            read += sum(one.piece.stored_bytes for one in some)
            progress(JobProgress(done, records, read, stored, engine.clock() - began))


def _read(logs: tuple[TopicLog, TopicLog], work: Sequence[_Work]) -> Iterator[_Read]:
    """Do one task, wherever it runs."""
    for log in logs:
        log.check_shared()
    for one in work:
        piece, digest = one.piece, Digest()
        for batch in logs[one.side].read(piece.partition, piece.offsets):
            digest += digest_of(_counted(batch, digest.records), base=0)
        yield _Read(one.side, piece.partition, piece.offsets.start, digest)


def _counted(batch: pa.RecordBatch, before: int) -> pa.RecordBatch:
    """Return records whose offsets are how many come before them."""
    numbers = pa.array(np.arange(before, before + batch.num_rows, dtype=np.int64))
    at = batch.schema.get_field_index("offset")
    return batch.set_column(at, batch.schema.field(at), numbers)


def _summed(readings: Iterator[_Read]) -> dict[tuple[int, int], Digest]:
    """Return the digest of each partition of each log, its records weighed by their place in it."""
    found: dict[tuple[int, int], Digest] = {}
    for reading in sorted(readings, key=lambda each: (each.side, each.partition, each.start)):
        before = found.get((reading.side, reading.partition), Digest())
        found[reading.side, reading.partition] = before + reading.digest.shifted(before.records)
    return found


def _compared_in_order(
    number: int, both: tuple[OffsetRange, OffsetRange], digests: Mapping[tuple[int, int], Digest]
) -> PartitionComparison:
    sides = [
        Side(each.start, each.stop, digest.records, digest)
        for each, digest in ((both[side], digests.get((side, number), Digest())) for side in (LEFT, RIGHT))
    ]
    found: list[Difference] = []
    if sides[LEFT].records != sides[RIGHT].records:
        found.append("records")
    if sides[LEFT].digest != sides[RIGHT].digest:
        found.append("digest")
    return PartitionComparison(number, sides[LEFT], sides[RIGHT], tuple(found))


def _explained(
    engine: Engine,
    logs: tuple[TopicLog, TopicLog],
    spans: Mapping[int, Spans],
    results: Sequence[PartitionComparison],
) -> list[PartitionComparison]:
    """Return what differs; what compaction explains does not. Both brokers compact when they like."""
    found = [realigned(*logs, each.partition, spans[each.partition]) for each in results if not each.is_equal]
    whys = explanations(engine, [doubt for doubt in found if doubt is not None])
    explained_results = []
    for result in results:
        why, offsets = whys.get(result.partition), spans[result.partition].offsets
        if why is None or offsets is None:
            explained_results.append(result)
        elif (first := first_of_copy(why, offsets)) is None:
            explained_results.append(replace(result, differences=(), superseded=why.superseded))
        else:
            explained_results.append(replace(result, first_difference=first))
    return explained_results


def _located(
    logs: tuple[TopicLog, TopicLog], spans: Mapping[int, Spans], result: PartitionComparison
) -> PartitionComparison:
    """Add where a partition begins to differ, by the numbers of the left log; its end where only the right goes on."""
    number, both = result.partition, spans[result.partition]
    ours, theirs = hashed_records(logs[LEFT], number, both.left), hashed_records(logs[RIGHT], number, both.right)
    for one, other in zip_longest(ours, theirs):
        if one is None:
            return replace(result, first_difference=both.left.stop)
        if other is None or one.hash != other.hash:
            return replace(result, first_difference=one.offset)
    return result


# Up to where a source and a copy with a map still agree: the end of what was copied is compared, and what lies before
# it where that differs.


_WINDOW: Final = 4096
"""So many offsets before where both should agree are read first."""


def agreed_by_maps(
    logs: tuple[TopicLog, TopicLog],
    bounds: tuple[Mapping[int, Bounds], Mapping[int, Bounds]],
    maps: Mapping[int, OffsetMap],
    ends: Mapping[int, int],
) -> dict[int, int]:
    """Return the first offset of each partition, at most its end, of a source whose record is not what was copied.

    `logs` and `bounds` are those of the source and of its copy. The last records are compared; only where one of them
    differs, what lies before is, too. What either let go of by retention or compaction counts for nothing.
    """
    compact = [isinstance(log, Compacting) and log.compacts() for log in logs]
    found: dict[int, int] = {}
    for number, end in ends.items():
        ours, theirs = bounds[0][number], bounds[1][number]
        is_compacted = any(compact) or max(ours.compacted_to, theirs.compacted_to) > 0
        low = max(ours.start, maps[number].source_of(theirs.start))
        found[number] = _agreed(logs, number, maps[number], OffsetRange(low, end), is_compacted=is_compacted)
    return found


def _agreed(
    logs: tuple[TopicLog, TopicLog], partition: int, offsets: OffsetMap, whole: OffsetRange, *, is_compacted: bool
) -> int:
    found = stop = whole.stop
    low, window = whole.start, _WINDOW
    while stop > low:
        within = OffsetRange(max(low, stop - window), stop)
        wrong = _first_unlike(logs, partition, offsets, within, is_compacted=is_compacted)
        if wrong is None:
            return found
        found = wrong
        if wrong > within.start:
            return found
        stop, window = within.start, 2 * window
    return found


def _first_unlike(
    logs: tuple[TopicLog, TopicLog], partition: int, offsets: OffsetMap, within: OffsetRange, *, is_compacted: bool
) -> int | None:
    source, copy = logs
    ours = dict(hashed_records(source, partition, within))
    pieces = [each for each in offsets if each.source < within.stop and each.source_end > within.start]
    theirs: dict[int, bytes] = {}
    if pieces:
        there = OffsetRange(pieces[0].target, pieces[-1].target_end)
        found = dict(hashed_records(copy, partition, there))
        sources = offsets.sources_of(np.fromiter(found, np.int64, len(found)))
        theirs = {
            int(at): value
            for at, value in zip(sources, found.values(), strict=True)
            if within.start <= at < within.stop
        }
    wrong = {at for at in ours.keys() & theirs.keys() if ours[at] != theirs[at]}
    if not is_compacted:
        wrong |= ours.keys() ^ theirs.keys()
    return min(wrong, default=None)
