"""Compare compacted logs by DataFrame joins on offset and on key. Shuffles contain hashes instead of values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from reconciler.embedded.maintenance.compaction import hash_keys
from reconciler.jobs.comparison import LEFT, RIGHT, DisputedPartition, DisputeResult, RenumberedLog
from reconciler.jobs.progress import translate_job_error
from reconciler.jobs.stage import describe_stages
from reconciler.records.hashes import compute_hashes
from reconciler.records.log import OffsetRange
from reconciler.runtime.dataclass import dataclass

_COLUMNS: Final = (
    "side int, partition int, offset bigint, record struct<a: bigint, b: bigint>, key struct<a: bigint, b: bigint>, "
    "is_common boolean, may_be_gone boolean, is_tombstone boolean"
)
"""Hashes of a record and its key, whether both logs span its offset, and whether the other log may have removed it."""
_HASH: Final = pa.struct([("a", pa.int64()), ("b", pa.int64())])
_SCHEMA: Final = pa.schema(
    {
        "side": pa.int32(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "record": _HASH,
        "key": _HASH,
        "is_common": pa.bool_(),
        "may_be_gone": pa.bool_(),
        "is_tombstone": pa.bool_(),
    }
)


@dataclass(frozen=True, slots=True)
class _PieceOfSide:
    doubt: DisputedPartition
    side: int
    offsets: OffsetRange


def explain_in_spark(session: SparkSession, doubts: Sequence[DisputedPartition]) -> dict[int, DisputeResult]:
    """Compare disputed partitions in Spark. Raise `RetryableError` if Spark fails."""
    parts = [_PieceOfSide(doubt, side, piece.offsets) for doubt in doubts for side, piece in doubt.list_pieces()]
    try:
        with describe_stages(session, "reconciler: compare compacted logs"):
            records = hash_records(session, parts).persist()
            try:
                differences = mark_explained(find_differences(records), find_newest(records))
                rows = sum_by_partition(differences).collect()
            finally:
                records.unpersist()
    except Exception as trouble:
        raise translate_job_error("comparing records", trouble) from trouble
    by_partition = {row.partition: DisputeResult(row.superseded, row.first, row.foreign) for row in rows}
    return {doubt.pair.partition: by_partition.get(doubt.pair.partition, DisputeResult(0, None)) for doubt in doubts}


def hash_records(session: SparkSession, parts: Sequence[_PieceOfSide]) -> DataFrame:
    """Return hashes of both logs' records from the common start on."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                part = parts[index]
                log, stored = part.doubt.logs[part.side], part.doubt.stored[part.side]
                stored.check_shared()
                for record_batch in log.read(part.doubt.pair.partition, part.offsets):
                    yield _hash_batch(record_batch, part)
                if isinstance(log, RenumberedLog) and log.foreign is not None:
                    yield _foreign_row(log.foreign, part)

    return session.range(0, len(parts), 1, len(parts)).mapInArrow(read, _COLUMNS)


def find_differences(records: DataFrame) -> DataFrame:
    """Return common offsets at which records differ or one is missing."""
    spanned = records.where("is_common")
    ours, theirs = (spanned.where(fn.col("side") == side).alias(name) for side, name in ((LEFT, "l"), (RIGHT, "r")))
    sides = ours.join(theirs, ["partition", "offset"], "full_outer")
    is_alone = fn.col("l.record").isNull() | fn.col("r.record").isNull()
    columns = [
        fn.coalesce(fn.col(f"l.{name}"), fn.col(f"r.{name}")).alias(name)
        for name in ("key", "may_be_gone", "is_tombstone")
    ]
    return sides.where(is_alone | (fn.col("l.record") != fn.col("r.record"))).select(
        "partition", "offset", is_alone.alias("is_alone"), *columns
    )


def find_newest(records: DataFrame) -> DataFrame:
    """Return each key's last offset in either log."""
    keyed = records.where(fn.col("key").isNotNull())
    return keyed.groupBy("partition", "key").agg(fn.max("offset").alias("newest"))


def mark_explained(differences: DataFrame, newest_of_keys: DataFrame) -> DataFrame:
    """Add to each difference whether compaction explains it."""
    is_over = fn.col("is_tombstone") | (fn.col("newest") > fn.col("offset"))
    is_explained = fn.col("is_alone") & fn.col("may_be_gone") & is_over
    return differences.join(newest_of_keys, ["partition", "key"], "left").select(
        "partition", "offset", fn.coalesce(is_explained, fn.expr("false")).alias("is_superseded")
    )


def sum_by_partition(differences: DataFrame) -> DataFrame:
    """Return, by partition, the number of explained differences and the first other difference."""
    offset = fn.when(~fn.col("is_superseded"), fn.col("offset"))
    return differences.groupBy("partition").agg(
        fn.count_if("is_superseded").alias("superseded"),
        fn.min(fn.when(offset >= 0, offset)).alias("first"),
        fn.min(fn.when(offset < 0, -1 - offset)).alias("foreign"),
    )


def _foreign_row(offset: int, part: _PieceOfSide) -> pa.RecordBatch:
    number = part.doubt.pair.partition
    row = {"side": part.side, "partition": number, "offset": -1 - offset, "is_common": True, "may_be_gone": False}
    return pa.RecordBatch.from_pylist([row], _SCHEMA)


def _hash_batch(batch: pa.RecordBatch, part: _PieceOfSide) -> pa.RecordBatch:
    pair, side = part.doubt.pair, part.side
    other = (pair.right, pair.left)[side]
    offsets = batch.column("offset").to_numpy()
    keys = batch.column("key")
    has_key = keys.is_valid().to_numpy(zero_copy_only=False)
    halves = [np.zeros(batch.num_rows, np.int64) for _ in range(2)]
    for half, key_half in zip(halves, hash_keys(keys.filter(keys.is_valid())), strict=True):
        half[has_key] = key_half.view(np.int64)
    columns = [
        pa.array(np.full(batch.num_rows, side, np.int32)),
        pa.array(np.full(batch.num_rows, pair.partition, np.int32)),
        pa.array(offsets),
        _hash_pairs(list(np.ascontiguousarray(compute_hashes(batch)).view(np.int64).T)),
        _hash_pairs(halves, mask=pa.array(~has_key)),
        pa.array((offsets >= pair.common.start) & (offsets < pair.common.stop)),
        pa.array(has_key & (offsets < (0 if other is None else other.compacted_to))),
        batch.column("value").is_null(),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _hash_pairs(halves: Sequence[np.ndarray], mask: pa.Array | None = None) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.array(half) for half in halves], names=["a", "b"], mask=mask)
