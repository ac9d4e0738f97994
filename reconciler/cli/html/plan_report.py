"""Plans as HTML pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.cli.html.report import (
    Cells,
    PageFact,
    PageRow,
    Report,
    build_cells,
    build_sections,
    format_workspace_title,
    read_owner_label,
)
from reconciler.cli.text.amounts import (
    format_field_name,
    format_field_sides,
    format_field_value,
    is_nested,
    list_leaf_changes,
)
from reconciler.cli.text.inventory_text import format_mermaid, list_resource_fields
from reconciler.cli.text.lines import Tone, to_plain_text
from reconciler.cli.text.plan_text import format_rollback_warning
from reconciler.cli.text.sections import PlanRow, Sections, sort_plan_rows
from reconciler.operations.show import draw_plan
from reconciler.planning.actions import Action, Adopt, Change, Create, Delete, Risk, RunJob, Transition, Update
from reconciler.planning.plan_rows import find_kind_name, format_totals, list_changes
from reconciler.resources.address import Address, cluster_of, kind_of
from reconciler.runtime.text import format_bytes, format_count, pluralize

if TYPE_CHECKING:
    from reconciler.planning.plan import Plan, PlanFinding

MOST_DRAWN: Final = 300
"""Maximum actions in a graph; Mermaid draws at most 500 arrows."""
_MAX_GROUPS: Final = 50
_SHORT_DIGEST: Final = 12


def build_plan_report(plan: Plan) -> Report:
    """Build the HTML page of a plan."""
    plan_sections = sort_plan_rows(plan)
    danger = [_build_action_entry(row) for row in plan_sections.danger]
    stuck = [entry for entry in danger if "blocked" in entry.flags]
    return Report(
        title="Plan for {}",
        subject=format_workspace_title(plan.workspace, plan.environment),
        lead=format_totals(plan),
        facts=tuple(_list_plan_facts(plan)),
        sections=(
            *build_sections("Errors", Tone.DANGER, map(build_error_entry, plan.errors), is_open=True),
            *build_sections(
                "Blocked", Tone.DANGER, stuck, is_open=True, hint="Nothing is applied while anything here is blocked."
            ),
            *build_sections(
                "Danger", Tone.DANGER, (entry for entry in danger if "blocked" not in entry.flags), is_open=True
            ),
            *build_sections("Warnings", Tone.CHANGE, map(_build_warning_entry, plan.warnings)),
            *build_sections("Drift", Tone.CHANGE, _build_drift_entries(plan_sections, plan)),
            *build_sections("Waiting", Tone.QUIET, map(_build_waiting_entry, plan_sections.waiting)),
            *build_sections(
                "Changes", Tone.STRONG, (_build_action_entry(row) for row in plan_sections.changes), grouped=True
            ),
            *build_sections("Jobs", Tone.STRONG, (_build_action_entry(row) for row in plan_sections.jobs)),
            *build_sections(
                "Not in the files, left alone", Tone.QUIET, map(_build_unmanaged_entry, plan.unmanaged), grouped=True
            ),
        ),
        nothing="Nothing to do: the clusters match the files.",
        tool=plan.tool,
        remarks=tuple(to_plain_text([entry]).strip() for entry in format_rollback_warning(plan)),
        **_draw_order(plan),
    )


def _list_plan_facts(plan: Plan) -> Iterator[PageFact]:
    yield PageFact("workspace", plan.workspace)
    if plan.environment:
        yield PageFact("environment", plan.environment)
    yield PageFact("state", f"#{plan.base.serial}" if plan.base else "none yet")
    if plan.git_commit:
        yield PageFact("commit", plan.git_commit[:_SHORT_DIGEST], whole=plan.git_commit, is_commit=True)
    yield PageFact("digest", plan.digest[:_SHORT_DIGEST], whole=plan.digest)


def _draw_order(plan: Plan) -> dict[str, Any]:
    picture = draw_plan(plan)
    tied = {name for arrow in picture.arrows for name in (arrow.start, arrow.end)}
    if not tied:
        return {}
    picture = replace(picture, nodes=tuple(node for node in picture.nodes if node.name in tied))
    title: dict[str, Any] = {"picture_title": "What waits for what"}
    if len(tied) > MOST_DRAWN:
        waves = pluralize(len({action.wave for action in plan.actions}), "wave")
        much = f"{pluralize(len(tied), 'action')} in {waves}, with {pluralize(len(picture.arrows), 'arrow')}"
        hint = "Print all with: reconciler graph PLANFILE --format mermaid"
        return {**title, "picture_note": f"This is too much for a picture: {much}. {hint}"}
    note = "As Mermaid, which GitHub, GitLab and Gitea draw in Markdown."
    return {**title, "picture_note": note, "picture": format_mermaid(picture)}


def _build_action_entry(row: PlanRow) -> PageRow:
    action = row.action
    if action is None:
        return _build_waiting_entry(row)
    return PageRow(
        sign=row.sign,
        tone=row.tone,
        verb=find_kind_name(action),
        name=row.name,
        what=(row.what,) if isinstance(action, Create) else (row.what, *row.more),
        key=action.id,
        kind=kind_of(action.address),
        cluster=action.cluster or "",
        owner=read_action_owner(action),
        flags=(*(["blocked"] if action.blocked else []), *(["danger"] if action.risk is not Risk.NONE else [])),
        notes=tuple(filter(None, (row.note, _format_block(row, action)))),
        size=_format_size(action),
        fields=tuple(_list_changed_fields(action)),
        facts=tuple(_list_action_facts(action)),
        copies=tuple(_list_copy_texts(action)),
        after=action.depends_on,
        source=action.declared_at if isinstance(action, RunJob) else action.source,
    )


def read_action_owner(action: Action) -> str:
    """Return the owner label of an action's resource, or ""."""
    match action:
        case Create() | Update() | Adopt() | Transition():
            resource = action.after
        case Delete():
            resource = action.before
        case _:
            return ""
    return read_owner_label(getattr(resource.metadata, "labels", None)) if hasattr(resource, "metadata") else ""


