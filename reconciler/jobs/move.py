"""Moving: a topic copied into another one of the same platform, exactly once, and compared.

`fill` brings the target to the source's end as it is now, while producers go on. For `settle` they are shut out, and it
brings the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reconciler.errors import IncompleteError, UserError
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
    from reconciler.records.log import TopicLog, TransactionalSink


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
    copied = _brought(job, {number: bounds.stable for number, bounds in job.source.bounds().items()})
    _compare(job)
    return copied


def settle(job: Moving, ends: Mapping[int, int]) -> Copy:
    """Copy what came since up to `ends`, where nobody writes any more, and compare.

    Raises:
        As of `fill`.
    """
    copied = _brought(job, ends)
    _compare(job)
    return copied


def _brought(job: Moving, ends: Mapping[int, int]) -> Copy:
    return mirror(
        job.session,
        job.source,
        job.sink,
        until=ends,
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
