"""The digest of a plan: over what it does, not over what it shows."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, assert_never

from reconciler.planning.actions import Adopt, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.planning.canonical import canonical, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reconciler.planning.actions import Action


def digest(actions: Sequence[Action]) -> str:
    """Return sha256, hexadecimal, of the canonical actions in plan order."""
    return digest_of_rows(
        [
            action.id,
            after_of(action),
            action.verb,
            parameters_of(action),
            action.risk.value,
            action.precondition,
            action.granted_by,
        ]
        for action in actions
    )


def digest_of_rows(rows: Iterable[Sequence[object]]) -> str:
    """Return the digest of [id, after, verb, parameters, risk, precondition, grant] of each action."""
    total = hashlib.sha256()
    for row in rows:
        total.update(canonical(row))
        total.update(b"\n")
    return total.hexdigest()


def after_of(action: Action) -> dict[str, Any] | None:
    """Return the resource an action leads to, as JSON has it."""
    match action:
        case Create() | Update() | Adopt() | Transition():
            return action.after.to_json()
        case Delete() | Forget() | RunJob():
            return None
        case _:
            assert_never(action)


def parameters_of(action: Action) -> dict[str, Any]:
    """Return everything beside `after` that decides what an action does."""
    match action:
        case Create():
            return _sorted(action.parameters)
        case Transition():
            states = {"machine": action.machine, "from": action.from_state, "to": action.to_state}
            return {**states, **_sorted(action.parameters)}
        case RunJob():
            return {"job": action.job, "source": action.source, "sink": action.sink, **_sorted(action.parameters)}
        case Adopt():
            return {"moved_from": action.moved_from} if action.moved_from else {}
        case Update() | Delete() | Forget():
            return {}
        case _:
            assert_never(action)


def _sorted(parameters: object) -> dict[str, Any]:
    values: dict[str, Any] = plain(parameters)
    return dict(sorted(values.items()))
