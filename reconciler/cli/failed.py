"""What ended in an error, in the form that was asked for: a page that collects results must not keep an old one."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from reconciler.cli.console import err, out, pipeline
from reconciler.cli.errors import unexpected
from reconciler.cli.hint_rewrite import typed_again
from reconciler.errors import ReconcilerError
from reconciler.runtime.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from reconciler.cli.options import Form
    from reconciler.cli.text.remarks import Remark, Remarks
    from reconciler.manifests.positions import Problem
    from reconciler.operations.manifest_files import Validated
    from reconciler.operations.steps.invocation import Invocation


Command: TypeAlias = Literal["plan", "drift", "validate", "show", "state history"]

_TITLES: Final[dict[Command, str]] = {
    "plan": "{} was not planned",
    "drift": "{} was not compared",
    "validate": "Files of {} are not valid",
    "show": "{} cannot be shown",
    "state history": "The states of {} cannot be listed",
}
_ROOM: Final = 100
"""Bytes for the line that says how many problems are missing."""


@contextmanager
def errors_shown(form: Form, command: Command, invocation: Invocation, environment: str | None) -> Iterator[None]:
    """Print the error that ends the block on standard output, too, unless that is for people; it goes on from here."""
    try:
        yield
    except Exception as error:  # any: a bug of ours must not leave an old result standing either
        if form != "text":
            _show(error, form, command, invocation, environment)
        elif pipeline() == "github":
            from reconciler.operations.manifest_files import folder_of

            annotate(_remarks(error, command, invocation, environment), folder_of(invocation))
        raise


def annotate(remarks: Remarks, folder: Path) -> None:
    """Let GitHub show remarks of the workspace in `folder` at their lines, beside the text that the log has."""
    if pipeline() == "github":
        from reconciler.cli.git import prefix_of
        from reconciler.cli.text.job_log import at_lines

        for each in at_lines(remarks, prefix_of(folder, os.environ)):
            err().command(each)


def _show(error: Exception, form: Form, command: Command, invocation: Invocation, environment: str | None) -> None:
    if form == "json":
        from reconciler.cli.json.base import document_bytes
        from reconciler.cli.json.checks_json import ErrorDocument, ValidateDocument

        code, message, hint = said(error)
        kind = ValidateDocument.of_error if command == "validate" else ErrorDocument.of_error
        out().write_bytes(document_bytes(kind(message, hint, problems_of(error), code)))
        return
    show_remarks(_remarks(error, command, invocation, environment), form, invocation)


def _remarks(error: BaseException, command: Command, invocation: Invocation, environment: str | None) -> Remarks:
    from reconciler.cli.text.remarks import Remarks
    from reconciler.operations.manifest_files import name_of_workspace

    rows = tuple(remarks_of(error, command))
    return Remarks(command, name_of_workspace(invocation), environment, invocation.tool, rows, is_whole=False)


def show_remarks(found: Remarks, form: Form, invocation: Invocation) -> None:
    """Print remarks as markdown, JUnit or SARIF."""
    match form:
        case "junit":
            from reconciler.cli.text.remarks import junit

            out().write_bytes(junit(found))
        case "sarif":
            from reconciler.cli.git import prefix_of
            from reconciler.cli.json.sarif import SarifDocument, sarif_bytes
            from reconciler.operations.manifest_files import folder_of

            out().write_bytes(sarif_bytes(SarifDocument.of(found, prefix_of(folder_of(invocation), os.environ))))
        case "html":
            from reconciler.cli.html.state_report import remarks_report
            from reconciler.cli.show import show_page
            from reconciler.operations.manifest_files import folder_of

            show_page(remarks_report(found, title_of(found)), folder_of(invocation))
        case _:
            out().write(remarks_markdown(found))


def said(error: BaseException) -> tuple[int, str, str]:
    """Return exit code, message and hint; of a list of problems only its heading."""
    if not isinstance(error, ReconcilerError):
        code, message, hint = unexpected(error)
        return code, message, typed_again(hint)
    return error.exit_code, error.message.partition("\n")[0], typed_again(error.hint)


def problems_of(error: BaseException) -> Sequence[Problem]:
    """Return what is wrong with the files, one by one."""
    found: Sequence[Problem] = getattr(error, "problems", ())
    return found


def remarks_of(error: BaseException, command: Command) -> Iterator[Remark]:
    """Yield every problem of the files; of any other error, that one."""
    from reconciler.cli.text.remarks import of_error, of_problem
    from reconciler.planning.findings import Finding

    problems = problems_of(error)
    yield from map(of_problem, problems)
    if not problems:
        _, message, hint = said(error)
        yield of_error(Finding(None, None, message, hint), command)


def validated_remarks(validated: Validated, tool: str, environment: str | None) -> Remarks:
    """Return what is wrong with files that can be read, and what is odd about them."""
    from reconciler.cli.text.remarks import Remarks, of_error, of_oddity

    rows = [of_error(finding, "validate") for finding in validated.findings]
    rows += map(of_oddity, validated.warnings)
    return Remarks("validate", validated.workspace, environment, tool, tuple(rows))


def title_of(found: Remarks) -> str:
    """Return what a report of problems is headed with, with `{}` where the name of the workspace belongs."""
    errors = any(each.level == "error" for each in found.rows)
    return _TITLES[found.command] if errors or not found.is_whole else "Files of {} are valid"


def remarks_markdown(found: Remarks) -> str:
    """Return remarks as a comment, under the marker of the comment that it takes the place of."""
    from reconciler.cli.text.markdown import LIMIT, cell, code, row
    from reconciler.forges.marker import Marker

    name = f"{found.workspace} ({found.environment})" if found.environment else found.workspace
    title = title_of(found).format(code(name))
    marker = Marker(found.command, found.workspace, found.environment, items=len(found.rows))
    head = [marker.line, f"### {title}", ""]
    end = ["", f"<sub>made by reconciler {code(found.tool)}</sub>"]
    if not found.rows:
        return "\n".join([*head[:-1], *end]) + "\n"
    head += [f"**{counted(len(found.rows), 'problem')}**", "", "| where | what |", "| --- | --- |"]
    room = LIMIT - len("\n".join([*head, *end]).encode()) - _ROOM
    kept: list[str] = []
    for position, each in enumerate(found.rows):
        hint = f". {each.hint}" if each.hint else ""
        text = row((cell(each.source or each.about), cell(f"{each.message}{hint}")))
        room -= len(text.encode()) + 1
        if room < 0:
            left = counted(len(found.rows) - position, "more problem", "more problems")
            kept += ["", f"And {left} that this comment has no room for."]
            break
        kept.append(text)
    return "\n".join([*head, *kept, *end]) + "\n"
