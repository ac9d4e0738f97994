"""Mount, unmount and move by copying records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Final, get_args

from reconciler.applying.events import Progress
from reconciler.applying.ports import Moved
from reconciler.errors import (
    BrokenInvariantError,
    LeaseError,
    ReconcilerError,
    RetryableError,
    StalePlanError,
    UserError,
)
from reconciler.lifecycles import MOUNT, MigrationState
from reconciler.objectstore.base import nonce
from reconciler.providers.protocol import Provider, groups_of, migrations_of, part_of
from reconciler.providers.protocol_moves import (
    CopyMove,
    LiveTopic,
    MountJob,
    MountsByJobs,
    MovesByJobs,
    tell_still_sealed,
)
from reconciler.resources.address import address_of, cluster_of, full_name_of, split_name
from reconciler.resources.base import UNLIMITED, InNamespace
from reconciler.resources.mount import Direction, HandMigration, Mounting, MountingSpec, Phase

if TYPE_CHECKING:
    from reconciler.archives.archive import Archive
    from reconciler.archives.topic_manifest import TopicManifest
    from reconciler.jobs.archive import Archived, Archiving
    from reconciler.jobs.comparison import Comparison
    from reconciler.jobs.copy import TopicCopyJob
    from reconciler.jobs.progress import JobProgress
    from reconciler.jobs.stage import Engine
    from reconciler.operations.steps.mirror_copy import Copier
    from reconciler.planning.actions import RunJob, Transition
    from reconciler.records.log import TopicLog, TransactionalSink
    from reconciler.resources.mirrors import MirrorSeen

# Arrow is heavy: a command without data actions never imports it.
# ruff: noqa: PLC0415


@dataclass
class CopyTotals:
    """Copies for one action, and what they have moved."""

    copier: Copier
    name: str
    progress: Callable[[Progress], None]
    records: int = 0
    bytes: int = 0
    offsets: int = 0
    """Those without records counted too."""

    def copy(self, mirror: MirrorSeen, ends: Mapping[int, int] | None = None) -> None:
        """Bring a mirror to these ends, or to those its source has now.

        Raises:
            IncompleteError: It was stopped; what is published stays.
        """
        done = self.copier.copy(mirror, ends, lambda found: self.progress(progress_event(self.name, found)))
        self.records += done.records
        self.bytes += done.bytes
        self.offsets += done.offsets


def progress_event(name: str, found: JobProgress) -> Progress:
    """Return how far a job is as an event."""
    return Progress(
        name,
        found.records,
        found.records_total,
        found.bytes,
        found.bytes_total,
        found.seconds,
        found.seconds_left,
        partitions_done=found.partitions_done,
        partitions=found.partitions,
    )


# What a job copied, compared with what it copied from: before anything else is done with it.


def check_equal(
    name: str, source: TopicLog, copy: TopicLog, engine: Engine, *, since: Mapping[int, int] | None = None
) -> None:
    """Refuse a copy that differs from its source where it has offsets; that the source went on is no difference.

    Of partitions that were compacted only what was copied is compared, from the offsets `since` on.

    Raises:
        UserError: It differs.
    """
    from reconciler.jobs.verify import verify

    _check(name, verify(engine, source, copy, since=since))


def check_renumbered(name: str, logs: tuple[TopicLog, TopicLog], into: TransactionalSink, engine: Engine) -> None:
    """Refuse a copy (the second log) whose records differ from those of its source (the first), in their order.

    The sink says by its map what of both is the same. All of it is read.

    Raises:
        UserError: It differs.
    """
    from reconciler.jobs.ordered import verify_renumbered

    source, copy = logs
    _check(name, verify_renumbered(engine, copy, source, into.spans(source.bounds())))


def _check(name: str, found: Comparison) -> None:
    wrong = [part for part in found.partitions if {"records", "digest"} & set(part.differences)]
    if wrong:
        named = ", ".join(str(part.partition) for part in wrong)
        raise UserError(
            f"{name}: the copy differs from its source in partitions {named}",
            hint="Look at where they begin to differ with: reconciler verify. Nothing was deleted. "
            "Old records expire on arrival where the copy keeps them for less time than its source.",
        )


# Unmounting by jobs: a topic is archived, compared, deleted, and let go of.
#
# Most is archived while producers go on. Then they are shut out, the rest is archived, and the topic is deleted. Where
# that fails they are let in again, unless the lease is lost: whoever has it goes on.
#
# Each step is kept by its cluster before it begins. The next process, after a crash at any point, finds how far it
# is: what is named in object storage stays, a topic that is there still is looked at anew, and one that is gone was
# deleted by us, after all of it had been compared.


_S: Final = MigrationState


@dataclass(frozen=True)
class MountPorts:
    """What a mount or unmount by jobs is done with."""

    provider: Provider
    engine: Engine
    progress: Callable[[Progress], None]
    may_go_on: Callable[[], None]
    """Asked before each step; may raise."""

    @property
    def by_jobs(self) -> MountsByJobs:
        """What the cluster does for jobs."""
        return part_of(self.provider, migrations_of(self.provider).by_jobs, "mounts that jobs make")

    def log(self, cluster: str, topic: str) -> TopicLog:
        """Return the records of a topic."""
        return self.provider.log(address_of("topic", cluster, topic))

    def archive(self, location: str) -> Archive:
        """Return a place in the object storage of the cluster."""
        from reconciler.archives.archive import Archive
        from reconciler.archives.location import TopicLocation
        from reconciler.archives.storage import read_storage_id

        storage, here = self.by_jobs.storage, self.by_jobs.cluster_id
        return Archive(storage, TopicLocation.parse(location), here, read_storage_id(storage))


@dataclass(frozen=True)
class _ByJobs:
    """One topic that is mounted or unmounted by jobs."""

    means: MountPorts
    action: Transition | RunJob
    mounting: Mounting
    phase: Phase = "whole"
    """How far a command asks for."""
    by_hand: bool = False
    """Whether a command asks for it, and no Mounting."""

    def _begin(self, direction: Direction, location: str, topic_id: str | None = None) -> MountJob:
        """Keep a new move, before anything is written."""
        here, mounting = self.means.by_jobs, self.mounting
        move = MountJob(
            direction=direction,
            mounting=mounting.full_name,
            topic=mounting.topic_name,
            location=location,
            claim=nonce()[:16],
            at_ms=here.now_ms(),
            topic_id=topic_id,
            by_hand=self.by_hand,
        )
        self.means.may_go_on()
        return self._kept(move)

    def _kept(self, move: MountJob) -> MountJob:
        self.means.by_jobs.keep(move)
        return move


@dataclass(frozen=True)
class Unmount(_ByJobs):
    """One unmount."""

    def run(self) -> Moved:
        """Bring it to its end, from wherever it is.

        Raises:
            UserError: It cannot be done as things are; says what it needs. Nothing was deleted.
            StalePlanError: The topic is another one than when it was begun.
            RetryableError: Somebody cannot be shut out, or a store or broker does not answer.
            IncompleteError: It was stopped; the next apply goes on.
        """
        from reconciler.archives.archive import detach, tidy

        here, move = self.means.by_jobs, self._begun()
        archive = self.means.archive(move.location)
        topic, done = here.topic(move.topic), None
        if topic is not None and topic.id != move.topic_id and move.state is _S.CUT_OVER:
            topic = None  # Ours is gone; a producer that went on may have made that one.
        if topic is None and move.state is not _S.CUT_OVER:
            raise self._gone(move)
        if topic is not None:
            if topic.id != move.topic_id:
                raise self._another(move)
            if self.phase == "prepare":
                return self._prepared(move, archive, topic)
            try:
                move, done = self._archived(move, archive, topic)
            except LeaseError:
                raise
            except Exception as error:  # Whatever it was: producers wait.
                self._let_in(move, error)
                raise
            self._remove(move)
        self.means.may_go_on()
        tidy(archive)
        self.means.may_go_on()
        detach(archive, move.claim, now_ms=self.means.by_jobs.now_ms())
        here.end(move)
        return Moved(done.records if done else 0, done.bytes if done else 0, physical_name=move.location)

    def _begun(self) -> MountJob:
        """Return the move as it is kept; a new one is kept before anything is written."""
        here, mounting = self.means.by_jobs, self.mounting
        known = here.kept(mounting.full_name)
        if known is not None:
            if known.direction != "outbound":
                message = f"{mounting.address} is being mounted: it cannot be unmounted until that is done"
                raise UserError(message, hint="See where it is: reconciler mount status")
            return known
        check_begun(mounting, self.phase)
        topic = here.topic(mounting.topic_name)
        if topic is None:
            raise StalePlanError(f"topic {mounting.topic_name} is gone since it was looked at", hint="Plan again.")
        if self.action.parameters.get("incarnation") not in {None, topic.id}:
            message = f"topic {mounting.topic_name} was deleted and created again since it was looked at"
            raise StalePlanError(message, hint="Nothing was archived. Plan again.")
        return self._begin("outbound", here.place(mounting.topic_name), topic.id)

    def _prepared(self, move: MountJob, archive: Archive, topic: LiveTopic) -> Moved:
        """Archive what is there while producers go on, and leave the rest to whoever finishes it."""
        from reconciler.jobs.archive import archive_ahead

        log = self.means.log(self.mounting.cluster, move.topic)
        move = self._opened(move, archive, topic, log)
        records, stored, _ = archive_ahead(self._job(move, archive, topic, log))
        self.means.may_go_on()
        self._kept(replace(move, state=_S.PREPARED))
        return Moved(records, stored, physical_name=move.location)

    def _opened(self, move: MountJob, archive: Archive, topic: LiveTopic, log: TopicLog) -> MountJob:
        """Begin the archive, once, and return the move as it is kept then."""
        from reconciler.archives.archive import begin
        from reconciler.archives.storage import create_storage

        if move.state is _S.PREPARED:
            return self._kept(replace(move, state=_S.EXECUTING))
        if move.state is not _S.PREPARING:
            return move
        self.means.may_go_on()
        create_storage(archive.storage, nonce)
        starts = {number: bounds.start for number, bounds in log.bounds().items()}
        begin(archive, topic.archived, starts, move.claim)
        return self._kept(replace(move, state=_S.EXECUTING))

    def _archived(self, move: MountJob, archive: Archive, topic: LiveTopic) -> tuple[MountJob, Archived]:
        """Archive a topic whole; when it returns nobody can write to it, and it may be deleted."""
        from reconciler.archives.archive import describe
        from reconciler.jobs.archive import archive as archived
        from reconciler.records.log import came_since

        here, log = self.means.by_jobs, self.means.log(self.mounting.cluster, move.topic)
        move = self._opened(move, archive, topic, log)
        done = archived(self._job(move, archive, topic, log))
        there = here.topic(move.topic)
        if there is None or there.id != move.topic_id:
            raise self._another(move)
        self.means.may_go_on()
        describe(archive, there.archived, done.bounds)
        ends = {number: bounds.end for number, bounds in done.bounds.items()}
        move = self._kept(replace(move, state=_S.CUT_OVER, ends={number: (end, end) for number, end in ends.items()}))
        self.means.may_go_on()
        if came_since(log, ends) or not here.is_shut_out(move):
            message = f"topic {move.topic}: producers were allowed to write to it while it was about to be deleted"
            hint = "Leave its max.message.bytes and compression.type alone, then apply again: it goes on from here."
            raise RetryableError(message, hint=hint)
        return move, done

    def _remove(self, move: MountJob) -> None:
        """Delete a topic; only where that is refused producers are let in again, else nobody knows whether it goes."""
        try:
            self.means.by_jobs.remove(move.topic, str(move.topic_id))
        except UserError as error:
            self._let_in(move, error)
            raise

    def _let_in(self, move: MountJob, error: Exception) -> None:
        """Let producers in again; where that fails too, say so.

        What they write from then on is not archived: a topic that is gone later counts no more as deleted by us.
        """
        try:
            kept = self.means.by_jobs.kept(move.mounting)
            if kept is not None and kept.state is _S.CUT_OVER:
                self._kept(replace(kept, state=_S.EXECUTING, ends={}))
            self.means.by_jobs.let_in(move)
        except ReconcilerError as also:
            tell_still_sealed(error, also)

    def _job(self, move: MountJob, archive: Archive, topic: LiveTopic, log: TopicLog) -> Archiving:
        from reconciler.embedded.mounts.archive_log import ArchiveLog, ArchiveSink
        from reconciler.jobs.archive import Archiving

        check = self._in_time()
        compression = topic.archived.effective.get("compression.type", "producer")
        return Archiving(
            f"topic {move.topic}",
            log,
            ArchiveSink(archive, topic.archived.partitions, compression),
            ArchiveLog(archive),
            self.means.engine,
            lambda: self.means.by_jobs.shut_out(move, check),
            lambda found: self.means.progress(progress_event(self.action.id, found)),
            check,
        )

    def _in_time(self) -> Callable[[], None]:
        """Return what raises once the mounting's timeout has passed, or whoever asks may not go on."""
        began, timeout_ms = monotonic(), self.mounting.spec.timeout

        def check() -> None:
            self.means.may_go_on()
            if timeout_ms is None or timeout_ms == UNLIMITED:
                return
            if (monotonic() - began) * 1000 > timeout_ms:
                message = f"{self.mounting.address} is not archived within its timeout"
                raise RetryableError(message, hint="What is archived stays: apply again, with a longer timeout.")

        return check

    def _gone(self, move: MountJob) -> UserError:
        message = (
            f"topic {move.topic} is gone, and was not deleted by us: what lies at {move.location} was never compared"
        )
        hint = (
            f"Cancel it: reconciler mount cancel {move.at_ms} --cluster {self.mounting.cluster}. To have what is "
            f"there nevertheless: reconciler mount release {move.location} --owner {self.means.by_jobs.cluster_id} "
            f"--allow release:{move.location}"
        )
        return UserError(message, hint=hint)

    def _another(self, move: MountJob) -> StalePlanError:
        message = f"topic {move.topic} was deleted and created again since its archive was begun (its topic id changed)"
        hint = (
            f"Nothing was deleted. Cancel it (reconciler mount cancel {move.at_ms} --cluster "
            f"{self.mounting.cluster}), and plan again."
        )
        return StalePlanError(message, hint=hint)


