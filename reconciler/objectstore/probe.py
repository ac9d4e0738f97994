"""Test that a store honours conditional writes."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from reconciler.errors import LostRaceError, ReconcilerError
from reconciler.objectstore.base import nonce

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore, Version


PROBE: Final = ".probe-"
"""What the keys of a probe begin with: they mean nothing, whoever sees one."""


def probe_conditions(store: ObjectStore) -> list[str]:
    """Return what `store` does not honour: create, create again, a stale swap, the right swap.

    Leaves nothing behind. Errors of the store itself (no permission, disk full) are raised as they are.
    """
    key = PROBE + nonce()
    try:
        problems = _probe(store, key)
    except ReconcilerError:
        with suppress(ReconcilerError):  # what failed first is what is told
            store.delete([key])
        raise
    store.delete([key])
    return problems


def _probe(store: ObjectStore, key: str) -> list[str]:
    first, second, third = (nonce().encode() for _ in range(3))
    created = _swap(store, key, first, None)
    if created is None:
        return ["it does not create an object that is not there"]
    problems = []
    if _swap(store, key, second, None) is not None:
        problems.append("it overwrites an object that was to be created only if absent")
    swapped = _swap(store, key, second, created)
    if swapped is None:
        problems.append("it refuses a swap based on the version it returned")
    if _swap(store, key, third, created) is not None:
        problems.append("it accepts a swap based on an old version")
    found = store.get(key)
    if not problems and (found is None or found.body != second):
        problems.append("it does not return what was written last")
    return problems


def _swap(store: ObjectStore, key: str, body: bytes, expected: Version | None) -> Version | None:
    try:
        return store.swap(key, body, expected=expected)
    except LostRaceError:
        return None
