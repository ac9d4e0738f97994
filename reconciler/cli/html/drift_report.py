"""Drift as a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from reconciler.cli.html.plan_report import error_entry, owner_by_labels
from reconciler.cli.html.report import Cells, Entry, Fact, Report, Section, cells, named, section
from reconciler.cli.text.action_words import mark
from reconciler.cli.text.amounts import field_name, is_nested, leaves, moved_values
from reconciler.cli.text.drift_text import SIGNS, what_of
from reconciler.cli.text.lines import Tone
from reconciler.operations.drift import CLASSES, Drifted
from reconciler.planning.actions import Action
from reconciler.resources.address import Address, cluster_of, kind_of
from reconciler.runtime.text import count_text, counted

if TYPE_CHECKING:
    from reconciler.cli.json.checks_json import DriftDocument, FoundPart

_TITLES: Final = {
    "drift": "Drift",
    "missing": "Missing",
    "in doubt": "In doubt",
    "unmanaged": "Not in the files",
    "pending": "Pending: the files say more",
    "blocked": "Blocked",
}


def drift_report(drifted: Drifted, document: DriftDocument) -> Report:
    """Return what moved away from the files as a page: first what makes the command fail."""
    plan = drifted.planned.plan
    actions = {action.address: action for action in plan.actions}
    counts = [(kind, sum(each.kind == kind for each in document.findings)) for kind in CLASSES]
    said = [f"{count_text(count)} {kind}" for kind, count in counts if count]
    errors = [counted(len(drifted.errors), "error")] if drifted.errors else []
    return Report(
        title="Drift of {}",
        subject=named(document.workspace, document.environment),
        lead=" · ".join([", ".join(said) or "nothing found", *errors]),
        facts=tuple(
            Fact(label, value)
            for label, value in (
                ("workspace", document.workspace),
                ("environment", document.environment or ""),
                ("state", f"#{plan.base.serial}" if plan.base else "none yet"),
            )
            if value
        ),
        sections=(
            *section("Not compared", Tone.DANGER, map(error_entry, drifted.errors), is_open=True),
            *(
                found
                for fails in (True, False)
                for kind in CLASSES
                for found in _of_class(kind, fails, document, drifted, actions)
            ),
        ),
        columns=("last applied", "on the cluster"),
        nothing="No drift: clusters are as they were last applied.",
        tool=plan.tool,
    )


def _of_class(
    kind: str, fails: bool, document: DriftDocument, drifted: Drifted, actions: Mapping[Address, Action]
) -> Iterator[Section]:
    rows = [
        _of_finding(part, what_of(item), actions.get(item.address))
        for part, item in zip(document.findings, drifted.findings, strict=True)
        if part.kind == kind and part.fails is fails
    ]
    title = _TITLES[kind] if fails else f"{_TITLES[kind]}, fails nothing"
    yield from section(title, Tone.DANGER if fails else Tone.STRONG, rows, is_open=fails, grouped=not fails)


def _of_finding(part: FoundPart, what: str, action: Action | None) -> Entry:
    sign, tone = SIGNS[part.kind]
    address = Address(part.address)
    return Entry(
        sign,
        tone,
        part.kind,
        part.address,
        (what,),
        kind=kind_of(address) if "/" in address else "",
        cluster=cluster_of(address) or "",
        owner=owner_by_labels(action) if action is not None else "",
        flags=(*(["fails"] if part.fails else []), *(["ignored"] if part.ignored else [])),
        notes=(f"left as it is: {part.ignored}",) if part.ignored else (),
        fields=tuple(_found_fields(part)),
        facts=(
            *((("planned", f"{mark(action)[0]} {action.id}"),) if action is not None else ()),
            ("fingerprint", part.fingerprint),
        ),
        source=action.source if action is not None else None,
    )


def _found_fields(part: FoundPart) -> Iterator[Cells]:
    if not part.path:
        return
    name = field_name(part.path)
    if is_nested(part.recorded, part.observed):
        for leaf in leaves(name, part.recorded, part.observed):
            yield cells(leaf.place, (leaf.before, leaf.after))
    else:
        yield cells(name, moved_values(part.path, part.recorded, part.observed))
