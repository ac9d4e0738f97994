"""The rows of a plan by section."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from reconciler.cli.text.action_words import choose_action_mark, format_note, list_headlines, name_action
from reconciler.cli.text.amounts import format_changes, format_field_change, format_field_name, is_nested
from reconciler.cli.text.lines import Tone
from reconciler.planning.actions import (
    Action,
    Change,
    Create,
    RunJob,
    Transition,
    Update,
    is_dangerous,
)
from reconciler.planning.plan import DriftFinding, Plan, PlanFinding, UnfinishedTransition
from reconciler.resources.address import Address, kind_of
from reconciler.resources.mount import MIGRATING
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import format_count, list_first

_MAX_DEPENDENCIES: Final = 2
_MAX_DETAILS: Final = 40


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A row; `action` is `None` for errors, drift and waiting resources."""

    sign: str
    tone: Tone
    name: str
    what: str
    note: str = ""
    blocked: str = ""
    after: str = ""
    action: Action | None = None
    more: tuple[str, ...] = ()

    @property
    def full_text(self) -> str:
        """`what` and `more`, joined."""
        return ", ".join([self.what, *self.more])


@dataclass(frozen=True, slots=True)
class Sections:
    """Rows of a plan by section."""

    errors: tuple[PlanRow, ...]
    danger: tuple[PlanRow, ...]
    changes: tuple[PlanRow, ...]
    jobs: tuple[PlanRow, ...]
    drift: tuple[PlanRow, ...]
    waiting: tuple[PlanRow, ...]


def sort_plan_rows(plan: Plan) -> Sections:
    """Sort a plan's rows into sections, without updates that only revert drift."""
    danger: list[PlanRow] = []
    changes: list[PlanRow] = []
    jobs: list[PlanRow] = []
    drifted = {(finding.address, finding.path) for finding in plan.drift if finding.ignored is None}
    shown: tuple[dict[tuple[str, ...], str], ...] = ({}, {})
    for action in plan.actions:
        if is_dangerous(action):
            danger.append(_build_action_row(action, shown[0]))
        elif isinstance(action, RunJob):
            jobs.append(_build_action_row(action, shown[1]))
        elif not (
            isinstance(action, Update) and all((action.address, change.path) in drifted for change in action.changes)
        ):
            changes.append(_build_action_row(action, shown[1]))
    by_field, made = _index_changes(plan), {action.address for action in plan.actions if isinstance(action, Create)}
    return Sections(
        errors=tuple(_build_error_row(finding) for finding in plan.errors),
        danger=tuple(danger),
        changes=tuple(changes),
        jobs=tuple(jobs),
        drift=tuple(_build_drift_row(finding, by_field, made) for finding in plan.drift),
        waiting=tuple(_build_waiting_row(change) for change in plan.waiting),
    )


def format_drift_change(finding: DriftFinding) -> str:
    """Format drift: `retention.ms 1d → 2d on the cluster`."""
    if not finding.path:
        return "is missing on the cluster"
    moved = format_field_change(finding.path, finding.recorded, finding.observed)
    origin = f" (from {finding.origin})" if finding.origin else ""
    return f"{format_field_name(finding.path)}{origin} {moved} on the cluster"


def format_waiting(wait: UnfinishedTransition) -> str:
    """Format an unfinished transition, and what completes it."""
    if wait.after is not None:
        return f"waits for {wait.after}: `apply` this one once `mount status` no longer lists that one"
    # Both clusters reject records during a reversal.
    shut = "takes no records until then, " if wait.rejects_writes else ""
    if wait.state == MIGRATING or kind_of(wait.address) == "mounting":
        return f"{wait.state.lower()}: how far it is, and what finishes it: reconciler mount status"
    return f"{wait.state.lower()}: {shut}{'its cluster' if wait.is_by_cluster else '`run`'} finishes it"


def _build_action_row(action: Action, shown: dict[tuple[str, ...], str]) -> PlanRow:
    """Omit details that an earlier row shows (`shown`)."""
    sign, tone = choose_action_mark(action)
    what, *more = list_headlines(action)
    if more and isinstance(action, Create):
        first = shown.setdefault(tuple(more), name_action(action))
        if first != name_action(action):
            what, more = f"{what}, the same as {first}", []
        elif len(more) > _MAX_DETAILS:
            more[_MAX_DETAILS:] = [f"and {format_count(len(more) - _MAX_DETAILS)} more, see --format json"]
    return PlanRow(
        sign,
        tone,
        name_action(action),
        what,
        format_note(action),
        _format_block(action),
        _format_wait(action),
        action=action,
        more=tuple(more),
    )


def _format_block(action: Action) -> str:
    if action.blocked is None:
        return f"allowed by {action.granted_by}" if action.granted_by else ""
    # The note names the risk, and the last lines name `--allow`.
    is_said = action.blocked.guard.replace("_", "-") == action.risk.value and action.blocked.allow is not None
    return "blocked" if is_said else f"blocked: {action.blocked.message}"


def _format_wait(action: Action) -> str:
    if not isinstance(action, RunJob | Transition) or not action.depends_on:
        return ""
    names = list(dict.fromkeys(name.partition(":")[2] or name for name in action.depends_on))
    return f"after: {list_first(names, _MAX_DEPENDENCIES, grouping='')}"


def _build_error_row(finding: PlanFinding) -> PlanRow:
    where = finding.source or finding.address or "workspace"
    what = f"{finding.address}: {finding.message}" if finding.address and finding.source else finding.message
    what = what.removeprefix(where).lstrip(": ")
    return PlanRow("✗", Tone.DANGER, where, f"{what}. {finding.hint}")


def _index_changes(plan: Plan) -> Mapping[tuple[str, str], tuple[Update | Transition, Change]]:
    return {
        (action.address, change.path): (action, change)
        for action in plan.actions
        if isinstance(action, Update | Transition)
        for change in action.changes
    }


def _build_drift_row(
    finding: DriftFinding,
    by_field: Mapping[tuple[str, str], tuple[Update | Transition, Change]],
    made: AbstractSet[Address],
) -> PlanRow:
    planned = by_field.get((finding.address, finding.path)) if finding.path and finding.ignored is None else None
    if planned is None:
        what, *more = _list_drift_texts(finding)
        return PlanRow(
            "!", Tone.CHANGE, finding.address, what, _describe_drift_outcome(finding, made), more=tuple(more)
        )
    action, change = planned
    what, *more = format_changes(change)
    done = "set to the files' value" if change.after != finding.recorded else "set back"
    if change.after is None and finding.origin is not None:
        done = f"inherited from {finding.origin} again"
    if action.blocked is not None:
        done = "blocked"
    return PlanRow("!", Tone.CHANGE, finding.address, what, f"{done}; changed on the cluster", more=tuple(more))


def _list_drift_texts(finding: DriftFinding) -> list[str]:
    if not finding.path or not is_nested(finding.recorded, finding.observed):
        return [format_drift_change(finding)]
    origin = f" (from {finding.origin})" if finding.origin else ""
    moved = format_changes(Change(finding.path, finding.recorded, finding.observed))
    return [f"{text} on the cluster{origin}" for text in moved]


def _describe_drift_outcome(finding: DriftFinding, made: AbstractSet[Address]) -> str:
    if finding.ignored is not None:
        return f"left as it is: {finding.ignored}"
    if finding.path:
        return "left as it is"
    return "will be created again" if finding.address in made else "is not created again, empty"


def _build_waiting_row(wait: UnfinishedTransition) -> PlanRow:
    return PlanRow("…", Tone.QUIET, wait.address, format_waiting(wait))
