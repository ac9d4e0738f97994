"""A plan sorted into classes of drift: what the cluster did, what the files did, what nobody declared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.planning.actions import Adopt, Create, RunJob
from reconciler.planning.canonical import plain
from reconciler.planning.document.rows import moves_of
from reconciler.workflow.drifting.finding import Found, fingerprint_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from reconciler.planning.actions import Action
    from reconciler.planning.plan import DriftFinding, Override, Plan
    from reconciler.planning.wanted.commanded import Commanded
    from reconciler.resources.address import Address

_Field = tuple["Address", str]


def sort_out(plan: Plan, roles: Iterable[Commanded] = ()) -> tuple[Found, ...]:
    """Return everything a plan found, by class, in the plan's order; `roles` are what commands did to mirrors."""
    agreed = _agreed(plan)
    moved = tuple(_moved(finding) for finding in plan.drift if (finding.address, finding.path) not in agreed)
    waiting = tuple(_agreeing(finding) for finding in plan.drift if (finding.address, finding.path) in agreed)
    told = frozenset((finding.address, finding.path) for finding in plan.drift)
    unmanaged = tuple(_unmanaged(address) for address in plan.unmanaged)
    return (
        *moved,
        *waiting,
        *_pending(plan, told),
        *map(_by_command, roles),
        *(_blocked(action) for action in plan.blocked),
        *unmanaged,
        *map(_hiding, plan.overrides),
    )


def _agreed(plan: Plan) -> frozenset[_Field]:
    """Return the fields that moved to what the files say by now: only the record has to learn it."""
    refused = {finding.address for finding in plan.errors}
    changing = {(action.address, change.path) for action in plan.actions for change in moves_of(action)}
    return frozenset(
        (finding.address, finding.path)
        for finding in plan.drift
        if finding.path not in {"", "incarnation"}
        and finding.ignored is None
        and finding.address not in refused
        and (finding.address, finding.path) not in changing
    )


def _moved(finding: DriftFinding) -> Found:
    return Found(
        "drift" if finding.path else "missing",
        finding.address,
        f"{_field(finding)} was changed on the cluster" if finding.path else _gone(finding),
        finding.fingerprint,
        path=finding.path,
        recorded=finding.recorded,
        observed=finding.observed,
        ignored=finding.ignored,
        origin=finding.origin,
    )


def _field(finding: DriftFinding) -> str:
    return finding.path if finding.origin is None else f"{finding.path} (from {finding.origin})"


def _gone(finding: DriftFinding) -> str:
    where = "" if finding.observed is None else f", {finding.observed}"
    return f"is gone from the cluster{where}"


def _agreeing(finding: DriftFinding) -> Found:
    message = f"{finding.path} was changed on the cluster, and the files say the same: apply remembers it"
    mark = fingerprint_of("pending", finding.address, plain(finding.observed), finding.path)
    return Found("pending", finding.address, message, mark, finding.path, finding.recorded, finding.observed)


def _pending(plan: Plan, told: AbstractSet[_Field]) -> Iterator[Found]:
    for action in plan.actions:
        if not action.blocked and not _is_told(action, told):
            mark = fingerprint_of("pending", action.address, _aim(action))
            yield Found("pending", action.address, f"{action.verb} is planned", mark)


def _by_command(found: Commanded) -> Found:
    address = found.mirror.address
    return Found("pending", address, found.message, fingerprint_of("pending", address, found.mirror.state, "state"))


def _is_told(action: Action, told: AbstractSet[_Field]) -> bool:
    """Tell whether all that an action is for was found to have drifted already."""
    if moves := moves_of(action):
        return all((action.address, change.path) in told for change in moves)
    is_gone = (action.address, "") in told
    if isinstance(action, Create | RunJob):
        return is_gone
    is_of_record = isinstance(action, Adopt) and not action.changes
    return is_of_record and any(address == action.address for address, _ in told)


def _aim(action: Action) -> object:
    """Return what makes a planned action another one: what is asked for is told anew when it changes."""
    if moves := moves_of(action):
        return [action.id, [[change.path, plain(change.after)] for change in moves]]
    return action.id


def _blocked(action: Action) -> Found:
    guard, why = (action.blocked.guard, action.blocked.message) if action.blocked else ("", "")
    mark = fingerprint_of("blocked", action.address, [guard, _aim(action)])
    return Found("blocked", action.address, f"{action.verb} is blocked: {why}", mark)


def _unmanaged(address: Address) -> Found:
    return Found("unmanaged", address, "is there, but nobody declares it", fingerprint_of("unmanaged", address))


def _hiding(found: Override) -> Found:
    message = f"{found.path} is set by nobody's file and hides what {found.origin} says"
    mark = fingerprint_of("unmanaged", found.address, found.value, found.path)
    return Found("unmanaged", found.address, message, mark, found.path, found.hidden, found.value)
