"""Connections to one object storage: uploads and downloads of a process share so many, and no more.

Whoever finds all of them busy waits. Uploads may use what downloads leave; while downloads wait, uploads begin no more
than their share: a backlog that grows earns a larger one, and readers are never starved of the rest.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from reconciler.objectstore.base import Listed, ObjectStore, Stored, Version


class Connections:
    """So many requests at once. Safe to share between threads."""

    def __init__(self, limit: int) -> None:
        """Allow `limit` requests at once, all of them uploads where nobody else wants any."""
        self.limit = limit
        self.share = limit
        """Requests that uploads may have under way while downloads wait."""
        self._uploads = self._downloads = self._waiting = 0
        self._free = threading.Condition()

    @contextmanager
    def upload(self) -> Iterator[None]:
        """Be one upload for a while."""
        with self._free:
            self._free.wait_for(self._may_upload)
            self._uploads += 1
        try:
            yield
        finally:
            with self._free:
                self._uploads -= 1
                self._free.notify_all()

    @contextmanager
    def download(self) -> Iterator[None]:
        """Be one download for a while."""
        with self._free:
            self._waiting += 1
            self._free.wait_for(lambda: self._uploads + self._downloads < self.limit)
            self._waiting -= 1
            self._downloads += 1
        try:
            yield
        finally:
            with self._free:
                self._downloads -= 1
                self._free.notify_all()

    def _may_upload(self) -> bool:
        is_free = self._uploads + self._downloads < self.limit
        return is_free and (not self._waiting or self._uploads < self.share)


_BY_URL: Final[dict[str, Connections]] = {}
_LOCK: Final = threading.Lock()


def connections_to(url: str, limit: int) -> Connections:
    """Return the connections of this process to a storage; the limit that was asked for last holds."""
    with _LOCK:
        found = _BY_URL.setdefault(url, Connections(limit))
        if found.limit != limit:
            found.limit = found.share = limit
        return found


def bounded(storage: ObjectStore, limit: int) -> BoundedStore:
    """Return a storage that is asked for no more than `limit` things at once, by all of this process together."""
    return BoundedStore(unbounded(storage), limit)


class BoundedStore:
    """Passes everything on when a connection is free; a listing, one request after the other, waits for none."""

    def __init__(self, inner: ObjectStore, limit: int) -> None:
        self._inner = inner
        self._limit = limit

    def __copy__(self) -> BoundedStore:
        """Return the same with a client of its own."""
        return BoundedStore(copy(self._inner), self._limit)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as what it is of, to be bounded where it arrives."""
        return BoundedStore, (self._inner, self._limit)

    @property
    def connections(self) -> Connections:
        """Those of this process."""
        return connections_to(self._inner.url, self._limit)

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
        return self._inner.clock_ms()

    def get(self, key: str) -> Stored | None:
        """Return the object, or `None` where there is none."""
        with self.connections.download():
            return self._inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return at most `length` bytes from `start`."""
        with self.connections.download():
            return self._inner.get_range(key, start, length)

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store under a fresh name, unconditionally."""
        with self.connections.upload():
            self._inner.put(key, body, kms_key_id=kms_key_id)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` if `key` is still at `expected`."""
        with self.connections.upload():
            return self._inner.swap(key, body, expected=expected)

    def copy_in(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Store a copy of another store's object under a fresh name."""
        with self.connections.upload():
            self._inner.copy_in(key, unbounded(source), source_key, kms_key_id=kms_key_id)

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield what lies under `prefix`, sorted by key."""
        return self._inner.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, unconditionally."""
        with self.connections.upload():
            self._inner.delete(list(keys))

    def probe(self) -> Sequence[str]:
        """Return what this store does not honour of the conditions."""
        return self._inner.probe()


def unbounded(store: ObjectStore) -> ObjectStore:
    """Return the store itself: what copies from it on its own side must know it."""
    return store._inner if isinstance(store, BoundedStore) else store  # noqa: SLF001 - one of our own kind
