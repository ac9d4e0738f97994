"""What a key may look like, so that no key leaves the store it is used with."""

from __future__ import annotations

from typing import Final

from reconciler.errors import UserError

RESERVED: Final = ".store"
"""Where a directory store keeps lock stripes and unfinished files; no segment, for stores may lie inside stores."""

_FORBIDDEN: Final = frozenset({"", ".", "..", RESERVED})


def check_key(key: str) -> str:
    """Return `key` if it names an object inside a store.

    Raises:
        UserError: It is absolute, climbs out, has an empty segment, or lies where a store keeps its own files.
    """
    if _FORBIDDEN.isdisjoint(key.split("/")) and "\0" not in key and _is_text(key):
        return key
    message = f"{key!r} is not the key of an object"
    raise UserError(
        message,
        hint="Keys are relative, without empty, '.' or '..' segments. If no file of the store was edited by hand, "
        "please report this.",
    )


def _is_text(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True
