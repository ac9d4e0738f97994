"""An object store in memory, for commands without a state, and for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from weakref import WeakValueDictionary

from reconciler.objectstore.base import (
    ListedObject,
    ObjectStore,
    StoredObject,
    Version,
    check_key,
    create_nonce,
    missing_object_error,
    probe_conditions,
    reject_kms_key,
    verify_own_write,
)
from reconciler.runtime.dataclass import dataclass, field


@dataclass(eq=False)
class _Contents:
    objects: dict[str, StoredObject] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    writes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def store(self, key: str, body: bytes) -> Version:
        self.writes += 1
        version = Version(str(self.writes))
        self.objects[key] = StoredObject(body, version)
        self.times[key] = _clock_ms()
        return version


_BY_NAME: Final[WeakValueDictionary[str, _Contents]] = WeakValueDictionary()
_REGISTRY_LOCK: Final = threading.Lock()


class MemoryStore:
    """An object store in memory. Stores with the same name share objects."""

    def __init__(self, name: str | None = None) -> None:
        """Open the store with this name; `None` creates a store."""
        self._name = name if name is not None else create_nonce()
        with _REGISTRY_LOCK:
            contents = _BY_NAME.get(self._name)
            if contents is None:
                contents = _BY_NAME[self._name] = _Contents()
        self._contents = contents

    def __reduce__(self) -> tuple[type[MemoryStore], tuple[str]]:
        return MemoryStore, (self._name,)

    @property
    def url(self) -> str:
        """URL without secrets."""
        return f"memory://{self._name}"

    @property
    def can_encrypt(self) -> bool:
        """Always false."""
        return False

    def read_clock_ms(self) -> int:
        """Return this machine's time."""
        return _clock_ms()

    def get(self, key: str) -> StoredObject | None:
        """Return the object."""
        return self._contents.objects.get(check_key(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return a range of bytes."""
        return self._require_object(key).body[start : start + length]

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store a new object."""
        check_key(key)
        reject_kms_key(self.url, kms_key_id)
        with self._contents.lock:
            self._contents.store(key, bytes(body))

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` conditionally."""
        check_key(key)
        with self._contents.lock:
            current = self._contents.objects.get(key)
            if (None if current is None else current.version) != expected:
                return verify_own_write(key, body, current)
            return self._contents.store(key, body)

    def copy_from(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Copy another store's object."""
        original = source.get(source_key)
        if original is None:
            raise missing_object_error(source.url, source_key)
        self.put(key, original.body, kms_key_id=kms_key_id)

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """Yield objects, sorted by key."""
        with self._contents.lock:
            rows = [
                ListedObject(key, len(stored.body), stored.version, self._contents.times[key])
                for key, stored in sorted(self._contents.objects.items())
                if key.startswith(prefix)
            ]
        yield from rows

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        for key in keys:
            check_key(key)
            with self._contents.lock:
                self._contents.objects.pop(key, None)

    def find_violated_conditions(self) -> Sequence[str]:
        """Return nothing, because memory honours every condition."""
        return probe_conditions(self)

    def _require_object(self, key: str) -> StoredObject:
        stored = self.get(key)
        if stored is None:
            raise missing_object_error(self.url, key)
        return stored


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000
