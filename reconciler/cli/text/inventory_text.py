"""`show`, `explain` and `graph` as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from reconciler.cli.text.action_words import choose_action_mark, format_headline, format_note, name_action
from reconciler.cli.text.amounts import format_field_value, format_quota_usage
from reconciler.cli.text.lines import EMPTY, Line, Span, Tone, align_rows, make_line, make_table
from reconciler.cli.text.markdown import escape_mermaid_label
from reconciler.cli.text.sections import format_drift_change, format_waiting
from reconciler.cli.text.topics_text import DEFAULT_ORIGINS, format_acl_table, format_hidden_defaults
from reconciler.operations.steps.effective import TieringRow, list_own_rules
from reconciler.planning.actions import Action, Forget, Reason, Transition
from reconciler.planning.fields import CONFIGS
from reconciler.resources.acls import ACLS
from reconciler.resources.configs import DEFAULT, format_value
from reconciler.resources.mount import Mounting
from reconciler.runtime.text import escape_invisible, shorten_run_id

if TYPE_CHECKING:
    from reconciler.operations.show import Arrow, ExplainedResource, Node, Picture, ResourceView
    from reconciler.resources.inventory import Recorded, Resource


_ABSENT_MARK: Final = "·"
_UNMOUNTED: Final = "it is unmounted, and compared once it is mounted"
_HEADINGS: Final = ("field", "files", "state", "cluster")
_MIRRORS: Final = "mirrorTopics"
"""Field of manifests; states record mirrors separately."""
_NOT_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})


def format_resources(rows: Sequence[ResourceView], *, one: bool) -> list[Line]:
    """Format one resource by field, or a table."""
    if one:
        return [part for row in rows for part in format_resource(row)]
    if not rows:
        return [make_line("Nothing is declared, recorded or observed.")]
    ticks = [
        (
            row.address,
            _mark_presence(row.desired),
            _mark_presence(row.recorded),
            _mark_presence(row.observed),
            row.source or "",
        )
        for row in rows
    ]
    if not any(row.owner is not None and not row.is_ours for row in rows):
        return make_table(("address", "files", "state", "cluster", "declared in"), ticks)
    owned = [(*tick, _format_owner(row)) for tick, row in zip(ticks, rows, strict=True)]
    return make_table(("address", "files", "state", "cluster", "declared in", "owner"), owned)


def format_resource(shown: ResourceView, origins: Mapping[str, str] | None = None) -> list[Line]:
    """Format a resource by field, with values' `origins`."""
    sides = [
        list_resource_fields(shown.desired),
        list_resource_fields(shown.recorded.resource if shown.recorded else None),
    ]
    sides.append(list_resource_fields(shown.observed.resource if shown.observed else None))
    paths = sorted({path for side in sides for path in side if side[path] != []})
    headings = (*_HEADINGS, "comes from") if origins is not None else _HEADINGS
    rows = [_build_field_cells(path, shown, sides, origins) for path in paths]
    return [
        make_line(Span(shown.address, Tone.STRONG)),
        *_format_facts(shown),
        *([EMPTY, *make_table(headings, rows)] if rows else []),
    ]


def format_explanation(explained: ExplainedResource, *, is_whole: bool = False) -> list[Line]:
    """Format values with origins, effective configs, and planned actions with reasons.

    `is_whole` includes configs at their defaults.
    """
    lines = format_resource(explained.shown, explained.origins)
    if explained.effective:
        places = explained.effective_origins
        keys = [key for key in sorted(explained.effective) if is_whole or places[key] not in DEFAULT_ORIGINS]
        acting = [(key, format_value(key, explained.effective[key]), places[key]) for key in keys]
        lines += [EMPTY, *make_table(("config", "acts as", "comes from"), acting)] if acting else []
        lines += format_hidden_defaults(len(explained.effective) - len(keys))
    lines += _format_tiering(explained)
    lines += format_acl_table(explained.acls)
    for action in explained.actions:
        lines += [EMPTY, *format_planned_action(action)]
    lines += [make_line("  drift  ", format_drift_change(finding)) for finding in explained.drift]
    lines += [make_line("  held  ", f"{held.message}. {held.hint}") for held in explained.held]
    lines += [make_line("  waiting  ", format_waiting(item)) for item in explained.waiting]
    lines += [make_line(Span("  error  ", Tone.DANGER), f"{item.message}. {item.hint}") for item in explained.errors]
    if not (explained.actions or explained.drift or explained.held or explained.waiting or explained.errors):
        agree = "files, state and cluster agree" if explained.shown.unmounted is None else _UNMOUNTED
        lines += [EMPTY, make_line(f"Nothing is planned: {agree}.")]
    return lines


def _format_tiering(explained: ExplainedResource) -> list[Line]:
    rows: list[tuple[str | Span, ...]] = [_build_tiering_row(row, row.rule, Tone.PLAIN) for row in explained.tiering]
    rows += [_build_tiering_row(row, f"once applied: {row.rule}", Tone.CHANGE) for row in explained.tiering_planned]
    return [EMPTY, *make_table(("tiering", "acts as", "by which rule"), rows)] if rows else []


