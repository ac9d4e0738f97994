"""What a store keeps of a write whose sender was killed: nothing, or the beginning of a JSON object.

It was never acknowledged, so it counts as not written: whoever creates takes its place, and a register is put back as
it was before, where the bucket keeps versions. Both by compare-and-swap.
"""

from __future__ import annotations

import codecs
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import orjson

from reconciler.errors import LostRaceError, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.objectstore.base import ObjectStore, Version


@runtime_checkable
class KeepsVersions(Protocol):
    """A store that may keep what an object held before."""

    def versions(self, key: str) -> Iterator[bytes | None]:
        """Yield what the object held, the newest first, from now on; `None` where it was deleted."""
        ...


def is_cut_off(body: bytes) -> bool:
    """Tell whether a body is nothing, or the beginning of JSON."""
    try:
        orjson.loads(codecs.getincrementaldecoder("utf-8")().decode(body))
    except UnicodeDecodeError:
        return False
    except orjson.JSONDecodeError as error:
        return not body or error.msg == "unexpected end of data"
    return False


def cut_off(store: ObjectStore, key: str, body: bytes) -> UserError:
    """Return the error for what a cluster needs and was cut off."""
    why = "it ends in the middle" if body else "there is nothing in it"
    return UserError(
        f"{store.url}: {key} cannot be read: {why}",
        hint="Nothing was changed. Restore it from a copy of the store, or, where its bucket keeps versions: "
        "reconciler cluster check CLUSTER --repair",
    )


def create(store: ObjectStore, key: str, body: bytes) -> Version:
    """Store `body` where there is nothing yet, or what was cut off.

    Raises:
        LostRaceError: Someone else's write is there.
    """
    try:
        return store.swap(key, body, expected=None)
    except LostRaceError:
        there = store.get(key)
        if there is None or not is_cut_off(there.body):
            raise
        return store.swap(key, body, expected=there.version)


def put_back(store: ObjectStore, key: str) -> bool:
    """Give an object that was cut off what it held before; tell whether that was done.

    Where the last thing before is not whole JSON either, or is a deletion, nothing is done.
    """
    there = store.get(key)
    if there is None or not is_cut_off(there.body) or not isinstance(store, KeepsVersions):
        return False
    before = next((body for body in store.versions(key) if body is None or not is_cut_off(body)), None)
    if before is None or not _is_object(before):
        return False
    with suppress(LostRaceError):  # somebody else has mended it, or goes on with it
        store.swap(key, before, expected=there.version)
    return True


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(orjson.loads(body), dict)
    except orjson.JSONDecodeError:
        return False
