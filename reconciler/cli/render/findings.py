"""`validate` as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.render.amounts import counted
from reconciler.cli.render.lines import Line, Span, Tone, line

if TYPE_CHECKING:
    from reconciler.planning.plan import Finding
    from reconciler.workflow.validate import Validated


def validated_lines(validated: Validated) -> list[Line]:
    """Return what is wrong, or what was checked."""
    lines = [finding_line(finding) for finding in validated.findings]
    counts = ", ".join(counted(count, kind) for kind, count in validated.counts.items()) or "nothing declared"
    word = "Not valid" if validated.findings else "Valid"
    return [*lines, line(Span(f"{word}: ", Tone.STRONG), f"workspace {validated.workspace}, {counts}")]


def finding_line(finding: Finding) -> Line:
    """Return one finding as compilers print them: where, what, what to do."""
    where = finding.source or finding.address or "workspace"
    about = f"{finding.address}: " if finding.source and finding.address else ""
    return line(Span(f"{where}: ", Tone.STRONG), f"{about}{finding.message}. {finding.hint}")
