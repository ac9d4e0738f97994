"""Remarks (findings with rule and level) as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from reconciler.cli.html.report import PageFact, PageRow, Report, build_sections, format_workspace_title
from reconciler.cli.text.lines import Tone
from reconciler.resources.address import Address, cluster_of, kind_of
from reconciler.runtime.text import pluralize

if TYPE_CHECKING:
    from reconciler.cli.text.remarks import Level, Remark, Remarks

_LEVELS: Final[Mapping[Level, tuple[str, Tone]]] = {
    "error": ("✗", Tone.DANGER),
    "warning": ("!", Tone.CHANGE),
    "note": (" ", Tone.QUIET),
}


def build_remarks_report(remarks: Remarks, title: str) -> Report:
    """Build the HTML page of file problems, or of a command's error."""
    errors = sum(remark.level == "error" for remark in remarks.rows)
    return Report(
        title=title,
        subject=format_workspace_title(remarks.workspace, remarks.environment),
        lead=pluralize(len(remarks.rows), "problem"),
        facts=(
            PageFact("workspace", remarks.workspace),
            *((PageFact("environment", remarks.environment),) if remarks.environment else ()),
        ),
        sections=tuple(
            build_sections(
                "Problems", Tone.DANGER if errors else Tone.CHANGE, map(_build_remark_entry, remarks.rows), is_open=True
            )
        ),
        nothing="The files are valid.",
        tool=remarks.tool,
    )


def _build_remark_entry(remark: Remark) -> PageRow:
    sign, tone = _LEVELS[remark.level]
    about = Address(remark.about)
    has_address = "/" in about and not remark.source
    return PageRow(
        sign,
        tone,
        remark.level,
        remark.source or remark.about,
        (remark.message,),
        kind=kind_of(about) if has_address else "",
        cluster=(cluster_of(about) or "") if has_address else "",
        notes=(remark.hint,) if remark.hint else (),
        facts=(("rule", remark.rule),),
        source=remark.source,
    )
