"""Archiving: a log of any platform brought into object storage, offset for offset, and every record compared.

Producers of some platforms cannot be shut out. So it goes in passes: copy to the end, compare what is new, look at the
end again; it is whole when the end did not move from before the comparison until after it. Whoever deletes the source
then looks once more, with `is_unmoved`. An archive that was cut short is gone on with where its manifests end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reconciler.errors import IncompleteError, RetryableError, SourceChangedError, UserError
from reconciler.jobs.mirror import mirror
from reconciler.jobs.progress import unseen
from reconciler.jobs.tasks import LITTLE_BYTES
from reconciler.jobs.verify import verify
from reconciler.jobs.windows import Since
from reconciler.resources.mirroring import SOURCE_TOPIC_ID_CHANGED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from reconciler.jobs.flows import Copy
    from reconciler.jobs.progress import Report
    from reconciler.records.log import Bounds, StagedSink, TopicLog

_PASSES: Final = 10
"""Whoever writes as fast as we copy and compare is not going to stop."""


@dataclass(frozen=True)
class Archiving:
    """One archive that is being made: where from, where to, and how what is there is read back."""

    name: str
    source: TopicLog
    sink: StagedSink
    copy: TopicLog
    session: Callable[[], SparkSession]
    progress: Report = unseen
    is_stopped: Callable[[], bool] = lambda: False
    before_pass: Callable[[], None] = lambda: None
    """Asked before each pass; may raise."""
    little_bytes: int = field(default_factory=lambda: LITTLE_BYTES)


@dataclass(frozen=True, slots=True)
class Archived:
    """What an archive has, and what its source was when all of it had been compared."""

    bounds: Mapping[int, Bounds]
    records: int
    bytes: int
    passes: int


def archive(job: Archiving) -> Archived:
    """Copy and compare until the source stands still for as long as that takes.

    Raises:
        UserError: The archive differs from its source.
        SourceChangedError: The source was deleted and made anew.
        RetryableError: Somebody goes on writing, a transaction stays open, or Spark gave up.
        IncompleteError: It was stopped; what is named stays.
    """
    compared: Mapping[int, int] = {}
    records = stored = 0
    topic_id = job.source.topic_id
    for passed in range(1, _PASSES + 1):
        job.before_pass()
        copied = mirror(
            job.session,
            job.source,
            job.sink,
            progress=job.progress,
            is_stopped=job.is_stopped,
            little_bytes=job.little_bytes,
        )
        records, stored = records + copied.records, stored + copied.bytes
        seen = job.source.bounds()
        _check_same(job, topic_id)
        _compare(job, compared, copied)
        compared = {number: bounds.stable for number, bounds in seen.items()}
        if is_unmoved(seen, job.source.bounds()) and _has_all(job, seen):
            _check_closed(job.name, seen)
            return Archived(seen, records, stored, passed)
    message = f"{job.name}: somebody goes on writing to it: after {_PASSES} passes there was always more"
    raise RetryableError(message, hint="Stop its producers, then run the same command again: it goes on from here.")


def is_unmoved(before: Mapping[int, Bounds], now: Mapping[int, Bounds]) -> bool:
    """Tell whether nothing was written to a log between two looks; what expired meanwhile is no writing."""
    return before.keys() == now.keys() and all(
        (before[number].stable, before[number].end) == (now[number].stable, now[number].end) for number in now
    )


def _compare(job: Archiving, since: Mapping[int, int], copied: Copy) -> None:
    """Read both sides, all that was not compared before, and refuse what differs."""
    if job.is_stopped():
        raise IncompleteError("stopped before all was compared", hint="Run the same command again: it goes on.")
    session = job.session() if copied.bytes > job.little_bytes else None
    found = verify(session, Since(job.source, since), Since(job.copy, since), deep=True, progress=job.progress)
    wrong = [part for part in found.partitions if {"partition", "records", "digest"} & set(part.differences)]
    if wrong:
        named = ", ".join(
            f"{part.partition}" + (f" (from offset {part.first_difference})" if part.first_difference else "")
            for part in wrong
        )
        message = f"{job.name}: the archive differs from the topic in partitions {named}"
        raise UserError(message, hint="Nothing was deleted. Cancel it (reconciler mount cancel), and begin anew.")


def _has_all(job: Archiving, seen: Mapping[int, Bounds]) -> bool:
    ends = job.sink.ends()
    return all(ends.get(number, 0) >= bounds.stable for number, bounds in seen.items())


def _check_same(job: Archiving, topic_id: str | None) -> None:
    if job.source.topic_id != topic_id:
        message = f"{job.name} was deleted and made anew while it was archived (its topic id changed)"
        raise SourceChangedError(message, code=SOURCE_TOPIC_ID_CHANGED, hint="Nothing was deleted. Plan again.")


def _check_closed(name: str, seen: Mapping[int, Bounds]) -> None:
    """Refuse to take for the end what only waits for a transaction."""
    opened = sorted(number for number, bounds in seen.items() if bounds.stable < bounds.end)
    if opened:
        named = ", ".join(map(str, opened))
        message = f"{name}: transactions are open on partitions {named}: what they wrote is not archived"
        raise RetryableError(message, hint="Let their producers end them, or wait for them to time out; then go on.")
