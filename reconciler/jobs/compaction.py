"""Compact partitions whose keys exceed memory. DataFrames find the newest record of each key.

A task that writes a file holds only the file's offsets. The driver publishes all files or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from reconciler.embedded.maintenance import compaction as in_memory
from reconciler.embedded.maintenance.chores import Chore, ChoreTask, FailedChore
from reconciler.embedded.maintenance.compaction import (
    CleaningGroup,
    CleaningPart,
    Compaction,
    CompactionScope,
    GroupRewrite,
    SurvivingOffsets,
    hash_keys,
)
from reconciler.embedded.segments.parts import read_keys
from reconciler.errors import ReconcilerError
from reconciler.jobs import stage
from reconciler.jobs.progress import translate_job_error
from reconciler.jobs.stage import Engine, EngineUse, StoredWork
from reconciler.records.log import OffsetRange
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

    from reconciler.embedded.tiered.object_rewrites import PartitionRewrite


C = TypeVar("C", bound="StoredWork")
R = TypeVar("R")

_TASKS_A_CORE: Final = 4
_OFFSETS_A_ROW: Final = 1 << 20


def run_in_spark(
    engine: Engine, work: Sequence[C], do: Callable[[Sequence[C]], Iterable[R]]
) -> Iterator[Sequence[Any]]:
    """Run work in Spark and yield the results of each round. A partition with many keys has its own round.

    Raises the errors of `run_rounds_in_spark`.
    """
    large = [item for item in work if isinstance(item, Chore) and item.keys >= in_memory.MAX_LEARNED_KEYS]
    if not large or not isinstance(do, ChoreTask) or do.job != "compact":
        yield from stage.run_rounds_in_spark(engine, work, do)
        return
    rest: list[Any] = [item for item in work if item not in large]
    chores: Callable[[Sequence[Any]], Iterable[Any]] = do
    if rest:
        yield from stage.run_rounds_in_spark(engine, rest, chores)
    for chore in large:
        if engine.is_stopped():
            raise stage.stopped_maintenance_error()
        yield _compact_large(engine, do, chore)


def _compact_large(engine: Engine, task: ChoreTask, chore: Chore) -> list[PartitionRewrite | FailedChore]:
    session = engine.start_spark(chore.bytes)
    try:
        cleaning = task.plan_shared_compaction(chore)
        if cleaning is None:
            return []
        with stage.describe_stages(session, "reconciler: maintenance"):
            return [CompactionPass(session, task, chore, *cleaning).write_survivors(engine.used)]
    except ReconcilerError as error:
        # Spark raises the same error for a cancelled and a failed stage.
        if engine.is_stopped():
            raise stage.stopped_maintenance_error() from error
        return [FailedChore(chore.partition, error)]


@dataclass(frozen=True, slots=True)
class CompactionPass:
    """A compaction of one partition."""

    session: SparkSession
    task: ChoreTask
    chore: Chore
    compaction: Compaction
    cleaning: CompactionScope

    def write_survivors(self, used: EngineUse) -> PartitionRewrite:
        """Write the records that survive to new objects."""
        groups = list(self.compaction.iter_groups(self.cleaning))
        tasks = min(len(self.cleaning.parts), _TASKS_A_CORE * stage.Cores(self.session).parallel_tasks)
        keys = read_key_hashes(self.session, self.task, self.chore, self.cleaning.parts, tasks)
        survivors = group_by_file(find_newest(keys), [_find_offset_range(group) for group in groups])
        files = gather_by_file(add_file_rows(survivors, len(groups)), len(groups))
        used.count_tasks(spark_tasks=tasks + len(groups))
        try:
            rows = self._write_files(files, groups).collect()
        except Exception as trouble:
            raise translate_job_error("compacting", trouble) from trouble
        return self.compaction.combine_rewrites(self.cleaning, _parse_file_results(rows))

    def _write_files(self, files: DataFrame, groups: Sequence[CleaningGroup]) -> DataFrame:
        task, chore, compaction, cleaning = self.task, self.chore, self.compaction, self.cleaning

        def write(table: pa.Table) -> pa.Table:
            number = table.column("file")[0].as_py()

            def rewrite_group(group: CleaningGroup) -> Iterator[GroupRewrite]:
                task.check_shared(chore)
                offsets = np.frombuffer(b"".join(table.column("offsets").to_pylist()), np.int64)
                yield compaction.clean_group(cleaning, group, SurvivingOffsets(offsets, cleaning.through))

            outcomes = pa.Table.from_batches([stage.pack_outcomes(stage.run_task(rewrite_group, groups[number]))])
            return outcomes.add_column(0, "file", pa.array([number] * outcomes.num_rows, pa.int32()))

        return files.groupBy("file").applyInArrow(write, f"file int, {stage.OUTCOME}")


def read_key_hashes(
    session: SparkSession, task: ChoreTask, chore: Chore, parts: Sequence[CleaningPart], tasks: int
) -> DataFrame:
    """Return the offset of each record with a key, and its key's hash in two halves."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task.check_shared(chore)
        for batch in batches:
            for index in batch.column(0).to_pylist():
                part = parts[index]
                for record_batch in read_keys(part.store, part.entry, OffsetRange(part.entry.base, part.stop)):
                    keyed = record_batch.filter(record_batch.column("key").is_valid())
                    halves = [pa.array(half.view(np.int64)) for half in hash_keys(keyed.column("key"))]
                    yield pa.RecordBatch.from_arrays([keyed.column("offset"), *halves], names=["offset", "high", "low"])

    return session.range(0, len(parts), 1, tasks).mapInArrow(read, "offset bigint, high bigint, low bigint")