def _build_tiering_row(row: TieringRow, rule: str, tone: Tone) -> tuple[Span, ...]:
    return tuple(Span(text, tone) for text in (row.key, format_value(row.key, row.value), rule))


def format_planned_action(action: Action) -> list[Line]:
    """Format an action with reasons, risk, dependencies and blocking guard."""
    sign, tone = choose_action_mark(action)
    lines = [make_line("Planned  ", Span(f"{sign} {name_action(action)}", tone), f"  {format_headline(action)}")]
    facts = {
        "because": ", ".join(_name_reason(reason, action) for reason in action.reasons),
        "risk": "" if action.risk == "none" else f"{action.risk}: {format_note(action)}",
        "moves": format_note(action) if isinstance(action, Transition) and action.risk == "none" else "",
        "leaves": format_note(action) if isinstance(action, Forget) and action.estimate.location else "",
        "after": ", ".join(action.depends_on),
        "blocked": f"{action.blocked.guard}: {action.blocked.message}" if action.blocked else "",
        "allow with": f"--allow {action.blocked.allow}" if action.blocked and action.blocked.allow else "",
        "instead": (action.blocked.instead or "") if action.blocked else "",
    }
    return [*lines, *(make_line(Span(f"  {word:<11}", Tone.QUIET), text) for word, text in facts.items() if text)]


def _name_reason(reason: Reason, action: Action) -> str:
    if reason is Reason.ROLE_WANTED and isinstance(action, Transition) and isinstance(action.after, Mounting):
        return f"{action.to_state} is wanted"
    return reason.value.replace("_", " ")


def list_resource_fields(resource: Resource | None) -> dict[str, Any]:
    """List a resource's fields by path: `partitions`, `configs.retention.ms`."""
    if resource is None:
        return {}
    rules = {path: list(operations) for path, operations in list_own_rules(resource).items()}
    return {path: value for path, value in _flatten_fields("", resource.to_json()) if path != "acls"} | rules


