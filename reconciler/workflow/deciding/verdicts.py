"""What exit codes say of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.applying.alike import first_few
from reconciler.errors import IncompleteError, PartialError, ReconcilerError
from reconciler.resources.address import Address
from reconciler.workflow.counting import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.applying.engine import RunResult


def as_it_is(_address: Address, message: str) -> str:
    """Return a refusal as it is: nobody knows the files."""
    return message


def verdict_of(result: RunResult | None, told: Callable[[Address, str], str] = as_it_is) -> ReconcilerError | None:
    """Return what the exit code says of a run. What was left to another on purpose is no failure.

    `told` says of a refusal where in the files its reason is written.
    """
    if result is None:
        return None
    if result.unknown is not None:
        doubt = counted(len(result.in_doubt), "action is", "actions are")
        return IncompleteError(f"{doubt} in doubt: {result.unknown.message}", hint=result.unknown.hint)
    if result.not_started and result.is_stopped:
        return IncompleteError(
            f"stopped: {_left(result)}",
            hint="Find out and go on with: reconciler apply --resume"
            if result.unanswered
            else "Go on with: reconciler apply --resume",
        )
    if result.failed:
        first = result.failed[0]
        why = told(Address(first.id.partition(":")[2]), first.error.message)
        failed = counted(len(result.failed), "action", "actions")
        skipped = f", {len(result.skipped)} more were not tried because of that" if result.skipped else ""
        return PartialError(
            f"{failed} failed{skipped}; the first is {first.id}: {why}",
            hint=f"{first.error.hint}{_between(first.error.hint)}Then run: reconciler apply",
        )
    if result.skipped:
        left, cause = counted(len(result.skipped), "action was", "actions were"), result.skipped[0].because
        return PartialError(
            f"{left} not tried: what they lean on got no answer, and turned out to be done; the first needs {cause}",
            hint="Go on with: reconciler apply",
        )
    return None


def _left(result: RunResult) -> str:
    """Return how much a stopped run left; what was begun, and got no answer, is counted apart."""
    unanswered, rest = result.unanswered, len(result.not_started) - len(result.unanswered)
    if not unanswered:
        return f"{counted(rest, 'action is', 'actions are')} left"
    left = f", {rest} {'is' if rest == 1 else 'are'} not started" if rest else ""
    doubt = f"{counted(len(unanswered), 'action is', 'actions are')} in doubt{left}"
    return f"{doubt}; whether these happened is not known: {first_few(unanswered)}"


def _between(hint: str) -> str:
    """Return what goes before another sentence: a hint may end in what is to be typed, and takes no full stop then."""
    return " " if hint.endswith((".", "!", "?")) else " · "
