"""Check that a plan does not exceed the approved plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, assert_never, cast

from reconciler.errors import UserError
from reconciler.planning.actions import Action, Adopt, Block, Delete, Reason, Update, is_dangerous
from reconciler.planning.plan_rows import build_result_json, collect_parameters, find_kind_name, list_changes
from reconciler.planning.saved_plan import PLAN_AGAIN_HINT, build_version_error
from reconciler.resources.address import Address
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import format_bytes, pluralize, to_json_types

if TYPE_CHECKING:
    from reconciler.planning.plan import Plan


class Why(StrEnum):
    """Why an action exceeds the approved plan."""

    NOT_APPROVED = "not_approved"
    RESULT = "result"
    GROUND = "ground"
    RISK = "risk"
    LOSS = "loss"
    BLOCKED = "blocked"
    UNBLOCKED = "unblocked"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Move:
    """A change of one field."""

    before: Any
    """Value on the cluster; null without `has_before`."""
    after: Any
    has_before: bool


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """A field that the approved and the current plan change differently."""

    path: str
    approved: Move | None
    """Null if the approved plan does not change the field."""
    now: Move | None
    """Null if the current plan does not change the field."""


@dataclass(frozen=True, slots=True)
class Difference:
    """An action that exceeds the approved plan."""

    id: str
    address: Address
    action: str
    whys: tuple[Why, ...]
    """Reasons. ground: fields on the cluster changed. blocked: a guard now blocks the action. unblocked: a guard
    blocked the action at approval.
    """
    fields: tuple[FieldDifference, ...]
    risk: str
    approved_risk: str | None
    blocked: Block | None
    source: str | None
    is_dangerous: bool
    instead_of: tuple[str, ...] = ()
    """Approved actions on the same resource that are no longer planned; for a missing action, planned ones."""
    losses: tuple[Losses, Losses] | None = None

    @property
    def message(self) -> str:
        """All reasons as text."""
        return "; ".join(_format_reason(why, self) for why in self.whys)


def describe_difference(
    whys: tuple[Why, ...], approved: Action | None, now: Action, *, instead_of: tuple[str, ...]
) -> Difference:
    """Build an action's difference from its approved form (`None` if not approved)."""
    return Difference(
        id=now.id,
        address=now.address,
        action=find_kind_name(now),
        whys=whys,
        fields=tuple(_find_new_moves(now) if approved is None else _find_field_differences(approved, now)),
        risk=now.risk.value,
        approved_risk=approved.risk.value if approved else None,
        blocked=now.blocked,
        source=now.source,
        is_dangerous=is_dangerous(now),
        instead_of=instead_of,
        losses=None if approved is None else (_collect_losses(approved), _collect_losses(now)),
    )


# Expired bytes are estimated, so a tenth more counts as equal.


class LossKind(StrEnum):
    """Kind of data that an action loses."""

    ROLE = "role"
    UNREADABLE = "unreadable"
    DELETED = "deleted"
    EXPIRING = "expiring"


@dataclass(frozen=True, slots=True)
class Losses:
    """Losses of an action. If `is_known`, the counts are complete."""

    counts: Mapping[LossKind, int | None]
    is_known: bool = True

    def exceeds(self, approved: Losses) -> bool:
        """Return whether these losses exceed the approved ones or can no longer be measured."""
        return bool(tuple(self.find_greater_losses(approved))) or (approved.is_known and not self.is_known)

    def find_greater_losses(self, approved: Losses) -> Iterator[LossKind]:
        """Yield the kinds of greater losses. Approved unknown losses permit any loss."""
        for of, now in self.counts.items():
            before = approved.counts[of]
            if before is not None and (now is None or now > _compute_loss_limit(of, before)):
                yield of


def _compute_loss_limit(of: LossKind, approved: int) -> int:
    return approved + approved // 10 if of is LossKind.EXPIRING else approved


