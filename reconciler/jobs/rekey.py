"""Copy a topic into another number of partitions, with one shuffle by target partition.

A shuffle row holds a batch's records for one target partition as Arrow data. One task writes each target partition from
all source partitions in offset order. The sink stores its position in each source partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from reconciler.errors import IncompleteError, LostRaceError, RetryableError
from reconciler.jobs import stage
from reconciler.jobs.flows import MIB, CopyResult, Piece, find_missing_ranges, iter_pieces, iter_rounds
from reconciler.jobs.progress import JobProgress, Report, ignore_progress, translate_job_error
from reconciler.records.hashes import compute_key_partitions
from reconciler.records.log import ObservedSource, OffsetRange, RekeySink, TopicLog, Written
from reconciler.records.schema import RECORD_SCHEMA
from reconciler.runtime.dataclass import dataclass, field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


TargetRow: TypeAlias = "tuple[int, float, int, int, pa.RecordBatch]"
"""Target partition, share, source partition, first source offset, records.

The share is where the row ends in the source partition's range, from 0 to 1.
"""
_COLUMNS: Final = "target int, place double, source int, offset bigint, records binary"
_ROW_BYTES: Final = MIB
_ROW_RECORDS: Final = 500
"""Records per shuffle row. With more, consumer groups reread more; with fewer, writes are slower."""
_ROWS_A_BATCH: Final = 32
"""Shuffle rows per Arrow batch."""
_IN_PROCESS_BYTES: Final = 64 * MIB
_MAX_FRUITLESS: Final = 3


def copy_by_key(
    engine: stage.Engine,
    source: TopicLog,
    sink: RekeySink,
    *,
    until: Mapping[int, int],
    progress: Report = ignore_progress,
) -> CopyResult:
    """Copy the records that a sink lacks up to `until`, each to the partition of its key.

    Raises the errors of `copy_log`.
    """
    return _RekeyJob(engine, source, sink, until, progress).run()


@dataclass
class _RekeyJob:
    engine: stage.Engine
    source: TopicLog
    sink: RekeySink
    until: Mapping[int, int]
    progress: Report
    done: CopyResult = field(default_factory=CopyResult)

    def run(self) -> CopyResult:
        tasks, fruitless, before, lost = stage.Tasks(self.engine), 0, None, None
        began = self.engine.clock()
        while (wanted := self._find_missing_ranges()) and fruitless < _MAX_FRUITLESS:
            fruitless = fruitless + 1 if wanted == before else 0
            before = wanted
            pieces = self._plan_pieces(wanted)
            with tasks.choose_engine(sum(piece.stored_bytes for piece in pieces), "reconciler: re-key"):
                lost = self._run_round(tasks, pieces) or lost
            self._report_progress(pieces, self.engine.clock() - began)
        if wanted:
            message = "no further records could be written into the new topic"
            raise lost or RetryableError(message, hint="Run the same command again.")
        return self.done

    def _find_missing_ranges(self) -> dict[int, OffsetRange]:
        if self.engine.is_stopped():
            raise _stopped_error()
        reached = self.sink.read_positions()
        bounds = self.source.read_bounds()
        self.sink = self.sink.follow_source(ObservedSource(self.source.topic_id, bounds))
        ends = {number: min(through.get(number, 0) for through in reached.values()) for number in bounds}
        return find_missing_ranges(bounds, ends, self.until)

    def _plan_pieces(self, wanted: Mapping[int, OffsetRange]) -> list[Piece]:
        """Interleave the pieces of all partitions, so records of similar times stay together."""
        pieces_by_share: list[tuple[float, Piece]] = []
        for number, offsets in wanted.items():
            pieces = list(iter_pieces(number, offsets, self.source.list_extents(number, offsets)))
            pieces_by_share += [(index / len(pieces), piece) for index, piece in enumerate(pieces, 1)]
        return [piece for _, piece in sorted(pieces_by_share, key=itemgetter(0))]

    def _run_round(self, tasks: stage.Tasks, pieces: Sequence[Piece]) -> LostRaceError | None:
        budget = tasks.budget
        if tasks.is_in_process:
            budget.cost = _IN_PROCESS_BYTES
        taken = next(iter_rounds(pieces, budget))
        through: dict[int, int] = {}
        for piece in taken:
            through[piece.partition] = max(piece.offsets.stop, through.get(piece.partition, 0))
        began = self.engine.clock()
        try:
            outcomes = self._run_tasks(tasks, taken, through)
        except RetryableError as failure:
            # Spark raises the same error for a cancelled and a failed round.
            raise (_stopped_error() if self.engine.is_stopped() else failure) from failure
        tasks.budget.adapt(taken, self.engine.clock() - began, cores=tasks.cores)
        written, error = stage.split_outcomes(outcomes)
        self.done = CopyResult(
            self.done.records + sum(one.records for one in written),
            self.done.bytes + sum(one.bytes for one in written),
            seconds=self.done.seconds + self.engine.clock() - began,
        )
        if error is not None and not isinstance(error, LostRaceError):
            raise error
        return error

    def _run_tasks(
        self, tasks: stage.Tasks, pieces: Sequence[Piece], through: Mapping[int, int]
    ) -> list[Written | stage.TaskError]:
        used, targets = self.engine.used, self.sink.partitions
        if tasks.session is None:
            used.count_tasks(in_process=targets)
            return write_in_threads(self.source, self.sink, pieces, through)
        used.count_tasks(spark_tasks=len(pieces) + targets)
        rows = add_target_rows(read_pieces(tasks.session, self.source, pieces, targets), targets)
        with _limit_batch_rows(tasks.session):
            try:
                outcome_rows = write_partitions(sort_by_target(rows, targets), self.sink, through).collect()
            except Exception as trouble:
                raise translate_job_error("re-keying", trouble) from trouble
        return stage.unpack_outcomes(outcome_rows)

    def _report_progress(self, pieces: Sequence[Piece], seconds: float) -> None:
        left = sum(piece.records for piece in pieces)
        stored = sum(piece.stored_bytes for piece in pieces)
        done = self.done
        self.progress(JobProgress(done.records, max(done.records, left), done.bytes, max(done.bytes, stored), seconds))


def _stopped_error() -> IncompleteError:
    return IncompleteError("the copy was stopped; the records committed so far stay", hint="`apply` continues it.")


def read_pieces(session: SparkSession, source: TopicLog, pieces: Sequence[Piece], targets: int) -> DataFrame:
    """Read each piece in a task; return records by target partition."""
    within = _find_ranges(pieces)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source.check_shared()
        for batch in batches:
            for index in batch.column(0).to_pylist():
                for rows in _read_rows(source, pieces[index], targets, within):
                    yield _to_batch(rows)

    return session.range(0, len(pieces), 1, len(pieces)).mapInArrow(read, _COLUMNS)


def add_target_rows(rows: DataFrame, targets: int) -> DataFrame:
    """Add an empty row for each target partition, so all store their positions."""
    empty = ["cast(id as int) target", "-1d place", "-1 source", "-1L offset", "cast('' as binary) records"]
    return rows.unionByName(rows.sparkSession.range(targets).selectExpr(*empty))


def sort_by_target(rows: DataFrame, targets: int) -> DataFrame:
    """Gather the rows of each target partition in one task, interleaving source partitions."""
    return rows.repartition(targets, "target").sortWithinPartitions("target", "place", "source", "offset")


def write_partitions(rows: DataFrame, sink: RekeySink, through: Mapping[int, int]) -> DataFrame:
    """Write each target partition in a task; return the outcomes."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbered = (
            (target, records)
            for batch in batches
            for target, records in zip(batch.column("target").to_pylist(), batch.column("records"), strict=True)
        )
        for target, group in groupby(numbered, key=itemgetter(0)):
            records = (_unpack_records(packed) for _, packed in group)
            yield stage.pack_outcomes(
                _write(sink, target, (record_batch for record_batch in records if record_batch is not None), through)
            )

    return rows.mapInArrow(write, stage.OUTCOME)


