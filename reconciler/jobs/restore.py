"""Restoring: a log from object storage written into a topic that numbers records itself, exactly once, and compared.

What the target has is its own numbers; which record went where stands in the offset map that was committed with it. So
it is compared by order: as many records in each partition, and the same ones one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reconciler.errors import IncompleteError, UserError
from reconciler.jobs.inorder import Pairing, Where, differing
from reconciler.jobs.mirror import mirror
from reconciler.jobs.progress import unseen
from reconciler.jobs.tasks import LITTLE_BYTES
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from reconciler.jobs.flows import Copy
    from reconciler.jobs.progress import Report
    from reconciler.records.log import TopicLog, TransactionalSink


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


def _compare(job: Restoring) -> None:
    ours, theirs = job.source.bounds(), job.copy.bounds()
    if ours.keys() != theirs.keys():
        message = f"{job.name}: it has {len(theirs)} partitions, and {len(ours)} were restored"
        raise UserError(message, hint="Somebody changed it meanwhile: delete it, and mount it again.")
    work = [
        Pairing.of(
            job.source, number, *(OffsetRange(each.start, each.stable) for each in (ours[number], theirs[number]))
        )
        for number in sorted(ours)
    ]
    wrong = differing(job.source, job.copy, work, Where(job.session, job.is_stopped, job.little_bytes))
    if wrong:
        named = ", ".join(map(str, wrong))
        message = f"{job.name}: what was restored differs from what lies in object storage in partitions {named}"
        hint = "Has somebody written to it? Cancel the mount, which deletes it here, and mount it again."
        raise UserError(message, hint=hint)


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