def _format_block(row: PlanRow, action: Action) -> str:
    block = action.blocked
    return row.blocked if block is None else f"blocked ({block.guard.replace('_', ' ')}): {block.message}"


def _format_size(action: Action) -> str:
    estimate = action.estimate
    parts = [format_bytes(estimate.bytes)] if estimate.bytes else []
    parts += [pluralize(estimate.records, "record")] if estimate.records else []
    return ", ".join(parts)


def _list_changed_fields(action: Action) -> Iterator[Cells]:
    for change in list_changes(action):
        yield from _list_change_cells(change)
    if isinstance(action, Create) and not list_changes(action):
        for path, value in list_resource_fields(action.after).items():
            if value not in ([], None):
                yield build_cells(format_field_name(path), (None, format_field_value(path, value)))


def _list_change_cells(change: Change) -> Iterator[Cells]:
    name = format_field_name(change.path)
    if is_nested(change.before, change.after):
        for leaf in list_leaf_changes(name, change.before, change.after):
            yield build_cells(leaf.place, (leaf.before, leaf.after))
        return
    before, after = format_field_sides(change.path, change.before, change.after)
    path = f"{name} (from {change.origin})" if change.origin else name
    yield build_cells(path, (None if change.before is None else before, None if change.after is None else after))


def _list_action_facts(action: Action) -> Iterator[tuple[str, str]]:
    estimate = action.estimate
    if action.reasons:
        yield "because", ", ".join(reason.replace("_", " ").replace("-", " ") for reason in action.reasons)
    if action.risk is not Risk.NONE:
        yield "risk", action.risk.value.replace("-", " ")
    if estimate.groups:
        more = len(estimate.groups) - _MAX_GROUPS
        yield (
            "read by",
            ", ".join(estimate.groups[:_MAX_GROUPS]) + (f" and {format_count(more)} more" if more > 0 else ""),
        )
    if estimate.groups is None:
        yield "read by", "unknown"
    if estimate.location:
        yield "in object storage", estimate.location
    if estimate.engine:
        yield "runs", estimate.engine
    for lost in estimate.unreadable[:_MAX_GROUPS]:
        where = f"{lost.topic}, partition {lost.partition}, offsets {lost.start} to {lost.stop - 1}"
        yield "becomes unreadable", f"{where}, {format_bytes(lost.bytes)}"
    if isinstance(action, Transition):
        yield "leads", f"from {action.from_state} to {action.to_state}"
    yield "wave", str(action.wave)


def _list_copy_texts(action: Action) -> Iterator[tuple[str, str]]:
    block = action.blocked
    if block and block.allow:
        yield "allow once with", f"--allow {block.allow}"
    if block and block.instead:
        yield "keep its records: declare in its place", block.instead


def build_error_entry(finding: PlanFinding) -> PageRow:
    """Build the row of a plan's error."""
    return _build_finding_entry(finding, "✗", Tone.DANGER, "error")


def _build_warning_entry(finding: PlanFinding) -> PageRow:
    return _build_finding_entry(finding, "!", Tone.CHANGE, "warning")


def _build_finding_entry(finding: PlanFinding, sign: str, tone: Tone, verb: str) -> PageRow:
    return PageRow(
        sign,
        tone,
        verb,
        finding.address or finding.source or "workspace",
        (finding.message,),
        kind=_read_kind(finding.address),
        cluster=(cluster_of(finding.address) or "") if finding.address else "",
        notes=(finding.hint,) if finding.hint else (),
        source=finding.source,
    )


def _build_drift_entries(parts: Sections, plan: Plan) -> Iterator[PageRow]:
    rows = (*parts.danger, *parts.changes, *parts.jobs)
    shown = {row.action.id for row in rows if row.action is not None}
    actions = {action.address: action.id for action in plan.actions if action.id not in shown}
    for row, finding in zip(parts.drift, plan.drift, strict=True):
        address = Address(finding.address)
        yield PageRow(
            row.sign,
            row.tone,
            "drift",
            row.name,
            (row.what, *row.more),
            key=actions.pop(finding.address, ""),
            kind=_read_kind(address),
            cluster=cluster_of(address) or "",
            flags=("ignored",) if finding.ignored else (),
            facts=(
                ("last applied", format_field_value(finding.path, finding.recorded)),
                ("on the cluster", format_field_value(finding.path, finding.observed)),
                *((("comes from", finding.origin),) if finding.origin else ()),
            )
            if finding.path
            else (),
        )


def _build_waiting_entry(row: PlanRow) -> PageRow:
    address = Address(row.name)
    return PageRow(
        row.sign,
        row.tone,
        "waiting",
        row.name,
        (row.what, *row.more),
        kind=_read_kind(address),
        cluster=cluster_of(address) or "",
    )


def _build_unmanaged_entry(address: Address) -> PageRow:
    return PageRow("?", Tone.QUIET, "unmanaged", address, kind=_read_kind(address), cluster=cluster_of(address) or "")


def _read_kind(address: Address | None) -> str:
    return kind_of(address) if address and "/" in address else ""
