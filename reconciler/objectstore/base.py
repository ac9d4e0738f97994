"""The contract of every object store: calls, conditions, keys and errors.

Keys are relative, separated by `/`. Readers never see partial bodies. A conditional write compares the object's
*version*. Equal bodies may have equal versions (S3's ETags do), so swapped bodies contain a nonce.

If the response to a conditional write was lost, the store compares the object with the body that it wrote. If another
writer has replaced that body, the caller finds its own mark in `LostRaceError.current`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, NewType, Protocol, TypeAlias

from reconciler.errors import LostRaceError, MissingObjectError, ReconcilerError, UserError
from reconciler.runtime.dataclass import dataclass

Version = NewType("Version", str)
StoreOperation: TypeAlias = Literal["reach", "read", "write", "copy", "list", "delete"]


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object's whole body and its version."""

    body: bytes
    version: Version


@dataclass(frozen=True, slots=True)
class ListedObject:
    """A listed object. `size` is in bytes; `hint` changes with every write of the object.

    `modified_ms` is the write time by the store's clock, perhaps in whole seconds.
    """

    key: str
    size: int
    hint: str
    modified_ms: int


class ObjectStore(Protocol):
    """A store of objects by key. Thread-safe and picklable."""

    @property
    def url(self) -> str:
        """URL for `open_store`, without secrets."""
        ...

    @property
    def can_encrypt(self) -> bool:
        """Whether the store can encrypt objects under a `kms_key_id`."""
        ...

    def read_clock_ms(self) -> int:
        """Return the store's time, the reference for ages of objects."""
        ...

    def get(self, key: str) -> StoredObject | None:
        """Return the object; `None` if missing."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return at most `length` bytes from `start`.

        Raises:
            MissingObjectError: The object does not exist.
        """
        ...

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store a new object unconditionally; durable on return.

        Raises:
            UserError: A KMS key is given, but the store cannot encrypt.
        """
        ...

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` durably if the object's version is `expected`; `None` means that it does not exist.

        Raises:
            LostRaceError: Another write came first.
        """
        ...

    def copy_from(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Copy another store's object to a new key, on the server if possible.

        Raises:
            MissingObjectError: The source object does not exist.
            UserError: A KMS key is given, but the store cannot encrypt.
        """
        ...

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """Yield objects under `prefix`, sorted by key; read one page at a time."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; ignore missing keys."""
        ...

    def find_violated_conditions(self) -> Sequence[str]:
        """Probe whether the store honours conditional writes; return the conditions it ignores."""
        ...


def verify_own_write(key: str, body: bytes, stored: StoredObject | None) -> Version:
    """Return the object's version if an earlier attempt of this write stored `body`.

    Raises:
        LostRaceError: The body differs or is missing; this write may have been overwritten.
    """
    if stored is not None and stored.body == body:
        return stored.version
    current = None if stored is None else stored.body
    raise LostRaceError(key, current, hint="Read it again and decide again; running the same command again does that.")


RESERVED: Final = ".store"
"""Folder of locks and unfinished files in a directory store. Keys cannot contain it."""

_FORBIDDEN: Final = frozenset({"", ".", "..", RESERVED})


def check_key(key: str) -> str:
    """Return `key` if it is valid.

    Raises:
        UserError: The key is absolute, leaves the store, or has an empty or reserved segment.
    """
    if _FORBIDDEN.isdisjoint(key.split("/")) and "\0" not in key and is_valid_utf8(key):
        return key
    message = f"{key!r} is not the key of an object"
    raise UserError(
        message,
        hint="Keys are relative, without empty, '.' or '..' segments. If no file of the store was edited by hand, "
        "please report this.",
    )


def is_valid_utf8(key: str) -> bool:
    """Return whether a key is valid UTF-8. Names of files may not be."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def create_nonce() -> str:
    """Return 32 random hexadecimal digits."""
    return secrets.token_hex(16)


# A shape is a type, a tuple of alternatives (`None` is null), `[shape]` (a list), `{str: shape}` (any names) or
# `{"name": shape, "optional?": shape}` (other names are allowed).


def check_shape(value: Any, shape: Any, at: str = "") -> None:
    """Raise `TypeError` for a JSON value that does not have the types of `shape`; `at` is its path in errors."""
    match shape:
        case tuple():
            if not any(_has_shape(value, alternative) for alternative in shape):
                raise _shape_error(value, at)
        case [below]:
            if type(value) is not list:
                raise _shape_error(value, at)
            for number, item in enumerate(value):
                check_shape(item, below, f"{at}[{number}]")
        case dict():
            _check_object(value, shape, at)
        case _:
            if value is not shape and type(value) is not shape:
                raise _shape_error(value, at)


def check_numbers(*values: object) -> None:
    """Raise `TypeError` for values that are not integers; faster than `check_shape`."""
    if not {int}.issuperset(map(type, values)):
        raise TypeError(f"{next(value for value in values if type(value) is not int)!r:.50} is not a whole number")


def check_texts(*values: object) -> None:
    """Raise `TypeError` for values that are not strings."""
    if not {str}.issuperset(map(type, values)):
        raise TypeError(f"{next(value for value in values if type(value) is not str)!r:.50} is not text")


def _check_object(value: Any, shape: dict[Any, Any], at: str) -> None:
    if type(value) is not dict:
        raise _shape_error(value, at)
    if str in shape:
        for name, item in value.items():
            check_shape(item, shape[str], f"{at}.{name}")
        return
    for name, below in shape.items():
        bare = name.removesuffix("?")
        if bare in value:
            check_shape(value[bare], below, f"{at}.{bare}")
        elif bare == name:
            raise TypeError(f"{at.lstrip('.') or 'it'} has no {name}")


def _has_shape(value: Any, shape: Any) -> bool:
    try:
        check_shape(value, shape)
    except TypeError:
        return False
    return True


def _shape_error(value: Any, at: str) -> TypeError:
    return TypeError(f"{at.lstrip('.') or 'it'} is {value!r:.50}")


def missing_object_error(url: str, key: str, *, place: str = "store") -> MissingObjectError:
    """Return the error for a missing object."""
    return MissingObjectError(f"{url} has no object {key}", hint=f"Something else removed it; check the {place}.")


def read_chunks(source: ObjectStore, key: str, first: bytes, size: int) -> Iterator[bytes]:
    """Yield an object in chunks of `size` bytes, beginning with `first`, which the caller has read."""
    piece, at = first, 0
    while piece:
        yield piece
        at += len(piece)
        piece = source.get_range(key, at, size) if len(piece) == size else b""


def reject_kms_key(url: str, kms_key_id: str | None) -> None:
    """Reject a KMS key for a store that cannot encrypt."""
    if kms_key_id is not None:
        message = f"{url} cannot encrypt objects under key {kms_key_id}"
        raise UserError(message, hint="Keep the cluster on s3://, or take `encryption` out of the namespace.")


PROBE: Final = ".probe-"


def probe_conditions(store: ObjectStore) -> list[str]:
    """Return the write conditions that `store` ignores. Writes a temporary object."""
    key = PROBE + create_nonce()
    try:
        problems = _probe_key(store, key)
    except ReconcilerError:
        with suppress(ReconcilerError):
            store.delete([key])
        raise
    store.delete([key])
    return problems


def _probe_key(store: ObjectStore, key: str) -> list[str]:
    first, second, third = (create_nonce().encode() for _ in range(3))
    created = _try_swap(store, key, first, None)
    if created is None:
        return ["it does not create a missing object"]
    problems = []
    if _try_swap(store, key, second, None) is not None:
        problems.append("it overwrites an object that was to be created only if absent")
    swapped = _try_swap(store, key, second, created)
    if swapped is None:
        problems.append("it refuses a swap based on the version it returned")
    if _try_swap(store, key, third, created) is not None:
        problems.append("it accepts a swap based on an old version")
    current = store.get(key)
    if not problems and (current is None or current.body != second):
        problems.append("it does not return what was written last")
    return problems


def _try_swap(store: ObjectStore, key: str, body: bytes, expected: Version | None) -> Version | None:
    try:
        return store.swap(key, body, expected=expected)
    except LostRaceError:
        return None
