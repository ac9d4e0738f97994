"""Convert plans to canonical JSON, and compute their digest."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final, assert_never

import orjson

from reconciler.planning.actions import (
    ACTIONS,
    Action,
    Adopt,
    Block,
    Change,
    Create,
    Delete,
    Estimate,
    Forget,
    RunJob,
    Transition,
    Update,
)
from reconciler.planning.plan import AppliedCommit, Base, DriftFinding, PlanFinding, UnfinishedTransition
from reconciler.resources.acls import ACLS
from reconciler.resources.address import kind_of
from reconciler.runtime.text import escape_json, format_count, pluralize, to_json_types

if TYPE_CHECKING:
    from reconciler.planning.plan import Plan


FORMAT: Final = "reconciler.plan/1"
_OPTIONS: Final = orjson.OPT_SORT_KEYS


def encode_canonical(value: object) -> bytes:
    """Return the canonical JSON of plain values."""
    return orjson.dumps(value, option=_OPTIONS)


def hash_value(value: object) -> str:
    """Return `sha256:…` of the canonical JSON of a value."""
    return "sha256:" + hashlib.sha256(encode_canonical(value)).hexdigest()


def find_kind_name(action: Action) -> str:
    """Return the name of an action's kind in JSON, such as `create`."""
    return _NAMES[type(action)]


_NAMES: Final = {kind: name for name, kind in ACTIONS.items()}


def list_changes(action: Action) -> tuple[Change, ...]:
    """Return the fields that an action changes."""
    match action:
        case Update() | Adopt() | Transition():
            return action.changes
        case Create() | Delete() | Forget() | RunJob():
            return ()
        case _:
            assert_never(action)


def list_platform_changes(action: Action) -> tuple[Change, ...]:
    """Return the fields that an action changes on the platform."""
    return () if isinstance(action, Adopt) else list_changes(action)


def count_by_kind(plan: Plan) -> dict[str, int]:
    """Return the number of actions of each kind, including zeros."""
    counts = dict.fromkeys(ACTIONS, 0)
    for action in plan.actions:
        counts[find_kind_name(action)] += 1
    return {**counts, "drift": len(plan.drift), "blocked": len(plan.blocked)}


def format_totals(plan: Plan, *, with_blocked: bool = True) -> str:
    """Format a plan's counts: `1 to add, 4 to change · 2 waiting · 2 blocked`."""
    todo = format_planned_counts(plan.actions) or ("" if plan.waiting else "nothing to do")
    parts = [todo] if todo else []
    parts += [f"{format_count(len(plan.waiting))} waiting"] if plan.waiting else []
    parts += [f"{format_count(len(plan.blocked))} blocked"] if plan.blocked and with_blocked else []
    parts += [pluralize(len(plan.errors), "error")] if plan.errors else []
    return " · ".join(parts)


def format_planned_counts(actions: Iterable[Action]) -> str:
    """Format counts: `1 to add, 4 to change`."""
    return _count_words(actions, {name: f"to {todo}" for name, (todo, _) in _WORDS.items()}, ("job", "jobs"))


def format_done_counts(actions: Iterable[Action]) -> str:
    """Format the counts of completed actions: `1 added, 4 changed`."""
    return _count_words(actions, {name: done for name, (_, done) in _WORDS.items()}, ("job done", "jobs done"))


_WORDS: Final = {
    "create": ("add", "added"),
    "update": ("change", "changed"),
    "delete": ("delete", "deleted"),
    "adopt": ("adopt", "adopted"),
    "forget": ("forget", "forgotten"),
    "transition": ("move", "moved"),
}


def _count_words(actions: Iterable[Action], words: Mapping[str, str], jobs: tuple[str, str]) -> str:
    counts = Counter(find_kind_name(action) for action in actions)
    parts = [f"{format_count(counts[name])} {word}" for name, word in words.items() if counts[name]]
    return ", ".join([*parts, pluralize(counts["job"], *jobs)] if counts["job"] else parts)


_SUMMARY_ORDER: Final = ("create", "update", "delete", "transition", "job", "adopt", "forget", "drift", "blocked")


def build_plan_document(plan: Plan) -> dict[str, Any]:
    """Build the document `reconciler.plan/1` of a plan."""
    base, last, counts = plan.base, plan.applied, count_by_kind(plan)
    applied = last and _build_row(last)
    return {
        "format": FORMAT,
        "workspace": plan.workspace,
        "environment": plan.environment,
        "tool": plan.tool,
        "git": {"commit": plan.git_commit, "applied": applied} if plan.git_commit else None,
        "base": base and _build_row(base),
        "back_to": plan.back_to,
        "digest": plan.digest,
        "summary": {name: counts[name] for name in _SUMMARY_ORDER},
        "actions": [build_action_row(action) for action in plan.actions],
        "drift": list(map(_build_row, plan.drift)),
        "waiting": list(map(_build_row, plan.waiting)),
        "unmanaged": list(plan.unmanaged),
        "errors": list(map(_build_row, plan.errors)),
        "warnings": list(map(_build_row, plan.warnings)),
    }


