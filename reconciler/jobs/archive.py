"""Archive a log into object storage, and restore it.

Most records are copied and compared while producers write. Then producers are blocked and the rest is copied. An
interrupted job continues at the ends of the manifests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from reconciler.errors import IncompleteError, RetryableError, SourceChangedError, UserError
from reconciler.jobs.copy import copy_log
from reconciler.jobs.flows import MIB, CopyResult
from reconciler.jobs.ordered import make_whole_spans, verify_renumbered
from reconciler.jobs.progress import Report, ignore_progress
from reconciler.jobs.verify import LogSince, compare_logs
from reconciler.records.log import Bounds, StagedSink, TopicLog, TransactionalSink
from reconciler.resources.mirrors import SOURCE_TOPIC_ID_CHANGED
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    from reconciler.jobs.stage import Engine


_PASSES: Final = 3
"""Maximum passes before producers are blocked."""


@dataclass(frozen=True)
class ArchiveJob:
    """A topic to archive, and its logs."""

    name: str
    source: TopicLog
    sink: StagedSink
    copy: TopicLog
    engine: Engine
    block_producers: Callable[[], Mapping[int, int]]
    """Blocks all producers of the source, and returns end offsets by partition."""
    progress: Report = ignore_progress
    before_pass: Callable[[], None] = lambda: None
    little: int = 64 * MIB
    """Producers are blocked after a pass that copies at most this number of stored bytes."""


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """Size of an archive, and the source's compared offsets."""

    bounds: Mapping[int, Bounds]
    records: int
    bytes: int


def archive_records(job: ArchiveJob) -> ArchiveResult:
    """Copy and compare while producers write, block producers, then copy and compare the rest.

    Raises:
        UserError: The archive differs from its source.
        SourceChangedError: The source was recreated.
        RetryableError: A producer cannot be blocked, a transaction is open, or Spark failed.
        IncompleteError: The job was stopped; records in manifests stay.
    """
    topic_id = job.source.topic_id
    records, stored, compared = archive_while_written(job)
    ends = job.block_producers()
    copied = _copy_and_compare(job, topic_id, ends, compared)
    _check_all_archived(job, ends)
    source_bounds = job.source.read_bounds()
    bounds = {number: replace(source_bounds[number], stable=end, end=end) for number, end in ends.items()}
    return ArchiveResult(bounds, records + copied.records, stored + copied.bytes)


def archive_while_written(job: ArchiveJob) -> tuple[int, int, Mapping[int, int]]:
    """Copy and compare while producers write. Return records, stored bytes and compared end offsets."""
    topic_id, compared = job.source.topic_id, dict[int, int]()
    records = stored = 0
    for _ in range(_PASSES):
        now = {number: bounds.stable for number, bounds in job.source.read_bounds().items()}
        copied = _copy_and_compare(job, topic_id, now, compared)
        records, stored, compared = records + copied.records, stored + copied.bytes, now
        if copied.bytes <= job.little:
            break
    return records, stored, compared


def _copy_and_compare(
    job: ArchiveJob, topic_id: str | None, ends: Mapping[int, int], compared: Mapping[int, int]
) -> CopyResult:
    job.before_pass()
    copied = copy_log(job.engine, job.source, job.sink, until=ends, progress=job.progress)
    _check_topic_id(job, topic_id)
    _compare(job, compared)
    return copied


def _compare(job: ArchiveJob, since: Mapping[int, int]) -> None:
    if job.engine.is_stopped():
        raise IncompleteError(
            "stopped before all records were compared", hint="Run the same command again: it continues."
        )
    comparison = compare_logs(
        job.engine, LogSince(job.source, since), LogSince(job.copy, since), deep=True, progress=job.progress
    )
    wrong = [part for part in comparison.partitions if {"partition", "records", "digest"} & set(part.differences)]
    if wrong:
        named = ", ".join(
            f"{part.partition}" + ("" if part.first_difference is None else f" (from offset {part.first_difference})")
            for part in wrong
        )
        message = f"{job.name}: the archive differs from the topic in partitions {named}"
        raise UserError(message, hint="Nothing was deleted. Cancel it (reconciler mount cancel), and start again.")


def _check_topic_id(job: ArchiveJob, topic_id: str | None) -> None:
    if job.source.topic_id != topic_id:
        message = f"{job.name} was deleted and created again while it was archived (its topic id changed)"
        raise SourceChangedError(message, code=SOURCE_TOPIC_ID_CHANGED, hint="Nothing was deleted. Plan again.")


def _check_all_archived(job: ArchiveJob, ends: Mapping[int, int]) -> None:
    reached = job.sink.read_ends()
    opened = sorted(number for number, end in ends.items() if reached.get(number, 0) < end)
    if opened:
        named = ", ".join(map(str, opened))
        message = f"{job.name}: transactions are open on partitions {named}: their records cannot be archived yet"
        raise RetryableError(message, hint="Let their producers end them, or wait for them to time out; then continue.")


# A restored topic has new offsets, so its records are compared by order.


@dataclass(frozen=True)
class RestoreJob:
    """A topic to restore."""

    name: str
    source: TopicLog
    sink: TransactionalSink
    copy: TopicLog
    engine: Engine
    progress: Report = ignore_progress


def restore_records(job: RestoreJob) -> CopyResult:
    """Copy the records that a restored topic lacks, and compare all records.

    Raises:
        UserError: The restored topic differs from the archive.
        RetryableError: Spark failed, or brokers do not answer.
        IncompleteError: The job was stopped; committed records stay.
    """
    copied = copy_log(job.engine, job.source, job.sink, progress=job.progress)
    if job.engine.is_stopped():
        raise IncompleteError(
            "stopped before all records were compared", hint="Run the same command again: it continues."
        )
    _compare_restored(job)
    return copied


def _compare_restored(job: RestoreJob) -> None:
    ours, theirs = job.source.read_bounds(), job.copy.read_bounds()
    if ours.keys() != theirs.keys():
        message = f"{job.name}: it has {len(theirs)} partitions, and {len(ours)} were restored"
        raise UserError(message, hint="It was changed during the mount: delete it, and mount it again.")
    wrong = verify_renumbered(job.engine, job.copy, job.source, make_whole_spans(theirs, ours)).differing
    if wrong:
        named = ", ".join(str(part.partition) for part in wrong)
        message = f"{job.name}: the restored topic differs from object storage in partitions {named}"
        hint = "A producer may have written to it. Cancel the mount, which deletes it here, and mount it again."
        raise UserError(message, hint=hint)


def map_group_offsets(
    groups: Mapping[str, Mapping[int, int]], target_of: Callable[[int, int], int | None]
) -> dict[str, dict[int, int]]:
    """Return groups' offsets in a copy. `target_of` maps a partition and source offset to the copy's offset."""
    return {
        group: {
            number: target
            for number, offset in sorted(offsets.items())
            if (target := target_of(number, offset)) is not None
        }
        for group, offsets in sorted(groups.items())
    }
