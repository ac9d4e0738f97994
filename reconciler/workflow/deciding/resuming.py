"""`apply --resume`: what is left of the open run's own plan, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reconciler.errors import StalePlanError, UserError
from reconciler.planning.document.digest import after_of, digest, parameters_of
from reconciler.state.lockfile import read_lockfile
from reconciler.state.runs import require_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.applying.recovery import Settled
    from reconciler.planning.actions import Action
    from reconciler.planning.plan import Plan
    from reconciler.state.runs import RunFile
    from reconciler.workflow.beginning.opening import Site


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


def rest_of(settled: Settled, now: Plan) -> Plan:
    """Return of a plan made now what the open run had planned too, and what would still do the same.

    Raises:
        StalePlanError: Something of it would do something else now.
    """
    before = {action.id: action for action in settled.run.actions}
    mine = tuple(action for action in now.actions if action.id in before)
    for action in mine:
        _check_same(action, before[action.id], is_begun=action.address in settled.begun)
    return replace(now, actions=mine, digest=digest(mine))


def _check_same(now: Action, before: Action, *, is_begun: bool) -> None:
    """What a run has changed itself, its next action rests on; anything else must be as it was."""
    is_same = (after_of(now), parameters_of(now)) == (after_of(before), parameters_of(before))
    if not is_same or (now.precondition != before.precondition and not is_begun):
        why = "what it rests on has changed on the cluster" if is_same else "it would lead to something else"
        raise StalePlanError(
            f"{now.id} is not what the open run had planned: {why}",
            hint="Nothing more was done. Look at the plan, then: reconciler apply",
        )
