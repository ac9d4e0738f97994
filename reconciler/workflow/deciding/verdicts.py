"""What exit codes say of plans that may not be done, and of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.applying.alike import first_few
from reconciler.errors import BlockedError, IncompleteError, PartialError, ReconcilerError
from reconciler.workflow.counting import counted

if TYPE_CHECKING:
    from reconciler.applying.engine import RunResult
    from reconciler.workflow.plan import Planned


class BlockedPlanError(BlockedError):
    """A guard refused a part of a plan, so nothing of it was done; `planned` is for showing."""

    def __init__(self, planned: Planned) -> None:
        """Name what is blocked, and the words that would allow it."""
        actions = planned.plan.blocked
        allows = [action.blocked.allow for action in actions if action.blocked and action.blocked.allow]
        hint = f"Allow once with {' '.join(f'--allow {allow}' for allow in allows)}" if allows else "Change the files."
        what = "; ".join(f"{action.id}: {action.blocked.message}" for action in actions if action.blocked)
        super().__init__(f"nothing was done: {len(actions)} blocked ({what})", hint=hint)
        self.planned = planned


def verdict_of(result: RunResult | None) -> ReconcilerError | None:
    """Return what the exit code says of a run. What was left to another on purpose is no failure."""
    if result is None:
        return None
    if result.unknown is not None:
        doubt = counted(len(result.in_doubt), "action is", "actions are")
        return IncompleteError(f"{doubt} in doubt: {result.unknown.message}", hint=result.unknown.hint)
    if result.not_started and result.is_stopped:
        left = counted(len(result.not_started), "action is", "actions are")
        unanswered = f"; whether these happened is not known: {first_few(result.unanswered)}"
        return IncompleteError(
            f"stopped: {left} left{unanswered if result.unanswered else ''}",
            hint="Find out and go on with: reconciler apply --resume"
            if result.unanswered
            else "Go on with: reconciler apply --resume",
        )
    if result.failed:
        first = result.failed[0]
        failed = counted(len(result.failed), "action", "actions")
        skipped = f", {len(result.skipped)} more were not tried because of that" if result.skipped else ""
        return PartialError(
            f"{failed} failed{skipped}; the first is {first.id}: {first.error.message}",
            hint=f"{first.error.hint} Then run: reconciler apply",
        )
    if result.skipped:
        left, cause = counted(len(result.skipped), "action was", "actions were"), result.skipped[0].because
        return PartialError(
            f"{left} not tried: what they lean on got no answer, and turned out to be done; the first needs {cause}",
            hint="Go on with: reconciler apply",
        )
    return None
