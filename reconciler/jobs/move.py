"""Moving: a topic copied into another one of the same platform, exactly once, and compared.

The source goes on taking records, since brokers shut nobody out. `fill` brings the target to the source's end as it is
now; `settle` brings the rest, and refuses to call it done where anything was written meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reconciler.errors import IncompleteError, RetryableError, UserError
from reconciler.jobs.archive import is_unmoved
from reconciler.jobs.inorder import Pairing, Where, differing
from reconciler.jobs.mirror import mirror
from reconciler.jobs.progress import unseen
from reconciler.jobs.tasks import LITTLE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from reconciler.jobs.flows import Copy
    from reconciler.jobs.progress import Report
    from reconciler.records.digest import Digest
    from reconciler.records.log import Bounds, TopicLog, TransactionalSink


@dataclass(frozen=True)
class Moving:
    """One topic on its way: where from, where to, and how what is there is read back."""

    name: str
    source: TopicLog
    sink: TransactionalSink
    copy: TopicLog
    session: Callable[[], SparkSession]
    written: Callable[[], Digest] | None = None
    """What was written in all, where records find their partitions by key; `None`: they lie as they lay."""
    progress: Report = unseen
    is_stopped: Callable[[], bool] = lambda: False
    little_bytes: int = field(default_factory=lambda: LITTLE_BYTES)


def fill(job: Moving) -> Copy:
    """Copy what is missing up to the source's end as it is now, and compare all there is.

    Raises:
        UserError: The copy differs, or somebody else has written to it.
        RetryableError: Spark gave up, or brokers do not answer.
        IncompleteError: It was stopped; what is committed stays.
    """
    copied = _brought(job, job.source.bounds())
    _compare(job)
    return copied


def settle(job: Moving) -> tuple[Copy, Mapping[int, Bounds]]:
    """Copy what came since, compare, and return where the source ends, to which nothing was written meanwhile.

    Raises:
        RetryableError: Somebody writes to it still, or a transaction is open. Also as of `fill`.
    """
    before = job.source.bounds()
    opened = sorted(number for number, bounds in before.items() if bounds.stable < bounds.end)
    if opened:
        message = f"{job.name}: transactions are open on partitions {', '.join(map(str, opened))}"
        raise RetryableError(message, hint="Let their producers end them, then apply again: it goes on from here.")
    copied = _brought(job, before)
    _compare(job)
    if not is_unmoved(before, job.source.bounds()):
        message = f"{job.name}: somebody writes to it still"
        raise RetryableError(message, hint="Let its producers write to the new topic, then apply again.")
    return copied, before


def _brought(job: Moving, seen: Mapping[int, Bounds]) -> Copy:
    return mirror(
        job.session,
        job.source,
        job.sink,
        until={number: bounds.stable for number, bounds in seen.items()},
        progress=job.progress,
        is_stopped=job.is_stopped,
        little_bytes=job.little_bytes,
    )


def _compare(job: Moving) -> None:
    if job.is_stopped():
        raise IncompleteError("stopped before all was compared", hint="Run the same command again: it goes on.")
    wrong = _differing(job) if job.written is None else _unlike(job, job.written())
    if wrong:
        message = f"{job.name}: the copy differs from it in {wrong}"
        hint = "Nothing was deleted. Has somebody written to the new topic? Delete that one, and apply again."
        raise UserError(message, hint=hint)


def _differing(job: Moving) -> str:
    spans = job.sink.spans(job.source.bounds())
    work = [
        Pairing.of(job.source, number, both.right, both.left)
        for number, both in sorted(spans.items())
        if both.right.length or both.left.length
    ]
    wrong = differing(job.source, job.copy, work, Where(job.session, job.is_stopped, job.little_bytes))
    return f"partitions {', '.join(map(str, wrong))}" if wrong else ""


def _unlike(job: Moving, written: Digest) -> str:
    """Compare what is there with what was written: where each record went only its key says."""
    from reconciler.jobs.differing import read_digest  # noqa: PLC0415 - only here
    from reconciler.records.digest import Digest as Sum  # noqa: PLC0415 - as above
    from reconciler.records.log import OffsetRange  # noqa: PLC0415 - as above

    found = Sum()
    for number, bounds in job.copy.bounds().items():
        found += read_digest(job.copy, number, OffsetRange(bounds.start, bounds.stable))
    if (found.records, found.total) == (written.records, written.total):
        return ""
    return f"its records: {written.records:,} were written, and {found.records:,} are there, or others"
