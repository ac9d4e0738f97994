"""Compare plans: is this plan the same as the approved one, or less?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, assert_never, cast

from reconciler.errors import UserError
from reconciler.planning.actions import Action, Adopt, Block, Delete, Reason, Update, is_dangerous
from reconciler.planning.plan_rows import after_of, changes_of, name_of, parameters_of
from reconciler.planning.saved_plan import AGAIN, another_version
from reconciler.resources.address import Address
from reconciler.runtime.text import bytes_text, counted, plain

if TYPE_CHECKING:
    from reconciler.planning.plan import Plan


# One action that is not what was approved: why not, and field by field what was approved and what would happen now.


class Why(StrEnum):
    """In what an action is more than was approved."""

    NOT_APPROVED = "not_approved"
    RESULT = "result"
    """It would lead to something else."""
    GROUND = "ground"
    """What it rests on has changed on the cluster."""
    RISK = "risk"
    """It is more dangerous."""
    LOSS = "loss"
    """More would be lost."""
    BLOCKED = "blocked"
    """A guard refuses it, and did not."""
    UNBLOCKED = "unblocked"
    """A guard refused it, so nobody agreed to it."""
    MISSING = "missing"
    """It was left to do, has not happened, and is planned no more."""


@dataclass(frozen=True, slots=True)
class Move:
    """What happens to one field. `before` counts only where the action says it: a field that is made has none."""

    before: Any
    after: Any
    has_before: bool


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One field as it was approved and as it would be now; `None`: it is left alone on that side."""

    path: str
    approved: Move | None
    now: Move | None


@dataclass(frozen=True, slots=True)
class Difference:
    """An action that was not approved as it is now."""

    id: str
    address: Address
    action: str
    whys: tuple[Why, ...]
    fields: tuple[FieldDifference, ...]
    risk: str
    approved_risk: str | None
    blocked: Block | None
    source: str | None
    is_dangerous: bool
    instead_of: tuple[str, ...] = ()
    """Approved actions on the same resource that are not planned any more."""
    losses: tuple[Losses, Losses] | None = None
    """What would be lost, as it was approved and now; `None`: it was not approved at all."""

    @property
    def message(self) -> str:
        """Every way in which it is more, in words."""
        return "; ".join(_words(why, self) for why in self.whys)


def difference(
    whys: tuple[Why, ...], approved: Action | None, now: Action, *, instead_of: tuple[str, ...]
) -> Difference:
    """Return what differs between an action as it was approved (`None`: it was not) and as it is planned now."""
    return Difference(
        id=now.id,
        address=now.address,
        action=name_of(now),
        whys=whys,
        fields=tuple(_moves(now) if approved is None else _fields(approved, now)),
        risk=now.risk.value,
        approved_risk=approved.risk.value if approved else None,
        blocked=now.blocked,
        source=now.source,
        is_dangerous=is_dangerous(now),
        instead_of=instead_of,
        losses=None if approved is None else (_losses(approved), _losses(now)),
    )


# What an approved action and the same action now would lose. What can be counted is compared exactly. What expires by
# a shorter retention is an estimate of a topic that is written all the time: it may be a tenth more (decision 45).


class LossOf(StrEnum):
    """What is counted of a loss."""

    ROLE = "role"
    """Offsets that another role of a mirror loses."""
    UNREADABLE = "unreadable"
    """Offsets in object storage alone that are deleted there."""
    DELETED = "deleted"
    """Records of a topic that is deleted."""
    EXPIRING = "expiring"
    """Bytes that expire by a shorter retention."""


@dataclass(frozen=True, slots=True)
class Losses:
    """What an action would lose. `is_known` is false where not all of it was measured; then the counts are the rest."""

    counts: Mapping[LossOf, int | None]
    """`None`: we cannot tell how much."""
    is_known: bool = True

    def is_more_than(self, approved: Losses) -> bool:
        """Tell whether this is more than was approved; what cannot be told any more is more."""
        return bool(tuple(self.beyond(approved))) or (approved.is_known and not self.is_known)

    def beyond(self, approved: Losses) -> Iterator[LossOf]:
        """Yield what would be more. A role of which the loss could not be told was approved with whatever it loses."""
        for of, now in self.counts.items():
            before = approved.counts[of]
            if before is not None and (now is None or now > _most(of, before)):
                yield of