# Mounting by jobs: a topic is claimed, made empty, filled from object storage, compared, and then its cluster's own.
#
# The claim is one swap of a register that all platforms share, and comes before the first record: no topic is mounted
# twice. Until it is compared nothing of it expires; only then it has the configs it had, and its groups go on.


@dataclass(frozen=True)
class Mount(_ByJobs):
    """One mount."""

    def run(self) -> Moved:
        """Bring it to its end, from wherever it is.

        Raises:
            OwnershipLostError: Another cluster has the topic.
            UserError: It cannot be done as things are; says what it needs.
            RetryableError: A store or broker does not answer.
            IncompleteError: It was stopped; the next apply goes on.
        """
        from reconciler.archives.archive import check_claimed, claim, settle

        here, move = self.means.by_jobs, self._begun()
        archive = self.means.archive(move.location)
        self.means.may_go_on()
        found = claim(archive, move.topic, move.claim, now_ms=self.means.by_jobs.now_ms())
        archive = replace(archive, location=found.location)
        move = self._made(move, found)
        moved = Moved(incarnation=move.topic_id, physical_name=str(found.location))
        if move.state is _S.EXECUTING:
            records, stored = self._filled(move, archive)
            moved = replace(moved, records=records, bytes=stored)
            move = self._kept(replace(move, state=_S.EXECUTED))
        if self.phase == "prepare":
            return moved
        self.means.may_go_on()
        check_claimed(archive, move.claim)
        if move.state is _S.EXECUTED:
            self._check_made(move)
            self._bring_groups(move, found)
            move = self._kept(replace(move, state=_S.CUT_OVER))
        self.means.may_go_on()
        self._check_made(move)
        here.finish(move.topic, found, self._retention())
        settle(archive, move.topic, move.claim, now_ms=self.means.by_jobs.now_ms())
        here.end(replace(move, location=str(found.location)))
        return moved

    def _begun(self) -> MountJob:
        """Return the move as it is kept; a new one is kept before anything is written."""
        here, mounting = self.means.by_jobs, self.mounting
        known = here.kept(mounting.full_name)
        if known is not None:
            if known.direction != "inbound":
                message = f"{mounting.address} is being unmounted: it cannot be mounted until that is done"
                raise UserError(message, hint="See where it is: reconciler mount status")
            return known
        check_begun(mounting, self.phase)
        if here.topic(mounting.topic_name) is not None:
            message = f"topic {mounting.topic_name} exists on cluster {mounting.cluster} since it was looked at"
            raise StalePlanError(message, hint="Choose another name with `as`, or delete it first; then plan again.")
        return self._begin("inbound", str(mounting.spec.source if self.by_hand else self.action.parameters["source"]))

    def _made(self, move: MountJob, found: TopicManifest) -> MountJob:
        """Make the topic, once: one that has its name and another id is not the one that was made."""
        if move.state is _S.PREPARING:
            self.means.may_go_on()
            made = self.means.by_jobs.make(move.topic, found)
            return self._kept(replace(move, state=_S.EXECUTING, topic_id=made))
        self._check_made(move)
        return move

    def _check_made(self, move: MountJob) -> None:
        there = self.means.by_jobs.topic(move.topic)
        if there is None or there.id != move.topic_id:
            if move.state is _S.CUT_OVER:  # From there nothing can be cancelled.
                self._kept(replace(move, state=_S.EXECUTING))
            what = "was deleted" if there is None else "was deleted and created again"
            message = f"topic {move.topic} {what} while it was filled"
            cancel = f"reconciler mount cancel {move.at_ms} --cluster {self.mounting.cluster}"
            raise StalePlanError(message, hint=f"Cancel it ({cancel}), and mount it again.")

    def _filled(self, move: MountJob, archive: Archive) -> tuple[int, int]:
        """Fill the topic and compare it; return records and stored bytes that were moved."""
        from reconciler.embedded.mounts.archive_log import ArchiveLog
        from reconciler.jobs.archive import Restoring, restore

        means, source = self.means, ArchiveLog(archive)
        begins = {number: bounds.start for number, bounds in source.bounds().items()}
        job = Restoring(
            f"topic {move.topic}",
            source,
            means.by_jobs.filler(move, begins),
            means.log(self.mounting.cluster, move.topic),
            means.engine,
            lambda told: means.progress(progress_event(self.action.id, told)),
        )
        copied = restore(job)
        return copied.records, copied.bytes

    def _retention(self) -> dict[str, str]:
        said = self.action.parameters.get("retention", {})
        return {key: str(value) for key, value in said.items()} if isinstance(said, Mapping) else {}

    def _bring_groups(self, move: MountJob, found: TopicManifest) -> None:
        """Let groups go on at the record they wanted next, by the map of what went where."""
        from reconciler.jobs.archive import translated

        maps, groups = self.means.by_jobs.maps(move), groups_of(self.means.provider)
        said = {
            group: {number: each.offset for number, each in offsets.items()} for group, offsets in found.groups.items()
        }
        wanted = translated(said, lambda number, offset: maps[number].target_of(offset) if number in maps else None)
        for group, offsets in wanted.items():
            if offsets:
                self.means.may_go_on()
                groups.commit(group, {(move.topic, number): offset for number, offset in offsets.items()})


