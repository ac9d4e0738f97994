"""Mount, unmount and move topics by copying records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Final, get_args

from reconciler.applying.events import Progress
from reconciler.applying.ports import JobResult
from reconciler.errors import (
    BrokenInvariantError,
    LeaseError,
    ReconcilerError,
    RetryableError,
    StalePlanError,
    UserError,
)
from reconciler.lifecycles import MOUNT, MigrationState
from reconciler.objectstore.base import create_nonce
from reconciler.providers.protocol import Provider, require_groups, require_migrations, require_part
from reconciler.providers.protocol_moves import ArchivableTopic, CopyMove, MountJob, MovesByJobs, add_still_sealed_hint
from reconciler.resources.address import address_of, cluster_of, full_name_of, split_name
from reconciler.resources.base import UNLIMITED, InNamespace
from reconciler.resources.mount import Direction, HandMigration, Mounting, MountingSpec, Phase
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    from reconciler.archives.archive import Archive
    from reconciler.archives.topic_manifest import TopicManifest
    from reconciler.jobs.archive import ArchiveJob, ArchiveResult
    from reconciler.jobs.comparison import Comparison
    from reconciler.jobs.copy import TopicCopyJob
    from reconciler.jobs.progress import JobProgress
    from reconciler.jobs.stage import Engine
    from reconciler.operations.steps.mirror_copy import Copier
    from reconciler.planning.actions import RunJob, Transition
    from reconciler.records.log import TopicLog, TransactionalSink
    from reconciler.resources.mirrors import ObservedMirror

# ruff: noqa: PLC0415


@dataclass
class CopyTotals:
    """Copies mirrors for an action, and counts records and bytes."""

    copier: Copier
    name: str
    progress: Callable[[Progress], None]
    records: int = 0
    bytes: int = 0
    offsets: int = 0

    def copy_mirror(self, mirror: ObservedMirror, ends: Mapping[int, int] | None = None) -> None:
        """Copy a mirror up to these ends, by default the source's."""
        done = self.copier.copy(
            mirror, ends, lambda job_progress: self.progress(build_progress_event(self.name, job_progress))
        )
        self.records += done.records
        self.bytes += done.bytes
        self.offsets += done.offsets


def build_progress_event(name: str, progress: JobProgress) -> Progress:
    """Return a job's progress as an event."""
    return Progress(
        name,
        progress.records,
        progress.records_total,
        progress.bytes,
        progress.bytes_total,
        progress.seconds,
        progress.seconds_left,
        partitions_done=progress.partitions_done,
        partitions=progress.partitions,
    )


def check_copy_equal(
    name: str, source: TopicLog, copy: TopicLog, engine: Engine, *, since: Mapping[int, int] | None = None
) -> None:
    """Reject a copy that differs at common offsets. Compacted partitions are compared from `since`."""
    from reconciler.jobs.verify import compare_logs

    _check_differences(name, compare_logs(engine, source, copy, since=since))


def check_renumbered_copy(name: str, logs: tuple[TopicLog, TopicLog], into: TransactionalSink, engine: Engine) -> None:
    """Reject a copy, the second log, with other records or another order. Reads all records."""
    from reconciler.jobs.ordered import verify_renumbered

    source, copy = logs
    _check_differences(name, verify_renumbered(engine, copy, source, into.find_spans(source.read_bounds())))


def _check_differences(name: str, comparison: Comparison) -> None:
    wrong = [part for part in comparison.partitions if {"records", "digest"} & set(part.differences)]
    if wrong:
        named = ", ".join(str(part.partition) for part in wrong)
        raise UserError(
            f"{name}: the copy differs from its source in partitions {named}",
            hint="Find where they begin to differ: reconciler verify. Nothing was deleted. "
            "If the copy has a shorter retention than its source, old records expire as soon as they are copied.",
        )


_S: Final = MigrationState


