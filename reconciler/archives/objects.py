"""Immutable JSON objects, and the errors of those that are missing or damaged."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

import orjson

from reconciler.errors import MissingObjectError, UserError
from reconciler.objectstore.base import ObjectStore
from reconciler.objectstore.register import is_cut_off, truncation_error

T = TypeVar("T")
_LOOKS: Final = 3
"""How often a head or manifest is read that names an object which is not there, before that is believed."""
MALFORMED: Final = (KeyError, TypeError, ValueError, AttributeError, IndexError)
"""Raised where JSON of another shape is decoded."""
RESTORE_HINT = "Restore it from a copy of the store; nothing was changed."


def put_gzipped(store: ObjectStore, key: str, value: dict[str, Any]) -> str:
    """Store `value` under a fresh key and return the sha256 of the object."""
    body, sha256 = gzipped(value)
    store.put(key, body)
    return sha256


def gzipped(value: dict[str, Any]) -> tuple[bytes, str]:
    """Return the object that `put_gzipped` stores, and its sha256; the same value gives the same."""
    # Level 1: three times as fast as the default, and catalogs repeat themselves so much that little is lost.
    body = gzip.compress(orjson.dumps(value), compresslevel=1, mtime=0)
    return body, hashlib.sha256(body).hexdigest()


def missing(store: ObjectStore, key: str, what: str) -> MissingObjectError:
    """Return the error for an object that is named and not there, and what is lost with it."""
    return MissingObjectError(f"{what} cannot be read: {store.url} has no object {key}", hint=RESTORE_HINT)


def missing_offsets(
    store: ObjectStore, key: str, first: int, last: int, *, end: int | None = None
) -> MissingObjectError:
    """Return the error for an object that is named and not there, and that records of these offsets lay in.

    `end`: the object is a manifest, which is there and names nothing from that offset on.
    """
    what = f"what lies at offsets {first} to {last}"
    error = missing(store, key, what)
    if end is not None:
        message = f"{what} cannot be read: {key} in {store.url} ends at offset {end}: it is an older copy"
        error = MissingObjectError(message, hint=RESTORE_HINT)
    error.key, error.url, error.offsets = key, store.url, (first, last)
    return error


def look_again(look: Callable[[], T]) -> T:
    """Call `look` up to three times: again where an object that a head or manifest names is not there.

    Maintenance may have replaced and deleted that object. The head or manifest, read again, names the new one.

    Raises:
        MissingObjectError: It was not there the last time either.
    """
    for _ in range(_LOOKS - 1):
        with suppress(MissingObjectError):
            return look()
    return look()


def get_gzipped(store: ObjectStore, key: str, sha256: str, what: str = "the catalog") -> dict[str, Any]:
    """Return what `put_gzipped` stored; `what` is lost with it.

    Raises:
        MissingObjectError: It is not there.
        UserError: It is not what was stored.
    """
    body = existing(store, key, what)
    found = hashlib.sha256(body).hexdigest()
    if found != sha256:
        raise damaged(store, key, f"its sha256 is {found[:12]}…, not {sha256[:12]}…")
    return parsed(store, key, gzip.decompress(body))


def existing(store: ObjectStore, key: str, what: str) -> bytes:
    """Return the body of an object that something names; `what` is lost with it.

    Raises:
        MissingObjectError: It is not there.
    """
    stored = store.get(key)
    if stored is None:
        raise missing(store, key, what)
    return stored.body


def parsed(store: ObjectStore, key: str, body: bytes) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        UserError: It is none.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise truncation_error(store, key, body) if is_cut_off(body) else damaged(store, key, str(error)) from error
    if not isinstance(value, dict):
        raise damaged(store, key, "not a JSON object")
    return value


def decoded(store: ObjectStore, key: str, content: dict[str, Any], decode: Callable[[dict[str, Any]], T]) -> T:
    """Return what an object of JSON says.

    Raises:
        UserError: It cannot be what was written.
    """
    try:
        return decode(content)
    except MALFORMED as error:
        raise damaged(store, key, f"{type(error).__name__}: {error}") from error


def damaged(store: ObjectStore, key: str, why: str) -> UserError:
    """Return the error for an object whose content cannot be what was written."""
    return UserError(f"{store.url}: {key} cannot be read: {why}", hint=RESTORE_HINT)
