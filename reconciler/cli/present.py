"""Print a result in the requested format."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from reconciler.cli.console import open_stderr, open_stdout
from reconciler.cli.text.lines import Line, Span, Tone, make_line
from reconciler.errors import BlockedError, ReconcilerError
from reconciler.runtime.text import pluralize

if TYPE_CHECKING:
    from pydantic import BaseModel

    from reconciler.cli.html.report import Report
    from reconciler.cli.json.base import JsonObject
    from reconciler.operations.manifest_files import ValidationResult
    from reconciler.planning.plan import Plan, PlanFinding


def print_result(
    form: Literal["text", "json"],
    lines: Callable[[], Iterable[Line]],
    document: Callable[[], JsonObject | BaseModel],
    *,
    is_paged: bool = False,
) -> None:
    """Print a result on standard output; `is_paged` uses a pager."""
    if form == "json":
        from reconciler.cli.json.base import format_document

        open_stdout().write_bytes(format_document(document()))
    elif is_paged:
        open_stdout().show_paged(lines())
    else:
        open_stdout().show(lines())


def print_warnings(warnings: Iterable[str]) -> None:
    """Print warnings on standard error."""
    open_stderr().show([make_line(Span("Warning: ", Tone.CHANGE), warning) for warning in warnings])


def show_page(report: Report, folder: Path) -> None:
    """Print an HTML page; in CI pipelines it links to files on the forge."""
    from reconciler.cli.html.report import render_page
    from reconciler.process import read_forge

    open_stdout().write_bytes(render_page(report, read_forge(folder, os.environ)))


def raise_verdict(verdict: ReconcilerError | None) -> None:
    """Raise an error, if any, without the problems printed before."""
    if verdict is not None:
        verdict.message = verdict.message.partition(":\n")[0]
        raise verdict


def build_printed_block_error(plan: Plan, consequence: str = "") -> BlockedError:
    """Build the error for a printed, blocked plan."""
    if plan.applied is not None and not plan.blocked:
        message, hint = plan.applied.format_warning()
        return BlockedError(f"{consequence}{message}", hint=hint)
    count = pluralize(len(plan.blocked), "action is", "actions are")
    return BlockedError(
        f"{consequence}{count} blocked", hint="The plan above shows the reason and the --allow that lifts the block"
    )


@contextmanager
def print_error_as_json(form: Literal["text", "json"]) -> Iterator[None]:
    """Print an error as a line of JSON; re-raise it."""
    try:
        yield
    except BaseException as error:
        if form == "json":
            from reconciler.cli.json.runs_json import format_error_event

            open_stdout().write_bytes(format_error_event(error))
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


def format_validation(validated: ValidationResult) -> list[Line]:
    """Format findings, and the number of resources."""
    lines = [format_finding(finding) for finding in validated.findings]
    kinds = [pluralize(count, _NOUNS.get(kind, kind), _PLURALS.get(kind)) for kind, count in validated.counts.items()]
    word = "Not valid" if validated.findings else "Valid"
    held = ", ".join(kinds) or "nothing declared"
    return [*lines, make_line(Span(f"{word}: ", Tone.STRONG), f"workspace {validated.workspace}, {held}")]


def format_finding(finding: PlanFinding) -> Line:
    """Format a finding like a compiler: position, problem, remedy."""
    where = finding.source or finding.address or "workspace"
    about = f"{finding.address}: " if finding.source and finding.address else ""
    return make_line(Span(f"{where}: ", Tone.STRONG), f"{about}{finding.message}. {finding.hint}")
