"""Print a result in the requested format, and findings as text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from reconciler.cli.console import err, out
from reconciler.cli.text.lines import Line, Span, Tone, line
from reconciler.errors import BlockedError, ReconcilerError
from reconciler.runtime.text import pluralize

if TYPE_CHECKING:
    from pydantic import BaseModel

    from reconciler.cli.html.report import Report
    from reconciler.cli.json.base import Row
    from reconciler.operations.manifest_files import ValidationResult
    from reconciler.planning.plan import Plan, PlanFinding


def present(
    form: Literal["text", "json"],
    lines: Callable[[], Iterable[Line]],
    document: Callable[[], Row | BaseModel],
    *,
    is_paged: bool = False,
) -> None:
    """Print a result on standard output; `is_paged`: through the user's pager, if set."""
    if form == "json":
        from reconciler.cli.json.base import document_bytes

        out().write_bytes(document_bytes(document()))
    elif is_paged:
        out().page(lines())
    else:
        out().show(lines())


def warn_all(warnings: Iterable[str]) -> None:
    """Print warnings on standard error."""
    err().show([line(Span("Warning: ", Tone.CHANGE), warning) for warning in warnings])


def show_page(report: Report, folder: Path) -> None:
    """Print a page; its links lead to the workspace's files on the forge, if a pipeline names it."""
    from reconciler.cli.html.report import page_bytes
    from reconciler.process import read_forge

    out().write_bytes(page_bytes(report, read_forge(folder, os.environ)))


def raise_verdict(verdict: ReconcilerError | None) -> None:
    """Raise a verdict; only its first line, because its list was printed."""
    if verdict is not None:
        verdict.message = verdict.message.partition(":\n")[0]
        raise verdict


def printed_blocked_error(plan: Plan, consequence: str = "") -> BlockedError:
    """Return the error of a blocked plan that was printed, without repeating it."""
    if plan.applied is not None and not plan.blocked:
        message, hint = plan.applied.format_warning()
        return BlockedError(f"{consequence}{message}", hint=hint)
    count = pluralize(len(plan.blocked), "action is", "actions are")
    return BlockedError(
        f"{consequence}{count} blocked", hint="The plan above shows the reason and the --allow that lifts the block"
    )


@contextmanager
def print_error_as_json(form: Literal["text", "json"]) -> Iterator[None]:
    """Print the block's error as a last line of JSON, and raise it."""
    try:
        yield
    except BaseException as error:
        if form == "json":
            from reconciler.cli.json.runs_json import error_line

            out().write_bytes(error_line(error))
        raise


_NOUNS: Final = {
    "Cluster": "cluster",
    "Namespace": "namespace",
    "Topic": "topic",
    "TieringPolicy": "tiering policy",
    "Mounting": "mounting",
    "MirrorLink": "mirror link",
    "MirrorTopic": "mirror",
}
_PLURALS: Final = {"TieringPolicy": "tiering policies"}


def validation_lines(validated: ValidationResult) -> list[Line]:
    """Return findings, or what was checked."""
    lines = [finding_line(finding) for finding in validated.findings]
    kinds = [pluralize(count, _NOUNS.get(kind, kind), _PLURALS.get(kind)) for kind, count in validated.counts.items()]
    word = "Not valid" if validated.findings else "Valid"
    held = ", ".join(kinds) or "nothing declared"
    return [*lines, line(Span(f"{word}: ", Tone.STRONG), f"workspace {validated.workspace}, {held}")]


def finding_line(finding: PlanFinding) -> Line:
    """Return a finding as compilers print them: place, problem, remedy."""
    where = finding.source or finding.address or "workspace"
    about = f"{finding.address}: " if finding.source and finding.address else ""
    return line(Span(f"{where}: ", Tone.STRONG), f"{about}{finding.message}. {finding.hint}")
