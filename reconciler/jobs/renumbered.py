"""Comparing logs that number their records differently: by the order of records, never by their offsets.

What transactions leave out on either side does not count, nor what compaction took, where a map tells which record of
one is which of the other. Each record is weighed by how many come before
it in its range; pieces are read on their own, and moved to their place once it is known how many came before them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from reconciler.jobs.comparison import Comparison, PartitionComparison, Side
from reconciler.jobs.ranges import Piece, pieces_of, tasks_of
from reconciler.jobs.realigned import explained_renumbered
from reconciler.jobs.stage import Cores, described, run_stage
from reconciler.records.digest import Digest
from reconciler.records.hashing import digest_of, hashes_of
from reconciler.records.log import OffsetRange, Spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from reconciler.jobs.comparison import Difference
    from reconciler.records.log import Bounds, TopicLog

_LOCATED: Final = 10
"""Of how many partitions it is looked up where they begin to differ."""
LEFT, RIGHT = 0, 1


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
    session: SparkSession | None, left: TopicLog, right: TopicLog, spans: Mapping[int, Spans]
) -> Comparison:
    """Compare ranges of two logs, record by record in their order; in Spark where there is a session.

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
    digests = _summed(_readings(session, logs, work))
    results = [_explained(logs, spans, _compared(number, both, digests)) for number, both in ranges]
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


def _readings(session: SparkSession | None, logs: tuple[TopicLog, TopicLog], work: Sequence[_Work]) -> Iterator[_Read]:
    read = partial(_read, logs)
    if session is None:
        for one in work:
            yield from read([one])
        return
    if not work:
        return
    with described(session, "reconciler: verify"):
        found, error = run_stage(session, tasks_of(work, Cores(session).now), read, what="comparing records")
    if error is not None:
        raise error
    yield from found


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


def _compared(
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
    logs: tuple[TopicLog, TopicLog], spans: Mapping[int, Spans], result: PartitionComparison
) -> PartitionComparison:
    """Return what differs of a partition; what compaction explains does not. Both brokers compact when they like."""
    why = None if result.is_equal else explained_renumbered(*logs, result.partition, spans[result.partition])
    if why is None:
        return result
    if why.first_difference is None:
        return replace(result, differences=(), superseded=why.superseded)
    return replace(result, first_difference=why.first_difference)


def _located(
    logs: tuple[TopicLog, TopicLog], spans: Mapping[int, Spans], result: PartitionComparison
) -> PartitionComparison:
    """Add where a partition begins to differ, by the numbers of the left log; its end where only the right goes on."""
    number, both = result.partition, spans[result.partition]
    ours, theirs = _hashes(logs[LEFT], number, both.left), _hashes(logs[RIGHT], number, both.right)
    for one, other in zip_longest(ours, theirs):
        if one is None:
            return replace(result, first_difference=both.left.stop)
        if other is None or one[1] != other[1]:
            return replace(result, first_difference=one[0])
    return result


def _hashes(log: TopicLog, partition: int, offsets: OffsetRange) -> Iterator[tuple[int, bytes]]:
    for batch in log.read(partition, offsets):
        for offset, row in zip(batch.column("offset").to_pylist(), hashes_of(batch), strict=True):
            yield offset, bytes(row)
