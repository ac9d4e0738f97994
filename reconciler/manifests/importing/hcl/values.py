"""Values of HCL: Python's own, and what cannot be known from the files alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

MAX_TEXT: Final = 1_000_000
MAX_ITEMS: Final = 100_000


class UnresolvedError(Exception):
    """What something is cannot be known from the files alone; says why, never a value."""

    def __init__(self, why: str) -> None:
        """Keep why."""
        super().__init__(why)
        self.why = why


@dataclass(frozen=True, slots=True)
class Names:
    """Values by name, each worked out when it is asked for: `var`, `local`, `kafka_topic`."""

    get: Callable[[str], Any]


def text_of(value: Any) -> str:
    """Return a value as it appears in a text. Raises UnresolvedError for what has no such form."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int():
            return str(value)
        case float():
            return str(int(value)) if value.is_integer() else repr(value)
        case _:
            raise UnresolvedError("a list or a mapping stands where a text belongs")


def number_of(value: Any) -> int | float:
    """Return a value as a number, also one in quotes."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    try:
        return whole(float(value)) if isinstance(value, str) and "." in value else int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnresolvedError("a number is expected, and there is none") from error


def whole(value: float) -> int | float:
    """Return a number without its fraction where that is nothing."""
    return int(value) if float(value).is_integer() else value


def bounded(value: Any) -> Any:
    """Return a value unless it is absurdly big."""
    limit = MAX_TEXT if isinstance(value, str) else MAX_ITEMS
    if isinstance(value, str | list | dict) and len(value) > limit:
        raise UnresolvedError("it comes out too big")
    return value


def items_of(value: Any) -> list[tuple[Any, Any]]:
    """Return keys and values of a mapping, positions and values of a list."""
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list):
        return list(enumerate(value))
    raise UnresolvedError("a list or a mapping is expected")