def _most(of: LossOf, approved: int) -> int:
    return approved + approved // 10 if of is LossOf.EXPIRING else approved


def _losses(action: Action) -> Losses:
    reasons, estimate = action.reasons, action.estimate
    expires = {Reason.RETENTION_LOWERED, Reason.DELETE_ADDED}.intersection(reasons)
    return Losses(
        {
            LossOf.ROLE: 0 if estimate.role is None else estimate.role.lost_offsets,
            LossOf.UNREADABLE: sum(part.stop - part.start for part in estimate.unreadable),
            LossOf.DELETED: estimate.records if isinstance(action, Delete) and Reason.HOLDS_DATA in reasons else 0,
            LossOf.EXPIRING: estimate.bytes - sum(part.bytes for part in estimate.unreadable) if expires else 0,
        },
        is_known=estimate.role is not None or Reason.UNMEASURED not in reasons,
    )


def loses_more(approved: Action, now: Action) -> bool:
    """Tell whether more would be lost than was approved."""
    return _losses(now).is_more_than(_losses(approved))


def missing(action: Action, *, planned: tuple[str, ...]) -> Difference:
    """Return an approved action that is planned no more; `planned`: what is, on the same resource."""
    return Difference(
        id=action.id,
        address=action.address,
        action=name_of(action),
        whys=(Why.MISSING,),
        fields=tuple(_would_have(action)),
        risk=action.risk.value,
        approved_risk=action.risk.value,
        blocked=None,
        source=action.source,
        is_dangerous=False,
        instead_of=planned,
    )


def _words(why: Why, found: Difference) -> str:
    match why:
        case Why.NOT_APPROVED:
            instead = f", which had {', '.join(found.instead_of)} instead" if found.instead_of else ""
            return f"it was not in the approved plan{instead}"
        case Why.RESULT:
            return "it would lead to something else than was approved"
        case Why.GROUND if found.fields:
            return "what it changes has changed on the cluster since it was approved"
        case Why.GROUND:
            return "it was deleted and made again on the cluster since it was approved"
        case Why.RISK:
            return f"its risk was {found.approved_risk} when it was approved, and is {found.risk} now"
        case Why.LOSS:
            return loss_words(found)
        case Why.BLOCKED:
            return f"a guard refuses it now: {found.blocked.message}" if found.blocked else "a guard refuses it now"
        case Why.UNBLOCKED:
            return "it was blocked in the approved plan, and is not now"
        case Why.MISSING:
            return missing_words(found)
        case _:
            assert_never(why)


def loss_words(found: Difference) -> str:
    """Say how much more would be lost than was approved."""
    if found.losses is None:
        return ""
    approved, now = found.losses
    says = [_more_words(of, approved, now.counts[of]) for of in now.beyond(approved)]
    if approved.is_known and not now.is_known:
        says.append("not all that would be lost can be measured now, and it was when it was approved")
    return ", and ".join(says)


def _more_words(of: LossOf, approved: Losses, now: int | None) -> str:
    before = approved.counts[of]
    was = f"{_amount(of, before)[1] if before else 'nothing'} when it was approved"
    if now is None:
        return f"it cannot be told any more how many offsets would be lost; {was}"
    if not approved.is_known:
        return f"{_amount(of, now)[0]} now, and when it was approved it could not be told how much"
    return f"{_amount(of, now)[0]} now, and {was}"


def _amount(of: LossOf, count: int) -> tuple[str, str]:
    """Return how much is lost: with what happens to it, and alone."""
    match of:
        case LossOf.ROLE:
            return f"{counted(count, 'offset')} would be lost", f"{count:,}"
        case LossOf.UNREADABLE:
            return f"{counted(count, 'offset')} would become unreadable", f"{count:,}"
        case LossOf.DELETED:
            return f"{counted(count, 'record')} would be deleted", f"{count:,}"
        case LossOf.EXPIRING:
            return f"about {bytes_text(count)} would expire", f"about {bytes_text(count)}"
        case _:
            assert_never(of)


def missing_words(found: Difference) -> str:
    """Say what became of an approved action that is planned no more."""
    instead = f": instead {', '.join(found.instead_of)}" if found.instead_of else ""
    return f"it was left to do, and is no longer planned{instead}"


