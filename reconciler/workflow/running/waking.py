"""Mounting by jobs: a topic is claimed, made empty, filled from object storage, compared, and then its cluster's own.

The claim is one swap of a register that all platforms share, and comes before the first record: no topic is mounted
twice. Until it is compared nothing of it expires; only then it has the configs it had, and its groups go on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.applying.ports import Moved
from reconciler.errors import StalePlanError, UserError
from reconciler.lifecycles.mounting import MigrationState
from reconciler.objectstore.nonces import nonce
from reconciler.providers.hibernating import Kept
from reconciler.workflow.running.moving import progress_event

if TYPE_CHECKING:
    from reconciler.embedded.archiving.archive import Archive
    from reconciler.embedded.remote.manifests.topicmanifest import TopicManifest
    from reconciler.planning.actions import Transition
    from reconciler.resources.mounting import Mounting
    from reconciler.workflow.running.hibernating import Means

# Arrow is heavy: a command without data actions never imports it.
# ruff: noqa: PLC0415

_S: Final = MigrationState


@dataclass(frozen=True)
class Mount:
    """One mount."""

    means: Means
    action: Transition
    mounting: Mounting

    def run(self) -> Moved:
        """Bring it to its end, from wherever it is.

        Raises:
            OwnershipLostError: Another cluster has the topic.
            UserError: It cannot be done as things are; says what it needs.
            RetryableError: A store or broker does not answer.
            IncompleteError: It was stopped; the next apply goes on.
        """
        from reconciler.embedded.archiving.taking import check_claimed, claim, settle

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
        self.means.may_go_on()
        check_claimed(archive, move.claim)
        if move.state is _S.EXECUTED:
            self._bring_groups(move, found)
            move = self._kept(replace(move, state=_S.CUT_OVER))
        self.means.may_go_on()
        here.finish(move.topic, found)
        settle(archive, move.topic, move.claim, now_ms=self.means.by_jobs.now_ms())
        here.end(replace(move, location=str(found.location)))
        return moved

    def _begun(self) -> Kept:
        """Return the move as it is kept; a new one is kept before anything is written."""
        here, mounting = self.means.by_jobs, self.mounting
        known = here.kept(mounting.full_name)
        if known is not None:
            if known.direction != "inbound":
                message = f"{mounting.address} is being unmounted: it cannot be mounted until that is done"
                raise UserError(message, hint="See where it is: reconciler mount status")
            return known
        if here.topic(mounting.topic_name) is not None:
            message = f"topic {mounting.topic_name} exists on cluster {mounting.cluster} since it was looked at"
            raise StalePlanError(message, hint="Choose another name with `as`, or delete it first; then plan again.")
        move = Kept(
            direction="inbound",
            mounting=mounting.full_name,
            topic=mounting.topic_name,
            location=str(self.action.parameters["source"]),
            claim=nonce()[:16],
            at_ms=self.means.by_jobs.now_ms(),
        )
        self.means.may_go_on()
        return self._kept(move)

    def _made(self, move: Kept, found: TopicManifest) -> Kept:
        """Make the topic, once: one that has its name and another id is not the one that was made."""
        here = self.means.by_jobs
        if move.state is _S.PREPARING:
            self.means.may_go_on()
            return self._kept(replace(move, state=_S.EXECUTING, topic_id=here.make(move.topic, found)))
        there = here.topic(move.topic)
        if there is None or there.id != move.topic_id:
            what = "was deleted" if there is None else "was deleted and made anew"
            message = f"topic {move.topic} {what} while it was filled"
            cancel = f"reconciler mount cancel {move.at_ms} --cluster {self.mounting.cluster}"
            raise StalePlanError(message, hint=f"Cancel it ({cancel}), and mount it again.")
        return move

    def _filled(self, move: Kept, archive: Archive) -> tuple[int, int]:
        """Fill the topic and compare it; return records and stored bytes that were moved."""
        from reconciler.embedded.archiving.archivelog import ArchiveLog
        from reconciler.jobs.restore import Restoring, restore

        means, source = self.means, ArchiveLog(archive)
        begins = {number: bounds.start for number, bounds in source.bounds().items()}
        job = Restoring(
            f"topic {move.topic}",
            source,
            means.by_jobs.filler(move, begins),
            means.log(self.mounting.cluster, move.topic),
            means.session,
            lambda told: means.progress(progress_event(self.action.id, told)),
            means.is_stopped,
        )
        copied = restore(job)
        return copied.records, copied.bytes

    def _bring_groups(self, move: Kept, found: TopicManifest) -> None:
        """Let groups go on at the record they wanted next, by the map of what went where."""
        from reconciler.jobs.restore import translated

        maps, groups = self.means.by_jobs.maps(move), self.means.provider.groups
        said = {
            group: {number: each.offset for number, each in offsets.items()} for group, offsets in found.groups.items()
        }
        wanted = translated(said, lambda number, offset: maps[number].target_of(offset) if number in maps else None)
        for group, offsets in wanted.items():
            if offsets:
                self.means.may_go_on()
                groups.commit(group, {(move.topic, number): offset for number, offset in offsets.items()})

    def _kept(self, move: Kept) -> Kept:
        self.means.by_jobs.keep(move)
        return move
