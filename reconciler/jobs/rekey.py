"""Copy a topic into another number of partitions: one shuffle by the target partition.

A row of the shuffle is not a record. It is what one batch of the source has for one partition of the target, packed as
Arrow has it, so records stay in columns on their way through the JVM. Each partition of the target is written by one
task, all its sources side by side, each in the order of its offsets. So a group that lags a little goes on a little
before the end. The sink knows how far it came with each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from reconciler.errors import IncompleteError, LostRaceError, RetryableError
from reconciler.jobs import stage
from reconciler.jobs.flows import MIB, Copy, Piece, missing, pieces_of, rounds
from reconciler.jobs.progress import JobProgress, Report, failed, unseen
from reconciler.records.hashes import places_of
from reconciler.records.log import OffsetRange, RekeySink, SourceSeen, TopicLog, Written
from reconciler.records.schema import RECORD_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Row: TypeAlias = "tuple[int, float, int, int, pa.RecordBatch]"
"""Partition of the target, place in the round, partition of the source, first offset there, and records.

The place is the share of what the round reads of its source that ends with it.
"""
_COLUMNS: Final = "target int, place double, source int, offset bigint, records binary"
_ROW_BYTES: Final = MIB
_ROW_RECORDS: Final = 500
"""More in a row are read again by a group that lags a little; fewer cost more to write."""
_ROWS_A_BATCH: Final = 32
"""Rows that Spark hands to a task at once; its own number is meant for rows of single records."""
_HERE: Final = 64 * MIB
"""Stored bytes that are held in memory at once where Spark is not asked."""
_FRUITLESS: Final = 3


def rekey(
    engine: stage.Engine,
    source: TopicLog,
    sink: RekeySink,
    *,
    until: Mapping[int, int],
    progress: Report = unseen,
) -> Copy:
    """Copy what a sink lacks of a source up to some offsets, each record once, to where its key says.

    Raises:
        UserError: What is there is no copy of the source, or an executor does not see one of them.
        IncompleteError: It was stopped; what is committed stays.
        RetryableError: Spark or brokers gave up, or another process copies the topic too.
    """
    return _Rekeying(engine, source, sink, until, progress).run()


@dataclass
class _Rekeying:
    """Rounds, until nothing is missing. Each is one DataFrame, and begins where the sink says it is."""

    engine: stage.Engine
    source: TopicLog
    sink: RekeySink
    until: Mapping[int, int]
    progress: Report
    done: Copy = field(default_factory=Copy)

    def run(self) -> Copy:
        tasks, fruitless, before, lost = stage.Tasks(self.engine), 0, None, None
        began = self.engine.clock()
        while (wanted := self._wanted()) and fruitless < _FRUITLESS:
            fruitless = fruitless + 1 if wanted == before else 0
            before = wanted
            pieces = self._pieces(wanted)
            with tasks.over(sum(piece.stored_bytes for piece in pieces), "reconciler: re-key"):
                lost = self._round(tasks, pieces) or lost
            self._tell(pieces, self.engine.clock() - began)
        if wanted:
            message = "nothing more could be written into the new topic"
            raise lost or RetryableError(message, hint="Run the same command again.")
        return self.done

    def _wanted(self) -> dict[int, OffsetRange]:
        """Return what at least one partition of the target lacks of each of the source."""
        if self.engine.is_stopped():
            raise _stopped()
        reached = self.sink.reached()  # before the source: what is copied meanwhile is no contradiction
        bounds = self.source.bounds()
        self.sink = self.sink.following(SourceSeen(self.source.topic_id, bounds))
        ends = {number: min(through.get(number, 0) for through in reached.values()) for number in bounds}
        return missing(bounds, ends, self.until)

    def _pieces(self, wanted: Mapping[int, OffsetRange]) -> list[Piece]:
        """Return the pieces of all partitions, side by side: what was written about the same time lies together.

        Their ends come last: a group that lags a little in a short partition reads no earlier round again.
        """
        found: list[tuple[float, Piece]] = []
        for number, offsets in wanted.items():
            pieces = list(pieces_of(number, offsets, self.source.extents(number, offsets)))
            found += [(index / len(pieces), piece) for index, piece in enumerate(pieces, 1)]
        return [piece for _, piece in sorted(found, key=itemgetter(0))]

    def _round(self, tasks: stage.Tasks, pieces: Sequence[Piece]) -> LostRaceError | None:
        """Do the first pieces; return why a partition was left to another process."""
        budget = tasks.budget
        if tasks.is_here:
            budget.cost = _HERE
        taken = next(rounds(pieces, budget))
        through: dict[int, int] = {}
        for piece in taken:
            through[piece.partition] = max(piece.offsets.stop, through.get(piece.partition, 0))
        began = self.engine.clock()
        try:
            outcomes = self._outcomes(tasks, taken, through)
        except RetryableError as failure:
            # A cancelled round looks like a failed one.
            raise (_stopped() if self.engine.is_stopped() else failure) from failure
        tasks.budget.learn(taken, self.engine.clock() - began, cores=tasks.cores)
        written, error = stage.told_apart(outcomes)
        self.done = Copy(
            self.done.records + sum(one.records for one in written),
            self.done.bytes + sum(one.bytes for one in written),
            seconds=self.done.seconds + self.engine.clock() - began,
        )
        if error is not None and not isinstance(error, LostRaceError):
            raise error
        return error

    def _outcomes(
        self, tasks: stage.Tasks, pieces: Sequence[Piece], through: Mapping[int, int]
    ) -> list[Written | stage.Refused]:
        used, targets = self.engine.used, self.sink.partitions
        if tasks.session is None:
            used.count(here=targets)
            return written_here(self.source, self.sink, pieces, through)
        used.count(spark_tasks=len(pieces) + targets)
        rows = with_every_target(packed(tasks.session, self.source, pieces, targets), targets)
        with _few_rows_a_batch(tasks.session):
            try:
                found = written(in_order(rows, targets), self.sink, through).collect()
            except Exception as trouble:
                raise failed("re-keying", trouble) from trouble
        return stage.outcomes_in(found)

    def _tell(self, pieces: Sequence[Piece], seconds: float) -> None:
        left = sum(piece.records for piece in pieces)
        stored = sum(piece.stored_bytes for piece in pieces)
        done = self.done
        self.progress(JobProgress(done.records, max(done.records, left), done.bytes, max(done.bytes, stored), seconds))


def _stopped() -> IncompleteError:
    return IncompleteError("the copy was stopped; what is committed stays", hint="`apply` continues it.")


# The steps, each a function to a frame.


def packed(session: SparkSession, source: TopicLog, pieces: Sequence[Piece], targets: int) -> DataFrame:
    """Read pieces of the source, a task each, and return their records by the partition that they go to."""
    within = _within(pieces)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source.check_shared()
        for batch in batches:
            for index in batch.column(0).to_pylist():
                for rows in _rows_of(source, pieces[index], targets, within):
                    yield _as_batch(rows)

    return session.range(0, len(pieces), 1, len(pieces)).mapInArrow(read, _COLUMNS)


def with_every_target(rows: DataFrame, targets: int) -> DataFrame:
    """Add an empty row for each partition of the target: what gets no record has to know how far it came as well."""
    empty = ["cast(id as int) target", "-1d place", "-1 source", "-1L offset", "cast('' as binary) records"]
    return rows.unionByName(rows.sparkSession.range(targets).selectExpr(*empty))


def in_order(rows: DataFrame, targets: int) -> DataFrame:
    """Bring what goes to a partition to one task, its sources side by side."""
    return rows.repartition(targets, "target").sortWithinPartitions("target", "place", "source", "offset")


def written(rows: DataFrame, sink: RekeySink, through: Mapping[int, int]) -> DataFrame:
    """Write each partition, and return what came of it."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbered = (
            (target, records)
            for batch in batches
            for target, records in zip(batch.column("target").to_pylist(), batch.column("records"), strict=True)
        )
        for target, group in groupby(numbered, key=itemgetter(0)):
            records = (_unpacked(packed) for _, packed in group)
            yield stage.outcomes_of(_write(sink, target, (each for each in records if each is not None), through))

    return rows.mapInArrow(write, stage.OUTCOME)


