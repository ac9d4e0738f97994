"""Archive a log into object storage, and restore it.

Most is copied and compared while producers go on. Then they are shut out, and the rest is copied and compared: where
the source ends by then is the end of the archive. A process that deletes the source looks once more, with
`records.log.came_since`. An archive that was cut short is gone on with where its manifests end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.errors import IncompleteError, RetryableError, SourceChangedError, UserError
from reconciler.jobs.copy import mirror
from reconciler.jobs.flows import MIB, Copy
from reconciler.jobs.ordered import verify_renumbered, whole_spans
from reconciler.jobs.progress import Report, unseen
from reconciler.jobs.verify import Since, verify
from reconciler.records.log import Bounds, StagedSink, TopicLog, TransactionalSink
from reconciler.resources.mirrors import SOURCE_TOPIC_ID_CHANGED

if TYPE_CHECKING:
    from reconciler.jobs.stage import Engine


_PASSES: Final = 3
"""Passes before anybody is shut out, at most: each has only what came in during the one before."""


@dataclass(frozen=True)
class Archiving:
    """One archive that is being made: where from, where to, and how what is there is read back."""

    name: str
    source: TopicLog
    sink: StagedSink
    copy: TopicLog
    engine: Engine
    shut_out: Callable[[], Mapping[int, int]]
    """Keeps everybody from writing to the source, and returns where each partition ends. Asked once; may raise."""
    progress: Report = unseen
    before_pass: Callable[[], None] = lambda: None
    """Asked before each pass; may raise."""
    little: int = 64 * MIB
    """Stored bytes: a pass that copies no more than that is the last one before producers are shut out."""


@dataclass(frozen=True, slots=True)
class Archived:
    """What an archive has, and where its source began and ended when all of it had been compared."""

    bounds: Mapping[int, Bounds]
    records: int
    bytes: int


def archive(job: Archiving) -> Archived:
    """Copy and compare all there is, then shut everybody out, and copy and compare what came meanwhile.

    Raises:
        UserError: The archive differs from its source.
        SourceChangedError: The source was deleted and created again.
        RetryableError: Somebody cannot be shut out, a transaction stays open, or Spark gave up.
        IncompleteError: It was stopped; what is named stays.
    """
    topic_id = job.source.topic_id
    records, stored, compared = archive_ahead(job)
    ends = job.shut_out()
    copied = _brought(job, topic_id, ends, compared)
    _check_whole(job, ends)
    found = job.source.bounds()
    bounds = {number: replace(found[number], stable=end, end=end) for number, end in ends.items()}
    return Archived(bounds, records + copied.records, stored + copied.bytes)


def archive_ahead(job: Archiving) -> tuple[int, int, Mapping[int, int]]:
    """Copy and compare all there is while producers go on; return records, stored bytes, and up to where it is so.

    Raises:
        As `archive`.
    """
    topic_id, compared = job.source.topic_id, dict[int, int]()
    records = stored = 0
    for _ in range(_PASSES):
        now = {number: bounds.stable for number, bounds in job.source.bounds().items()}
        copied = _brought(job, topic_id, now, compared)
        records, stored, compared = records + copied.records, stored + copied.bytes, now
        if copied.bytes <= job.little:
            break
    return records, stored, compared


def _brought(job: Archiving, topic_id: str | None, ends: Mapping[int, int], compared: Mapping[int, int]) -> Copy:
    """Copy up to `ends`, and compare what was not compared before."""
    job.before_pass()
    copied = mirror(job.engine, job.source, job.sink, until=ends, progress=job.progress)
    _check_same(job, topic_id)
    _compare(job, compared)
    return copied


def _compare(job: Archiving, since: Mapping[int, int]) -> None:
    """Read both sides, all that was not compared before, and refuse what differs."""
    if job.engine.is_stopped():
        raise IncompleteError("stopped before all was compared", hint="Run the same command again: it goes on.")
    found = verify(job.engine, Since(job.source, since), Since(job.copy, since), deep=True, progress=job.progress)
    wrong = [part for part in found.partitions if {"partition", "records", "digest"} & set(part.differences)]
    if wrong:
        named = ", ".join(
            f"{part.partition}" + ("" if part.first_difference is None else f" (from offset {part.first_difference})")
            for part in wrong
        )
        message = f"{job.name}: the archive differs from the topic in partitions {named}"
        raise UserError(message, hint="Nothing was deleted. Cancel it (reconciler mount cancel), and start again.")


def _check_same(job: Archiving, topic_id: str | None) -> None:
    if job.source.topic_id != topic_id:
        message = f"{job.name} was deleted and created again while it was archived (its topic id changed)"
        raise SourceChangedError(message, code=SOURCE_TOPIC_ID_CHANGED, hint="Nothing was deleted. Plan again.")


def _check_whole(job: Archiving, ends: Mapping[int, int]) -> None:
    """Refuse to take for the end what only waits for a transaction."""
    reached = job.sink.ends()
    opened = sorted(number for number, end in ends.items() if reached.get(number, 0) < end)
    if opened:
        named = ", ".join(map(str, opened))
        message = f"{job.name}: transactions are open on partitions {named}: what they wrote is not archived"
        raise RetryableError(message, hint="Let their producers end them, or wait for them to time out; then go on.")


# Restoring: a log from object storage written into a topic that numbers records itself, exactly once, and compared.
#
# What the target has is its own numbers; which record went where stands in the offset map that was committed with it.
# So it is compared by order: as many records in each partition, and the same ones one after the other.


@dataclass(frozen=True)
class Restoring:
    """One topic that is restored: where from, where to, and how what is there is read back."""

    name: str
    source: TopicLog
    sink: TransactionalSink
    copy: TopicLog
    engine: Engine
    progress: Report = unseen


def restore(job: Restoring) -> Copy:
    """Copy what is missing, and compare all of it.

    Raises:
        UserError: What was restored differs, or another process has written to it.
        RetryableError: Spark gave up, or brokers do not answer.
        IncompleteError: It was stopped; what is committed stays.
    """
    copied = mirror(job.engine, job.source, job.sink, progress=job.progress)
    if job.engine.is_stopped():
        raise IncompleteError("stopped before all was compared", hint="Run the same command again: it goes on.")
    _compare_restored(job)
    return copied


def _compare_restored(job: Restoring) -> None:
    ours, theirs = job.source.bounds(), job.copy.bounds()
    if ours.keys() != theirs.keys():
        message = f"{job.name}: it has {len(theirs)} partitions, and {len(ours)} were restored"
        raise UserError(message, hint="It was changed during the mount: delete it, and mount it again.")
    wrong = verify_renumbered(job.engine, job.copy, job.source, whole_spans(theirs, ours)).differing
    if wrong:
        named = ", ".join(str(part.partition) for part in wrong)
        message = f"{job.name}: what was restored differs from what lies in object storage in partitions {named}"
        hint = "A producer may have written to it. Cancel the mount, which deletes it here, and mount it again."
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
