"""The contract of every object store: five calls and a condition; keys, nonces and errors.

Keys are relative, `/`-separated, without empty, `.` or `..` segments. Bodies are whole: a reader sees the old
object or the new one, never a mixture, and a writer that is killed leaves nothing behind under the key.
A *version* is whatever the store compares in a conditional write; it may repeat when a content repeats (S3's
ETags do), so bodies that are swapped carry a nonce.

A conditional write whose answer was lost may have happened. Implementations read back and compare before they
raise `LostRaceError`; where several may write, the caller looks for its own mark in `LostRaceError.current`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, NewType, Protocol, TypeAlias

from reconciler.errors import LostRaceError, MissingObjectError, ReconcilerError, UserError

Version = NewType("Version", str)
Doing: TypeAlias = Literal["reach", "read", "write", "copy", "list", "delete"]
"""What went wrong, for an error: it completes "cannot … URL"."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as it was read: its whole body and the version to swap against."""

    body: bytes
    version: Version


@dataclass(frozen=True, slots=True)
class Listed:
    """One row of a listing. `hint` changes whenever the object does; `size` is in bytes.

    `modified_ms` is when it was written, by the store's own clock (`ObjectStore.clock_ms`), to the second at worst.
    """

    key: str
    size: int
    hint: str
    modified_ms: int


