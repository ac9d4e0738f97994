"""Restoring: a log from object storage written into a topic that numbers records itself, exactly once, and compared.

What the target has is its own numbers; which record went where stands in the offset map that was committed with it. So
it is compared by order: as many records in each partition, and the same ones one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from reconciler.errors import IncompleteError, UserError
from reconciler.jobs.mirror import mirror
from reconciler.jobs.progress import unseen
from reconciler.jobs.tasks import LITTLE_BYTES, Tasks
from reconciler.records.digest import Digest
from reconciler.records.hashing import digest_of
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from reconciler.jobs.flows import Copy
    from reconciler.jobs.progress import Report
    from reconciler.records.log import Bounds, TopicLog, TransactionalSink

_WORDS: Final = "reconciler: compare what was restored"


@dataclass(frozen=True)
class Restoring:
    """One topic that is restored: where from, where to, and how what is there is read back."""

    name: str
    source: TopicLog
    sink: TransactionalSink
    copy: TopicLog
    session: Callable[[], SparkSession]
    progress: Report = unseen
    is_stopped: Callable[[], bool] = lambda: False
    little_bytes: int = field(default_factory=lambda: LITTLE_BYTES)


def restore(job: Restoring) -> Copy:
    """Copy what is missing, and compare all of it.

    Raises:
        UserError: What was restored differs, or somebody else has written to it.
        RetryableError: Spark gave up, or brokers do not answer.
        IncompleteError: It was stopped; what is committed stays.
    """
    copied = mirror(
        job.session,
        job.source,
        job.sink,
        progress=job.progress,
        is_stopped=job.is_stopped,
        little_bytes=job.little_bytes,
    )
    if job.is_stopped():
        raise IncompleteError("stopped before all was compared", hint="Run the same command again: it goes on.")
    _compare(job)
    return copied


@dataclass(frozen=True, slots=True)
class _Whole:
    """One partition of both logs, to be read from its first record to its last."""

    partition: int
    source: OffsetRange
    copy: OffsetRange
    cost: int


def _compare(job: Restoring) -> None:
    ours, theirs = job.source.bounds(), job.copy.bounds()
    if ours.keys() != theirs.keys():
        message = f"{job.name}: it has {len(theirs)} partitions, and {len(ours)} were restored"
        raise UserError(message, hint="Somebody changed it meanwhile: delete it, and mount it again.")
    work = [_whole(job, number, ours[number], theirs[number]) for number in sorted(ours)]
    tasks = Tasks(job.session, job.is_stopped, job.little_bytes)
    source, copy = job.source, job.copy

    def do(pieces: Sequence[_Whole]) -> Iterator[tuple[int, bool]]:
        for piece in pieces:
            here = in_order(source.read(piece.partition, piece.source))
            yield piece.partition, here == in_order(copy.read(piece.partition, piece.copy))

    with tasks.over(sum(each.cost for each in work), _WORDS):
        found, error = tasks.run(work, do, what="comparing records")
    if error is not None:
        raise error
    wrong = sorted(number for number, is_same in found if not is_same)
    if wrong or len(found) != len(work):
        named = ", ".join(map(str, wrong)) or "nobody looked at"
        message = f"{job.name}: what was restored differs from what lies in object storage in partitions {named}"
        hint = "Has somebody written to it? Cancel the mount, which deletes it here, and mount it again."
        raise UserError(message, hint=hint)


def _whole(job: Restoring, number: int, ours: Bounds, theirs: Bounds) -> _Whole:
    here = OffsetRange(ours.start, ours.stable)
    stored = sum(each.stored_bytes for each in job.source.extents(number, here))
    return _Whole(number, here, OffsetRange(theirs.start, theirs.stable), stored)


def in_order(batches: Iterator[pa.RecordBatch]) -> Digest:
    """Return the digest of records one after the other, whatever their offsets: each counts by its place."""
    found, first = Digest(), 0
    for batch in batches:
        index = batch.schema.get_field_index("offset")
        places: Any = pa.array(np.arange(first, first + batch.num_rows))
        found += digest_of(batch.set_column(index, batch.schema.field(index), places), base=0)
        first += batch.num_rows
    return found


def translated(
    groups: Mapping[str, Mapping[int, int]], target_of: Callable[[int, int], int | None]
) -> dict[str, dict[int, int]]:
    """Return where groups go on in a copy; `target_of` takes a partition and an offset of the source."""
    return {
        group: {
            number: target
            for number, offset in sorted(offsets.items())
            if (target := target_of(number, offset)) is not None
        }
        for group, offsets in sorted(groups.items())
    }
