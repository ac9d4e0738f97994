"""A store whose traffic is measured: how many requests of this process it got within a while."""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from reconciler.objectstore.base import Listed, ObjectStore, Stored, Version

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


class MeteredStore:
    """Passes everything on, and counts it. Travels as the store it is of: what executors ask is not counted."""

    def __init__(self, inner: ObjectStore, meter: RequestMeter) -> None:
        """Measure a store."""
        self.inner = inner
        self.meter = meter

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
        self.meter.note()
        return self.inner.clock_ms()

    def get(self, key: str) -> Stored | None:
        """Return the object, or `None` where there is none."""
        self.meter.note()
        return self.inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return at most `length` bytes from `start`."""
        self.meter.note()
        return self.inner.get_range(key, start, length)

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store under a fresh name, unconditionally."""
        self.meter.note()
        self.inner.put(key, body, kms_key_id=kms_key_id)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` if `key` is still at `expected`."""
        self.meter.note()
        return self.inner.swap(key, body, expected=expected)

    def copy_in(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Store a copy of another store's object under a fresh name."""
        self.meter.note()
        self.inner.copy_in(key, unmetered(source), source_key, kms_key_id=kms_key_id)

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield what lies under `prefix`, sorted by key."""
        self.meter.note()
        return self.inner.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, unconditionally."""
        self.meter.note()
        self.inner.delete(keys)

    def probe(self) -> Sequence[str]:
        """Return what this store does not honour of the conditions."""
        self.meter.note()
        return self.inner.probe()


def unmetered(store: ObjectStore) -> ObjectStore:
    """Return a store whose requests are not counted."""
    return store.inner if isinstance(store, MeteredStore) else store