@dataclass(frozen=True)
class MountPorts:
    """Cluster and engine of a mount, unmount or move."""

    provider: Provider
    engine: Engine
    progress: Callable[[Progress], None]
    may_go_on: Callable[[], None]

    @property
    def by_jobs(self) -> MovesByJobs:
        """The cluster's interface for moves by jobs."""
        return require_part(
            self.provider, require_migrations(self.provider).job_steps, "mounts and moves that jobs make"
        )

    def open_log(self, cluster: str, topic: str) -> TopicLog:
        """Return a topic's log."""
        return self.provider.open_log(address_of("topic", cluster, topic))

    def open_archive(self, location: str) -> Archive:
        """Return the archive at a location in object storage."""
        from reconciler.archives.archive import Archive
        from reconciler.archives.location import TopicLocation
        from reconciler.archives.storage import read_storage_id

        storage, own_id = self.by_jobs.storage, self.by_jobs.cluster_id
        return Archive(storage, TopicLocation.parse(location), own_id, read_storage_id(storage))


@dataclass(frozen=True)
class _MountJobRun:
    means: MountPorts
    action: Transition | RunJob
    mounting: Mounting
    phase: Phase = "whole"
    by_hand: bool = False

    def _begin_move(self, direction: Direction, location: str, topic_id: str | None = None) -> MountJob:
        mounts, mounting = self.means.by_jobs, self.mounting
        move = MountJob(
            direction=direction,
            mounting=mounting.full_name,
            topic=mounting.topic_name,
            location=location,
            claim=create_nonce()[:16],
            at_ms=mounts.now_ms(),
            topic_id=topic_id,
            by_hand=self.by_hand,
        )
        self.means.may_go_on()
        return self._store_move(move)

    def _store_move(self, move: MountJob) -> MountJob:
        self.means.by_jobs.store_job(move)
        return move


