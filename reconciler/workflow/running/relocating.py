"""Moving a topic where none can be renamed: filled under its new name, compared, and its groups given their place.

Two jobs of a plan do it, one after the other; the delete of the old topic comes after both, and its cluster refuses it
where somebody has written to it since. Each job finds what an earlier one copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.applying.ports import Moved
from reconciler.errors import BrokenInvariantError, LeaseError, ReconcilerError
from reconciler.resources.address import full_name_of
from reconciler.workflow.running.moving import progress_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.applying.events import Progress
    from reconciler.jobs.move import Moving
    from reconciler.planning.actions import RunJob
    from reconciler.providers.base import Provider
    from reconciler.providers.copymoves import CopyMove, CopyMoves

# Arrow is heavy: a command without data actions never imports it.
# ruff: noqa: PLC0415


@dataclass(frozen=True)
class Relocation:
    """One move of a topic within its cluster."""

    provider: Provider
    job: RunJob
    session: Callable[[], Any]
    progress: Callable[[Progress], None]
    is_stopped: Callable[[], bool]
    may_go_on: Callable[[], None]
    """Asked before each step; may raise."""

    def fill(self) -> Moved:
        """Bring the new topic to the end of the old one, and compare.

        Raises:
            UserError: The copy differs, or somebody else writes to the new topic.
            StalePlanError: One of the topics is another than when it was looked at.
            IncompleteError: It was stopped; what is committed stays.
        """
        from reconciler.jobs.move import fill

        move = self._move()
        self.may_go_on()
        self._copies.begin(move)
        copied = fill(self._moving(move))
        return Moved(copied.records, copied.bytes)

    def switch_groups(self) -> Moved:
        """Shut everybody out of the old topic, bring what came since, and give each group its place.

        Where that fails producers are let in again; who lost the lease leaves that to whoever has it.

        Raises:
            RetryableError: Somebody cannot be shut out, or a transaction stays open. Also as of `fill`.
            UserError: A group is reading.
        """
        move = self._move()
        self.may_go_on()
        self._copies.begin(move)
        try:
            return self._switched(move)
        except LeaseError:
            raise
        except ReconcilerError:
            self._copies.let_in(move)
            raise

    def _switched(self, move: CopyMove) -> Moved:
        from reconciler.jobs.move import settle

        ends = self._copies.shut_out(move, self.may_go_on)
        copied = settle(self._moving(move), ends)
        self.may_go_on()
        self._copies.switch_groups(move, ends)
        self.may_go_on()
        self._copies.end(move, ends)
        return Moved(copied.records, copied.bytes)

    @property
    def _copies(self) -> CopyMoves:
        found = self.provider.migrations.copies
        if found is None:
            message = f"a {self.provider.capabilities.platform} cluster renames topics by itself"
            raise BrokenInvariantError(message, hint="Please report this, with the plan.")
        return found

    def _move(self) -> CopyMove:
        incarnation = self.job.parameters.get("incarnation")
        return self._copies.move(
            full_name_of(self.job.source),
            incarnation if isinstance(incarnation, str) else None,
            full_name_of(self.job.sink),
            is_keyed=self.job.parameters.get("partitioning") == "by-key",
        )

    def _moving(self, move: CopyMove) -> Moving:
        from reconciler.jobs.move import Moving

        return Moving(
            f"topic {move.old}",
            self.provider.log(self.job.source),
            self._copies.sink(move),
            self.provider.log(self.job.sink),
            self.session,
            self._copies.written(move),
            lambda found: self.progress(progress_event(self.job.id, found)),
            self.is_stopped,
        )
