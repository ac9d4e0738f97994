"""Bringing one log to the end of another: same offsets, timestamps, keys, headers, bytes.

The driver plans ranges, tasks stage them under fresh names, the driver publishes each round by compare-and-swap. A
job keeps nothing of its own: what is left to do is source minus sink, computed anew, so one that was killed is simply
started again, two at once only waste work, and nothing is ever published twice.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from reconciler.errors import IncompleteError, RetryableError
from reconciler.jobs.progress import JobProgress, unseen
from reconciler.jobs.ranges import Budget, joined, missing, pieces_of, rounds, tasks_of
from reconciler.jobs.stage import Cores, described, run_stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from reconciler.jobs.progress import Report
    from reconciler.jobs.ranges import Piece
    from reconciler.records.log import OffsetRange, Staged, StagedSink, TopicLog

_FRUITLESS_PASSES: Final = 3


@dataclass(frozen=True, slots=True)
class Copy:
    """What one mirror job published, over all partitions; `offsets` counts those without records too."""

    records: int = 0
    bytes: int = 0
    offsets: int = 0


def mirror(
    session: SparkSession,
    source: TopicLog,
    sink: StagedSink,
    *,
    progress: Report = unseen,
    is_stopped: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> Copy:
    """Copy what `sink` lacks of `source`, up to its end as it is now, and mark the first copy as complete.

    Raises:
        UserError: The sink is no copy of the source, or an executor does not see one of them.
        IncompleteError: It was stopped; what is published stays.
        RetryableError: Spark gave up, or somebody else kept publishing.
    """
    with described(session, "reconciler: mirror"):
        job = _Mirror(source, sink, _Means(session, progress, is_stopped, clock))
        return job.run()


@dataclass(frozen=True, slots=True)
class _Means:
    """What a copy needs beside what it copies."""

    session: SparkSession
    progress: Report
    is_stopped: Callable[[], bool]
    clock: Callable[[], float]


class _Mirror:
    """One job: passes over what is missing, each in rounds, until nothing is."""

    def __init__(self, source: TopicLog, sink: StagedSink, means: _Means) -> None:
        self._source, self._sink, self._means = source, sink, means
        self._cores = Cores(means.session)
        self._budget = Budget(self._cores.now)
        self._began = means.clock()
        self._done = Copy()
        self._total = Copy()

    def run(self) -> Copy:
        bounds = self._source.bounds()
        fruitless = 0
        while wanted := missing(bounds, self._sink.ends()):
            before = self._done.offsets
            if self._is_all_gained(wanted):
                break
            fruitless = fruitless + 1 if self._done.offsets == before else 0
            if fruitless == _FRUITLESS_PASSES:
                hint = "See whether another `apply` or `run` copies it, then run the same command again."
                raise RetryableError("what was copied never fitted onto the mirror's end", hint=hint)
        self._sink.complete()
        return self._done

    def _is_all_gained(self, wanted: Mapping[int, OffsetRange]) -> bool:
        """Go over what is missing once; say whether all of it was published."""
        pieces = [piece for partition, offsets in wanted.items() for piece in self._pieces(partition, offsets)]
        records, stored = sum(piece.records for piece in pieces), sum(piece.stored_bytes for piece in pieces)
        self._total = Copy(self._done.records + records, self._done.bytes + stored)
        before = self._done.offsets
        self._tell({})
        for taken in rounds(pieces, self._budget):
            began = self._means.clock()
            self._round(taken)
            self._budget.learn(taken, self._means.clock() - began, cores=self._cores.now)
        return self._done.offsets - before == sum(offsets.length for offsets in wanted.values())

    def _pieces(self, partition: int, offsets: OffsetRange) -> Iterator[Piece]:
        return pieces_of(partition, offsets, self._source.extents(partition, offsets))

    def _round(self, pieces: Sequence[Piece]) -> None:
        if self._means.is_stopped():
            raise _stopped()
        try:
            staged, error = run_stage(
                self._means.session,
                tasks_of(pieces, self._cores.now),
                partial(stage_pieces, self._source, self._sink),
                what="copying records",
            )
        except RetryableError as failure:
            # A cancelled round looks like a failed one.
            raise (_stopped() if self._means.is_stopped() else failure) from failure
        # What other tasks staged is good even where one failed: it need not be copied again.
        self._count(staged, self._sink.publish(staged))
        if error is not None:
            raise error

    def _count(self, staged: Sequence[Staged], gained: Mapping[int, OffsetRange]) -> None:
        done = [one for one in staged if one.at is not None and _is_within(one.at, gained.get(one.partition))]
        self._done = Copy(
            self._done.records + sum(one.records for one in done),
            self._done.bytes + sum(one.stored_bytes for one in done),
            self._done.offsets + sum(one.at.length for one in done if one.at is not None),
        )
        self._tell(gained)

    def _tell(self, gained: Mapping[int, OffsetRange]) -> None:
        self._means.progress(
            JobProgress(
                records=self._done.records,
                records_total=max(self._total.records, self._done.records),
                bytes=self._done.bytes,
                bytes_total=max(self._total.bytes, self._done.bytes),
                seconds=self._means.clock() - self._began,
                ends={partition: offsets.stop for partition, offsets in sorted(gained.items())},
            )
        )


def stage_pieces(source: TopicLog, sink: StagedSink, pieces: Sequence[Piece]) -> Iterator[Staged]:
    """Do one task: stage pieces under fresh names, wherever it runs."""
    source.check_shared()
    sink.check_shared()
    for piece in joined(pieces):
        yield sink.stage_copy(piece.partition, source, piece.offsets)


def _is_within(offsets: OffsetRange, gained: OffsetRange | None) -> bool:
    return gained is not None and gained.holds(offsets)


def _stopped() -> IncompleteError:
    return IncompleteError("the copy was stopped; what is published stays", hint="`apply` goes on with it.")
