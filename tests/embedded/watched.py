"""A store that keeps count of what is asked of it, and can die before or after any write."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from reconciler.objectstore.base import Listed, ObjectStore, Stored, Version


class DiedError(Exception):
    """The process is gone: nobody below may catch this."""


class WatchedStore:
    """Passes everything on. `before` and `after` are called around each write with what it is and its key."""

    def __init__(
        self,
        inner: ObjectStore,
        *,
        before: Callable[[str, str], None] = lambda _what, _key: None,
        after: Callable[[str, str], None] = lambda _what, _key: None,
    ) -> None:
        self.inner = inner
        self.before = before
        self.after = after
        self.calls: list[tuple[str, str]] = []

    def count(self, what: str, prefix: str = "") -> int:
        return sum(1 for call, key in self.calls if call == what and key.startswith(prefix))

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def encrypts(self) -> bool:
        return self.inner.encrypts

    def clock_ms(self) -> int:
        return self.inner.clock_ms()

    def get(self, key: str) -> Stored | None:
        self.calls.append(("get", key))
        return self.inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.calls.append(("get_range", key))
        return self.inner.get_range(key, start, length)

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        self._write("put", key, lambda: self.inner.put(key, body, kms_key_id=kms_key_id))

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        versions: list[Version] = []
        self._write("swap", key, lambda: versions.append(self.inner.swap(key, body, expected=expected)))
        return versions[0]

    def copy_in(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        self._write("copy_in", key, lambda: self.inner.copy_in(key, source, source_key, kms_key_id=kms_key_id))

    def list(self, prefix: str) -> Iterator[Listed]:
        self.calls.append(("list", prefix))
        return self.inner.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._write("delete", key, lambda key=key: self.inner.delete([key]))

    def probe(self) -> Sequence[str]:
        return self.inner.probe()

    def _write(self, what: str, key: str, do: Callable[[], None]) -> None:
        self.calls.append((what, key))
        self.before(what, key)
        do()
        self.after(what, key)


def dying(inner: ObjectStore, at: int, *, done: bool) -> WatchedStore:
    """Return a store whose user dies at its write number `at`, before it or, where it was `done`, after it."""
    writes = 0

    def tick(_what: str, _key: str) -> None:
        nonlocal writes
        if writes == at:
            raise DiedError
        writes += 1

    return WatchedStore(inner, after=tick) if done else WatchedStore(inner, before=tick)
