"""Stores that wrap another store to count requests, log requests or reject writes."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from reconciler.errors import BrokenInvariantError, MendFirstError, ReconcilerError, StoreRefusedError
from reconciler.objectstore.register import VersionedStore
from reconciler.runtime.effects import compute_elapsed_ms, log_debug, now

if TYPE_CHECKING:
    from reconciler.objectstore.base import ListedObject, ObjectStore, StoredObject, Version


class WrappedStore:
    """A store that delegates to an inner store, and is pickled as the inner store."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner

    def __reduce__(self) -> str | tuple[Any, ...]:
        return self.inner.__reduce__()

    @property
    def url(self) -> str:
        """URL without secrets."""
        return self.inner.url

    @property
    def can_encrypt(self) -> bool:
        """Whether the inner store can encrypt."""
        return self.inner.can_encrypt

    def read_clock_ms(self) -> int:
        """Return the store's time."""
        return self.inner.read_clock_ms()

    def get(self, key: str) -> StoredObject | None:
        """Return the object."""
        return self.inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return a range of bytes."""
        return self.inner.get_range(key, start, length)

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store a new object."""
        self.inner.put(key, body, kms_key_id=kms_key_id)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` conditionally."""
        return self.inner.swap(key, body, expected=expected)

    def copy_from(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Copy another store's object."""
        self.inner.copy_from(key, source, source_key, kms_key_id=kms_key_id)

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """Yield objects, sorted by key."""
        return self.inner.list(prefix)

    def list_versions(self, key: str) -> Iterator[bytes | None]:
        """Yield earlier bodies, newest first."""
        if isinstance(self.inner, VersionedStore):
            yield from self.inner.list_versions(key)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        self.inner.delete(keys)

    def find_violated_conditions(self) -> Sequence[str]:
        """Return the ignored conditions."""
        return self.inner.find_violated_conditions()


class DamageCheckStore(WrappedStore):
    """A store for damage checks. Denied access raises `MendFirstError`, and does not count as damage."""

    def get(self, key: str) -> StoredObject | None:
        """Return the object."""
        with _translate_refusals():
            return self.inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return a range of bytes."""
        with _translate_refusals():
            return self.inner.get_range(key, start, length)

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """Yield objects, sorted by key."""
        with _translate_refusals():
            yield from self.inner.list(prefix)

    def list_versions(self, key: str) -> Iterator[bytes | None]:
        """Yield earlier bodies, newest first."""
        with _translate_refusals():
            yield from super().list_versions(key)


@contextmanager
def _translate_refusals() -> Iterator[None]:
    try:
        yield
    except StoreRefusedError as error:
        raise MendFirstError(error.message, hint=error.hint) from error


_GRAIN_MS: Final = 100
_LONGEST_MS: Final = 60 * 60 * 1000


class RequestMeter:
    """Counts requests in a sliding window. Thread-safe."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._counts: deque[tuple[int, int]] = deque()
        self._lock = Lock()

    def count_request(self) -> None:
        """Record a request at the current time."""
        at_ms = self._now_ms() // _GRAIN_MS * _GRAIN_MS
        with self._lock:
            if self._counts and self._counts[-1][0] >= at_ms:
                last_ms, count = self._counts.pop()
                self._counts.append((last_ms, count + 1))
            else:
                self._counts.append((at_ms, 1))
            while self._counts[0][0] < at_ms - _LONGEST_MS:
                self._counts.popleft()

    def count_within(self, window_ms: int) -> int:
        """Return the number of requests in the last `window_ms`."""
        since_ms = self._now_ms() - window_ms
        with self._lock:
            return sum(count for at_ms, count in self._counts if at_ms > since_ms)


class MeteredStore(WrappedStore):
    """A store that counts requests, except those of executors."""

    def __init__(self, inner: ObjectStore, meter: RequestMeter) -> None:
        super().__init__(inner)
        self.meter = meter

    def read_clock_ms(self) -> int:
        """Return the store's time."""
        self.meter.count_request()
        return super().read_clock_ms()

    def get(self, key: str) -> StoredObject | None:
        """Return the object."""
        self.meter.count_request()
        return super().get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return a range of bytes."""
        self.meter.count_request()
        return super().get_range(key, start, length)

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store a new object."""
        self.meter.count_request()
        super().put(key, body, kms_key_id=kms_key_id)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` conditionally."""
        self.meter.count_request()
        return super().swap(key, body, expected=expected)

    def copy_from(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Copy another store's object."""
        self.meter.count_request()
        super().copy_from(key, strip_meter(source), source_key, kms_key_id=kms_key_id)

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """Yield objects, sorted by key."""
        self.meter.count_request()
        return super().list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        self.meter.count_request()
        super().delete(keys)

    def find_violated_conditions(self) -> Sequence[str]:
        """Return the ignored conditions."""
        self.meter.count_request()
        return super().find_violated_conditions()


def strip_meter(store: ObjectStore) -> ObjectStore:
    """Return the store without its meter."""
    return store.inner if isinstance(store, MeteredStore) else store


T = TypeVar("T")

LOGGER: Final = logging.getLogger("reconciler.objectstore")