def _flatten_fields(prefix: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, inside in value.items():
        if not prefix and key in _NOT_FIELDS:
            continue
        path = key if prefix in ("", "spec") else f"{prefix}.{key}"
        if isinstance(inside, dict):
            yield from _flatten_fields(path, inside)
        else:
            yield path, inside


def _is_different(path: str, shown: ResourceView, sides: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the cluster differs, or lacks a config or access rule. Other fields may be missing.

    `sides` are files, state and cluster.
    """
    wanted = next((side[path] for side in sides[:2] if path in side), None)
    if wanted is None or shown.observed is None or path == _MIRRORS:
        return False
    is_config = path.startswith(CONFIGS)
    if path not in sides[2]:
        return path.startswith(ACLS) or (is_config and wanted != DEFAULT and not shown.is_rule)
    return bool(sides[2][path] != wanted)


def _build_field_cells(
    path: str, shown: ResourceView, sides: Sequence[Mapping[str, Any]], origins: Mapping[str, str] | None
) -> list[str | Span]:
    differs = _is_different(path, shown, sides)
    cells: list[str | Span] = [path, *(_format_value_cell(path, side) for side in sides[:2])]
    cells.append(Span(_format_value_cell(path, sides[2]), Tone.CHANGE if differs else Tone.PLAIN))
    if origins is not None:
        cells.append(origins.get(path) or origins.get(f"spec.{path}") or "")
    return cells


def _format_value_cell(path: str, side: Mapping[str, Any]) -> str:
    if path not in side:
        return _ABSENT_MARK
    return format_field_value(path, side[path])


def _format_facts(shown: ResourceView) -> list[Line]:
    facts = {
        "declared in": shown.source or "no file",
        "recorded": _format_recorded(shown.recorded) if shown.recorded else "not ours",
        "observed": _format_observed(shown),
        "id": (shown.observed and shown.observed.incarnation) or "",
        "owner": _format_owner(shown),
        "used": format_quota_usage(shown.quotas),
    }
    return [make_line(Span(f"  {word:<13}", Tone.QUIET), text) for word, text in facts.items() if text]


def _format_owner(shown: ResourceView) -> str:
    return "" if shown.owner is None else "this workspace" if shown.is_ours else str(shown.owner)


def _format_observed(shown: ResourceView) -> str:
    if shown.hidden is not None:
        return f"there, but hidden: {shown.hidden.message}"
    if shown.unmounted is not None:
        other = "; another topic has its name" if shown.observed is not None else ""
        return f"{shown.unmounted.description}{other}; compared once it is mounted"
    return (shown.observed.state or "there") if shown.observed else "not there"


def _format_recorded(recorded: Recorded) -> str:
    run = f" by run {shorten_run_id(recorded.run)}" if recorded.run else ""
    resource = recorded.resource
    is_moved = isinstance(resource, Mounting) and recorded.ownership == "created"
    how = resource.spec.state if isinstance(resource, Mounting) and is_moved else recorded.ownership
    return f"{how}{run}{', protected' if recorded.protect else ''}"


def _mark_presence(value: object) -> str:
    return _ABSENT_MARK if value is None else "✓"


_ITSELF: Final = "by itself"
_EMPTY_TEXTS: Final = {
    "lifecycle": "It has no states.",
    "workspace": "No cluster is declared.",
    "plan": "Nothing is planned.",
}


def format_graph(picture: Picture) -> list[Line]:
    """Format each node's arrows and refused requests."""
    if not picture.nodes:
        return [make_line(_EMPTY_TEXTS[picture.of])]
    blocks = [list(_format_node(picture, node.name)) for node in picture.nodes]
    if picture.of == "lifecycle":
        first = [make_line(Span(picture.name, Tone.STRONG), f": begins {picture.initial}")]
        return [*first, *[row for block in blocks for row in (EMPTY, *block)]]
    return [row for block in blocks for row in block]


def _format_node(picture: Picture, name: str) -> Iterator[Line]:
    yield make_line(Span(name, Tone.STRONG))
    rows = [_build_arrow_cells(picture, arrow) for arrow in picture.arrows if arrow.start == name]
    rows += [
        (Span(refusal.verb), Span("✗", Tone.DANGER), Span(refusal.reason, Tone.QUIET))
        for refusal in picture.refusals
        if refusal.state == name
    ]
    yield from align_rows(rows, indent="  ")


def _build_arrow_cells(picture: Picture, arrow: Arrow) -> tuple[Span, ...]:
    condition = f"where {arrow.condition}" if arrow.condition else ""
    verb = format_arrow_label(arrow)
    if picture.of == "plan":
        return Span("then", Tone.QUIET), Span("→", Tone.MOVE), Span(arrow.end)
    return Span(verb), Span("→", Tone.MOVE), Span(arrow.end), Span(condition, Tone.QUIET)


def format_arrow_label(arrow: Arrow) -> str:
    """Format an arrow's label, with a note if it is automatic."""
    if not arrow.by_itself:
        return arrow.label
    return f"{arrow.label}, {_ITSELF}" if arrow.label else _ITSELF


_MERMAID_SHAPES: Final = {"state": ("(", ")"), "cluster": ("[", "]"), "storage": ("[(", ")]"), "action": ("[", "]")}
_DOT_SHAPES: Final = {"state": "box, style=rounded", "cluster": "box3d", "storage": "cylinder", "action": "box"}


def format_mermaid(picture: Picture) -> str:
    """Format a graph as Mermaid, without a code fence."""
    lines = _draw_state_diagram(picture) if picture.of == "lifecycle" else _draw_flow_chart(picture)
    return "".join(f"{text}\n" for text in lines)


def format_dot(picture: Picture) -> str:
    """Format a graph as Graphviz dot."""
    names = _assign_node_ids(picture)
    lines = [
        f"digraph {_quote(picture.name)} {{",
        f"  rankdir={'TB' if picture.of == 'lifecycle' else 'LR'};",
        *(
            f"  {names[node.name]} [label={_quote(node.name)}, shape={_DOT_SHAPES[node.shape]}];"
            for node in picture.nodes
        ),
        *(
            f"  {names[start]} -> {names[end]} [label={_quote(verb)}{', style=dashed' if by_itself else ''}];"
            for (start, end, by_itself), verb in _merge_arrows(picture).items()
        ),
        "}",
    ]
    return "".join(f"{text}\n" for text in lines)


def _draw_state_diagram(picture: Picture) -> Iterator[str]:
    yield "stateDiagram-v2"
    yield from (f"  {node.name}" for node in picture.nodes)
    if picture.initial is not None:
        yield f"  [*] --> {picture.initial}"
    for (start, end, _), verb in _merge_arrows(picture).items():
        yield f"  {start} --> {end} : {verb}"


def _draw_flow_chart(picture: Picture) -> Iterator[str]:
    names = _assign_node_ids(picture)
    yield "graph LR"
    yield from (f"  {_shape_node(node, names[node.name])}" for node in picture.nodes)
    for (start, end, _), verb in _merge_arrows(picture).items():
        beside = f'|"{escape_mermaid_label(verb)}"|' if verb else ""
        yield f"  {names[start]} -->{beside} {names[end]}"


def _shape_node(node: Node, name: str) -> str:
    before, after = _MERMAID_SHAPES[node.shape]
    return f'{name}{before}"{escape_mermaid_label(node.name)}"{after}'


def _merge_arrows(picture: Picture) -> dict[tuple[str, str, bool], str]:
    labels: dict[tuple[str, str, bool], list[str]] = {}
    for arrow in picture.arrows:
        labels.setdefault((arrow.start, arrow.end, arrow.by_itself), []).append(_format_full_label(arrow))
    return {way: " or ".join(dict.fromkeys(texts)) for way, texts in labels.items()}


def _format_full_label(arrow: Arrow) -> str:
    return f"{format_arrow_label(arrow)} where {arrow.condition}" if arrow.condition else format_arrow_label(arrow)


def _assign_node_ids(picture: Picture) -> dict[str, str]:
    return {node.name: f"n{position}" for position, node in enumerate(picture.nodes)}


def _quote(text: str) -> str:
    safe = escape_invisible(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{safe}"'