@dataclass(frozen=True)
class Unmount(_MountJobRun):
    """Archives a topic, compares the archive, and deletes the topic.

    Producers are rejected only for the last records. Each step is first stored on the cluster, so any process can
    continue.
    """

    def run(self) -> JobResult:
        """Run or continue the unmount. Raises `StalePlanError` if the topic was recreated."""
        from reconciler.archives.archive import delete_unreferenced_objects, detach_archive

        mounts, move = self.means.by_jobs, self._load_or_begin()
        archive = self.means.open_archive(move.location)
        topic, done = mounts.read_topic(move.topic), None
        # After the cut-over, a topic with another id was created by a broker for a producer.
        if topic is not None and topic.id != move.topic_id and move.state is _S.CUT_OVER:
            topic = None
        if topic is None and move.state is not _S.CUT_OVER:
            raise self._missing_error(move)
        if topic is not None:
            if topic.id != move.topic_id:
                raise self._recreated_error(move)
            if self.phase == "prepare":
                return self._prepare_archive(move, archive, topic)
            try:
                move, done = self._archive_and_cut_over(move, archive, topic)
            except LeaseError:
                raise
            except Exception as error:
                self._accept_producers(move, error)
                raise
            self._delete_topic(move)
        self.means.may_go_on()
        delete_unreferenced_objects(archive)
        self.means.may_go_on()
        detach_archive(archive, move.claim, now_ms=self.means.by_jobs.now_ms())
        mounts.remove_job(move)
        return JobResult(done.records if done else 0, done.bytes if done else 0, physical_name=move.location)

    def _load_or_begin(self) -> MountJob:
        mounts, mounting = self.means.by_jobs, self.mounting
        known = mounts.load_job(mounting.full_name)
        if known is not None:
            if known.direction != "outbound":
                message = f"{mounting.address} is being mounted: it cannot be unmounted until that is done"
                raise UserError(message, hint="See its progress: reconciler mount status")
            return known
        check_migration_begun(mounting, self.phase)
        topic = mounts.read_topic(mounting.topic_name)
        if topic is None:
            raise StalePlanError(f"topic {mounting.topic_name} was deleted after it was read", hint="Plan again.")
        if self.action.parameters.get("incarnation") not in {None, topic.id}:
            message = f"topic {mounting.topic_name} was deleted and created again after it was read"
            raise StalePlanError(message, hint="Nothing was archived. Plan again.")
        return self._begin_move("outbound", mounts.find_location(mounting.topic_name), topic.id)

    def _prepare_archive(self, move: MountJob, archive: Archive, topic: ArchivableTopic) -> JobResult:
        from reconciler.jobs.archive import archive_while_written

        log = self.means.open_log(self.mounting.cluster, move.topic)
        move = self._start_archive(move, archive, topic, log)
        records, stored, _ = archive_while_written(self._build_archive_job(move, archive, topic, log))
        self.means.may_go_on()
        self._store_move(replace(move, state=_S.PREPARED))
        return JobResult(records, stored, physical_name=move.location)

    def _start_archive(self, move: MountJob, archive: Archive, topic: ArchivableTopic, log: TopicLog) -> MountJob:
        from reconciler.archives.archive import begin_archive
        from reconciler.archives.storage import create_storage

        if move.state is _S.PREPARED:
            return self._store_move(replace(move, state=_S.EXECUTING))
        if move.state is not _S.PREPARING:
            return move
        self.means.may_go_on()
        create_storage(archive.storage, create_nonce)
        starts = {number: bounds.start for number, bounds in log.read_bounds().items()}
        begin_archive(archive, topic.archived, starts, move.claim)
        return self._store_move(replace(move, state=_S.EXECUTING))

    def _archive_and_cut_over(
        self, move: MountJob, archive: Archive, topic: ArchivableTopic
    ) -> tuple[MountJob, ArchiveResult]:
        from reconciler.archives.archive import describe_archive
        from reconciler.jobs.archive import archive_records as archived
        from reconciler.records.log import find_changed_partitions

        mounts, log = self.means.by_jobs, self.means.open_log(self.mounting.cluster, move.topic)
        move = self._start_archive(move, archive, topic, log)
        done = archived(self._build_archive_job(move, archive, topic, log))
        live_topic = mounts.read_topic(move.topic)
        if live_topic is None or live_topic.id != move.topic_id:
            raise self._recreated_error(move)
        self.means.may_go_on()
        describe_archive(archive, live_topic.archived, done.bounds)
        ends = {number: bounds.end for number, bounds in done.bounds.items()}
        move = self._store_move(
            replace(move, state=_S.CUT_OVER, ends={number: (end, end) for number, end in ends.items()})
        )
        self.means.may_go_on()
        if find_changed_partitions(log, ends) or not mounts.is_refusing_producers(move.topic, str(move.topic_id)):
            message = f"topic {move.topic}: producers were allowed to write to it while it was about to be deleted"
            hint = "Leave its max.message.bytes and compression.type alone, then apply again: it continues."
            raise RetryableError(message, hint=hint)
        return move, done

    def _delete_topic(self, move: MountJob) -> None:
        """Accept producers again only if the deletion was rejected; otherwise it may still happen."""
        try:
            self.means.by_jobs.delete_topic(move.topic, str(move.topic_id))
        except UserError as error:
            self._accept_producers(move, error)
            raise

    def _accept_producers(self, move: MountJob, error: Exception) -> None:
        try:
            stored_move = self.means.by_jobs.load_job(move.mounting)
            if stored_move is not None and stored_move.state is _S.CUT_OVER:
                self._store_move(replace(stored_move, state=_S.EXECUTING, ends={}))
            self.means.by_jobs.accept_producers(str(move.topic_id))
        except ReconcilerError as also:
            add_still_sealed_hint(error, also)

    def _build_archive_job(self, move: MountJob, archive: Archive, topic: ArchivableTopic, log: TopicLog) -> ArchiveJob:
        from reconciler.embedded.mounts.archive_log import ArchiveLog, ArchiveSink
        from reconciler.jobs.archive import ArchiveJob

        check = self._build_timeout_check()
        compression = topic.archived.effective.get("compression.type", "producer")
        return ArchiveJob(
            f"topic {move.topic}",
            log,
            ArchiveSink(archive, topic.archived.partitions, compression),
            ArchiveLog(archive),
            self.means.engine,
            lambda: self.means.by_jobs.refuse_all_producers(move.topic, topic.id, check),
            lambda job_progress: self.means.progress(build_progress_event(self.action.id, job_progress)),
            check,
        )

    def _build_timeout_check(self) -> Callable[[], None]:
        began, timeout_ms = monotonic(), self.mounting.spec.timeout

        def check_timeout() -> None:
            self.means.may_go_on()
            if timeout_ms is None or timeout_ms == UNLIMITED:
                return
            if (monotonic() - began) * 1000 > timeout_ms:
                message = f"{self.mounting.address} is not archived within its timeout"
                raise RetryableError(message, hint="What is archived stays: apply again, with a longer timeout.")

        return check_timeout

    def _missing_error(self, move: MountJob) -> UserError:
        message = (
            f"topic {move.topic} no longer exists, and was not deleted by this unmount: its archive at "
            f"{move.location} was never compared"
        )
        hint = (
            f"Cancel it: reconciler mount cancel {move.at_ms} --cluster {self.mounting.cluster}. To release the "
            f"archive without the comparison: reconciler mount release {move.location} --owner "
            f"{self.means.by_jobs.cluster_id} --allow release:{move.location}"
        )
        return UserError(message, hint=hint)

    def _recreated_error(self, move: MountJob) -> StalePlanError:
        message = f"topic {move.topic} was deleted and created again since its archive was begun (its topic id changed)"
        hint = (
            f"Nothing was deleted. Cancel it (reconciler mount cancel {move.at_ms} --cluster "
            f"{self.mounting.cluster}), and plan again."
        )
        return StalePlanError(message, hint=hint)


