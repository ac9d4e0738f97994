"""A store that can only be read: what commands are given that must change nothing, whatever they call by mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from reconciler.errors import BrokenInvariantError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from reconciler.objectstore.base import Listed, ObjectStore, Stored, Version

_FOLDER: Final = "file://"


def read_only(store: ObjectStore, now_ms: Callable[[], int]) -> ObjectStore:
    """Return a view of `store` through which nothing can be written.

    A folder tells its time only of a file just made: a view of one goes by `now_ms`.
    """
    return ReadOnlyStore(store, now_ms if store.url.startswith(_FOLDER) else store.clock_ms)


class ReadOnlyStore:
    """Passes reading on. Whatever would write is a mistake of ours, and is refused before it reaches the store."""

    def __init__(self, inner: ObjectStore, clock_ms: Callable[[], int]) -> None:
        self._inner = inner
        self._clock_ms = clock_ms

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without the caller's clock: what reads elsewhere asks the store."""
        return _travelled, (self._inner,)

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
        return self._clock_ms()

    def get(self, key: str) -> Stored | None:
        """Return the object, or `None` where there is none."""
        return self._inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return at most `length` bytes from `start`."""
        return self._inner.get_range(key, start, length)

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield what lies under `prefix`, sorted by key."""
        return self._inner.list(prefix)

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