def _collect_losses(action: Action) -> Losses:
    reasons, estimate = action.reasons, action.estimate
    expires = {Reason.RETENTION_LOWERED, Reason.DELETE_ADDED}.intersection(reasons)
    return Losses(
        {
            LossKind.ROLE: 0 if estimate.role is None else estimate.role.lost_offsets,
            LossKind.UNREADABLE: sum(part.stop - part.start for part in estimate.unreadable),
            LossKind.DELETED: estimate.records if isinstance(action, Delete) and Reason.HOLDS_DATA in reasons else 0,
            LossKind.EXPIRING: estimate.bytes - sum(part.bytes for part in estimate.unreadable) if expires else 0,
        },
        is_known=estimate.role is not None or Reason.UNMEASURED not in reasons,
    )


def is_greater_loss(approved: Action, now: Action) -> bool:
    """Return whether `now` would lose more than `approved`."""
    return _collect_losses(now).exceeds(_collect_losses(approved))


def describe_missing(action: Action, *, planned: tuple[str, ...]) -> Difference:
    """Build the difference for an approved action no longer planned."""
    return Difference(
        id=action.id,
        address=action.address,
        action=find_kind_name(action),
        whys=(Why.MISSING,),
        fields=tuple(_collect_planned_moves(action)),
        risk=action.risk.value,
        approved_risk=action.risk.value,
        blocked=None,
        source=action.source,
        is_dangerous=False,
        instead_of=planned,
    )


def _format_reason(why: Why, change: Difference) -> str:
    match why:
        case Why.NOT_APPROVED:
            instead = f", which had {', '.join(change.instead_of)} instead" if change.instead_of else ""
            return f"it was not in the approved plan{instead}"
        case Why.RESULT:
            return "it would lead to something else than was approved"
        case Why.GROUND if change.fields:
            return "what it changes has changed on the cluster since it was approved"
        case Why.GROUND:
            return "it was deleted and created again on the cluster since it was approved"
        case Why.RISK:
            return f"its risk was {change.approved_risk} when it was approved, and is {change.risk} now"
        case Why.LOSS:
            return describe_loss(change)
        case Why.BLOCKED:
            return f"a guard refuses it now: {change.blocked.message}" if change.blocked else "a guard refuses it now"
        case Why.UNBLOCKED:
            return "it was blocked in the approved plan, and is not now"
        case Why.MISSING:
            return describe_missing_action(change)
        case _:
            assert_never(why)


def describe_loss(change: Difference) -> str:
    """Describe how much more is lost than approved."""
    if change.losses is None:
        return ""
    approved, now = change.losses
    says = [_format_more(of, approved, now.counts[of]) for of in now.find_greater_losses(approved)]
    if approved.is_known and not now.is_known:
        says.append("not all that would be lost can be measured now, and it was when it was approved")
    return ", and ".join(says)


def _format_more(of: LossKind, approved: Losses, now: int | None) -> str:
    before = approved.counts[of]
    was = f"{_format_amounts(of, before)[1] if before else 'nothing'} when it was approved"
    if now is None:
        return f"the number of offsets that would be lost is no longer known; {was}"
    if not approved.is_known:
        return f"{_format_amounts(of, now)[0]} now, and when it was approved it could not be told how much"
    return f"{_format_amounts(of, now)[0]} now, and {was}"


def _format_amounts(of: LossKind, count: int) -> tuple[str, str]:
    match of:
        case LossKind.ROLE:
            return f"{pluralize(count, 'offset')} would be lost", f"{count:,}"
        case LossKind.UNREADABLE:
            return f"{pluralize(count, 'offset')} would become unreadable", f"{count:,}"
        case LossKind.DELETED:
            return f"{pluralize(count, 'record')} would be deleted", f"{count:,}"
        case LossKind.EXPIRING:
            return f"about {format_bytes(count)} would expire", f"about {format_bytes(count)}"
        case _:
            assert_never(of)


def describe_missing_action(change: Difference) -> str:
    """Describe an approved action no longer planned."""
    instead = f": instead {', '.join(change.instead_of)}" if change.instead_of else ""
    return f"it was left to do, and is no longer planned{instead}"


