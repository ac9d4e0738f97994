"""Drift as an HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from reconciler.cli.html.plan_report import error_entry, owner_by_labels
from reconciler.cli.html.report import Cells, Entry, Fact, Report, Section, build_sections, cells, workspace_title
from reconciler.cli.text.action_words import action_mark
from reconciler.cli.text.amounts import field_change_values, field_name, is_nested, leaves
from reconciler.cli.text.drift_text import SIGNS, finding_text
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


def drift_report(drifted: DriftResult) -> Report:
    """Return the findings as a page; failing ones first."""
    plan = drifted.planned.plan
    actions = {action.address: action for action in plan.actions}
    counts = [(kind, sum(item.kind == kind for item in drifted.findings)) for kind in CLASSES]
    texts = [f"{format_count(count)} {kind}" for kind, count in counts if count]
    errors = [pluralize(len(drifted.errors), "error")] if drifted.errors else []
    return Report(
        title="Drift of {}",
        subject=workspace_title(plan.workspace, plan.environment),
        lead=" · ".join([", ".join(texts) or "nothing found", *errors]),
        facts=tuple(
            Fact(label, value)
            for label, value in (
                ("workspace", plan.workspace),
                ("environment", plan.environment or ""),
                ("state", f"#{plan.base.serial}" if plan.base else "none yet"),
            )
            if value
        ),
        sections=(
            *build_sections("Not compared", Tone.DANGER, map(error_entry, drifted.errors), is_open=True),
            *(part for fails in (True, False) for kind in CLASSES for part in _of_class(kind, fails, drifted, actions)),
        ),
        columns=("last applied", "on the cluster"),
        nothing="No drift: clusters are as they were last applied.",
        tool=plan.tool,
    )


def _of_class(
    kind: DriftClass, fails: bool, drifted: DriftResult, actions: Mapping[Address, Action]
) -> Iterator[Section]:
    marks = drifted.failing_marks
    rows = [
        _of_finding(item, fails, actions.get(item.address))
        for item in drifted.findings
        if item.kind == kind and (item.fingerprint in marks) is fails
    ]
    title = _TITLES[kind] if fails else f"{_TITLES[kind]}, fails nothing"
    yield from build_sections(title, Tone.DANGER if fails else Tone.STRONG, rows, is_open=fails, grouped=not fails)


def _of_finding(item: DriftItem, fails: bool, action: Action | None) -> Entry:
    sign, tone = SIGNS[item.kind]
    address = item.address
    return Entry(
        sign,
        tone,
        item.kind,
        address,
        (finding_text(item),),
        kind=kind_of(address) if "/" in address else "",
        cluster=cluster_of(address) or "",
        owner=owner_by_labels(action) if action is not None else "",
        flags=(*(["fails"] if fails else []), *(["ignored"] if item.ignored else [])),
        notes=(f"left as it is: {item.ignored}",) if item.ignored else (),
        fields=tuple(_moved_fields(item)),
        facts=(
            *((("planned", f"{action_mark(action)[0]} {action.id}"),) if action is not None else ()),
            ("fingerprint", item.fingerprint),
        ),
        source=action.source if action is not None else None,
    )


def _moved_fields(item: DriftItem) -> Iterator[Cells]:
    if not item.path:
        return
    name, recorded, observed = field_name(item.path), to_json_types(item.recorded), to_json_types(item.observed)
    if is_nested(recorded, observed):
        for leaf in leaves(name, recorded, observed):
            yield cells(leaf.place, (leaf.before, leaf.after))
    else:
        yield cells(name, field_change_values(item.path, recorded, observed))
