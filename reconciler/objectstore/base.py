"""What every store of objects must do: five calls and a condition.

Keys are relative, `/`-separated, without empty, `.` or `..` segments. Bodies are whole: a reader sees the old
object or the new one, never a mixture, and a writer that is killed leaves nothing behind under the key.
A *version* is whatever the store compares in a conditional write; it may repeat when a content repeats (S3's
ETags do), so bodies that are swapped carry a nonce.

A conditional write whose answer was lost may have happened. Implementations read back and compare before they
raise `LostRaceError`; where several may write, the caller looks for its own mark in `LostRaceError.current`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NewType, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Version = NewType("Version", str)


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
