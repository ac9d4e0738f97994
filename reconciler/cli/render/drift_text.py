"""`drift` as text: what moved, by class, with what each class means for the exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.cli.render.amounts import count_text, counted
from reconciler.cli.render.findings import finding_line
from reconciler.cli.render.lines import EMPTY, Line, Span, Tone, aligned, line
from reconciler.cli.render.values import field_name, value_text

if TYPE_CHECKING:
    from reconciler.workflow.drift import Drifted, Found

_SIGNS: Final = {
    "drift": ("!", Tone.CHANGE),
    "missing": ("✗", Tone.REMOVE),
    "blocked": ("✗", Tone.DANGER),
    "pending": ("~", Tone.QUIET),
    "unmanaged": ("?", Tone.QUIET),
}


def drift_lines(drifted: Drifted) -> list[Line]:
    """Return what kept us from looking, then every finding under its class, what fails first."""
    findings, errors = drifted.findings, drifted.planned.plan.errors
    lines = [finding_line(error) for error in errors]
    if not findings:
        nothing = "Not all could be compared." if errors else "No drift: clusters are as they were last applied."
        return [*lines, line(nothing)]
    for kind, (sign, tone) in _SIGNS.items():
        rows = [found for found in findings if found.kind == kind]
        if rows:
            lines.append(line(Span(f"{kind.upper():<10}{count_text(len(rows))}", Tone.STRONG)))
            lines += aligned(
                [[Span(f"{sign} {found.address}", tone), Span(_what(found))] for found in rows],
                limits=(72,),
                indent="  ",
            )
    counts = [
        counted(sum(found.kind == kind for found in findings), kind, kind)
        for kind in _SIGNS
        if any(found.kind == kind for found in findings)
    ]
    return [*lines, EMPTY, line(Span("Found: ", Tone.STRONG), ", ".join(counts))]


def _what(found: Found) -> str:
    if found.kind == "drift":
        before, after = value_text(found.path, found.recorded), value_text(found.path, found.observed)
        left = f"  (left as it is: {found.ignored})" if found.ignored else ""
        return f"{field_name(found.path)} {before} → {after} on the cluster{left}"
    return found.message
