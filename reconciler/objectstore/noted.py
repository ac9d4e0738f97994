"""A store that notes every request: what, of which key, how many bytes, how long, how it ended; never the content."""

from __future__ import annotations

import logging
from copy import copy
from typing import TYPE_CHECKING, Any, Final, TypeVar

from reconciler.errors import ReconcilerError
from reconciler.noting import is_noted, ms_since, note, now
from reconciler.objectstore.cutoff import KeepsVersions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from reconciler.objectstore.base import Listed, ObjectStore, Stored, Version

T = TypeVar("T")

LOGGER: Final = logging.getLogger("reconciler.objectstore")


def noted(store: ObjectStore) -> ObjectStore:
    """Return a store as it is where nobody listens, else one that notes every request."""
    return NotedStore(store) if is_noted(LOGGER) else store


def note_attempt(attempts: int = 1, response: Any = None, caught_exception: Any = None, **kwargs: Any) -> None:
    """Note one try of a request to a server; botocore calls it after each, and expects nothing of it."""
    status = None if response is None else response[0].status_code
    trouble = None if caught_exception is None else type(caught_exception).__name__
    operation = getattr(kwargs.get("operation"), "name", None)
    note(LOGGER, "attempt", operation=operation, attempt=attempts, status=status, trouble=trouble)


class NotedStore:
    """Passes everything on, and notes it. Travels as the store it is of: executors have nobody who listens."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    def __copy__(self) -> NotedStore:
        """Return the same with a client of its own."""
        return NotedStore(copy(self._inner))

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Travel as the store within."""
        return self._inner.__reduce__()

    @property
    def url(self) -> str:
        """Where this store is."""
        return self._inner.url

    @property
    def encrypts(self) -> bool:
        """Whether objects can be written under a key of the caller's choice."""
        return self._inner.encrypts

    def clock_ms(self) -> int:
        """Return what time the store has."""
        return self._asked("clock", "", self._inner.clock_ms)

    def get(self, key: str) -> Stored | None:
        """Return the object, or `None` where there is none."""
        return self._asked("get", key, lambda: self._inner.get(key), _body_bytes)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return at most `length` bytes from `start`."""
        return self._asked("get_range", key, lambda: self._inner.get_range(key, start, length), len)

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store under a fresh name, unconditionally."""
        size = memoryview(body).nbytes
        self._asked("put", key, lambda: self._inner.put(key, body, kms_key_id=kms_key_id), lambda _none: size)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` if `key` is still at `expected`."""
        return self._asked(
            "swap", key, lambda: self._inner.swap(key, body, expected=expected), lambda _version: len(body)
        )

    def copy_in(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Store a copy of another store's object under a fresh name."""
        within = source._inner if isinstance(source, NotedStore) else source  # noqa: SLF001 - one of our own kind
        self._asked("copy_in", key, lambda: self._inner.copy_in(key, within, source_key, kms_key_id=kms_key_id))

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield what lies under `prefix`, sorted by key; noted when it has come to its end."""
        began, rows = now(), 0
        for listed in self._inner.list(prefix):
            rows += 1
            yield listed
        note(LOGGER, "request", method="list", key=prefix, objects=rows, ms=ms_since(began), ended="done")

    def versions(self, key: str) -> Iterator[bytes | None]:
        """Yield what an object held, the newest first, where the store keeps that."""
        if isinstance(self._inner, KeepsVersions):
            yield from self._inner.versions(key)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, unconditionally."""
        began, passed = now(), _Passing(keys)
        self._inner.delete(passed)
        note(
            LOGGER, "request", method="delete", key=passed.first, objects=passed.count, ms=ms_since(began), ended="done"
        )

    def probe(self) -> Sequence[str]:
        """Return what this store does not honour of the conditions."""
        return self._asked("probe", "", self._inner.probe)

    def _asked(self, method: str, key: str, ask: Callable[[], T], size: Callable[[T], int] = lambda _answer: 0) -> T:
        began = now()
        try:
            answer = ask()
        except ReconcilerError as error:
            note(LOGGER, "request", method=method, key=key, bytes=0, ms=ms_since(began), ended=type(error).__name__)
            raise
        note(LOGGER, "request", method=method, key=key, bytes=size(answer), ms=ms_since(began), ended="done")
        return answer


class _Passing:
    """Keys on their way, counted: a deletion may name millions, and reads them as it goes."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = keys
        self.first = ""
        self.count = 0

    def __iter__(self) -> Iterator[str]:
        for key in self._keys:
            self.first = self.first or key
            self.count += 1
            yield key


def _body_bytes(stored: Stored | None) -> int:
    return 0 if stored is None else len(stored.body)
