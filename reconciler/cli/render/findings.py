"""`validate` as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.cli.render.amounts import counted
from reconciler.cli.render.lines import Line, Span, Tone, line

if TYPE_CHECKING:
    from reconciler.planning.finding import Finding
    from reconciler.workflow.validate import Validated


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


def validated_lines(validated: Validated) -> list[Line]:
    """Return what is wrong, or what was checked."""
    lines = [finding_line(finding) for finding in validated.findings]
    kinds = [counted(count, _NOUNS.get(kind, kind), _PLURALS.get(kind)) for kind, count in validated.counts.items()]
    word = "Not valid" if validated.findings else "Valid"
    held = ", ".join(kinds) or "nothing declared"
    return [*lines, line(Span(f"{word}: ", Tone.STRONG), f"workspace {validated.workspace}, {held}")]


def finding_line(finding: Finding) -> Line:
    """Return one finding as compilers print them: where, what, what to do."""
    where = finding.source or finding.address or "workspace"
    about = f"{finding.address}: " if finding.source and finding.address else ""
    return line(Span(f"{where}: ", Tone.STRONG), f"{about}{finding.message}. {finding.hint}")
