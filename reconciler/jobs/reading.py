"""Digests of ranges of two logs: from what they keep, or by reading every record in Spark tasks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from reconciler.jobs.differing import kept_digest, read_digest
from reconciler.jobs.progress import JobProgress
from reconciler.jobs.ranges import Budget, pieces_of, rounds, tasks_of
from reconciler.jobs.stage import Cores, described, run_stage
from reconciler.records.digest import Digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from reconciler.jobs.comparison import Pair
    from reconciler.jobs.progress import Report
    from reconciler.jobs.ranges import Piece
    from reconciler.records.log import OffsetRange, TopicLog


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


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told how far it is, and whose clock says how long it took."""

    progress: Report
    clock: Callable[[], float]


class DeepReading:
    """Reads every record of both logs, each range of both in one task, and digests them."""

    def __init__(self, left: TopicLog, right: TopicLog, both: Sequence[Pair], watch: Watch) -> None:
        self._watch = watch
        self._pieces = [piece for pair in both for piece in _pieces(left, right, pair)]
        lacking = (
            frozenset(pair.partition for pair in both if pair.left is None),
            frozenset(pair.partition for pair in both if pair.right is None),
        )
        self._read = partial(read_pieces, left, right, lacking)

    def readings(self, session: SparkSession | None) -> Iterator[Reading]:
        """Yield what was read, in rounds where Spark reads."""
        began = self._watch.clock()
        done: list[Reading] = []
        for taken in self._rounds(session):
            for reading in taken:
                done.append(reading)
                yield reading
            self._tell(done, self._watch.clock() - began)

    def _rounds(self, session: SparkSession | None) -> Iterator[list[Reading]]:
        if session is None:
            for piece in self._pieces:
                yield list(self._read([piece]))
            return
        cores = Cores(session)
        budget = Budget(cores.now)
        with described(session, "reconciler: verify"):
            for pieces in rounds(self._pieces, budget):
                began = self._watch.clock()
                found, error = run_stage(session, tasks_of(pieces, cores.now), self._read, what="comparing records")
                if error is not None:
                    raise error
                budget.learn(pieces, self._watch.clock() - began, cores=cores.now)
                yield found

    def _tell(self, done: Sequence[Reading], seconds: float) -> None:
        share = sum(reading.offsets.length for reading in done) / sum(piece.offsets.length for piece in self._pieces)
        stored = sum(piece.stored_bytes for piece in self._pieces)
        self._watch.progress(
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