def _moves_of(action: Action) -> dict[str, Move]:
    return {
        change.path: Move(plain(change.before), plain(change.after), has_before=True) for change in changes_of(action)
    }


def _moves(now: Action) -> Iterator[FieldDifference]:
    """Yield what an action moves that was not approved at all."""
    for path, move in _moves_of(now).items():
        yield FieldDifference(path, None, move)


def _would_have(approved: Action) -> Iterator[FieldDifference]:
    """Yield what an action would have moved, or have made."""
    for path, move in _moves_of(approved).items():
        yield FieldDifference(path, move, None)
    if not changes_of(approved):
        leaves = {**_leaves((after_of(approved) or {}).get("spec", {})), **parameters_of(approved)}
        for path in sorted(path for path, value in leaves.items() if value not in (None, [], ())):
            yield FieldDifference(path, _becomes(leaves, path), None)


def _fields(approved: Action, now: Action) -> Iterator[FieldDifference]:
    """Yield what moves otherwise than approved, then what would be otherwise without moving."""
    moved, moves = _moves_of(approved), _moves_of(now)
    said: list[str] = []
    for path in dict.fromkeys([*moves, *moved]):
        if moved.get(path) != moves.get(path):
            said.append(path)
            yield FieldDifference(path, moved.get(path), moves.get(path))
    before = {**_leaves(after_of(approved) or {}), **parameters_of(approved)}
    after = {**_leaves(after_of(now) or {}), **parameters_of(now)}
    for path in sorted({*before, *after}):
        if before.get(path) != after.get(path) and not any(_is_within(each, path) for each in said):
            yield FieldDifference(path, _becomes(before, path), _becomes(after, path))


def _becomes(leaves: Mapping[str, Any], path: str) -> Move | None:
    return Move(None, leaves[path], has_before=False) if path in leaves else None


def _is_within(path: str, outer: str) -> bool:
    return path == outer or path.startswith(f"{outer}.")


_OUTER: Final = frozenset({"spec", "metadata"})


