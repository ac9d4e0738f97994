"""`drift` as text: what moved, by class, what fails first, with what each finding says of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from reconciler.cli.render.amounts import count_text, counted
from reconciler.cli.render.findings import finding_line
from reconciler.cli.render.lines import EMPTY, Line, Span, Tone, aligned, line
from reconciler.cli.render.values import field_name, value_text
from reconciler.workflow.drifting.finding import CLASSES

if TYPE_CHECKING:
    from reconciler.workflow.drift import Drifted
    from reconciler.workflow.drifting.finding import DriftClass, Found

_SIGNS: Final[dict[DriftClass, tuple[str, Tone]]] = {
    "drift": ("!", Tone.CHANGE),
    "missing": ("✗", Tone.REMOVE),
    "in doubt": ("⁇", Tone.CHANGE),
    "blocked": ("✗", Tone.DANGER),
    "pending": ("~", Tone.QUIET),
    "unmanaged": ("?", Tone.QUIET),
}
_FEW: Final = 3
"""So many resources that nobody declares are named; of more only their number is told, as a plan does."""
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
            sign, tone = _SIGNS[kind]
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


def _named(rows: list[Found], drifted: Drifted) -> tuple[list[Found], int]:
    """Return what is told one by one, and how many more there are that nobody declares.

    A topic that is one of many somebody else's is told by itself only where that fails, or is news.
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


def what_of(found: Found) -> str:
    """Return what a finding says of its resource."""
    match found.kind:
        case "drift":
            before, after = value_text(found.path, found.recorded), value_text(found.path, found.observed)
            left = f"  (left as it is: {found.ignored})" if found.ignored else ""
            origin = f" (from {found.origin})" if found.origin else ""
            return f"{field_name(found.path)}{origin} {before} → {after} on the cluster{left}"
        case "missing" | "in doubt" | "unmanaged" | "pending" | "blocked":
            return found.message
        case _:
            assert_never(found.kind)
