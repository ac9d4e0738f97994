"""Actions as a run keeps them: whole, so that any machine can finish or settle it without the files it came from."""

from __future__ import annotations

from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter, ValidationError

from reconciler.errors import UserError
from reconciler.planning.actions import Action, Adopt, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.planning.canonical import plain
from reconciler.planning.document.rows import name_of
from reconciler.resources.base import Model

if TYPE_CHECKING:
    from collections.abc import Mapping

_CLASSES: Final[dict[str, type[Action]]] = {
    "create": Create,
    "update": Update,
    "delete": Delete,
    "adopt": Adopt,
    "forget": Forget,
    "transition": Transition,
    "job": RunJob,
}


def stored_action(action: Action) -> dict[str, Any]:
    """Return an action as JSON; what is as it always is, is left out."""
    kind = name_of(action)
    kept: dict[str, Any] = {"action": kind, "id": action.id}
    for name, usual in _usual(kind):
        value = getattr(action, name)
        if value is not usual and value != usual:
            kept[name] = _stored(value)
    return kept


def read_action(stored: Mapping[str, Any]) -> Action:
    """Return the action that was stored.

    Raises:
        UserError: It is none, or is not what its id says.
    """
    given = {key: value for key, value in stored.items() if key not in {"action", "id"}}
    try:
        kind = _CLASSES[stored["action"]]
        action = _reader(stored["action"]).validate_python(given)
    except (KeyError, ValidationError) as error:
        why = str(error).splitlines()[0]
        raise UserError(f"a stored action cannot be read: {why}", hint="Restore the run's files.") from error
    unknown = given.keys() - {part.name for part in fields(kind)}
    if unknown:
        message = f"a stored action cannot be read: {', '.join(sorted(unknown))} means nothing to this version"
        raise UserError(message, hint="A newer version wrote it: pip install --upgrade stream-reconciler.")
    if action.id != stored.get("id"):
        message = f"a stored action is called {stored.get('id')}, but is {action.id}"
        raise UserError(message, hint="Restore the run's files: they were changed by hand.")
    return action


@cache
def _reader(name: str) -> TypeAdapter[Action]:
    return TypeAdapter(_CLASSES[name])


@cache
def _usual(kind: str) -> tuple[tuple[str, object], ...]:
    """Return the fields of a kind of action, each with the value that is left out."""
    return tuple((part.name, _default(part)) for part in fields(_CLASSES[kind]))


def _default(part: Field[Any]) -> object:
    return part.default_factory() if part.default_factory is not MISSING else part.default


def _stored(value: object) -> object:
    match value:
        case str() | int() | None:
            return value
        case Model():
            return value.to_json()
        case tuple():
            return [_stored(item) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {key: plain(item) for key, item in asdict(value).items()}
        case _:
            return plain(value)
