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
    given = ((part, getattr(action, part.name)) for part in fields(action))
    kept = {part.name: _stored(value) for part, value in given if value != _default(part)}
    return {"action": name_of(action), "id": action.id, **kept}


def read_action(stored: Mapping[str, Any]) -> Action:
    """Return the action that was stored.

    Raises:
        UserError: It is none, or is not what its id says.
    """
    given = {key: value for key, value in stored.items() if key not in {"action", "id"}}
    try:
        action = _reader(stored["action"]).validate_python(given)
    except (KeyError, ValidationError) as error:
        why = str(error).splitlines()[0]
        raise UserError(f"a stored action cannot be read: {why}", hint="Restore the run's files.") from error
    if action.id != stored.get("id"):
        message = f"a stored action is called {stored.get('id')}, but is {action.id}"
        raise UserError(message, hint="Restore the run's files: they were changed by hand.")
    return action


@cache
def _reader(name: str) -> TypeAdapter[Action]:
    return TypeAdapter(_CLASSES[name])


def _default(part: Field[Any]) -> object:
    return part.default_factory() if part.default_factory is not MISSING else part.default


def _stored(value: object) -> object:
    match value:
        case Model():
            return value.to_json()
        case tuple():
            return [_stored(item) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {key: plain(item) for key, item in asdict(value).items()}
        case _:
            return plain(value)