@dataclass(frozen=True)
class Mount(_MountJobRun):
    """Claims a topic, creates it empty, copies the records, and compares them.

    The claim swaps a register that all platforms share, so no topic is mounted twice.
    """

    def run(self) -> JobResult:
        """Run or continue the mount. Raises `OwnershipLostError` if another cluster owns the topic."""
        from reconciler.archives.archive import check_claimed, claim_archive, settle_claim

        mounts, move = self.means.by_jobs, self._load_or_begin()
        archive = self.means.open_archive(move.location)
        self.means.may_go_on()
        manifest = claim_archive(archive, move.topic, move.claim, now_ms=self.means.by_jobs.now_ms())
        archive = replace(archive, location=manifest.location)
        move = self._create_topic(move, manifest)
        moved = JobResult(incarnation=move.topic_id, physical_name=str(manifest.location))
        if move.state is _S.EXECUTING:
            records, stored = self._fill_topic(move, archive)
            moved = replace(moved, records=records, bytes=stored)
            move = self._store_move(replace(move, state=_S.EXECUTED))
        if self.phase == "prepare":
            return moved
        self.means.may_go_on()
        check_claimed(archive, move.claim)
        if move.state is _S.EXECUTED:
            self._check_topic_unchanged(move)
            self._set_group_offsets(move, manifest)
            move = self._store_move(replace(move, state=_S.CUT_OVER))
        self.means.may_go_on()
        self._check_topic_unchanged(move)
        mounts.restore_topic_configs(move.topic, manifest, self._read_retention())
        settle_claim(archive, move.topic, move.claim, now_ms=self.means.by_jobs.now_ms())
        mounts.remove_job(replace(move, location=str(manifest.location)))
        return moved

    def _load_or_begin(self) -> MountJob:
        mounts, mounting = self.means.by_jobs, self.mounting
        known = mounts.load_job(mounting.full_name)
        if known is not None:
            if known.direction != "inbound":
                message = f"{mounting.address} is being unmounted: it cannot be mounted until that is done"
                raise UserError(message, hint="See its progress: reconciler mount status")
            return known
        check_migration_begun(mounting, self.phase)
        if mounts.read_topic(mounting.topic_name) is not None:
            message = f"topic {mounting.topic_name} exists on cluster {mounting.cluster} after it was read"
            raise StalePlanError(message, hint="Choose another name with `as`, or delete it first; then plan again.")
        return self._begin_move(
            "inbound", str(mounting.spec.source if self.by_hand else self.action.parameters["source"])
        )

    def _create_topic(self, move: MountJob, manifest: TopicManifest) -> MountJob:
        if move.state is _S.PREPARING:
            self.means.may_go_on()
            made = self.means.by_jobs.create_topic(move.topic, manifest)
            return self._store_move(replace(move, state=_S.EXECUTING, topic_id=made))
        self._check_topic_unchanged(move)
        return move

    def _check_topic_unchanged(self, move: MountJob) -> None:
        live_topic = self.means.by_jobs.read_topic(move.topic)
        if live_topic is None or live_topic.id != move.topic_id:
            if move.state is _S.CUT_OVER:
                self._store_move(replace(move, state=_S.EXECUTING))
            what = "was deleted" if live_topic is None else "was deleted and created again"
            message = f"topic {move.topic} {what} while its records were copied"
            cancel = f"reconciler mount cancel {move.at_ms} --cluster {self.mounting.cluster}"
            raise StalePlanError(message, hint=f"Cancel it ({cancel}), and mount it again.")

    def _fill_topic(self, move: MountJob, archive: Archive) -> tuple[int, int]:
        from reconciler.embedded.mounts.archive_log import ArchiveLog
        from reconciler.jobs.archive import RestoreJob, restore_records

        means, source = self.means, ArchiveLog(archive)
        begins = {number: bounds.start for number, bounds in source.read_bounds().items()}
        job = RestoreJob(
            f"topic {move.topic}",
            source,
            means.by_jobs.open_fill_sink(move, begins),
            means.open_log(self.mounting.cluster, move.topic),
            means.engine,
            lambda job_progress: means.progress(build_progress_event(self.action.id, job_progress)),
        )
        copied = restore_records(job)
        return copied.records, copied.bytes

    def _read_retention(self) -> dict[str, str]:
        retention = self.action.parameters.get("retention", {})
        return {key: str(value) for key, value in retention.items()} if isinstance(retention, Mapping) else {}

    def _set_group_offsets(self, move: MountJob, manifest: TopicManifest) -> None:
        from reconciler.jobs.archive import map_group_offsets

        maps, groups = self.means.by_jobs.read_offset_maps(move), require_groups(self.means.provider)
        offsets_by_group = {
            group: {number: committed.offset for number, committed in offsets.items()}
            for group, offsets in manifest.groups.items()
        }
        wanted = map_group_offsets(
            offsets_by_group, lambda number, offset: maps[number].find_target(offset) if number in maps else None
        )
        for group, offsets in wanted.items():
            if offsets:
                self.means.may_go_on()
                groups.commit(group, {(move.topic, number): offset for number, offset in offsets.items()})


