"""Same or less: may this plan be applied in place of the one that was approved?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.planning.actions import Adopt, Reason
from reconciler.planning.canonical import plain
from reconciler.planning.document.differences import Difference, Why, difference, loses_more
from reconciler.planning.document.digest import after_of, parameters_of
from reconciler.planning.document.rows import changes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.planning.actions import Action
    from reconciler.planning.document.documents import ActionDocument, PlanDocument
    from reconciler.planning.plan import Plan

RISKS = ("none", "disruptive", "irreversible", "data-loss")
"""Mildest first."""


@dataclass(frozen=True, slots=True)
class SameOrLess:
    """What is more than was approved (then nothing may be done), and what is no longer needed."""

    more: tuple[Difference, ...] = ()
    """What is dangerous now first, then in the order of the plan."""
    not_needed: tuple[str, ...] = ()

    @property
    def is_allowed(self) -> bool:
        """Tell whether what is planned now is the same as what was approved, or less."""
        return not self.more


def compare(approved: PlanDocument, now: Plan) -> SameOrLess:
    """Return how a plan made now differs from the approved one: same id, same result, resting on the same fields.

    An action that a guard refuses now, and refused when it was approved, is no difference: it is blocked. One that was
    blocked and is not now is more: nobody agreed to it. Where somebody else did what was approved to what is ours, the
    record learns it: that is less.
    """
    known = {action.id: action for action in approved.actions}
    at: dict[str, list[ActionDocument]] = {}
    for each in approved.actions:
        at.setdefault(each.address, []).append(each)
    planned = {action.id for action in now.actions}
    gone: dict[str, list[str]] = {}
    for each in approved.actions:
        if each.id not in planned:
            gone.setdefault(each.address, []).append(each.id)
    more: list[Difference] = []
    for action in now.actions:
        if _is_done_already(action, at.get(action.address, ())):
            continue
        before = known.get(action.id)
        if whys := whys_of(before, action):
            more.append(difference(whys, before, action, instead_of=tuple(gone.get(action.address, ()))))
    more.sort(key=lambda found: not found.is_dangerous)
    return SameOrLess(tuple(more), tuple(sorted(name for names in gone.values() for name in names)))


def _is_done_already(now: Action, approved: Sequence[ActionDocument]) -> bool:
    """Tell whether only the record is left to learn what approved actions on the same resource would have led to."""
    if not isinstance(now, Adopt) or now.reasons != (Reason.RECORD_ONLY,) or now.blocked or now.moved_from:
        return False
    agreed = [each for each in approved if each.blocked is None]
    changes = {change.path: change.after for each in agreed for change in each.changes}
    learns_no_more = all(
        change.path in changes and changes[change.path] == plain(change.after) for change in now.changes
    )
    return learns_no_more and any(each.after == after_of(now) for each in agreed)


def whys_of(approved: ActionDocument | None, now: Action) -> tuple[Why, ...]:
    """Return in what an action is more than was approved (`None`: it was not); nothing where it is not."""
    if approved is None:
        return (Why.NOT_APPROVED, Why.BLOCKED) if now.blocked else (Why.NOT_APPROVED,)
    found: list[Why] = []
    if approved.after != after_of(now) or approved.parameters != parameters_of(now):
        found.append(Why.RESULT)
    if approved.precondition != now.precondition and not (found and _stands_as_approved(approved, now)):
        found.append(Why.GROUND)
    if RISKS.index(now.risk.value) > RISKS.index(approved.risk):
        found.append(Why.RISK)
    if now.blocked is None and loses_more(approved, now):
        found.append(Why.LOSS)
    if now.blocked is not None and approved.blocked is None:
        found.append(Why.BLOCKED)
    if now.blocked is None and approved.blocked is not None:
        found.append(Why.UNBLOCKED)
    return tuple(found)


def _stands_as_approved(approved: ActionDocument, now: Action) -> bool:
    """Tell whether only the files ask for other fields: what both change is as it was, and what is new is no drift."""
    was = {change.path: change.before for change in approved.changes}
    changes = changes_of(now)
    if was.keys() == {change.path for change in changes}:
        return False
    return all(
        was[change.path] == plain(change.before) if change.path in was else not change.drift for change in changes
    )
