"""Stores around a store: read-only, metered, and one that logs every request."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from reconciler.errors import BrokenInvariantError, MendFirstError, ReconcilerError, StoreRefusedError
from reconciler.objectstore.register import KeepsVersions
from reconciler.runtime.effects import ms_since, note, now

if TYPE_CHECKING:
    from reconciler.objectstore.base import Listed, ObjectStore, Stored, Version


class WrappedStore:
    """Passes everything on to the store within; those built on it say what they do otherwise. Travels as that store."""

    def __init__(self, inner: ObjectStore) -> None:
        """Stand around a store."""
        self.inner = inner

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Travel as the store within."""
        return self.inner.__reduce__()

    @property
    def url(self) -> str:
        """Where this store is."""
        return self.inner.url

    @property
    def encrypts(self) -> bool:
        """Whether objects can be written under a key of the caller's choice."""
        return self.inner.encrypts

    def clock_ms(self) -> int:
        """Return what time the store has."""
        return self.inner.clock_ms()

    def get(self, key: str) -> Stored | None:
        """Return the object, or `None` where there is none."""
        return self.inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return at most `length` bytes from `start`."""
        return self.inner.get_range(key, start, length)

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store under a fresh name, unconditionally."""
        self.inner.put(key, body, kms_key_id=kms_key_id)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` if `key` is still at `expected`."""
        return self.inner.swap(key, body, expected=expected)

    def copy_in(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Store a copy of another store's object under a fresh name."""
        self.inner.copy_in(key, source, source_key, kms_key_id=kms_key_id)

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield what lies under `prefix`, sorted by key."""
        return self.inner.list(prefix)

    def versions(self, key: str) -> Iterator[bytes | None]:
        """Yield what an object held, the newest first, where the store keeps that."""
        if isinstance(self.inner, KeepsVersions):
            yield from self.inner.versions(key)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, unconditionally."""
        self.inner.delete(keys)

    def probe(self) -> Sequence[str]:
        """Return what this store does not honour of the conditions."""
        return self.inner.probe()


class UnmistakenStore(WrappedStore):
    """A store to look for damage in: what it refuses is no `UserError`, which would be taken for damage."""

    def get(self, key: str) -> Stored | None:
        """Return the object, or `None` where there is none."""
        with _unmistaken():
            return self.inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return at most `length` bytes from `start`."""
        with _unmistaken():
            return self.inner.get_range(key, start, length)

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield what lies under `prefix`, sorted by key."""
        with _unmistaken():
            yield from self.inner.list(prefix)

    def versions(self, key: str) -> Iterator[bytes | None]:
        """Yield what an object held, the newest first, where the store keeps that."""
        with _unmistaken():
            yield from super().versions(key)


@contextmanager
def _unmistaken() -> Iterator[None]:
    try:
        yield
    except StoreRefusedError as error:
        raise MendFirstError(error.message, hint=error.hint) from error


# A store whose requests are counted.


_GRAIN_MS: Final = 100
"""Requests of one such while are counted together."""
_LONGEST_MS: Final = 60 * 60 * 1000


class RequestMeter:
    """Counts requests over a sliding window. Safe from any thread."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """Count nothing yet."""
        self._now_ms = now_ms
        self._counted: deque[tuple[int, int]] = deque()
        self._lock = Lock()

    def note(self) -> None:
        """Count a request."""
        at_ms = self._now_ms() // _GRAIN_MS * _GRAIN_MS
        with self._lock:
            if self._counted and self._counted[-1][0] >= at_ms:
                last_ms, count = self._counted.pop()
                self._counted.append((last_ms, count + 1))
            else:
                self._counted.append((at_ms, 1))
            while self._counted[0][0] < at_ms - _LONGEST_MS:
                self._counted.popleft()

    def within(self, window_ms: int) -> int:
        """Return how many there were in the last so many milliseconds."""
        since_ms = self._now_ms() - window_ms
        with self._lock:
            return sum(count for at_ms, count in self._counted if at_ms > since_ms)


class MeteredStore(WrappedStore):
    """Passes everything on, and counts it. Travels as the store it is of: what executors ask is not counted."""

    def __init__(self, inner: ObjectStore, meter: RequestMeter) -> None:
        """Measure a store."""
        super().__init__(inner)
        self.meter = meter

    def clock_ms(self) -> int:
        """Return what time the store has."""
        self.meter.note()
        return super().clock_ms()

    def get(self, key: str) -> Stored | None:
        """Return the object, or `None` where there is none."""
        self.meter.note()
        return super().get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return at most `length` bytes from `start`."""
        self.meter.note()
        return super().get_range(key, start, length)

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store under a fresh name, unconditionally."""
        self.meter.note()
        super().put(key, body, kms_key_id=kms_key_id)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` if `key` is still at `expected`."""
        self.meter.note()
        return super().swap(key, body, expected=expected)

    def copy_in(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Store a copy of another store's object under a fresh name."""
        self.meter.note()
        super().copy_in(key, unmetered(source), source_key, kms_key_id=kms_key_id)

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield what lies under `prefix`, sorted by key."""
        self.meter.note()
        return super().list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, unconditionally."""
        self.meter.note()
        super().delete(keys)

    def probe(self) -> Sequence[str]:
        """Return what this store does not honour of the conditions."""
        self.meter.note()
        return super().probe()


