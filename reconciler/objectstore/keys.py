"""What a key may look like, so that no key leaves the store it is used with."""

from __future__ import annotations

from typing import Final

from reconciler.errors import UserError

RESERVED: Final = ".store"
"""First segment of what a directory store keeps for itself: lock stripes and unfinished files."""

_FORBIDDEN: Final = frozenset({"", ".", ".."})


def check_key(key: str) -> str:
    """Return `key` if it names an object inside a store.

    Raises:
        UserError: It is absolute, climbs out, has an empty segment, or lies where the store keeps its own files.
    """
    segments = key.split("/")
    if _FORBIDDEN.isdisjoint(segments) and "\0" not in key and segments[0] != RESERVED and _is_text(key):
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
