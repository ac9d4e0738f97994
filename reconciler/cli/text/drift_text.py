"""Drift as text, markdown and remarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.cli.hint_rewrite import typed_again
from reconciler.cli.present import finding_line
from reconciler.cli.text.amounts import field_name, moved_text
from reconciler.cli.text.lines import EMPTY, Line, Span, Tone, aligned, line
from reconciler.cli.text.markdown import (
    LIMIT,
    NamedLine,
    as_many_as_fit,
    block,
    cell,
    code,
    folded,
    named_lines,
    row,
)
from reconciler.cli.text.remarks import Remark, Remarks, in_order, junit, of_error
from reconciler.forges.protocol import Marker
from reconciler.operations.drift import CLASSES, FOREIGN, DriftClass, Drifted, DriftItem
from reconciler.runtime.text import count_text, counted, visible

if TYPE_CHECKING:
    from reconciler.operations.drift_issue import Remedy
    from reconciler.resources.address import Address


SIGNS: Final[dict[DriftClass, tuple[str, Tone]]] = {
    "drift": ("!", Tone.CHANGE),
    "missing": ("✗", Tone.REMOVE),
    "in doubt": ("⁇", Tone.CHANGE),
    "blocked": ("✗", Tone.DANGER),
    "pending": ("~", Tone.QUIET),
    "unmanaged": ("?", Tone.QUIET),
}
_FEW: Final = 3
"""So many resources that no file declares are named; of more only their number is told, as a plan does."""
_WIDTH: Final = max(map(len, CLASSES)) + 1


def drift_lines(drifted: Drifted) -> list[Line]:
    """Return what kept us from looking, then every finding under its class, what fails first."""
    findings, errors = drifted.findings, drifted.errors
    lines = [finding_line(error) for error in errors]
    if not findings:
        return [*lines, line(_nothing(drifted))]
    for kind in CLASSES:
        rows = [found for found in findings if found.kind == kind]
        if rows:
            sign, tone = SIGNS[kind]
            named, unnamed = _named(rows, drifted)
            lines.append(line(Span(f"{kind.upper():<{_WIDTH}}{count_text(len(rows))}", Tone.STRONG)))
            lines += aligned(
                [[Span(f"{sign} {found.address}", tone), Span(what_of(found))] for found in named],
                limits=(72,),
                indent="  ",
            )
            if unnamed:
                left = f"{sign} {counted(unnamed, 'resource')} not in the files, left alone"
                lines.append(line("  ", Span(left, tone), Span("  named with --format json", Tone.QUIET)))
    counts = [
        counted(sum(found.kind == kind for found in findings), kind, kind)
        for kind in CLASSES
        if any(found.kind == kind for found in findings)
    ]
    return [*lines, EMPTY, line(Span("Found: ", Tone.STRONG), ", ".join(counts))]


def _named(rows: list[DriftItem], drifted: Drifted) -> tuple[list[DriftItem], int]:
    """Return what is told one by one, and how many more there are that no file declares.

    A topic that is one of many another's is told by itself only where that fails, or is news.
    """
    if drifted.known is not None:
        return rows, 0
    fails = set(map(id, drifted.failing))
    others = {id(found) for found in rows if found.kind == "unmanaged" and not found.path and id(found) not in fails}
    if len(others) <= _FEW:
        return rows, 0
    return [found for found in rows if id(found) not in others], len(others)


def _nothing(drifted: Drifted) -> str:
    if drifted.obstacles:
        return "Not all could be compared."
    if drifted.known is not None and drifted.known.findings:
        return f"Nothing new: {counted(len(drifted.known.findings), 'finding', 'findings')} told before."
    return "No drift: clusters are as they were last applied."


def what_of(found: DriftItem) -> str:
    """Return what a finding says of its resource."""
    match found.kind:
        case "drift" if found.path == FOREIGN:
            return found.message
        case "drift":
            moved = moved_text(found.path, found.recorded, found.observed)
            left = f"  (left as it is: {found.ignored})" if found.ignored else ""
            origin = f" (from {found.origin})" if found.origin else ""
            return f"{field_name(found.path)}{origin} {moved} on the cluster{left}"
        case "missing" | "in doubt" | "unmanaged" | "pending" | "blocked":
            return found.message
        case _:
            assert_never(found.kind)


# Drift as one comment: what fails is never folded away, never longer than a comment may be.


def drift_markdown(drifted: Drifted) -> str:
    """Return the comment. What fails nobody shrinks to counts before anything that fails loses a word."""
    text = ""
    for parts in _from_full_to_bare(drifted):
        text = "\n".join(parts) + "\n"
        if len(text.encode()) <= LIMIT:
            return text
    return text


def _from_full_to_bare(drifted: Drifted) -> Iterator[list[str]]:
    """Yield the comment in ever shorter forms; the last one fits whatever was found."""
    fails = drifted.failing
    marks = drifted.failing_marks
    rest = [item for item in drifted.findings if item.fingerprint not in marks]
    head, errors = _head(drifted), _errors(drifted)
    yield [*head, *errors, *_table(fails), *_folded(rest)]
    yield [*head, *errors, *_table(fails)]
    named = [NamedLine(line, int(line.startswith("- "))) for line in errors]
    for kind in CLASSES:
        named += named_lines(kind, [found.address for found in fails if found.kind == kind])
    room = LIMIT - len("\n".join(head).encode()) - 2
    yield [*head, *as_many_as_fit(named, room)]


def _head(drifted: Drifted) -> list[str]:
    plan = drifted.planned.plan
    name = f"{plan.workspace} ({plan.environment})" if plan.environment else plan.workspace
    counts = Counter(found.kind for found in drifted.findings)
    said = ", ".join(f"{count_text(counts[kind])} {kind}" for kind in CLASSES if counts[kind])
    errors = [counted(len(drifted.errors), "error")] if drifted.errors else []
    return [
        Marker("drift", plan.workspace, plan.environment, items=len(drifted.failing) + len(drifted.errors)).line,
        f"### Drift of {code(name)}",
        "",
        f"**{' · '.join([said or 'nothing found', *errors])}**",
        "",
    ]


def _errors(drifted: Drifted) -> list[str]:
    lines = [
        f"- {code(found.source or found.address or 'workspace')} {code(f'{found.message}. {found.hint}')}"
        for found in drifted.errors
    ]
    return ["#### Not compared", "", *lines, ""] if lines else []


def _table(fails: Sequence[DriftItem]) -> list[str]:
    lines = [row((found.kind, cell(found.address), cell(what_of(found)))) for found in fails]
    return ["| | address | what |", "| --- | --- | --- |", *lines, ""] if lines else []


def _folded(rest: Sequence[DriftItem]) -> list[str]:
    if not rest:
        return []
    lines = [f"{found.kind}  {found.address}  {what_of(found)}" for found in rest]
    title = counted(len(rest), "finding that fails nothing", "findings that fail nothing")
    return [*folded(title, block("", lines)), ""]


# Drift as an issue, which says what to do as well; and as a message, which says where to look.


_PATCH_ROOM: Final = 12_000
"""Bytes of a patch: with the findings it fits into an issue of every forge. One that is cut cannot be applied."""
_MOST_NAMED: Final = 10
_ESCAPED: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
"""What Slack reads as a link or a mention."""


def issue_markdown(drifted: Drifted, remedy: Remedy) -> str:
    """Return what an issue says: the findings, who owns the files, and the patch that takes them into the files."""
    parts: list[str] = []
    if remedy.owners:
        parts += ["", f"Owners: {' '.join(remedy.owners)}"]
    if drifted.failing:
        parts += ["", *(f"- {code(typed_again(way))}" for way in drifted.ways_on)]
    accepted = remedy.accepted
    if accepted is not None and accepted.patch:
        parts += ["", "This patch takes it into the files:"]
        lines = accepted.patch.removesuffix("\n").split("\n")
        is_short = len(accepted.patch.encode()) <= _PATCH_ROOM
        if is_short and all(visible(each) == each for each in lines):
            parts += ["", *folded("The patch, for git apply", block("diff", lines))]
        else:
            command = code(typed_again("reconciler drift --accept '*' > accept.patch"))
            why = "has characters that cannot be shown here" if is_short else "is too long for here"
            parts[-1] = f"The patch that takes it into the files {why}: {command}"
    if accepted is not None and accepted.notes:
        parts += ["", *(f"- {code(note)}" for note in accepted.notes[:_MOST_NAMED])]
    return drift_markdown(drifted) + "\n".join(parts[1:]) + ("\n" if parts else "")


def drift_message(drifted: Drifted, link: str) -> str:
    """Return a message of a few lines: the counts, the first findings, and where the rest is."""
    plan = drifted.planned.plan
    name = f"{plan.workspace} ({plan.environment})" if plan.environment else plan.workspace
    fails = drifted.failing
    lines = [f"Drift of {name}: {counted(len(fails), 'finding')}"]
    lines += [f"• {found.address}: {what_of(found)}" for found in fails[:_MOST_NAMED]]
    if len(fails) > _MOST_NAMED:
        lines.append(f"… and {count_text(len(fails) - _MOST_NAMED)} more")
    text = "\n".join(visible(each) for each in [*lines, *([link] if link else [])])
    return "".join(_ESCAPED.get(each, each) for each in text)


# `drift` for tools that collect results: what fails is an error, what is left as it is is skipped, the rest a note.


def drift_junit(drifted: Drifted) -> bytes:
    """Return the findings as JUnit XML."""
    return junit(drift_remarks(drifted))


def drift_remarks(drifted: Drifted) -> Remarks:
    """Return every finding, at the place that declares what it is about where something is planned for it."""
    plan = drifted.planned.plan
    sources = {action.address: action.source for action in plan.actions if action.source}
    failing = drifted.failing_marks
    rows = [*map(of_error, drifted.errors), *(_of(item, sources, failing) for item in drifted.findings)]
    return Remarks("drift", plan.workspace, plan.environment, plan.tool, in_order(rows))


def _of(found: DriftItem, sources: Mapping[Address, str], failing: AbstractSet[str]) -> Remark:
    kind = found.kind.replace(" ", "-")
    return Remark(
        rule="drift" if kind == "drift" else f"drift-{kind}",
        level="error" if found.fingerprint in failing else "note",
        name=f"{kind}:{found.address} {found.path}".rstrip(),
        about=found.address,
        message=f"{found.address}: {what_of(found)}",
        source=sources.get(found.address),
        fingerprint=found.fingerprint,
        is_skipped=found.ignored is not None,
    )
