"""What the fields of a record take: looked at as they are handed in, so a mistake takes no other record with it."""

from __future__ import annotations

from collections.abc import Mapping
from reprlib import repr as shortened
from typing import Any, Final, SupportsIndex

from reconciler.errors import UserError
from reconciler.records.headers import text_of

_CONTENT: Final = "text, bytes or None"
_NOTHING_TAKEN: Final = "This record was not taken; those before it were."


def content_of(topic: str, field: str, given: object) -> bytes | None:
    """Return a key, a value or the value of a header as bytes; text becomes UTF-8.

    Raises:
        UserError: It is neither.
    """
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return _encoded(topic, field, given)
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    raise _refused(f"{topic}: {field} takes {_CONTENT}", given, "Encode it first, for example with json.dumps.")


def headers_of(topic: str, given: object) -> list[dict[str, Any]]:
    """Return headers as they are stored.

    Raises:
        UserError: They are no mapping from text to text, bytes or None.
    """
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise _refused(f"{topic}: headers take a mapping from text to {_CONTENT}", given)
    return [
        {"key": _header_name(topic, name), "value": content_of(topic, f"header {name}", content)}
        for name, content in given.items()
    ]


def whole_of(field: str, given: object, *, bits: int) -> int:
    """Return a whole number that fits into so many bits with its sign; `field` begins the sentence that it is none.

    Raises:
        UserError: It is none.
    """
    if not isinstance(given, SupportsIndex) or isinstance(given, bool):
        raise _refused(f"{field} takes a whole number", given)
    number = given.__index__()
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise _refused(f"{field} takes a whole number of {bits} bits", number)
    return number


def optional_whole(topic: str, field: str, given: object, *, bits: int) -> int | None:
    """Return the same of a record, which may go without.

    Raises:
        UserError: It is neither a whole number nor None.
    """
    return None if given is None else whole_of(f"{topic}: {field}", given, bits=bits)


def _header_name(topic: str, given: object) -> str:
    if not isinstance(given, str):
        raise _refused(f"{topic}: the name of a header takes text", given)
    try:
        return given if given.isascii() else text_of(given.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError as error:
        raise _refused(f"{topic}: the name of a header takes text that can be written as UTF-8", given) from error


def _encoded(topic: str, field: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise _refused(f"{topic}: {field} takes text that can be written as UTF-8", text) from error


def _refused(start: str, given: object, hint: str = "") -> UserError:
    got = "None" if given is None else f"{shortened(given)} ({type(given).__name__})"
    return UserError(f"{start}, not {got}", hint=f"{hint} {_NOTHING_TAKEN}".lstrip())