def unmetered(store: ObjectStore) -> ObjectStore:
    """Return a store whose requests are not counted."""
    return store.inner if isinstance(store, MeteredStore) else store


# A store that notes every request: what, of which key, how many bytes, how long, how it ended; never the content.


T = TypeVar("T")

LOGGER: Final = logging.getLogger("reconciler.objectstore")


def noted(store: ObjectStore) -> ObjectStore:
    """Return a store as it is where nobody listens, else one that notes every request."""
    return NotedStore(store) if LOGGER.isEnabledFor(logging.DEBUG) else store


def note_attempt(attempts: int = 1, response: Any = None, caught_exception: Any = None, **kwargs: Any) -> None:
    """Note one try of a request to a server; botocore calls it after each, and expects nothing of it."""
    status = None if response is None else response[0].status_code
    trouble = None if caught_exception is None else type(caught_exception).__name__
    operation = getattr(kwargs.get("operation"), "name", None)
    note(LOGGER, "attempt", operation=operation, attempt=attempts, status=status, trouble=trouble)


class NotedStore(WrappedStore):
    """Passes everything on, and notes it. Travels as the store it is of: executors have nobody who listens."""

    def __copy__(self) -> NotedStore:
        """Return the same with a client of its own."""
        return NotedStore(copy(self.inner))

    def clock_ms(self) -> int:
        """Return what time the store has."""
        return self._asked("clock", "", self.inner.clock_ms)

    def get(self, key: str) -> Stored | None:
        """Return the object, or `None` where there is none."""
        return self._asked("get", key, lambda: self.inner.get(key), _body_bytes)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return at most `length` bytes from `start`."""
        return self._asked("get_range", key, lambda: self.inner.get_range(key, start, length), len)

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store under a fresh name, unconditionally."""
        size = memoryview(body).nbytes
        self._asked("put", key, lambda: self.inner.put(key, body, kms_key_id=kms_key_id), lambda _none: size)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` if `key` is still at `expected`."""
        return self._asked(
            "swap", key, lambda: self.inner.swap(key, body, expected=expected), lambda _version: len(body)
        )

    def copy_in(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Store a copy of another store's object under a fresh name."""
        within = source.inner if isinstance(source, NotedStore) else source
        self._asked("copy_in", key, lambda: self.inner.copy_in(key, within, source_key, kms_key_id=kms_key_id))

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield what lies under `prefix`, sorted by key; noted when it has come to its end."""
        began, rows = now(), 0
        for listed in self.inner.list(prefix):
            rows += 1
            yield listed
        note(LOGGER, "request", method="list", key=prefix, objects=rows, ms=ms_since(began), ended="done")

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, unconditionally."""
        began, passed = now(), _Passing(keys)
        self.inner.delete(passed)
        note(
            LOGGER, "request", method="delete", key=passed.first, objects=passed.count, ms=ms_since(began), ended="done"
        )

    def probe(self) -> Sequence[str]:
        """Return what this store does not honour of the conditions."""
        return self._asked("probe", "", self.inner.probe)

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


# A store that can only be read: what commands are given that must change nothing, whatever they call by mistake.


_FOLDER: Final = "file://"


def read_only(store: ObjectStore, now_ms: Callable[[], int]) -> ObjectStore:
    """Return a view of `store` through which nothing can be written.

    A folder tells its time only of a file just made: a view of one goes by `now_ms`.
    """
    return ReadOnlyStore(store, now_ms if store.url.startswith(_FOLDER) else store.clock_ms)


class ReadOnlyStore(WrappedStore):
    """Passes reading on. Whatever would write is a mistake of ours, and is refused before it reaches the store."""

    def __init__(self, inner: ObjectStore, clock_ms: Callable[[], int]) -> None:
        super().__init__(inner)
        self._clock_ms = clock_ms

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without the caller's clock: what reads elsewhere asks the store."""
        return _travelled, (self.inner,)

    def clock_ms(self) -> int:
        """Return what time the store has."""
        return self._clock_ms()

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Refuse."""
        del body, kms_key_id
        self._refuse("put", key)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Refuse."""
        del body, expected
        self._refuse("swap", key)

    def copy_in(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Refuse."""
        del source, source_key, kms_key_id
        self._refuse("copy_in", key)

    def delete(self, keys: Iterable[str]) -> None:
        """Refuse."""
        self._refuse("delete", ", ".join(keys))

    def probe(self) -> NoReturn:
        """Refuse: asking whether conditions hold means writing."""
        self._refuse("probe", "")

    def _refuse(self, what: str, key: str) -> NoReturn:
        message = f"a command that only reads wanted to {what} {self.url}/{key}"
        raise BrokenInvariantError(message, hint="Nothing was changed. Please report this, with the command.")


def _travelled(inner: ObjectStore) -> ReadOnlyStore:
    return ReadOnlyStore(inner, inner.clock_ms)
