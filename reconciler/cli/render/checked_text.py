"""`cluster check` as text: what was done first, then each kind of finding once with why it matters and what to do."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from reconciler.cli.render.amounts import bytes_text, count_text, counted
from reconciler.cli.render.lines import EMPTY, Line, Span, Tone, line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.embedded.checking.check import Checked
    from reconciler.embedded.checking.findings import Finding
    from reconciler.workflow.clusters import CheckedCluster

_SHOWN: Final = 50
"""Findings of one kind; JSON has all."""
_TONES: Final = {"error": Tone.DANGER, "warning": Tone.CHANGE, "note": Tone.QUIET}
_MARKS: Final = {"error": "✗", "warning": "!", "note": "·"}


def checked_text(found: CheckedCluster) -> list[Line]:
    """Return what was looked at, what a repair did, and what was found, the gravest first."""
    checked = found.checked
    lines = [
        line(Span(found.address, Tone.STRONG), f"  {found.url}"),
        line(f"  {_counts(checked)}"),
    ]
    if found.mended:
        lines += [EMPTY, line(Span("MENDED", Tone.ADD))]
        lines += [line("  ", Span("✓ ", Tone.ADD), each.what) for each in found.mended]
    for _, group in groupby(checked.findings, key=lambda finding: finding.kind):
        lines += [EMPTY, *_of_kind(list(group))]
    if checked.left_out:
        lines += [EMPTY, line(f"and {counted(checked.left_out, 'finding')} more")]
    return [*lines, EMPTY, _verdict(checked)]


def _counts(checked: Checked) -> str:
    parts = [
        counted(checked.namespaces, "namespace"),
        counted(checked.topics, "topic"),
        f"{counted(checked.partitions, 'partition')} written",
        counted(checked.parts, "part"),
        counted(checked.records, "record"),
        counted(checked.groups, "group"),
        counted(checked.transactions, "transaction"),
        f"{counted(checked.objects, 'object')} of {bytes_text(checked.stored_bytes)}",
    ]
    return ", ".join(parts)


def _of_kind(findings: Sequence[Finding]) -> Iterator[Line]:
    rule, severity = findings[0].rule, findings[0].severity
    tone = _TONES[severity]
    yield line(Span(f"{severity.upper()} {findings[0].kind}", tone), f"  {count_text(len(findings))}")
    for finding in findings[:_SHOWN]:
        yield line("  ", Span(f"{_MARKS[severity]} ", tone), _where(finding), finding.what)
    if len(findings) > _SHOWN:
        yield line(f"    and {count_text(len(findings) - _SHOWN)} more; --format json has all")
    yield line("    ", Span("why: ", Tone.QUIET), rule.matters)
    yield line("    ", Span("do: ", Tone.QUIET), rule.advice)


def _where(finding: Finding) -> str:
    place = finding.place
    if place.partition is None:
        return f"{place.key}: " if place.topic is None else f"{place.topic}: "
    offsets = "".join(f", offsets {each.start:,} to {each.stop - 1:,}" for each in finding.gone)
    return f"{place.topic or 'a topic that is gone'}, partition {place.partition}{offsets}: {place.key}: "


def _verdict(checked: Checked) -> Line:
    counts = [
        counted(number, severity)
        for severity in _TONES
        if (number := sum(finding.severity == severity for finding in checked.findings))
    ]
    if checked.errors:
        return line(Span("Not consistent: ", Tone.DANGER), ", ".join(counts))
    return line(Span("Consistent", Tone.ADD), f": {', '.join(counts)}" if counts else "")
