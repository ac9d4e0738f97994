"""Records on their way to the partitions of a topic: each batch is split by partition, its order kept in each."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.errors import UserError
from reconciler.records.partitioner import partitions_of
from reconciler.records.schema import RECORD_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.records.partitioner import Spread


def split_by_partition(
    batch: pa.RecordBatch, *, partitions: int, now_ms: int, spread: Spread
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (partition, its records) of a batch of `INPUT_SCHEMA`, lowest partition first.

    Records come out as `RECORD_SCHEMA`, their offsets counted from 0 in each: numbered when they are published.
    What leaves its partition open goes where its key says, or round robin; what leaves its time open gets `now_ms`.

    Raises:
        UserError: A record names a partition the topic does not have.
    """
    chosen, records = _chosen(batch, partitions, spread), batch
    # Copying all records costs as much as hashing them: not where they lie in order already.
    if not np.all(chosen[:-1] <= chosen[1:]):
        order = np.argsort(chosen, kind="stable")
        chosen, records = chosen[order], batch.take(pa.array(order))
    times = records.column("timestamp_ms")
    if times.null_count:
        times = pc.fill_null(times, now_ms)
    edges = np.searchsorted(chosen, np.arange(partitions + 1)).tolist()
    for partition, (start, stop) in enumerate(pairwise(edges)):
        if start < stop:
            size = stop - start
            numbered = [pa.repeat(pa.scalar(partition, pa.int32()), size), pa.array(np.arange(size))]
            kept = [column.slice(start, size) for column in (times, *records.columns[2:])]
            yield partition, pa.RecordBatch.from_arrays(numbered + kept, schema=RECORD_SCHEMA)


def check_there(named: pa.Array, partitions: int) -> None:
    """Return if a topic of so many partitions has all that are named.

    Raises:
        UserError: One is not there.
    """
    ends = pc.min_max(named).as_py()
    for asked in (ends["max"], ends["min"]):
        if asked is not None and not 0 <= asked < partitions:
            there = f"Its partitions are 0 to {partitions - 1}" if partitions > 1 else "Its only partition is 0"
            hint = f"{there}; leave the partition out to have it chosen by the key."
            raise UserError(f"partition {asked}: the topic does not have it", hint=hint)


def _chosen(batch: pa.RecordBatch, partitions: int, spread: Spread) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    named = batch.column("partition")
    check_there(named, partitions)
    if partitions == 1:
        return np.zeros(len(named), np.int32)
    if named.null_count == 0:
        chosen = named
    elif named.null_count == len(named):
        chosen = partitions_of(batch.column("key"), partitions, state=spread)
    else:
        free = named.is_null()
        found = partitions_of(batch.column("key").filter(free), partitions, state=spread)
        chosen = pc.replace_with_mask(named, free, found)
    numbers: np.ndarray[tuple[int], np.dtype[np.int32]] = chosen.to_numpy()
    return numbers