def _leaves(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a resource's JSON field by field, as changes name them: `configs.retention.ms`, not `spec.configs…`."""
    found: dict[str, Any] = {}
    for key, item in value.items():
        path = f"{prefix}{key}"
        if isinstance(item, Mapping):
            found |= _leaves(cast("Mapping[str, Any]", item), "" if path in _OUTER else f"{path}.")
        else:
            found[path] = item
    return found


RISKS = ("none", "disruptive", "irreversible", "data-loss")
"""Mildest first."""


@dataclass(frozen=True, slots=True)
class SameOrLess:
    """What is more than was approved (then nothing may be done), and what is no longer needed."""

    more: tuple[Difference, ...] = ()
    """What is dangerous now first, then in the order of the plan."""
    not_needed: tuple[str, ...] = ()

    @property
    def is_allowed(self) -> bool:
        """Tell whether what is planned now is the same as what was approved, or less."""
        return not self.more


def compare(approved: Plan, now: Plan) -> SameOrLess:
    """Return how a plan made now differs from the approved one: same id, same result, resting on the same fields.

    An action that a guard refuses now, and refused when it was approved, is no difference: it is blocked. One that was
    blocked and is not now is more: nobody agreed to it. Where somebody else did what was approved to what is ours, the
    record learns it: that is less.
    """
    return compare_actions(approved.actions, now)


def compare_actions(approved: Sequence[Action], now: Plan) -> SameOrLess:
    """Return the same of actions that were approved, wherever they stand."""
    known = {action.id: action for action in approved}
    at: dict[str, list[Action]] = {}
    for each in approved:
        at.setdefault(each.address, []).append(each)
    planned = {action.id for action in now.actions}
    gone: dict[str, list[str]] = {}
    for each in approved:
        if each.id not in planned:
            gone.setdefault(each.address, []).append(each.id)
    more: list[Difference] = []
    for action in now.actions:
        if _is_done_already(action, at.get(action.address, ())):
            continue
        before = known.get(action.id)
        if whys := whys_of(before, action):
            more.append(difference(whys, before, action, instead_of=tuple(gone.get(action.address, ()))))
    more.sort(key=lambda found: not found.is_dangerous)
    return SameOrLess(tuple(more), tuple(sorted(name for names in gone.values() for name in names)))


def _is_done_already(now: Action, approved: Sequence[Action]) -> bool:
    """Tell whether only the record is left to learn what approved actions on the same resource would have led to."""
    if not isinstance(now, Adopt) or now.reasons != (Reason.RECORD_ONLY,) or now.blocked or now.moved_from:
        return False
    agreed = [each for each in approved if each.blocked is None]
    changes = {change.path: plain(change.after) for each in agreed for change in changes_of(each)}
    learns_no_more = all(
        change.path in changes and changes[change.path] == plain(change.after) for change in now.changes
    )
    return learns_no_more and any(after_of(each) == after_of(now) for each in agreed)


def whys_of(approved: Action | None, now: Action) -> tuple[Why, ...]:
    """Return in what an action is more than was approved (`None`: it was not); nothing where it is not."""
    if approved is None:
        return (Why.NOT_APPROVED, Why.BLOCKED) if now.blocked else (Why.NOT_APPROVED,)
    found: list[Why] = []
    is_other = _has_other_result(approved, now) or parameters_of(approved) != parameters_of(now)
    if is_other or (approved.precondition == now.precondition and _moves_more(approved, now)):
        found.append(Why.RESULT)
    if approved.precondition != now.precondition and not (found and _stands_as_approved(approved, now)):
        found.append(Why.GROUND)
    if RISKS.index(now.risk.value) > RISKS.index(approved.risk.value):
        found.append(Why.RISK)
    if now.blocked is None and loses_more(approved, now):
        found.append(Why.LOSS)
    if now.blocked is not None and approved.blocked is None:
        found.append(Why.BLOCKED)
    if now.blocked is None and approved.blocked is not None:
        found.append(Why.UNBLOCKED)
    return tuple(found)


def _has_other_result(approved: Action, now: Action) -> bool:
    """Compare the resources first: their JSON takes longer, and differs only where they do."""
    is_equal = getattr(approved, "after", None) == getattr(now, "after", None)
    return not is_equal and after_of(approved) != after_of(now)


def _moves_more(approved: Action, now: Action) -> bool:
    """Tell whether an update moves a field that was not agreed to; whom a mirror denies to write is in no `after`."""
    agreed = [(change.path, plain(change.after)) for change in changes_of(approved)]
    return isinstance(now, Update) and any((each.path, plain(each.after)) not in agreed for each in now.changes)


def _stands_as_approved(approved: Action, now: Action) -> bool:
    """Tell whether only the files ask for other fields: what both change is as it was, and what is new is no drift."""
    was = {change.path: plain(change.before) for change in changes_of(approved)}
    changes = changes_of(now)
    if was.keys() == {change.path for change in changes}:
        return False
    return all(
        was[change.path] == plain(change.before) if change.path in was else not change.drift for change in changes
    )


# A saved plan belongs to one workspace, one environment, one version, one state: anywhere else it is refused.


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """Where a saved plan is about to be applied."""

    workspace: str
    environment: str | None
    tool: str


def refuse_foreign(plan: Plan, here: Here) -> None:
    """Refuse a saved plan of another workspace, environment or version.

    Raises:
        UserError: Says which of them differs.
    """
    _refuse("workspace", plan.workspace, here.workspace)
    _refuse("environment", plan.environment, here.environment)
    if plan.tool != here.tool:
        raise another_version(plan.tool, here.tool)


def refuse_other_commit(plan: Plan, commit: str | None) -> None:
    """Refuse a saved plan of another git commit than the files are at.

    Raises:
        UserError: Says both.
    """
    _refuse("git commit", plan.git_commit, commit)


def refuse_other_state(plan: Plan, lineage: str | None) -> None:
    """Refuse a plan made on a state that is not the one there is now: it was replaced, or is gone (`None`).

    A plan made where there was no state yet fits the first one.

    Raises:
        UserError: Says both lineages.
    """
    if plan.base is None or plan.base.lineage == lineage:
        return
    found = f"another state is there, of lineage {lineage}" if lineage else "no state is there any more"
    raise UserError(
        f"the saved plan was made on the state of lineage {plan.base.lineage}, and {found}",
        hint=f"Check `spec.state`, and who replaced it. {AGAIN}",
    )


def _refuse(what: str, there: str | None, here: str | None) -> None:
    if there != here:
        raise UserError(f"the saved plan is of {what} {there or 'none'}, this is {here or 'none'}", hint=AGAIN)