_MAX_THREADS: Final = 16
"""Maximum target partitions written in parallel. Each has a producer."""


def write_in_threads(
    source: TopicLog, sink: RekeySink, pieces: Sequence[Piece], through: Mapping[int, int]
) -> list[Written | stage.TaskError]:
    """Read and write in threads of this process instead of Spark."""
    within = _find_ranges(pieces)
    by_target: dict[int, list[TargetRow]] = {target: [] for target in range(sink.partitions)}
    for piece in pieces:
        for rows in _read_rows(source, piece, sink.partitions, within):
            for row in rows:
                by_target[row[0]].append(row)

    def write(target: int) -> list[Written | stage.TaskError]:
        records = (row[4] for row in sorted(by_target[target], key=itemgetter(1, 2, 3)))
        return list(_write(sink, target, records, through))

    with ThreadPoolExecutor(min(_MAX_THREADS, len(by_target)), thread_name_prefix="rekey") as threads:
        return [outcome for outcomes in threads.map(write, by_target) for outcome in outcomes]


def _write(
    sink: RekeySink, target: int, records: Iterator[pa.RecordBatch], through: Mapping[int, int]
) -> Iterator[Written | stage.TaskError]:
    def write_target(target: int) -> Iterator[Written]:
        sink.check_shared()
        yield from sink.write(target, records, through)

    yield from stage.run_task(write_target, target)


def _find_ranges(pieces: Sequence[Piece]) -> dict[int, OffsetRange]:
    ranges: dict[int, OffsetRange] = {}
    for piece in pieces:
        before = ranges.get(piece.partition, piece.offsets)
        start, stop = min(before.start, piece.offsets.start), max(before.stop, piece.offsets.stop)
        ranges[piece.partition] = OffsetRange(start, stop)
    return ranges


def _read_rows(
    source: TopicLog, piece: Piece, targets: int, within: Mapping[int, OffsetRange]
) -> Iterator[list[TargetRow]]:
    for batch in source.read(piece.partition, piece.offsets):
        yield list(split_by_target(batch, piece.partition, targets, within[piece.partition]))


def split_by_target(batch: pa.RecordBatch, partition: int, targets: int, within: OffsetRange) -> Iterator[TargetRow]:
    """Yield a batch's records by target partition. Records without a key share one.

    `within` is the source partition's offset range in the round.
    """
    keys = batch.column("key")
    chosen = compute_key_partitions(keys, targets)
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


def _to_batch(rows: Sequence[TargetRow]) -> pa.RecordBatch:
    targets, places, sources, offsets, records = zip(*rows, strict=True)
    numbers = [pa.array(targets, pa.int32()), pa.array(places, pa.float64()), pa.array(sources, pa.int32())]
    content = pa.array([record_batch.serialize().to_pybytes() for record_batch in records], pa.binary())
    columns = [*numbers, pa.array(offsets, pa.int64()), content]
    return pa.RecordBatch.from_arrays(columns, names=["target", "place", "source", "offset", "records"])


def _unpack_records(records: Any) -> pa.RecordBatch | None:
    content = records.as_buffer()
    return pa.ipc.read_record_batch(content, RECORD_SCHEMA) if content.size else None


@contextmanager
def _limit_batch_rows(session: SparkSession) -> Iterator[None]:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = session.conf.get(name)
    session.conf.set(name, _ROWS_A_BATCH)
    try:
        yield
    finally:
        session.conf.set(name, str(before))