def _collect_moves(action: Action) -> dict[str, Move]:
    return {
        change.path: Move(to_json_types(change.before), to_json_types(change.after), has_before=True)
        for change in list_changes(action)
    }


def _find_new_moves(now: Action) -> Iterator[FieldDifference]:
    for path, move in _collect_moves(now).items():
        yield FieldDifference(path, None, move)


def _collect_planned_moves(approved: Action) -> Iterator[FieldDifference]:
    for path, move in _collect_moves(approved).items():
        yield FieldDifference(path, move, None)
    if not list_changes(approved):
        leaves = {
            **_flatten_leaves((build_result_json(approved) or {}).get("spec", {})),
            **collect_parameters(approved),
        }
        for path in sorted(path for path, value in leaves.items() if value not in (None, [], ())):
            yield FieldDifference(path, _read_result(leaves, path), None)


def _find_field_differences(approved: Action, now: Action) -> Iterator[FieldDifference]:
    moved, moves = _collect_moves(approved), _collect_moves(now)
    moved_paths: list[str] = []
    for path in dict.fromkeys([*moves, *moved]):
        if moved.get(path) != moves.get(path):
            moved_paths.append(path)
            yield FieldDifference(path, moved.get(path), moves.get(path))
    before = {**_flatten_leaves(build_result_json(approved) or {}), **collect_parameters(approved)}
    after = {**_flatten_leaves(build_result_json(now) or {}), **collect_parameters(now)}
    for path in sorted({*before, *after}):
        if before.get(path) != after.get(path) and not any(_is_within(outer, path) for outer in moved_paths):
            yield FieldDifference(path, _read_result(before, path), _read_result(after, path))


def _read_result(leaves: Mapping[str, Any], path: str) -> Move | None:
    return Move(None, leaves[path], has_before=False) if path in leaves else None


def _is_within(path: str, outer: str) -> bool:
    return path == outer or path.startswith(f"{outer}.")


_UNNAMED_LEVELS: Final = frozenset({"spec", "metadata"})


