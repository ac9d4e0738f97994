"""Two logs that number their records differently, compared by order: as many, and the same ones one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from reconciler.jobs.tasks import Tasks
from reconciler.records.digest import Digest
from reconciler.records.hashing import digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from reconciler.records.log import OffsetRange, TopicLog

_WORDS: Final = "reconciler: compare records"


@dataclass(frozen=True, slots=True)
class Pairing:
    """A range of one partition of a source, and where its records lie in a copy."""

    partition: int
    source: OffsetRange
    copy: OffsetRange
    cost: int

    @classmethod
    def of(cls, log: TopicLog, partition: int, source: OffsetRange, copy: OffsetRange) -> Pairing:
        """Return one that costs what is stored of it in the source."""
        return cls(partition, source, copy, sum(each.stored_bytes for each in log.extents(partition, source)))


@dataclass(frozen=True)
class Where:
    """Where records are compared: here where there is little, else in Spark."""

    session: Callable[[], SparkSession]
    is_stopped: Callable[[], bool]
    little_bytes: int


def differing(source: TopicLog, copy: TopicLog, work: Sequence[Pairing], where: Where) -> list[int]:
    """Return the partitions whose records are not the same, sorted; every record of both sides is read.

    Raises:
        RetryableError: Spark gave up, or a log does not answer.
    """
    tasks = Tasks(where.session, where.is_stopped, where.little_bytes)
    with tasks.over(sum(each.cost for each in work), _WORDS):
        found, error = tasks.run(work, partial(_compared, source, copy), what="comparing records")
    if error is not None:
        raise error
    same = {number for number, is_same in found if is_same}
    return sorted({each.partition for each in work} - same)


def _compared(source: TopicLog, copy: TopicLog, pieces: Sequence[Pairing]) -> Iterator[tuple[int, bool]]:
    for piece in pieces:
        here = in_order(source.read(piece.partition, piece.source))
        yield piece.partition, here == in_order(copy.read(piece.partition, piece.copy))


def in_order(batches: Iterator[pa.RecordBatch]) -> Digest:
    """Return the digest of records one after the other, whatever their offsets: each counts by its place."""
    found, first = Digest(), 0
    for batch in batches:
        index = batch.schema.get_field_index("offset")
        places: Any = pa.array(np.arange(first, first + batch.num_rows))
        found += digest_of(batch.set_column(index, batch.schema.field(index), places), base=0)
        first += batch.num_rows
    return found