# Migrations that a command asks for: of several topics at once where the platform does it, else one after the other.


def check_begun(mounting: Mounting, phase: Phase) -> None:
    """Refuse to finish what nobody began, or what is at its end by now.

    Raises:
        UserError: It is to be finished.
    """
    if phase == "finish":
        message = f"topic {mounting.topic_name}: no migration of it is under way"
        raise UserError(message, hint="One that is done is gone; see what is under way: reconciler mount status")


def migrate_by_hand(means: MountPorts, job: RunJob) -> Moved:
    """Do a migration that a command asks for, as far as its phase says.

    Raises:
        As `Unmount.run`, `Mount.run` and `MountsByPlatform.carry_out`.
    """
    topics = job.parameters["topics"]
    phase = job.parameters["phase"]
    if not isinstance(topics, Mapping) or phase not in get_args(Phase):
        raise BrokenInvariantError(f"{job.id} does not say of what it is", hint="Please report this.")
    is_mount = job.job == MOUNT.name
    asked = HandMigration(direction="inbound" if is_mount else "outbound", topics=topics, phase=phase)  # type: ignore[arg-type]  # it was looked at
    by_platform = migrations_of(means.provider).by_platform
    if by_platform is not None:
        by_platform.carry_out(asked, may_go_on=means.may_go_on)
        return Moved()
    moved = Moved()
    kind = Mount if is_mount else Unmount
    for full_name, location in asked.topics.items():
        namespace, name = split_name(full_name)
        spec = {"state": "mounted" if is_mount else "unmounted", "source": location}
        mounting = Mounting(
            metadata=InNamespace(name=name, namespace=namespace, cluster=cluster_of(job.address) or ""),
            spec=MountingSpec.model_validate(spec),
        )
        done = kind(means, job, mounting, asked.phase, by_hand=True).run()
        moved = replace(done, records=moved.records + done.records, bytes=moved.bytes + done.bytes)
    return moved