def find_newest(keys: DataFrame) -> DataFrame:
    """Return the last offset of each key."""
    return keys.groupBy("high", "low").agg(fn.max("offset").alias("offset")).select("offset")


def group_by_file(survivors: DataFrame, files: Sequence[OffsetRange]) -> DataFrame:
    """Return offsets by file. Where the remote tier ends, a record may be in two files."""

    def pack_offsets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for gathered in _join_batches(batches):
            offsets = np.sort(gathered)
            starts = offsets.searchsorted([file_range.start for file_range in files]).tolist()
            stops = offsets.searchsorted([file_range.stop for file_range in files]).tolist()
            offsets_by_file = [
                (file, offsets[start:stop].tobytes())
                for file, (start, stop) in enumerate(zip(starts, stops, strict=True))
                if start < stop
            ]
            numbers, packed = zip(*offsets_by_file, strict=True)
            columns = [pa.array(numbers, pa.int32()), pa.array(packed, pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, names=["file", "offsets"])

    return survivors.mapInArrow(pack_offsets, "file int, offsets binary")


def add_file_rows(survivors: DataFrame, files: int) -> DataFrame:
    """Add an empty row for each file, so files without survivors are rewritten, too."""
    nothing = survivors.sparkSession.range(files).select(
        fn.col("id").cast("int").alias("file"), fn.lit(b"").alias("offsets")
    )
    return survivors.unionByName(nothing)


def gather_by_file(survivors: DataFrame, files: int) -> DataFrame:
    """Gather the offsets of each file in one task."""
    return survivors.repartition(files, "file")


def _join_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[npt.NDArray[np.int64]]:
    held: list[npt.NDArray[np.int64]] = []
    count = 0
    for batch in batches:
        held.append(batch.column(0).to_numpy())
        count += batch.num_rows
        if count >= _OFFSETS_A_ROW:
            yield np.concatenate(held)
            held, count = [], 0
    if count:
        yield np.concatenate(held)


def _find_offset_range(group: CleaningGroup) -> OffsetRange:
    return OffsetRange(group.first.entry.base, group.parts[-1].entry.last + 1)


def _parse_file_results(rows: Sequence[Any]) -> Iterator[GroupRewrite]:
    done, error = stage.split_outcomes(stage.unpack_outcomes(sorted(rows, key=lambda row: row.file)))
    yield from done
    if error is not None:
        raise error