def _flatten_leaves(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, item in value.items():
        path = f"{prefix}{key}"
        if isinstance(item, Mapping):
            leaves |= _flatten_leaves(cast("Mapping[str, Any]", item), "" if path in _UNNAMED_LEVELS else f"{path}.")
        else:
            leaves[path] = item
    return leaves


RISKS = ("none", "disruptive", "irreversible", "data-loss")


@dataclass(frozen=True, slots=True)
class SameOrLess:
    """Result of a comparison with the approved plan. Apply requires that `more` is empty."""

    more: tuple[Difference, ...] = ()
    """Actions that exceed the approved plan: dangerous ones first, then in plan order."""
    not_needed: tuple[str, ...] = ()
    """Ids of approved actions that are no longer planned."""

    @property
    def is_allowed(self) -> bool:
        """Whether the current plan does not exceed the approved plan."""
        return not self.more


def compare_plans(approved: Plan, now: Plan) -> SameOrLess:
    """Compare the current plan with the approved plan.

    An action no longer blocked exceeds the approval. An action that only records an approved change does not.
    """
    return compare_actions(approved.actions, now)


def compare_actions(approved: Sequence[Action], now: Plan) -> SameOrLess:
    """Compare the current plan with approved actions."""
    known = {action.id: action for action in approved}
    at: dict[str, list[Action]] = {}
    for agreed in approved:
        at.setdefault(agreed.address, []).append(agreed)
    planned = {action.id for action in now.actions}
    gone: dict[str, list[str]] = {}
    for agreed in approved:
        if agreed.id not in planned:
            gone.setdefault(agreed.address, []).append(agreed.id)
    more: list[Difference] = []
    for action in now.actions:
        if _is_done_already(action, at.get(action.address, ())):
            continue
        before = known.get(action.id)
        if whys := find_excess_reasons(before, action):
            more.append(describe_difference(whys, before, action, instead_of=tuple(gone.get(action.address, ()))))
    more.sort(key=lambda item: not item.is_dangerous)
    return SameOrLess(tuple(more), tuple(sorted(name for names in gone.values() for name in names)))


def _is_done_already(now: Action, approved: Sequence[Action]) -> bool:
    if not isinstance(now, Adopt) or now.reasons != (Reason.RECORD_ONLY,) or now.blocked or now.moved_from:
        return False
    agreed = [earlier for earlier in approved if earlier.blocked is None]
    changes = {change.path: to_json_types(change.after) for earlier in agreed for change in list_changes(earlier)}
    learns_no_more = all(
        change.path in changes and changes[change.path] == to_json_types(change.after) for change in now.changes
    )
    return learns_no_more and any(build_result_json(earlier) == build_result_json(now) for earlier in agreed)


def find_excess_reasons(approved: Action | None, now: Action) -> tuple[Why, ...]:
    """Return why an action exceeds its approved form (`None` if not approved)."""
    if approved is None:
        return (Why.NOT_APPROVED, Why.BLOCKED) if now.blocked else (Why.NOT_APPROVED,)
    whys: list[Why] = []
    is_other = _has_other_result(approved, now) or collect_parameters(approved) != collect_parameters(now)
    if is_other or (approved.precondition == now.precondition and _changes_more(approved, now)):
        whys.append(Why.RESULT)
    if approved.precondition != now.precondition and not (whys and _starts_as_approved(approved, now)):
        whys.append(Why.GROUND)
    if RISKS.index(now.risk.value) > RISKS.index(approved.risk.value):
        whys.append(Why.RISK)
    if now.blocked is None and is_greater_loss(approved, now):
        whys.append(Why.LOSS)
    if now.blocked is not None and approved.blocked is None:
        whys.append(Why.BLOCKED)
    if now.blocked is None and approved.blocked is not None:
        whys.append(Why.UNBLOCKED)
    return tuple(whys)


def _has_other_result(approved: Action, now: Action) -> bool:
    is_equal = getattr(approved, "after", None) == getattr(now, "after", None)
    return not is_equal and build_result_json(approved) != build_result_json(now)


def _changes_more(approved: Action, now: Action) -> bool:
    agreed = [(change.path, to_json_types(change.after)) for change in list_changes(approved)]
    return isinstance(now, Update) and any(
        (moved.path, to_json_types(moved.after)) not in agreed for moved in now.changes
    )


def _starts_as_approved(approved: Action, now: Action) -> bool:
    was = {change.path: to_json_types(change.before) for change in list_changes(approved)}
    changes = list_changes(now)
    if was.keys() == {change.path for change in changes}:
        return False
    return all(
        was[change.path] == to_json_types(change.before) if change.path in was else not change.drift
        for change in changes
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTarget:
    """Workspace, environment and version that apply a saved plan."""

    workspace: str
    environment: str | None
    tool: str


def refuse_foreign_plan(plan: Plan, target: PlanTarget) -> None:
    """Raise `UserError` for a saved plan of another workspace, environment or version."""
    _refuse_difference("workspace", plan.workspace, target.workspace)
    _refuse_difference("environment", plan.environment, target.environment)
    if plan.tool != target.tool:
        raise build_version_error(plan.tool, target.tool)


def refuse_other_commit(plan: Plan, commit: str | None) -> None:
    """Raise `UserError` for a saved plan of another git commit."""
    _refuse_difference("git commit", plan.git_commit, commit)


def refuse_other_state(plan: Plan, lineage: str | None) -> None:
    """Raise `UserError` for a plan based on another state. `lineage` is `None` without a state."""
    if plan.base is None or plan.base.lineage == lineage:
        return
    current = f"another state is there, of lineage {lineage}" if lineage else "no state is there any more"
    raise UserError(
        f"the saved plan was made on the state of lineage {plan.base.lineage}, and {current}",
        hint=f"Check `spec.state`, and who replaced it. {PLAN_AGAIN_HINT}",
    )


def _refuse_difference(what: str, planned: str | None, current: str | None) -> None:
    if planned != current:
        raise UserError(
            f"the saved plan is of {what} {planned or 'none'}, this is {current or 'none'}", hint=PLAN_AGAIN_HINT
        )
