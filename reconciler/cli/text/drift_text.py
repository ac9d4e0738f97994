"""Drift as text, Markdown, issue, chat message and JUnit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.cli.hint_rewrite import add_typed_options
from reconciler.cli.present import format_finding
from reconciler.cli.text.amounts import format_field_change, format_field_name
from reconciler.cli.text.lines import EMPTY, Line, Span, Tone, align_rows, make_line
from reconciler.cli.text.markdown import (
    LIMIT,
    NamedLine,
    build_fold,
    fence_block,
    fit_names,
    format_code_cell,
    format_code_span,
    format_table_row,
    group_addresses,
)
from reconciler.cli.text.remarks import Remark, Remarks, build_error_remark, format_junit, sort_remarks
from reconciler.forges.protocol import Marker
from reconciler.operations.drift import CLASSES, FOREIGN, DriftClass, DriftItem, DriftResult
from reconciler.runtime.text import escape_invisible, format_count, pluralize

if TYPE_CHECKING:
    from reconciler.operations.drift_issue import DriftRemedy
    from reconciler.resources.address import Address


SIGNS: Final[dict[DriftClass, tuple[str, Tone]]] = {
    "drift": ("!", Tone.CHANGE),
    "missing": ("!", Tone.REMOVE),
    "in doubt": ("⁇", Tone.CHANGE),
    "blocked": ("✗", Tone.DANGER),
    "pending": ("…", Tone.QUIET),
    "unmanaged": ("?", Tone.QUIET),
}
_MAX_UNMANAGED: Final = 3
_WIDTH: Final = max(map(len, CLASSES)) + 1


def format_drift(drifted: DriftResult) -> list[Line]:
    """Format errors, then findings by class."""
    findings, errors = drifted.findings, drifted.errors
    lines = [format_finding(error) for error in errors]
    if not findings:
        return [*lines, make_line(_format_nothing_found(drifted))]
    for kind in CLASSES:
        rows = [finding for finding in findings if finding.kind == kind]
        if rows:
            sign, tone = SIGNS[kind]
            named, unnamed = _split_listed(rows, drifted)
            lines.append(make_line(Span(f"{kind.upper():<{_WIDTH}}{format_count(len(rows))}", Tone.STRONG)))
            lines += align_rows(
                [[Span(f"{sign} {finding.address}", tone), Span(format_drift_finding(finding))] for finding in named],
                limits=(72,),
                indent="  ",
            )
            if unnamed:
                left = f"{sign} {pluralize(unnamed, 'resource')} not in the files, left alone"
                lines.append(make_line("  ", Span(left, tone), Span("  named with --format json", Tone.QUIET)))
    counts = [
        pluralize(sum(finding.kind == kind for finding in findings), kind, kind)
        for kind in CLASSES
        if any(finding.kind == kind for finding in findings)
    ]
    return [*lines, EMPTY, make_line(Span("Found: ", Tone.STRONG), ", ".join(counts))]


def _split_listed(rows: list[DriftItem], drifted: DriftResult) -> tuple[list[DriftItem], int]:
    if drifted.known is not None:
        return rows, 0
    fails = set(map(id, drifted.failing))
    others = {
        id(finding) for finding in rows if finding.kind == "unmanaged" and not finding.path and id(finding) not in fails
    }
    if len(others) <= _MAX_UNMANAGED:
        return rows, 0
    return [finding for finding in rows if id(finding) not in others], len(others)


def _format_nothing_found(drifted: DriftResult) -> str:
    if drifted.obstacles:
        return "Not all could be compared."
    if drifted.known is not None and drifted.known.findings:
        return f"Nothing new: {pluralize(len(drifted.known.findings), 'finding', 'findings')} told before."
    return "No drift: clusters are as they were last applied."


def format_drift_finding(finding: DriftItem) -> str:
    """Format a finding without its address."""
    match finding.kind:
        case "drift" if finding.path == FOREIGN:
            return finding.message
        case "drift":
            moved = format_field_change(finding.path, finding.recorded, finding.observed)
            left = f"  (left as it is: {finding.ignored})" if finding.ignored else ""
            origin = f" (from {finding.origin})" if finding.origin else ""
            return f"{format_field_name(finding.path)}{origin} {moved} on the cluster{left}"
        case "missing" | "in doubt" | "unmanaged" | "pending" | "blocked":
            return finding.message
        case _:
            assert_never(finding.kind)


def format_drift_comment(drifted: DriftResult) -> str:
    """Format a comment of at most `LIMIT` bytes; failing findings are shortened last."""
    text = ""
    for parts in _list_comment_forms(drifted):
        text = "\n".join(parts) + "\n"
        if len(text.encode()) <= LIMIT:
            return text
    return text


def _list_comment_forms(drifted: DriftResult) -> Iterator[list[str]]:
    fails = drifted.failing
    marks = drifted.failing_marks
    rest = [item for item in drifted.findings if item.fingerprint not in marks]
    head, errors = _format_head(drifted), _format_errors(drifted)
    yield [*head, *errors, *_format_finding_table(fails), *_fold_rest(rest)]
    yield [*head, *errors, *_format_finding_table(fails)]
    named = [NamedLine(line, int(line.startswith("- "))) for line in errors]
    for kind in CLASSES:
        named += group_addresses(kind, [finding.address for finding in fails if finding.kind == kind])
    room = LIMIT - len("\n".join(head).encode()) - 2
    yield [*head, *fit_names(named, room)]


def _format_head(drifted: DriftResult) -> list[str]:
    plan = drifted.planned.plan
    name = f"{plan.workspace} ({plan.environment})" if plan.environment else plan.workspace
    counts = Counter(finding.kind for finding in drifted.findings)
    texts = ", ".join(f"{format_count(counts[kind])} {kind}" for kind in CLASSES if counts[kind])
    errors = [pluralize(len(drifted.errors), "error")] if drifted.errors else []
    return [
        Marker("drift", plan.workspace, plan.environment, items=len(drifted.failing) + len(drifted.errors)).line,
        f"### Drift of {format_code_span(name)}",
        "",
        f"**{' · '.join([texts or 'nothing found', *errors])}**",
        "",
    ]


def _format_errors(drifted: DriftResult) -> list[str]:
    lines = [
        f"- {format_code_span(error.source or error.address or 'workspace')} "
        f"{format_code_span(f'{error.message}. {error.hint}')}"
        for error in drifted.errors
    ]
    return ["#### Not compared", "", *lines, ""] if lines else []


def _format_finding_table(fails: Sequence[DriftItem]) -> list[str]:
    lines = [
        format_table_row(
            (finding.kind, format_code_cell(finding.address), format_code_cell(format_drift_finding(finding)))
        )
        for finding in fails
    ]
    return ["| | address | what |", "| --- | --- | --- |", *lines, ""] if lines else []


def _fold_rest(rest: Sequence[DriftItem]) -> list[str]:
    if not rest:
        return []
    lines = [f"{finding.kind}  {finding.address}  {format_drift_finding(finding)}" for finding in rest]
    title = pluralize(len(rest), "finding that fails nothing", "findings that fail nothing")
    return [*build_fold(title, fence_block("", lines)), ""]


_MAX_PATCH_BYTES: Final = 12_000
_MAX_FINDINGS: Final = 10
_SLACK_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def format_drift_issue(drifted: DriftResult, remedy: DriftRemedy) -> str:
    """Format an issue with findings, file owners, and a patch that accepts the drift."""
    parts: list[str] = []
    if remedy.owners:
        parts += ["", f"Owners: {' '.join(remedy.owners)}"]
    if drifted.failing:
        parts += ["", *(f"- {format_code_span(add_typed_options(way))}" for way in drifted.next_steps)]
    accepted = remedy.accepted
    if accepted is not None and accepted.patch:
        parts += ["", "This patch takes it into the files:"]
        lines = accepted.patch.removesuffix("\n").split("\n")
        is_short = len(accepted.patch.encode()) <= _MAX_PATCH_BYTES
        if is_short and all(escape_invisible(text) == text for text in lines):
            parts += ["", *build_fold("The patch, for git apply", fence_block("diff", lines))]
        else:
            command = format_code_span(add_typed_options("reconciler drift --accept '*' > accept.patch"))
            why = "has characters that cannot be shown here" if is_short else "is too long for here"
            parts[-1] = f"The patch that takes it into the files {why}: {command}"
    if accepted is not None and accepted.notes:
        parts += ["", *(f"- {format_code_span(note)}" for note in accepted.notes[:_MAX_FINDINGS])]
    return format_drift_comment(drifted) + "\n".join(parts[1:]) + ("\n" if parts else "")


def format_chat_message(drifted: DriftResult, link: str) -> str:
    """Format count, first findings, and a link."""
    plan = drifted.planned.plan
    name = f"{plan.workspace} ({plan.environment})" if plan.environment else plan.workspace
    fails = drifted.failing
    lines = [f"Drift of {name}: {pluralize(len(fails), 'finding')}"]
    lines += [f"• {finding.address}: {format_drift_finding(finding)}" for finding in fails[:_MAX_FINDINGS]]
    if len(fails) > _MAX_FINDINGS:
        lines.append(f"… and {format_count(len(fails) - _MAX_FINDINGS)} more")
    text = "\n".join(escape_invisible(part) for part in [*lines, *([link] if link else [])])
    return "".join(_SLACK_ESCAPES.get(part, part) for part in text)


def format_drift_junit(drifted: DriftResult) -> bytes:
    """Format findings as JUnit XML."""
    return format_junit(list_drift_remarks(drifted))


def list_drift_remarks(drifted: DriftResult) -> Remarks:
    """Convert findings to remarks; positions come from the plan's actions."""
    plan = drifted.planned.plan
    sources = {action.address: action.source for action in plan.actions if action.source}
    failing = drifted.failing_marks
    rows = [
        *map(build_error_remark, drifted.errors),
        *(_build_remark(item, sources, failing) for item in drifted.findings),
    ]
    return Remarks("drift", plan.workspace, plan.environment, plan.tool, sort_remarks(rows))


def _build_remark(finding: DriftItem, sources: Mapping[Address, str], failing: AbstractSet[str]) -> Remark:
    kind = finding.kind.replace(" ", "-")
    return Remark(
        rule="drift" if kind == "drift" else f"drift-{kind}",
        level="error" if finding.fingerprint in failing else "note",
        name=f"{kind}:{finding.address} {finding.path}".rstrip(),
        about=finding.address,
        message=f"{finding.address}: {format_drift_finding(finding)}",
        source=sources.get(finding.address),
        fingerprint=finding.fingerprint,
        is_skipped=finding.ignored is not None,
    )