def check_migration_begun(mounting: Mounting, phase: Phase) -> None:
    """Reject finishing a migration that did not begin, or has ended."""
    if phase == "finish":
        message = f"topic {mounting.topic_name}: no migration of it is in progress"
        raise UserError(
            message, hint="A finished migration is no longer listed; see those in progress: reconciler mount status"
        )


def run_migration_phase(means: MountPorts, job: RunJob) -> JobResult:
    """Run a command's migration up to a phase."""
    topics = job.parameters["topics"]
    phase = job.parameters["phase"]
    if not isinstance(topics, Mapping) or phase not in get_args(Phase):
        raise BrokenInvariantError(f"{job.id} has no topic", hint="Please report this.")
    is_mount = job.job == MOUNT.name
    migration = HandMigration(direction="inbound" if is_mount else "outbound", topics=topics, phase=phase)  # type: ignore[arg-type]  # checked above
    carry_out = require_migrations(means.provider).run_migration
    if carry_out is not None:
        carry_out(migration, means.may_go_on)
        return JobResult()
    moved = JobResult()
    kind = Mount if is_mount else Unmount
    for full_name, location in migration.topics.items():
        namespace, name = split_name(full_name)
        spec = {"state": "mounted" if is_mount else "unmounted", "source": location}
        mounting = Mounting(
            metadata=InNamespace(name=name, namespace=namespace, cluster=cluster_of(job.address) or ""),
            spec=MountingSpec.model_validate(spec),
        )
        done = kind(means, job, mounting, migration.phase, by_hand=True).run()
        moved = replace(done, records=moved.records + done.records, bytes=moved.bytes + done.bytes)
    return moved