# Moving a topic where none can be renamed: filled under its new name, compared, and its groups given their place.
#
# Two jobs of a plan do it, one after the other; the delete of the old topic comes after both, and its cluster refuses
# it where somebody has written to it since. Each job finds what an earlier one copied. Where only the delete is left,
# the new topic is in use: nothing of it is touched, and no group that has read on there is set back.


@dataclass(frozen=True)
class Relocation:
    """One move of a topic within its cluster."""

    provider: Provider
    job: RunJob
    engine: Engine
    progress: Callable[[Progress], None]
    may_go_on: Callable[[], None]
    """Asked before each step; may raise."""

    def fill(self) -> Moved:
        """Bring the new topic to the end of the old one, and compare.

        Raises:
            UserError: The copy differs, or somebody else writes to the new topic.
            StalePlanError: One of the topics is another than when it was looked at.
            IncompleteError: It was stopped; what is committed stays.
        """
        from reconciler.jobs.copy import fill

        move = self._move()
        if self._copies.left(move) is not None:
            return Moved()
        self.may_go_on()
        self._copies.begin(move)
        copied = fill(self._moving(move))
        return Moved(copied.records, copied.bytes)

    def switch_groups(self) -> Moved:
        """Shut everybody out of the old topic, bring what came since, and give each group its place.

        Where that fails producers are let in again; who lost the lease leaves that to the process that has it.

        Raises:
            RetryableError: Somebody cannot be shut out, or a transaction stays open. Also as of `fill`.
            UserError: A group is reading.
        """
        move = self._move()
        ends = self._copies.left(move)
        self.may_go_on()
        if ends is not None:
            self._copies.switch_groups(move, ends)
            return Moved()
        self._copies.begin(move)
        try:
            return self._switched(move)
        except LeaseError:
            raise
        except Exception as error:  # Whatever it was: producers wait.
            try:
                self._copies.let_in(move)
            except ReconcilerError as also:
                tell_still_sealed(error, also)
            raise

    def _switched(self, move: CopyMove) -> Moved:
        from reconciler.jobs.copy import settle

        ends = self._copies.shut_out(move, self.may_go_on)
        copied = settle(self._moving(move), ends)
        self.may_go_on()
        self._copies.switch_groups(move, ends)
        self.may_go_on()
        self._copies.end(move, ends)
        return Moved(copied.records, copied.bytes)

    @property
    def _copies(self) -> MovesByJobs:
        return part_of(self.provider, migrations_of(self.provider).copies, "moves that jobs make")

    def _move(self) -> CopyMove:
        incarnation = self.job.parameters.get("incarnation")
        return self._copies.move(
            full_name_of(self.job.source),
            incarnation if isinstance(incarnation, str) else None,
            full_name_of(self.job.sink),
            is_keyed=self.job.parameters.get("partitioning") == "by-key",
        )

    def _moving(self, move: CopyMove) -> TopicCopyJob:
        from reconciler.jobs.copy import TopicCopyJob

        return TopicCopyJob(
            f"topic {move.old}",
            self.provider.log(self.job.source),
            self._copies.sink(move),
            self.provider.log(self.job.sink),
            self.engine,
            lambda found: self.progress(progress_event(self.job.id, found)),
        )
