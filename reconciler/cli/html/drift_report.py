"""Drift as an HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from reconciler.cli.html.plan_report import build_error_entry, read_action_owner
from reconciler.cli.html.report import (
    Cells,
    PageFact,
    PageRow,
    PageSection,
    Report,
    build_cells,
    build_sections,
    format_workspace_title,
)
from reconciler.cli.text.action_words import choose_action_mark
from reconciler.cli.text.amounts import format_field_name, format_field_sides, is_nested, list_leaf_changes
from reconciler.cli.text.drift_text import SIGNS, format_drift_finding
from reconciler.cli.text.lines import Tone
from reconciler.operations.drift import CLASSES, DriftClass, DriftItem, DriftResult
from reconciler.planning.actions import Action
from reconciler.resources.address import Address, cluster_of, kind_of
from reconciler.runtime.text import format_count, pluralize, to_json_types

_TITLES: Final = {
    "drift": "Drift",
    "missing": "Missing",
    "in doubt": "In doubt",
    "unmanaged": "Not in the files",
    "pending": "Pending: changed in the files, not applied",
    "blocked": "Blocked",
}


def build_drift_report(drifted: DriftResult) -> Report:
    """Build the HTML page of drift, failing findings first."""
    plan = drifted.planned.plan
    actions = {action.address: action for action in plan.actions}
    counts = [(kind, sum(item.kind == kind for item in drifted.findings)) for kind in CLASSES]
    texts = [f"{format_count(count)} {kind}" for kind, count in counts if count]
    errors = [pluralize(len(drifted.errors), "error")] if drifted.errors else []
    return Report(
        title="Drift of {}",
        subject=format_workspace_title(plan.workspace, plan.environment),
        lead=" · ".join([", ".join(texts) or "nothing found", *errors]),
        facts=tuple(
            PageFact(label, value)
            for label, value in (
                ("workspace", plan.workspace),
                ("environment", plan.environment or ""),
                ("state", f"#{plan.base.serial}" if plan.base else "none yet"),
            )
            if value
        ),
        sections=(
            *build_sections("Not compared", Tone.DANGER, map(build_error_entry, drifted.errors), is_open=True),
            *(
                part
                for fails in (True, False)
                for kind in CLASSES
                for part in _build_class_sections(kind, fails, drifted, actions)
            ),
        ),
        columns=("last applied", "on the cluster"),
        nothing="No drift: clusters are as they were last applied.",
        tool=plan.tool,
    )


def _build_class_sections(
    kind: DriftClass, fails: bool, drifted: DriftResult, actions: Mapping[Address, Action]
) -> Iterator[PageSection]:
    marks = drifted.failing_marks
    rows = [
        _build_finding_entry(item, fails, actions.get(item.address))
        for item in drifted.findings
        if item.kind == kind and (item.fingerprint in marks) is fails
    ]
    title = _TITLES[kind] if fails else f"{_TITLES[kind]}, fails nothing"
    yield from build_sections(title, Tone.DANGER if fails else Tone.STRONG, rows, is_open=fails, grouped=not fails)


def _build_finding_entry(item: DriftItem, fails: bool, action: Action | None) -> PageRow:
    sign, tone = SIGNS[item.kind]
    address = item.address
    return PageRow(
        sign,
        tone,
        item.kind,
        address,
        (format_drift_finding(item),),
        kind=kind_of(address) if "/" in address else "",
        cluster=cluster_of(address) or "",
        owner=read_action_owner(action) if action is not None else "",
        flags=(*(["fails"] if fails else []), *(["ignored"] if item.ignored else [])),
        notes=(f"left as it is: {item.ignored}",) if item.ignored else (),
        fields=tuple(_list_moved_fields(item)),
        facts=(
            *((("planned", f"{choose_action_mark(action)[0]} {action.id}"),) if action is not None else ()),
            ("fingerprint", item.fingerprint),
        ),
        source=action.source if action is not None else None,
    )


def _list_moved_fields(item: DriftItem) -> Iterator[Cells]:
    if not item.path:
        return
    name, recorded, observed = format_field_name(item.path), to_json_types(item.recorded), to_json_types(item.observed)
    if is_nested(recorded, observed):
        for leaf in list_leaf_changes(name, recorded, observed):
            yield build_cells(leaf.place, (leaf.before, leaf.after))
    else:
        yield build_cells(name, format_field_sides(item.path, recorded, observed))