def encode_plan(plan: Plan) -> bytes:
    """Return the output of `plan --format json`. Equal plans have equal output."""
    return escape_json(encode_canonical(build_plan_document(plan))) + b"\n"


def build_action_row(action: Action) -> dict[str, Any]:
    """Build the JSON object of an action."""
    return {
        "id": action.id,
        "address": action.address,
        "cluster": action.cluster,
        "action": find_kind_name(action),
        "verb": action.verb,
        "risk": action.risk.value,
        "reasons": [reason.value for reason in action.reasons],
        "changes": list(map(_build_row, list_changes(action))),
        "after": build_result_json(action),
        "parameters": collect_parameters(action),
        "source": action.declared_at if isinstance(action, RunJob) else action.source,
        "depends_on": list(action.depends_on),
        "wave": action.wave,
        "precondition": action.precondition,
        "estimate": _build_estimate_row(action.estimate),
        "blocked": action.blocked and _build_row(action.blocked),
        "grant": action.granted_by,
        "owner": None if action.owner is None else action.owner.to_json(),
    }


PRINTED_FIELDS: Final[Mapping[type, tuple[str, ...]]] = {
    AppliedCommit: ("commit", "is_newer", "allow"),
    Base: ("lineage", "serial", "sha256"),
    Block: ("guard", "message", "allow", "instead"),
    Change: ("path", "before", "after", "drift", "origin"),
    DriftFinding: ("address", "path", "recorded", "observed", "fingerprint", "ignored", "origin"),
    PlanFinding: ("address", "source", "message", "hint"),
    UnfinishedTransition: ("address", "state", "after"),
}


def _build_row(record: object) -> dict[str, Any]:
    return {name: to_json_types(getattr(record, name)) for name in PRINTED_FIELDS[type(record)]}


_ESTIMATE_FIELDS: Final = tuple(part.name for part in fields(Estimate))


def _build_estimate_row(estimate: Estimate) -> dict[str, Any]:
    row = {name: getattr(estimate, name) for name in _ESTIMATE_FIELDS}
    row["unreadable"] = [asdict(part) for part in estimate.unreadable]
    row["role"] = None if estimate.role is None else asdict(estimate.role)
    row["engine"] = estimate.engine or None
    return row


def compute_digest(actions: Sequence[Action]) -> str:
    """Return the hexadecimal sha256 of the effects of sorted actions."""
    total = hashlib.sha256()
    for action in actions:
        row = [
            action.id,
            build_result_json(action),
            action.verb,
            collect_parameters(action),
            action.risk.value,
            action.precondition,
            action.granted_by,
            *_list_denials(action),
        ]
        total.update(encode_canonical(row))
        total.update(b"\n")
    return total.hexdigest()


def _list_denials(action: Action) -> Iterator[list[list[Any]]]:
    if kind_of(action.address) == "mirror":
        denials = [
            [change.path, to_json_types(change.after)]
            for change in list_changes(action)
            if change.path.startswith(ACLS)
        ]
        if denials:
            yield denials


def build_result_json(action: Action) -> dict[str, Any] | None:
    """Return the JSON of the resource after an action, or `None` after a removal."""
    match action:
        case Create() | Update() | Adopt() | Transition():
            return action.after.to_json()
        case Delete() | Forget() | RunJob():
            return None
        case _:
            assert_never(action)


def collect_parameters(action: Action) -> dict[str, Any]:
    """Return the values besides `after` that determine an action's effect."""
    match action:
        case Create():
            return _sort_values(action.parameters)
        case Transition():
            states = {"machine": action.machine, "from": action.from_state, "to": action.to_state}
            return {**states, **_sort_values(action.parameters)}
        case RunJob():
            return {"job": action.job, "source": action.source, "sink": action.sink, **_sort_values(action.parameters)}
        case Adopt():
            return {"moved_from": action.moved_from} if action.moved_from else {}
        case Update() | Delete() | Forget():
            return {}
        case _:
            assert_never(action)


def _sort_values(parameters: object) -> dict[str, Any]:
    values: dict[str, Any] = to_json_types(parameters)
    return dict(sorted(values.items()))