_AT_ONCE: Final = 16
"""Partitions of the target that are written beside each other: each has a producer of its own."""


def written_here(
    source: TopicLog, sink: RekeySink, pieces: Sequence[Piece], through: Mapping[int, int]
) -> list[Written | stage.Refused]:
    """Do the same in threads of this process, for what fits in its memory."""
    within = _within(pieces)
    by_target: dict[int, list[Row]] = {target: [] for target in range(sink.partitions)}
    for piece in pieces:
        for rows in _rows_of(source, piece, sink.partitions, within):
            for row in rows:
                by_target[row[0]].append(row)

    def write(target: int) -> list[Written | stage.Refused]:
        records = (row[4] for row in sorted(by_target[target], key=itemgetter(1, 2, 3)))
        return list(_write(sink, target, records, through))

    with ThreadPoolExecutor(min(_AT_ONCE, len(by_target)), thread_name_prefix="rekey") as threads:
        return [outcome for found in threads.map(write, by_target) for outcome in found]


def _write(
    sink: RekeySink, target: int, records: Iterator[pa.RecordBatch], through: Mapping[int, int]
) -> Iterator[Written | stage.Refused]:
    def do(target: int) -> Iterator[Written]:
        sink.check_shared()
        yield from sink.write(target, records, through)

    yield from stage.attempt(do, target)