class ObjectStore(Protocol):
    """Objects under keys. Safe to share between threads; picklable, and opened anew where it is unpickled."""

    @property
    def url(self) -> str:
        """Where this store is, as it may be shown to people and given to `open_store`."""
        ...

    @property
    def encrypts(self) -> bool:
        """Whether objects can be written under a key of the caller's choice (`kms_key_id`)."""
        ...

    def clock_ms(self) -> int:
        """Return what time the store has: ages of objects are judged by it, never by our own clock."""
        ...

    def get(self, key: str) -> Stored | None:
        """Return the object, or `None` where there is none."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return at most `length` bytes from `start`.

        Raises:
            MissingObjectError: There is no such object.
        """
        ...

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store under a fresh name, unconditionally. Durable when it returns.

        Raises:
            UserError: A key is named, and the store cannot encrypt.
        """
        ...

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` if `key` is still at `expected` (`None`: if it does not exist). Durable when it returns.

        Raises:
            LostRaceError: Someone else's write is there. Read it, decide again.
        """
        ...

    def copy_in(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Store a copy of another store's object under a fresh name, without passing it through us where both can.

        Raises:
            MissingObjectError: The source has no such object.
            UserError: A key is named, and the store cannot encrypt.
        """
        ...

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield what lies under `prefix`, sorted by key, a page at a time."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, unconditionally; a key that is not there is no error."""
        ...

    def probe(self) -> Sequence[str]:
        """Return what this store does not honour of the conditions above; empty when it may be trusted."""
        ...


# How a writer knows its own voice when the answer to a conditional write was lost.


def mine_or_lost(key: str, body: bytes, found: Stored | None) -> Version:
    """Return the version found if its body is ours: the write that beat us was our own, made before a retry.

    Raises:
        LostRaceError: It is someone else's, or the object is gone. Ours may also have landed and been overwritten:
            where several may write, the caller looks for its mark.
    """
    if found is not None and found.body == body:
        return found.version
    current = None if found is None else found.body
    raise LostRaceError(key, current, hint="Read it again and decide again; running the same command again does that.")


# What a key may look like, so that no key leaves the store it is used with.


RESERVED: Final = ".store"
"""Where a directory store keeps lock stripes and unfinished files; no segment, for stores may lie inside stores."""

_FORBIDDEN: Final = frozenset({"", ".", "..", RESERVED})


def check_key(key: str) -> str:
    """Return `key` if it names an object inside a store.

    Raises:
        UserError: It is absolute, climbs out, has an empty segment, or lies where a store keeps its own files.
    """
    if _FORBIDDEN.isdisjoint(key.split("/")) and "\0" not in key and is_text(key):
        return key
    message = f"{key!r} is not the key of an object"
    raise UserError(
        message,
        hint="Keys are relative, without empty, '.' or '..' segments. If no file of the store was edited by hand, "
        "please report this.",
    )


def is_text(key: str) -> bool:
    """Tell whether a key, or a part of one, can be written as UTF-8: names of files may be any bytes."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


# Nonces: the one thing below the edge that may be different every time.
#
# They name fresh objects and let a writer recognise its own body; no decision ever rests on their value.


def nonce() -> str:
    """Return 32 random hexadecimal digits; what needs a shorter name takes the first of them."""
    return secrets.token_hex(16)


# Whether a JSON value is of the types it is written with: hands may have been there.
#
# A shape is a type; a tuple of shapes, any of which will do (`None` stands for null); `[shape]`, a list of such; `{str:
# shape}`, an object with any names; `{"name": shape, …}`, an object with these names and maybe others, where a name
# that ends in `?` may be absent.


def check_shape(value: Any, shape: Any, at: str = "") -> None:
    """Refuse a value of another shape; `at` says where it stands.

    Raises:
        TypeError: Says what is there, and where.
    """
    match shape:
        case tuple():
            if not any(_fits(value, one) for one in shape):
                raise _wrong(value, at)
        case [below]:
            if type(value) is not list:
                raise _wrong(value, at)
            for number, each in enumerate(value):
                check_shape(each, below, f"{at}[{number}]")
        case dict():
            _check_object(value, shape, at)
        case _:
            if value is not shape and type(value) is not shape:
                raise _wrong(value, at)


def check_numbers(*values: object) -> None:
    """Refuse what is not a whole number; for what is read too often for a shape.

    Raises:
        TypeError: Says what is there.
    """
    if not {int}.issuperset(map(type, values)):
        raise TypeError(f"{next(value for value in values if type(value) is not int)!r:.50} is not a whole number")


def check_texts(*values: object) -> None:
    """Refuse what is no text, in the same way.

    Raises:
        TypeError: Says what is there.
    """
    if not {str}.issuperset(map(type, values)):
        raise TypeError(f"{next(value for value in values if type(value) is not str)!r:.50} is no text")


def _check_object(value: Any, shape: dict[Any, Any], at: str) -> None:
    if type(value) is not dict:
        raise _wrong(value, at)
    if str in shape:
        for name, each in value.items():
            check_shape(each, shape[str], f"{at}.{name}")
        return
    for name, below in shape.items():
        bare = name.removesuffix("?")
        if bare in value:
            check_shape(value[bare], below, f"{at}.{bare}")
        elif bare == name:
            raise TypeError(f"{at.lstrip('.') or 'it'} has no {name}")


def _fits(value: Any, shape: Any) -> bool:
    try:
        check_shape(value, shape)
    except TypeError:
        return False
    return True


def _wrong(value: Any, at: str) -> TypeError:
    return TypeError(f"{at.lstrip('.') or 'it'} is {value!r:.50}")


# Stores without keys of their own refuse to be asked for one: nothing is left unencrypted in silence.


def missing_object(url: str, key: str, *, place: str = "store") -> MissingObjectError:
    """Return the error for an object that is not there."""
    return MissingObjectError(f"{url} has no object {key}", hint=f"Something else removed it; check the {place}.")


def rest_of(source: ObjectStore, key: str, first: bytes, size: int) -> Iterator[bytes]:
    """Yield an object in pieces of `size` bytes, of which the first was read."""
    piece, at = first, 0
    while piece:
        yield piece
        at += len(piece)
        piece = source.get_range(key, at, size) if len(piece) == size else b""


def refuse_key(url: str, kms_key_id: str | None) -> None:
    """Return where no key is named.

    Raises:
        UserError: One is.
    """
    if kms_key_id is not None:
        message = f"{url} cannot encrypt objects under key {kms_key_id}"
        raise UserError(message, hint="Keep the cluster on s3://, or take `encryption` out of the namespace.")


# Whether a store honours conditional writes: tried before a state or a cluster is put into it.


PROBE: Final = ".probe-"
"""What the keys of a probe begin with: they mean nothing to anyone who sees one."""


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
