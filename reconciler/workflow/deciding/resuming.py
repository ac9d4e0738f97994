"""`apply --resume`: what is left of the open run's own plan, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import UserError
from reconciler.planning.document.comparing import SameOrLess, whys_of
from reconciler.planning.document.differences import Difference, Why, difference, missing
from reconciler.planning.document.digest import digest
from reconciler.planning.document.saved import to_row
from reconciler.state.lockfile import read_lockfile
from reconciler.state.runs import require_run
from reconciler.workflow.counting import counted
from reconciler.workflow.deciding.approved import ChangedPlanError, Held
from reconciler.workflow.deciding.leftover import has_result, left_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from reconciler.applying.recovery import Settled
    from reconciler.planning.actions import Action
    from reconciler.planning.plan import Plan
    from reconciler.state.runs import RunFile
    from reconciler.workflow.beginning.opening import Site
    from reconciler.workflow.deciding.leftover import Found

_NAMED: Final = 5
"""How many actions a message names."""
_HINT: Final = "Nothing was done, and the run stays open. "
_CHANGED: Final = f"{_HINT}`reconciler apply` plans the files as they are and closes the run."
_MISSING: Final = (
    f"{_HINT}In an older clone: git pull. Else `reconciler apply` plans the files as they are and closes it."
)


@dataclass(frozen=True, slots=True)
class Rest:
    """What is still to do of an open run's plan, and the ids of what was left and has its result already."""

    plan: Plan
    not_needed: tuple[str, ...] = ()


def find_open_run(site: Site) -> RunFile | None:
    """Return the run that has begun and not closed; `None` where there is none. Takes no lock.

    Raises:
        UserError: Its file cannot be read.
    """
    found = read_lockfile(site.state, owner=site.owner)
    opened = found.lockfile.open_run if found else None
    return require_run(site.state, opened.run) if opened else None


def resumable(site: Site) -> Mapping[str, Any]:
    """Return the options with which the open run made its plan.

    Raises:
        UserError: There is none, or it made no plan of files.
    """
    run = find_open_run(site)
    if run is None:
        raise UserError("there is nothing to resume: no run is open", hint="Plan and apply with: reconciler apply")
    if run.options is None:
        raise UserError(
            f"run {run.run} was `{run.command}`, not apply: there is no plan to finish",
            hint="`reconciler apply` settles what it left in doubt. Then run that command again.",
        )
    return run.options


def rest_of(settled: Settled, now: Plan, found: Found) -> Rest:
    """Return of a plan made now what the open run had planned too, and what would still do the same.

    Raises:
        ChangedPlanError: Something of it would do something else now, or is planned no more and has not happened.
    """
    before = {action.id: action for action in settled.run.actions}
    mine = tuple(action for action in now.actions if action.id in before)
    planned = {action.id for action in mine}
    left = [action for action in left_of(settled) if action.id not in planned]
    not_needed = tuple(action.id for action in left if has_result(action, found))
    settled_ids = frozenset(not_needed)
    lost = [action for action in left if action.id not in settled_ids]
    more = (*_changed(mine, before, settled), *_lost(lost, now))
    if more:
        raise _error(settled.run.file.run, more, not_needed)
    return Rest(replace(now, actions=mine, digest=digest(mine)), not_needed)


def _changed(mine: Iterable[Action], before: Mapping[str, Action], settled: Settled) -> Iterator[Difference]:
    """Yield what is not as it was. What a run has changed itself, its next action rests on; anything else must be so.

    What a guard refuses now is told as blocked.
    """
    for action in mine:
        agreed = to_row(before[action.id])
        ignored = {Why.BLOCKED, *((Why.GROUND, Why.RISK, Why.LOSS) if action.address in settled.begun else ())}
        whys = tuple(why for why in whys_of(agreed, action) if why not in ignored)
        if whys:
            yield difference(whys, agreed, action, instead_of=())


def _lost(lost: Iterable[Action], now: Plan) -> Iterator[Difference]:
    at: dict[str, list[str]] = {}
    for action in now.actions:
        at.setdefault(action.address, []).append(action.id)
    for action in lost:
        yield missing(to_row(action), action, planned=tuple(at.get(action.address, ())))


def _error(run: str, more: Sequence[Difference], not_needed: tuple[str, ...]) -> ChangedPlanError:
    is_missing = any(Why.MISSING in each.whys for each in more)
    named = "\n".join(f"{each.id}: {each.message}" for each in more[:_NAMED])
    further = f"\nand {len(more) - _NAMED:,} more" if more[_NAMED:] else ""
    count = counted(len(more), "action is", "actions are")
    message = f"{count} not what the open run {run} had planned:\n{named}{further}"
    return ChangedPlanError(
        message, Held(SameOrLess(tuple(more), not_needed)), hint=_MISSING if is_missing else _CHANGED
    )
