"""What went wrong with a link's tasks, in the codes of the field, written down where it is news."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.errors import (
    InvalidNamespaceError,
    NotAuthorizedError,
    QuotaExceededError,
    ReconcilerError,
    RetryableError,
    SourceChangedError,
    UserError,
)
from reconciler.resources.mirroring import Trouble

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.workflow.linking.following.sides import Sides

_CODES: Final[tuple[tuple[type[ReconcilerError], str], ...]] = (
    (InvalidNamespaceError, "InvalidNamespaceError"),
    (QuotaExceededError, "POLICY_VIOLATION_ERROR"),
    (NotAuthorizedError, "AUTHORIZATION_ERROR"),
    (UserError, "INVALID_REQUEST_ERROR"),
)


@dataclass(frozen=True, slots=True)
class TaskDone:
    """What a task changed, and the first of what it could not do; `code` where the error does not say it."""

    count: int = 0
    error: ReconcilerError | None = None
    code: str | None = None


def code_of(error: ReconcilerError) -> str:
    """Return the code of what went wrong, as `mirror errors` shows it."""
    if isinstance(error, SourceChangedError):
        return error.code
    return next((code for kind, code in _CODES if isinstance(error, kind)), "INTERNAL_ERROR")


def failed(count: int, errors: Mapping[str, ReconcilerError]) -> TaskDone:
    """Return what a task came to of which some failed, by name: the first of them, and how many more."""
    if not errors:
        return TaskDone(count)
    name, error = min(errors.items())
    more = f" (and {len(errors) - 1:,} more)" if len(errors) > 1 else ""
    kind = RetryableError if isinstance(error, RetryableError) else UserError
    return TaskDone(count, kind(f"{name}: {error.message}{more}", hint=error.hint), code_of(error))


def note_task(sides: Sides, task: str, done: TaskDone) -> None:
    """Write down what is wrong with a task, or that nothing is any more; not what only has to be tried again."""
    if isinstance(done.error, RetryableError):
        return
    known, trouble = sides.link.tasks.get(task), None
    if done.error is not None:
        trouble = Trouble(done.code or code_of(done.error), done.error.message, sides.now_ms)
    before = None if known is None else (known.code, known.message)
    if before != (None if trouble is None else (trouble.code, trouble.message)):
        sides.destination.links.task_trouble(sides.link.name, task, trouble)
