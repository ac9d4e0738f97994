"""JSON of how a run ended that did not end well: the last line of `apply --format json`, with what differs (exit 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from reconciler.cli.again import typed_again
from reconciler.cli.documents.approvals import StateAdvancePart
from reconciler.cli.documents.base import Document, Part
from reconciler.cli.failures import unexpected
from reconciler.errors import ReconcilerError
from reconciler.workflow.deciding.approved import ChangedPlanError

if TYPE_CHECKING:
    from reconciler.planning.document.differences import Difference, FieldDifference, Move
    from reconciler.workflow.deciding.approved import Held


class MovePart(Part):
    """What happens to one field."""

    before: Any = Field(description="What it is on the cluster; null also where the action does not say.")
    after: Any

    @classmethod
    def of(cls, move: Move | None) -> MovePart | None:
        """Say one side."""
        return None if move is None else cls(before=move.before, after=move.after)


class FieldPart(Part):
    """One field as it was approved and as it would be now."""

    path: str
    approved: MovePart | None = Field(description="Null: the approved plan left it alone.")
    now: MovePart | None = Field(description="Null: it would be left alone now.")

    @classmethod
    def of(cls, found: FieldDifference) -> FieldPart:
        """Say one field."""
        return cls(path=found.path, approved=MovePart.of(found.approved), now=MovePart.of(found.now))


class RefusedBlockPart(Part):
    """The guard that refuses it now."""

    guard: str
    message: str
    allow: str | None


class DifferencePart(Part):
    """An action that is not as it was approved."""

    id: str
    address: str
    action: str
    why: tuple[Literal["not_approved", "result", "ground", "risk", "blocked", "unblocked", "missing"], ...] = Field(
        description="not_approved: the plan did not hold it. result: it leads to something else. ground: what it rests "
        "on has changed on the cluster. risk: it is more dangerous. blocked: a guard refuses it now. unblocked: a "
        "guard refused it then, so nobody agreed to it. missing: it was left to do, and is planned no more."
    )
    message: str
    risk: str
    approved_risk: str | None
    blocked: RefusedBlockPart | None
    instead_of: tuple[str, ...] = Field(
        description="Approved actions on the same resource that are planned no more; missing: those planned."
    )
    fields: tuple[FieldPart, ...]
    source: str | None

    @classmethod
    def of(cls, found: Difference) -> DifferencePart:
        """Say one action."""
        block = found.blocked
        return cls(
            id=found.id,
            address=found.address,
            action=found.action,
            why=tuple(each.value for each in found.whys),
            message=found.message,
            risk=found.risk,
            approved_risk=found.approved_risk,
            blocked=RefusedBlockPart(guard=block.guard, message=block.message, allow=block.allow) if block else None,
            instead_of=found.instead_of,
            fields=tuple(map(FieldPart.of, found.fields)),
            source=found.source,
        )


class StalePart(Part):
    """In what a plan made now differs from the approved one; danger first."""

    more: tuple[DifferencePart, ...]
    not_needed: tuple[str, ...]
    state: StateAdvancePart | None

    @classmethod
    def of(cls, held: Held) -> StalePart:
        """Say all that differs."""
        found = held.difference
        return cls(
            more=tuple(map(DifferencePart.of, found.more)),
            not_needed=found.not_needed,
            state=StateAdvancePart.of(held.advance),
        )


class ErrorEvent(Document):
    """It did not end well; always the last line, with the code the command leaves with."""

    format: Literal["reconciler.event/1"] = "reconciler.event/1"
    event: Literal["error"] = "error"
    exit_code: int
    error: str
    hint: str
    stale: StalePart | None = Field(description="With exit code 6: what was approved, and what would happen now.")

    @classmethod
    def of(cls, error: BaseException) -> ErrorEvent:
        """Say an error as `reconciler.cli.failures` says it to people."""
        if not isinstance(error, ReconcilerError):
            code, message, hint = unexpected(error)
            return cls(exit_code=code, error=message, hint=typed_again(hint), stale=None)
        held = error.held if isinstance(error, ChangedPlanError) else None
        stale = None if held is None else StalePart.of(held)
        return cls(exit_code=error.exit_code, error=error.message, hint=typed_again(error.hint), stale=stale)
