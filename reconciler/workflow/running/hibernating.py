"""Unmounting by jobs: a topic is archived, compared, deleted, and let go of.

Most is archived while producers go on. Then they are shut out, the rest is archived, and the topic is deleted. Where
that fails they are let in again, unless the lease is lost: whoever has it goes on.

Each step is kept by its cluster before it begins. Whoever comes next, after a crash at any point, finds how far it is:
what is named in object storage stays, a topic that is there still is looked at anew, and one that is gone was deleted
by us, after all of it had been compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from reconciler.applying.ports import Moved
from reconciler.errors import (
    BrokenInvariantError,
    LeaseError,
    ReconcilerError,
    RetryableError,
    StalePlanError,
    UserError,
)
from reconciler.lifecycles.mounting import MigrationState
from reconciler.objectstore.nonces import nonce
from reconciler.providers.hibernating import Kept
from reconciler.resources.address import address_of
from reconciler.workflow.running.moving import progress_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.applying.events import Progress
    from reconciler.embedded.archiving.archive import Archive
    from reconciler.jobs.archive import Archived, Archiving
    from reconciler.planning.actions import Transition
    from reconciler.providers.base import Provider
    from reconciler.providers.hibernating import Hibernation, LiveTopic
    from reconciler.records.log import TopicLog
    from reconciler.resources.mounting import Mounting

# Arrow is heavy: a command without data actions never imports it.
# ruff: noqa: PLC0415

_S: Final = MigrationState


@dataclass(frozen=True)
class Means:
    """What a mount or unmount by jobs is done with."""

    provider: Provider
    session: Callable[[], Any]
    progress: Callable[[Progress], None]
    is_stopped: Callable[[], bool]
    may_go_on: Callable[[], None]
    """Asked before each step; may raise."""

    @property
    def by_jobs(self) -> Hibernation:
        """What the cluster does for jobs."""
        found = self.provider.migrations.by_jobs
        if found is None:
            message = f"a {self.provider.capabilities.platform} cluster mounts and unmounts by itself"
            raise BrokenInvariantError(message, hint="Please report this, with the plan.")
        return found

    def log(self, cluster: str, topic: str) -> TopicLog:
        """Return the records of a topic."""
        return self.provider.log(address_of("topic", cluster, topic))

    def archive(self, location: str) -> Archive:
        """Return a place in the object storage of the cluster."""
        from reconciler.embedded.archiving.archive import Archive
        from reconciler.embedded.catalog.tiering import TopicLocation
        from reconciler.embedded.remote.storagefile import read_storage_id

        storage, here = self.by_jobs.storage, self.by_jobs.cluster_id
        return Archive(storage, TopicLocation.parse(location), here, read_storage_id(storage))


@dataclass(frozen=True)
class Unmount:
    """One unmount."""

    means: Means
    action: Transition
    mounting: Mounting

    def run(self) -> Moved:
        """Bring it to its end, from wherever it is.

        Raises:
            UserError: It cannot be done as things are; says what it needs. Nothing was deleted.
            StalePlanError: The topic is another one than when it was begun.
            RetryableError: Somebody cannot be shut out, or a store or broker does not answer.
            IncompleteError: It was stopped; the next apply goes on.
        """
        from reconciler.embedded.archiving.writing import detach, tidy

        here, move = self.means.by_jobs, self._begun()
        archive = self.means.archive(move.location)
        topic, done = here.topic(move.topic), None
        if topic is None and move.state is not _S.CUT_OVER:
            raise self._gone(move)
        if topic is not None:
            if topic.id != move.topic_id:
                raise self._another(move)
            try:
                move, done = self._archived(move, archive, topic)
            except LeaseError:
                raise
            except ReconcilerError as error:
                self._let_in(move, error)
                raise
            self._remove(move)
        self.means.may_go_on()
        detach(archive, move.claim, now_ms=self.means.by_jobs.now_ms())
        tidy(archive)
        here.end(move)
        return Moved(done.records if done else 0, done.bytes if done else 0, physical_name=move.location)

    def _begun(self) -> Kept:
        """Return the move as it is kept; a new one is kept before anything is written."""
        here, mounting = self.means.by_jobs, self.mounting
        known = here.kept(mounting.full_name)
        if known is not None:
            if known.direction != "outbound":
                message = f"{mounting.address} is being mounted: it cannot be unmounted until that is done"
                raise UserError(message, hint="See where it is: reconciler mount status")
            return known
        topic = here.topic(mounting.topic_name)
        if topic is None:
            raise StalePlanError(f"topic {mounting.topic_name} is gone since it was looked at", hint="Plan again.")
        move = Kept(
            direction="outbound",
            mounting=mounting.full_name,
            topic=mounting.topic_name,
            location=here.place(mounting.topic_name),
            claim=nonce()[:16],
            at_ms=self.means.by_jobs.now_ms(),
            topic_id=topic.id,
        )
        self.means.may_go_on()
        here.keep(move)
        return move

    def _archived(self, move: Kept, archive: Archive, topic: LiveTopic) -> tuple[Kept, Archived]:
        """Archive a topic whole; when it returns nobody can write to it, and it may be deleted."""
        from reconciler.embedded.archiving.writing import begin, describe
        from reconciler.embedded.remote.storagefile import create_storage
        from reconciler.jobs.archive import archive as archived
        from reconciler.records.log import came_since

        here, log = self.means.by_jobs, self.means.log(self.mounting.cluster, move.topic)
        if move.state is _S.PREPARING:
            self.means.may_go_on()
            create_storage(archive.storage, nonce)
            starts = {number: bounds.start for number, bounds in log.bounds().items()}
            begin(archive, topic.archived, starts, move.claim)
            move = self._kept(replace(move, state=_S.EXECUTING))
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
            self._kept(replace(move, state=_S.EXECUTING, ends={}))
            message = f"topic {move.topic}: somebody let producers write to it while it was about to be deleted"
            hint = "Leave its max.message.bytes and compression.type alone, then apply again: it goes on from here."
            raise RetryableError(message, hint=hint)
        return move, done

    def _remove(self, move: Kept) -> None:
        """Delete a topic; only where that is refused producers are let in again, else nobody knows whether it goes."""
        try:
            self.means.by_jobs.remove(move.topic, str(move.topic_id))
        except UserError as error:
            self._let_in(move, error)
            raise

    def _let_in(self, move: Kept, error: ReconcilerError) -> None:
        """Let producers in again; where that fails too, say so."""
        try:
            self.means.by_jobs.let_in(move)
        except ReconcilerError as also:
            error.hint = f"{error.hint} Until then its producers are refused: {also.message}."

    def _job(self, move: Kept, archive: Archive, topic: LiveTopic, log: TopicLog) -> Archiving:
        from reconciler.embedded.archiving.archivelog import ArchiveLog
        from reconciler.embedded.archiving.archivesink import ArchiveSink
        from reconciler.jobs.archive import Archiving

        check = self._in_time()
        compression = topic.archived.effective.get("compression.type", "producer")
        return Archiving(
            f"topic {move.topic}",
            log,
            ArchiveSink(archive, topic.archived.partitions, compression),
            ArchiveLog(archive),
            self.means.session,
            lambda: self.means.by_jobs.shut_out(move, check),
            lambda found: self.means.progress(progress_event(self.action.id, found)),
            self.means.is_stopped,
            check,
        )

    def _in_time(self) -> Callable[[], None]:
        """Return what raises once the mounting's timeout has passed, or whoever asks may not go on."""
        began, timeout_ms = monotonic(), self.mounting.spec.timeout

        def check() -> None:
            self.means.may_go_on()
            if timeout_ms is not None and (monotonic() - began) * 1000 > timeout_ms:
                message = f"{self.mounting.address} is not archived within its timeout"
                raise RetryableError(message, hint="What is archived stays: apply again, with a longer timeout.")

        return check

    def _kept(self, move: Kept) -> Kept:
        self.means.by_jobs.keep(move)
        return move

    def _gone(self, move: Kept) -> UserError:
        message = (
            f"topic {move.topic} is gone, and was not deleted by us: what lies at {move.location} was never compared"
        )
        hint = (
            f"Cancel it: reconciler mount cancel {move.at_ms} --cluster {self.mounting.cluster}. To have what is "
            f"there nevertheless: reconciler mount release {move.location} --owner {self.means.by_jobs.cluster_id} "
            f"--allow release:{move.location}"
        )
        return UserError(message, hint=hint)

    def _another(self, move: Kept) -> StalePlanError:
        message = f"topic {move.topic} was deleted and made anew since its archive was begun (its topic id changed)"
        hint = (
            f"Nothing was deleted. Cancel it (reconciler mount cancel {move.at_ms} --cluster "
            f"{self.mounting.cluster}), and plan again."
        )
        return StalePlanError(message, hint=hint)