def log_requests(store: ObjectStore) -> ObjectStore:
    """Return a store that logs requests, or `store` unless debug logging is enabled."""
    return LoggingStore(store) if LOGGER.isEnabledFor(logging.DEBUG) else store


def log_attempt(attempts: int = 1, response: Any = None, caught_exception: Any = None, **kwargs: Any) -> None:
    """Log an attempt of a request. This is a botocore event handler."""
    status = None if response is None else response[0].status_code
    trouble = None if caught_exception is None else type(caught_exception).__name__
    operation = getattr(kwargs.get("operation"), "name", None)
    log_debug(LOGGER, "attempt", operation=operation, attempt=attempts, status=status, trouble=trouble)


class LoggingStore(WrappedStore):
    """A store that logs requests without bodies."""

    def __copy__(self) -> LoggingStore:
        return LoggingStore(copy(self.inner))

    def read_clock_ms(self) -> int:
        """Return the store's time."""
        return self._log_call("clock", "", self.inner.read_clock_ms)

    def get(self, key: str) -> StoredObject | None:
        """Return the object."""
        return self._log_call("get", key, lambda: self.inner.get(key), _body_bytes)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return a range of bytes."""
        return self._log_call("get_range", key, lambda: self.inner.get_range(key, start, length), len)

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store a new object."""
        size = memoryview(body).nbytes
        self._log_call("put", key, lambda: self.inner.put(key, body, kms_key_id=kms_key_id), lambda _none: size)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` conditionally."""
        return self._log_call(
            "swap", key, lambda: self.inner.swap(key, body, expected=expected), lambda _version: len(body)
        )

    def copy_from(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Copy another store's object."""
        within = source.inner if isinstance(source, LoggingStore) else source
        self._log_call("copy_from", key, lambda: self.inner.copy_from(key, within, source_key, kms_key_id=kms_key_id))

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """Yield objects; log at the end."""
        began, rows = now(), 0
        for listed in self.inner.list(prefix):
            rows += 1
            yield listed
        log_debug(
            LOGGER, "request", method="list", key=prefix, objects=rows, ms=compute_elapsed_ms(began), ended="done"
        )

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        began, counted_keys = now(), _CountedKeys(keys)
        self.inner.delete(counted_keys)
        log_debug(
            LOGGER,
            "request",
            method="delete",
            key=counted_keys.first,
            objects=counted_keys.count,
            ms=compute_elapsed_ms(began),
            ended="done",
        )

    def find_violated_conditions(self) -> Sequence[str]:
        """Return the ignored conditions."""
        return self._log_call("probe", "", self.inner.find_violated_conditions)

    def _log_call(
        self, method: str, key: str, send: Callable[[], T], size: Callable[[T], int] = lambda _answer: 0
    ) -> T:
        began = now()
        try:
            answer = send()
        except ReconcilerError as error:
            log_debug(
                LOGGER,
                "request",
                method=method,
                key=key,
                bytes=0,
                ms=compute_elapsed_ms(began),
                ended=type(error).__name__,
            )
            raise
        log_debug(
            LOGGER, "request", method=method, key=key, bytes=size(answer), ms=compute_elapsed_ms(began), ended="done"
        )
        return answer


class _CountedKeys:
    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = keys
        self.first = ""
        self.count = 0

    def __iter__(self) -> Iterator[str]:
        for key in self._keys:
            self.first = self.first or key
            self.count += 1
            yield key


def _body_bytes(stored: StoredObject | None) -> int:
    return 0 if stored is None else len(stored.body)


_FOLDER: Final = "file://"


def wrap_read_only(store: ObjectStore, now_ms: Callable[[], int]) -> ObjectStore:
    """Return a view of `store` that rejects writes. For a directory, `now_ms` is the clock, to avoid a write."""
    return ReadOnlyStore(store, now_ms if store.url.startswith(_FOLDER) else store.read_clock_ms)


class ReadOnlyStore(WrappedStore):
    """A store that rejects writes, which are bugs of the caller."""

    def __init__(self, inner: ObjectStore, clock_ms: Callable[[], int]) -> None:
        super().__init__(inner)
        self._clock_ms = clock_ms

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle_read_only, (self.inner,)

    def read_clock_ms(self) -> int:
        """Return the store's time."""
        return self._clock_ms()

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Reject the write."""
        del body, kms_key_id
        self._refuse("put", key)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Reject the write."""
        del body, expected
        self._refuse("swap", key)

    def copy_from(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Reject the copy."""
        del source, source_key, kms_key_id
        self._refuse("copy_from", key)

    def delete(self, keys: Iterable[str]) -> None:
        """Reject the deletion."""
        self._refuse("delete", ", ".join(keys))

    def find_violated_conditions(self) -> NoReturn:
        """Reject the probe, which writes."""
        self._refuse("probe", "")

    def _refuse(self, what: str, key: str) -> NoReturn:
        message = f"a read-only command tried to {what} {self.url}/{key}"
        raise BrokenInvariantError(message, hint="Nothing was changed. Please report this, with the command.")


def _unpickle_read_only(inner: ObjectStore) -> ReadOnlyStore:
    return ReadOnlyStore(inner, inner.read_clock_ms)
