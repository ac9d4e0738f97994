"""Clusters on one bucket that keep count of what they ask, and topics that are said to be of any size."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.embedded.catalog.tiering_state import TopicLocation
from reconciler.embedded.keys import index_key, segment_key
from reconciler.embedded.tiered.manifest import NOBODY, manifest_register, parse_manifest
from reconciler.embedded.tiered.remote_tier import remote_partition
from reconciler.objectstore.base import Listed
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.mounting.bucket import Bucket
from tests.embedded.watched import WatchedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reconciler.objectstore.base import ObjectStore

MIB, GIB = 1 << 20, 1 << 30
SEGMENT = 128 * MIB


class Told(WatchedStore):
    """A store that lists objects it does not have, of any size."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.told: dict[str, int] = {}

    def list(self, prefix: str) -> Iterator[Listed]:
        yield from super().list(prefix)
        for key, size in self.told.items():
            if key.startswith(prefix):
                yield Listed(key, size, 0, "told")


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
            key = segment_key(place.place, (base, base + 999), size, 1)
            entries.append(replace(first, key=key, base=base, last=base + 999, bytes=size))
            self.storage.told |= {key: size, index_key(key): 10_000}
        end = entries[-1].last + 1
        grown = replace(manifest, entries=tuple(entries), end=end, owner=NOBODY)
        register.swap(held, grown.to_json())