@dataclass(frozen=True)
class Relocation:
    """Moves a topic by copying, for clusters without renames, in two jobs.

    The old topic is not deleted if it received records after the copy.
    """

    means: MountPorts
    job: RunJob

    def fill_topic(self) -> JobResult:
        """Copy the old topic to its current end, and compare. Raises `StalePlanError` for a recreated topic."""
        from reconciler.jobs.copy import fill_topic

        move = self._load_move()
        if self.means.by_jobs.read_recorded_ends(move) is not None:
            return JobResult()
        self.means.may_go_on()
        self.means.by_jobs.suspend_retention(move)
        copied = fill_topic(self._build_copy_job(move))
        return JobResult(copied.records, copied.bytes)

    def switch_groups(self) -> JobResult:
        """Close the old topic, copy the rest, and set group offsets. Raises as `fill_topic`.

        After errors producers are accepted again, unless the lease was lost.
        """
        move = self._load_move()
        ends = self.means.by_jobs.read_recorded_ends(move)
        self.means.may_go_on()
        if ends is not None:
            self.means.by_jobs.switch_groups(move, ends)
            return JobResult()
        self.means.by_jobs.suspend_retention(move)
        try:
            return self._switch_all_groups(move)
        except LeaseError:
            raise
        except Exception as error:
            try:
                self.means.by_jobs.accept_producers(move.old_id)
            except ReconcilerError as also:
                add_still_sealed_hint(error, also)
            raise

    def _switch_all_groups(self, move: CopyMove) -> JobResult:
        from reconciler.jobs.copy import finish_topic

        ends = self.means.by_jobs.refuse_all_producers(move.old, move.old_id, self.means.may_go_on)
        copied = finish_topic(self._build_copy_job(move), ends)
        self.means.may_go_on()
        self.means.by_jobs.switch_groups(move, ends)
        self.means.may_go_on()
        self.means.by_jobs.finish_move(move, ends)
        return JobResult(copied.records, copied.bytes)

    def _load_move(self) -> CopyMove:
        incarnation = self.job.parameters.get("incarnation")
        return self.means.by_jobs.find_copy_move(
            full_name_of(self.job.source),
            incarnation if isinstance(incarnation, str) else None,
            full_name_of(self.job.sink),
            is_keyed=self.job.parameters.get("partitioning") == "by-key",
        )

    def _build_copy_job(self, move: CopyMove) -> TopicCopyJob:
        from reconciler.jobs.copy import TopicCopyJob

        return TopicCopyJob(
            f"topic {move.old}",
            self.means.provider.open_log(self.job.source),
            self.means.by_jobs.open_move_sink(move),
            self.means.provider.open_log(self.job.sink),
            self.means.engine,
            lambda job_progress: self.means.progress(build_progress_event(self.job.id, job_progress)),
        )
