"""How a writer knows its own voice when the answer to a conditional write was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import LostRaceError

if TYPE_CHECKING:
    from reconciler.objectstore.base import Stored, Version


def mine_or_lost(key: str, body: bytes, found: Stored | None) -> Version:
    """Return the version found if its body is ours: the write that beat us was our own, made before a retry.

    Raises:
        LostRaceError: It is someone else's, or the object is gone. Ours may also have landed and been overwritten:
            where several may write, the caller looks for its mark.
    """
    if found is not None and found.body == body:
        return found.version
    current = None if found is None else found.body
    raise LostRaceError(key, current, hint="Read it again and decide anew; running the same command again does that.")