# Records by where they go.


def _within(pieces: Sequence[Piece]) -> dict[int, OffsetRange]:
    """Return what a round reads of each partition."""
    found: dict[int, OffsetRange] = {}
    for piece in pieces:
        before = found.get(piece.partition, piece.offsets)
        start, stop = min(before.start, piece.offsets.start), max(before.stop, piece.offsets.stop)
        found[piece.partition] = OffsetRange(start, stop)
    return found


def _rows_of(source: TopicLog, piece: Piece, targets: int, within: Mapping[int, OffsetRange]) -> Iterator[list[Row]]:
    for batch in source.read(piece.partition, piece.offsets):
        yield list(split(batch, piece.partition, targets, within[piece.partition]))


def split(batch: pa.RecordBatch, partition: int, targets: int, within: OffsetRange) -> Iterator[Row]:
    """Yield the records of a batch by the partition they go to: those without a key go on lying together.

    `within` is what the round reads of their partition.
    """
    keys = batch.column("key")
    chosen = places_of(keys, targets)
    if keys.null_count:
        chosen[keys.is_null().to_numpy(zero_copy_only=False)] = partition % targets
    order = np.argsort(chosen, kind="stable")
    sorted_by_target = batch.take(pa.array(order))
    borders = np.searchsorted(chosen[order], np.arange(targets + 1)).tolist()
    most = min(_ROW_RECORDS, max(1, _ROW_BYTES * batch.num_rows // max(1, batch.nbytes)))
    for target, (start, stop) in enumerate(pairwise(borders)):
        for at in range(start, stop, most):
            records = sorted_by_target.slice(at, min(most, stop - at))
            offsets = records.column("offset")
            place = (offsets[-1].as_py() + 1 - within.start) / within.length
            yield target, place, partition, offsets[0].as_py(), records


def _as_batch(rows: Sequence[Row]) -> pa.RecordBatch:
    targets, places, sources, offsets, records = zip(*rows, strict=True)
    numbers = [pa.array(targets, pa.int32()), pa.array(places, pa.float64()), pa.array(sources, pa.int32())]
    content = pa.array([each.serialize().to_pybytes() for each in records], pa.binary())
    columns = [*numbers, pa.array(offsets, pa.int64()), content]
    return pa.RecordBatch.from_arrays(columns, names=["target", "place", "source", "offset", "records"])


def _unpacked(records: Any) -> pa.RecordBatch | None:
    content = records.as_buffer()
    return pa.ipc.read_record_batch(content, RECORD_SCHEMA) if content.size else None


@contextmanager
def _few_rows_a_batch(session: SparkSession) -> Iterator[None]:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = session.conf.get(name)
    session.conf.set(name, _ROWS_A_BATCH)
    try:
        yield
    finally:
        session.conf.set(name, str(before))
