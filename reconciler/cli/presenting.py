"""A result, in the form that was asked for; only that form is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from reconciler.cli.console import err, out
from reconciler.cli.render.amounts import counted
from reconciler.cli.render.lines import Line, Span, Tone, line
from reconciler.errors import BlockedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from reconciler.cli.documents.base import Document
    from reconciler.errors import ReconcilerError
    from reconciler.planning.plan import Plan


def present(
    form: Literal["text", "json"], lines: Callable[[], Iterable[Line]], document: Callable[[], Document]
) -> None:
    """Print a result on standard output."""
    if form == "json":
        from reconciler.cli.documents.base import document_bytes

        out().write_bytes(document_bytes(document()))
    else:
        out().show(lines())


def warn_all(warnings: Iterable[str]) -> None:
    """Print warnings on standard error, where no pipe mistakes them for the result."""
    err().show([line(Span("Warning: ", Tone.CHANGE), warning) for warning in warnings])


def raise_verdict(verdict: ReconcilerError | None) -> None:
    """Leave with a verdict, if there is one; its list has been shown already, so only its first line is said."""
    if verdict is not None:
        verdict.message = verdict.message.partition(":\n")[0]
        raise verdict


def blocked_above(plan: Plan, consequence: str = "") -> BlockedError:
    """Return the error of a plan that is blocked and was shown: what stands in it is not said twice."""
    count = counted(len(plan.blocked), "action is", "actions are")
    return BlockedError(f"{consequence}{count} blocked", hint="The plan above says why, and what allows it")
