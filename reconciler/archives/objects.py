"""Immutable JSON objects, and errors for missing or damaged ones."""

from __future__ import annotations

import gzip
import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeVar

import orjson

from reconciler.errors import MissingObjectError, UserError
from reconciler.objectstore.base import ObjectStore
from reconciler.objectstore.register import is_truncated_json, truncation_error

T = TypeVar("T")
_READ_ATTEMPTS: Final = 3
MALFORMED: Final = (KeyError, TypeError, ValueError, AttributeError, IndexError)
RESTORE_HINT = "Restore it from a copy of the store; nothing was changed."


def put_gzipped(store: ObjectStore, key: str, value: dict[str, Any]) -> str:
    """Store `value` under a new key; return the object's sha256."""
    body, sha256 = gzip_value(value)
    store.put(key, body)
    return sha256


def gzip_value(value: dict[str, Any]) -> tuple[bytes, str]:
    """Return the body and sha256 that `put_gzipped` stores."""
    # Level 1 is three times as fast as gzip's default, and compresses catalogs well.
    body = gzip.compress(orjson.dumps(value), compresslevel=1, mtime=0)
    return body, hashlib.sha256(body).hexdigest()


def missing_object_error(store: ObjectStore, key: str, what: str) -> MissingObjectError:
    """Return the error for a missing object; `what` describes its content."""
    return MissingObjectError(f"{what} cannot be read: {store.url} has no object {key}", hint=RESTORE_HINT)


def missing_offsets_error(
    store: ObjectStore, key: str, first: int, last: int, *, end: int | None = None
) -> MissingObjectError:
    """Return the error for a missing object with records of these offsets.

    `end` is the manifest's end if below the offsets.
    """
    what = f"the records at offsets {first} to {last}"
    error = missing_object_error(store, key, what)
    if end is not None:
        message = f"{what} cannot be read: {key} in {store.url} ends at offset {end}: it is an older copy"
        error = MissingObjectError(message, hint=RESTORE_HINT)
    error.key, error.url, error.offsets = key, store.url, (first, last)
    return error


def retry_if_missing(look: Callable[[], T]) -> T:
    """Call `look` again if an object is missing: maintenance may have replaced it.

    Raises:
        MissingObjectError: The same object was missing three times.
    """
    misses: Counter[str] = Counter()
    while True:
        try:
            return look()
        except MissingObjectError as error:
            misses[str(error)] += 1
            if misses[str(error)] == _READ_ATTEMPTS:
                raise


def get_gzipped(store: ObjectStore, key: str, sha256: str, what: str = "the catalog") -> dict[str, Any]:
    """Return a value stored by `put_gzipped`. Raises `MissingObjectError`, which names `what`."""
    body = read_referenced_object(store, key, what)
    actual = hashlib.sha256(body).hexdigest()
    if actual != sha256:
        raise damaged_error(store, key, f"its sha256 is {actual[:12]}…, not {sha256[:12]}…")
    return parse_object(store, key, gzip.decompress(body))


def read_referenced_object(store: ObjectStore, key: str, what: str) -> bytes:
    """Return the body of a referenced object. Raises `MissingObjectError`, which names `what`."""
    stored = store.get(key)
    if stored is None:
        raise missing_object_error(store, key, what)
    return stored.body


def parse_object(store: ObjectStore, key: str, body: bytes) -> dict[str, Any]:
    """Parse a JSON object."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise (
            truncation_error(store, key, body) if is_truncated_json(body) else damaged_error(store, key, str(error))
        ) from error
    if not isinstance(value, dict):
        raise damaged_error(store, key, "not a JSON object")
    return value


def decode_object(store: ObjectStore, key: str, content: dict[str, Any], decode: Callable[[dict[str, Any]], T]) -> T:
    """Decode an object's content."""
    try:
        return decode(content)
    except MALFORMED as error:
        raise damaged_error(store, key, f"{type(error).__name__}: {error}") from error


def damaged_error(store: ObjectStore, key: str, why: str) -> UserError:
    """Return the error for an object with invalid content."""
    return UserError(f"{store.url}: {key} cannot be read: {why}", hint=RESTORE_HINT)
