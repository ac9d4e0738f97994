"""One action that is not what was approved: why not, and field by field what was approved and what would happen now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, assert_never, cast

from reconciler.planning.actions import Reason
from reconciler.planning.canonical import plain
from reconciler.planning.document.digest import after_of, parameters_of
from reconciler.planning.document.rows import changes_of, name_of
from reconciler.planning.estimates import Block
from reconciler.resources.address import Address

if TYPE_CHECKING:
    from reconciler.planning.actions import Action
    from reconciler.planning.document.documents import ActionDocument


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
    """More records would be lost."""
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
    losses: tuple[int | None, int | None] = (0, 0)
    """How many offsets would be lost, as it was approved and now; `None`: we cannot tell."""

    @property
    def message(self) -> str:
        """Every way in which it is more, in words."""
        return "; ".join(_words(why, self) for why in self.whys)


def difference(
    whys: tuple[Why, ...], approved: ActionDocument | None, now: Action, *, instead_of: tuple[str, ...]
) -> Difference:
    """Return what differs between an action as it was approved (`None`: it was not) and as it is planned now."""
    return Difference(
        id=now.id,
        address=now.address,
        action=name_of(now),
        whys=whys,
        fields=tuple(_moves(now) if approved is None else _fields(approved, now)),
        risk=now.risk.value,
        approved_risk=approved.risk if approved else None,
        blocked=now.blocked,
        source=now.source,
        is_dangerous=now.risk.value != "none" or now.blocked is not None or Reason.ADOPTED_DIFFERS in now.reasons,
        instead_of=instead_of,
        losses=(0 if approved is None else _approved_loss(approved), _loss(now)),
    )


def loses_more(approved: ActionDocument, now: Action) -> bool:
    """Tell whether more records would be lost than was approved; who approved what cannot be told approved anything."""
    before, after = _approved_loss(approved), _loss(now)
    return before is not None and (after is None or after > before)


def _approved_loss(approved: ActionDocument) -> int | None:
    role = approved.estimate.role
    if role is None:
        return 0
    return None if role.unknown is not None else sum(each.stop - each.start for each in role.lost)


def _loss(now: Action) -> int | None:
    role = now.estimate.role
    return 0 if role is None else role.lost_offsets


def missing(approved: ActionDocument, action: Action, *, planned: tuple[str, ...]) -> Difference:
    """Return an approved action that is planned no more; `planned`: what is, on the same resource."""
    return Difference(
        id=action.id,
        address=action.address,
        action=name_of(action),
        whys=(Why.MISSING,),
        fields=tuple(_would_have(approved)),
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
    before, after = found.losses
    was = f"{before:,} when it was approved" if before else "nothing when it was approved"
    if after is None:
        return f"it cannot be told any more how many offsets would be lost; {was}"
    return f"{after:,} {'offset' if after == 1 else 'offsets'} would be lost now, and {was}"


def missing_words(found: Difference) -> str:
    """Say what became of an approved action that is planned no more."""
    instead = f": instead {', '.join(found.instead_of)}" if found.instead_of else ""
    return f"it was left to do, and is planned no more{instead}"


def _moves(now: Action) -> Iterator[FieldDifference]:
    """Yield what an action moves that was not approved at all."""
    for change in changes_of(now):
        yield FieldDifference(change.path, None, Move(plain(change.before), plain(change.after), has_before=True))


def _would_have(approved: ActionDocument) -> Iterator[FieldDifference]:
    """Yield what an action would have moved, or have made."""
    for change in approved.changes:
        yield FieldDifference(change.path, Move(change.before, change.after, has_before=True), None)
    if not approved.changes:
        leaves = {**_leaves((approved.after or {}).get("spec", {})), **approved.parameters}
        for path in sorted(path for path, value in leaves.items() if value not in (None, [], ())):
            yield FieldDifference(path, _becomes(leaves, path), None)


def _fields(approved: ActionDocument, now: Action) -> Iterator[FieldDifference]:
    """Yield what moves otherwise than approved, then what would be otherwise without moving."""
    moved = {change.path: Move(change.before, change.after, has_before=True) for change in approved.changes}
    moves = {
        change.path: Move(plain(change.before), plain(change.after), has_before=True) for change in changes_of(now)
    }
    said: list[str] = []
    for path in dict.fromkeys([*moves, *moved]):
        if moved.get(path) != moves.get(path):
            said.append(path)
            yield FieldDifference(path, moved.get(path), moves.get(path))
    before = {**_leaves(approved.after or {}), **approved.parameters}
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
