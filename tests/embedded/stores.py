"""A store that keeps count of what is asked of it, and can die before or after any write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from reconciler.archives.keys import build_index_key, create_segment_key
from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import NOBODY, manifest_register, parse_manifest, remote_partition
from reconciler.errors import MissingObjectError, UnansweredError
from reconciler.objectstore.base import ListedObject, ObjectStore, StoredObject, Version
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.mounts.shared_bucket import Bucket


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
    def can_encrypt(self) -> bool:
        return self.inner.can_encrypt

    def read_clock_ms(self) -> int:
        return self.inner.read_clock_ms()

    def get(self, key: str) -> StoredObject | None:
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

    def copy_from(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        self._write("copy_from", key, lambda: self.inner.copy_from(key, source, source_key, kms_key_id=kms_key_id))

    def list(self, prefix: str) -> Iterator[ListedObject]:
        self.calls.append(("list", prefix))
        return self.inner.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._write("delete", key, lambda key=key: self.inner.delete([key]))

    def find_violated_conditions(self) -> Sequence[str]:
        return self.inner.find_violated_conditions()

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


@dataclass
class Ticking:
    """Counts writes over several stores, and dies at one of them."""

    at: int
    writes: int = 0

    def __call__(self, _what: str, _key: str) -> None:
        if self.writes == self.at:
            raise DiedError
        self.writes += 1

    def watch(self, inner: ObjectStore, *, done: bool) -> WatchedStore:
        return WatchedStore(inner, after=self) if done else WatchedStore(inner, before=self)


# A store in memory that encrypts: it remembers under which key each object was put.


class KeyedStore(MemoryStore):
    """Objects under keys of the caller's choice; what was put without one lies under the store's own, `None`."""

    def __init__(self) -> None:
        super().__init__()
        self.key_of: dict[str, str | None] = {}

    @property
    def can_encrypt(self) -> bool:
        return True

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        super().put(key, body)
        self.key_of[key] = kms_key_id

    def copy_from(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        found = source.get(source_key)
        if found is None:
            raise MissingObjectError(f"no object {source_key}", hint="It was deleted.")
        self.put(key, found.body, kms_key_id=kms_key_id)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            super().delete([key])
            self.key_of.pop(key, None)

    def parts(self, folder: str = "") -> dict[str, str | None]:
        """Return each part below a folder and the key it lies under."""
        return {key: kms for key, kms in sorted(self.key_of.items()) if key.startswith(f"topics/{folder}")}

    def keys_below(self, folder: str = "") -> set[str | None]:
        return set(self.parts(folder).values())


# Clusters on one bucket that keep count of what they ask, and topics that are said to be of any size.


MIB, GIB = 1 << 20, 1 << 30
SEGMENT = 128 * MIB


class LateStore(MemoryStore):
    """The first swap of a key gets no answer and lands only right before the next one: it was on its way."""

    def __init__(self, key: str = "", *, name: str | None = None) -> None:
        super().__init__(name)
        self.late_key = key
        self._late: list[tuple[bytes, Version | None]] = []
        self.is_over = False

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        if key == self.late_key and not self.is_over:
            if not self._late:
                self._late.append((body, expected))
                raise UnansweredError("no answer", hint="Run it again.")
            self.is_over = True
            for before, there in self._late:
                super().swap(key, before, expected=there)
        return super().swap(key, body, expected=expected)


class Told(WatchedStore):
    """A store that lists objects it does not have, of any size."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.told: dict[str, int] = {}

    def list(self, prefix: str) -> Iterator[ListedObject]:
        yield from super().list(prefix)
        for key, size in self.told.items():
            if key.startswith(prefix):
                yield ListedObject(key, size, 0, "told")


class Counted:
    """Several clusters on one bucket, and how often each store was asked for what."""

    def __init__(self) -> None:
        self.storage = Told(MemoryStore())
        self.bucket = Bucket(storage=self.storage)
        for name in ("west", "east"):
            self.bucket.cluster(name)
            self.bucket.stores[name] = WatchedStore(self.bucket.stores[name])

    def asked(self, do: Callable[[], object]) -> Counter[str]:
        """Return how often something was asked while `do` was done."""
        stores = [self.storage, *self.bucket.stores.values()]
        for store in stores:
            assert isinstance(store, WatchedStore)
            store.calls.clear()
        do()
        return Counter(what for store in stores if isinstance(store, WatchedStore) for what, _ in store.calls)

    def detached(self, partitions: int) -> str:
        """Return the location of a topic with a record in each partition."""
        location = self.bucket.filled(records=1, partitions=partitions)
        self.bucket.unmounted()
        return location

    def grown(self, location: str, stored_bytes: int) -> None:
        """Let the only partition of a detached topic hold so many bytes, in segments as large as they get."""
        place = remote_partition(TopicLocation.parse(location), 0)
        register = manifest_register(self.storage, place)
        held = register.read()
        assert held is not None
        manifest = parse_manifest(self.storage, place.key, held.value)
        (first,) = manifest.entries
        entries = []
        for number in range(max(1, stored_bytes // SEGMENT)):
            size, base = min(stored_bytes, SEGMENT), number * 1000
            key = create_segment_key(place.key_prefix, (base, base + 999), size, 1)
            entries.append(replace(first, key=key, base=base, last=base + 999, bytes=size))
            self.storage.told |= {key: size, build_index_key(key): 10_000}
        end = entries[-1].last + 1
        grown = replace(manifest, entries=tuple(entries), end=end, owner=NOBODY)
        register.swap(held, grown.to_json())
