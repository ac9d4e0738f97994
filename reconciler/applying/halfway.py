"""What a run left half done, completed: it was approved, and every call does once what it does twice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from reconciler.applying.alike import first_few
from reconciler.applying.calls import do_batch, do_job
from reconciler.applying.lanes import is_archived, is_driven
from reconciler.applying.outcomes import entries_of
from reconciler.applying.turn import LeaseTurn
from reconciler.errors import BrokenInvariantError, IncompleteError, LeaseError, ReconcilerError, RetryableError
from reconciler.lifecycles.mirror import MIRROR
from reconciler.planning.actions import Transition
from reconciler.providers.base import Failed
from reconciler.state.entries import ActionRefused, Intent
from reconciler.wording import ended_sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from reconciler.applying.ports import Setting
    from reconciler.planning.actions import Action, ControlAction
    from reconciler.planning.settle import Settlement
    from reconciler.providers.base import Outcome
    from reconciler.state.entries import Entry
    from reconciler.state.journal import Journal
    from reconciler.state.lease import Lease

_GOES_ON_BY_PLAN: Final = "The next plan goes on with it."
_GOES_ON: Final = "It goes on with: reconciler run --only mirror"


def whole(action: Action, found: Settlement) -> Settlement:
    """Return what became of an action, as far as its looks tell: a mirror that failed over is not done by its state.

    Its groups are held to its end after that (F-C-041), so it is asked once more: that does no harm.
    """
    is_failover = isinstance(action, Transition) and (action.machine, action.verb) == (MIRROR.name, "failover")
    return replace(found, verdict="partial") if is_failover and found.verdict == "done" else found


@dataclass(frozen=True, slots=True)
class HalfWay:
    """Completes under a lease what was begun under an earlier one."""

    lease: Lease
    setting: Setting
    drives: Callable[[Transition], bool]
    """Which transitions over two clusters are brought to their end; it may take long. `run` does it otherwise."""
    resumes: bool
    """Whether nothing else may be done where one of them does not get there."""

    async def complete(self, halves: Sequence[Action], journal: Journal) -> list[Entry]:
        """Do again what is half done, write what came of it, and return that.

        Raises:
            IncompleteError: A cluster could not do the rest, and what is half there would look like somebody else's.
        """
        written: list[Entry] = []
        mine = [action for action in halves if not is_driven(action)]
        for cluster in sorted({action.cluster or "" for action in mine}):
            written += await self._batch(cluster, [action for action in mine if action.cluster == cluster], journal)
        for action in halves:
            if is_driven(action):
                written += await self._drive(cast("Transition", action), journal)
        return written

    async def _batch(self, cluster: str, batch: Sequence[Action], journal: Journal) -> list[Entry]:
        await journal.append([Intent(id=action.id) for action in batch])
        turn = LeaseTurn(self.lease, journal, self.setting.effects)
        call = partial(do_batch, self.setting.providers[cluster], cast("list[ControlAction]", batch), turn)
        outcomes = await self.setting.effects.call(call)
        lost: dict[str, Sequence[str]] = {outcome.id: () for outcome in outcomes if isinstance(outcome, Failed)}
        entries = [
            entry
            for action, outcome in zip(batch, outcomes, strict=True)
            for entry in entries_of(action, outcome, lost)
        ]
        entries += _bugs(outcomes)
        await journal.append(entries)
        _check_completed(cluster, outcomes)
        return entries

    async def _drive(self, action: Transition, journal: Journal) -> list[Entry]:
        """Bring a transition to its end. Where that cannot be, its mirror says where it stands, and goes on from there.

        So nothing is in doubt: a plan finds it under way, and may ask for a failover, which waits for nobody.
        """
        if not (self.drives(action) or self.resumes):
            found = "it is under way" if is_archived(action) else "it is under way: its mirror says where it stands"
            entries = [_refused(action, found, _GOES_ON_BY_PLAN if is_archived(action) else _GOES_ON)]
            await journal.append(entries)
            return entries
        await journal.append([Intent(id=action.id)])
        turn = LeaseTurn(self.lease, journal, self.setting.effects)
        jobs = self.setting.jobs
        with self.setting.stop.ends(jobs.stop):
            call = partial(do_job, action, jobs, turn, self.setting.report)
            outcome, _ = await self.setting.effects.call(call)
        if isinstance(outcome, Failed):
            if isinstance(outcome.error, LeaseError):
                raise outcome.error
            if self.resumes or self.setting.stop.is_requested:
                raise _not_ended(action, outcome.error)
        entries = list(entries_of(action, outcome, {action.id: ()}))
        await journal.append(entries)
        return entries


def _refused(action: Action, error: str, hint: str) -> Entry:
    return ActionRefused(id=action.id, error=error, hint=hint)


def _not_ended(action: Transition, error: ReconcilerError) -> IncompleteError:
    return IncompleteError(
        f"{action.id} is under way since the last run, and does not end: {error.message}",
        hint=f"{ended_sentence(error.hint)} Nothing else was done. Go on with: reconciler apply --resume",
    )


def _bugs(outcomes: Iterable[Outcome]) -> list[Entry]:
    """Return the ends of what failed by our own fault: it would never be completed."""
    return [
        _refused_as(each.id, each.error)
        for each in outcomes
        if isinstance(each, Failed) and isinstance(each.error, BrokenInvariantError)
    ]


def _refused_as(name: str, error: ReconcilerError) -> Entry:
    return ActionRefused(id=name, error=error.message, hint=error.hint)


def _check_completed(cluster: str, outcomes: Sequence[Outcome]) -> None:
    """Refuse to go on without knowing: what is half there would look like somebody else's."""
    unknown = [each for each in outcomes if isinstance(each, Failed) and isinstance(each.error, RetryableError)]
    if unknown:
        raise IncompleteError(
            f"half done, and cluster {cluster} could not do the rest: "
            f"{first_few([each.id for each in unknown])}: {unknown[0].error.message}",
            hint=f"{ended_sentence(unknown[0].error.hint)} Then run: reconciler apply",
        )
