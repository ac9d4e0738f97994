"""Same or less: may this plan be applied in place of the one that was approved?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.planning.document.digest import after_of, parameters_of

if TYPE_CHECKING:
    from reconciler.planning.document.documents import ActionDocument, PlanDocument
    from reconciler.planning.plan import Plan

_RISKS: Final = ("none", "disruptive", "irreversible", "data-loss")


@dataclass(frozen=True, slots=True)
class Difference:
    """An action that was not approved as it is now."""

    id: str
    message: str


@dataclass(frozen=True, slots=True)
class SameOrLess:
    """What is more than was approved (then nothing may be done), and what is no longer needed."""

    more: tuple[Difference, ...] = ()
    not_needed: tuple[str, ...] = ()

    @property
    def is_allowed(self) -> bool:
        """Tell whether what is planned now is the same as what was approved, or less."""
        return not self.more


def compare(approved: PlanDocument, now: Plan) -> SameOrLess:
    """Return how a plan made now differs from the approved one: same id, same result, resting on the same fields."""
    by_id = {action.id: action for action in approved.actions}
    more: list[Difference] = []
    for action in now.actions:
        known = by_id.pop(action.id, None)
        if known is None:
            more.append(Difference(action.id, "it was not in the approved plan"))
            continue
        row = (after_of(action), parameters_of(action), action.precondition, action.risk.value)
        message = _difference(known, *row)
        if message:
            more.append(Difference(action.id, message))
    return SameOrLess(tuple(more), tuple(sorted(by_id)))


def _difference(known: ActionDocument, after: object, parameters: object, precondition: str, risk: str) -> str | None:
    if known.after != after or known.parameters != parameters:
        return "it would lead to something else than was approved"
    if known.precondition != precondition:
        return "what it changes has changed on the cluster since it was approved"
    if _RISKS.index(risk) > _RISKS.index(known.risk):
        return f"its risk was {known.risk} when it was approved, and is {risk} now"
    return None
