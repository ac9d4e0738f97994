"""A cluster's object storage, its connections, and comparisons of manifests with heads."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.manifest import RemotePartition
from reconciler.errors import UserError
from reconciler.objectstore.wrappers import WrappedStore
from reconciler.resources.cluster_properties import read_property
from reconciler.resources.mirrors import find_agreed_end
from reconciler.runtime.dataclass import dataclass, field

if TYPE_CHECKING:
    from reconciler.archives.manifest import Manifest
    from reconciler.embedded.catalog.model import ClusterEntry
    from reconciler.embedded.segments.head import Head
    from reconciler.objectstore.base import ObjectStore, StoredObject, Version


class RequestSlots:
    """Slots for this process's concurrent requests. Thread-safe.

    Uploads may use all free slots, but only their share while downloads wait.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.share = limit
        """Concurrent uploads allowed while downloads wait."""
        self._uploads = self._downloads = self._waiting = 0
        self._free = threading.Condition()

    @contextmanager
    def hold_for_upload(self) -> Iterator[None]:
        """Occupy an upload slot."""
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
    def hold_for_download(self) -> Iterator[None]:
        """Occupy a download slot."""
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


_BY_URL: Final[dict[str, RequestSlots]] = {}
_LOCK: Final = threading.Lock()


def get_request_slots(url: str, limit: int) -> RequestSlots:
    """Return this process's request slots for a storage."""
    with _LOCK:
        connections = _BY_URL.setdefault(url, RequestSlots(limit))
        if connections.limit != limit:
            connections.limit = connections.share = limit
        return connections


def limit_connections(storage: ObjectStore, limit: int) -> LimitedStore:
    """Limit a storage's concurrent requests."""
    return LimitedStore(unwrap_store(storage), limit)


class LimitedStore(WrappedStore):
    """A store whose requests, except listings, wait for a free slot."""

    def __init__(self, inner: ObjectStore, limit: int) -> None:
        super().__init__(inner)
        self._limit = limit

    def __copy__(self) -> LimitedStore:
        return LimitedStore(copy(self.inner), self._limit)

    def __reduce__(self) -> tuple[Any, ...]:
        return LimitedStore, (self.inner, self._limit)

    @property
    def connections(self) -> RequestSlots:
        """Request slots of this process."""
        return get_request_slots(self.inner.url, self._limit)

    def get(self, key: str) -> StoredObject | None:
        """Return the object."""
        with self.connections.hold_for_download():
            return super().get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return a range of bytes."""
        with self.connections.hold_for_download():
            return super().get_range(key, start, length)

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store a new object."""
        with self.connections.hold_for_upload():
            super().put(key, body, kms_key_id=kms_key_id)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` conditionally."""
        with self.connections.hold_for_upload():
            return super().swap(key, body, expected=expected)

    def copy_from(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Copy another store's object."""
        with self.connections.hold_for_upload():
            super().copy_from(key, unwrap_store(source), source_key, kms_key_id=kms_key_id)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        with self.connections.hold_for_upload():
            super().delete(list(keys))


def unwrap_store(store: ObjectStore) -> ObjectStore:
    """Return the inner store, for server-side copies."""
    return store.inner if isinstance(store, LimitedStore) else store


_CONNECTIONS: Final = "cloud_storage_max_connections"


@dataclass(frozen=True, slots=True)
class RemoteTier:
    """A cluster's object storage and read cache. Picklable."""

    storage: ObjectStore
    cluster_id: str
    properties: Mapping[str, str] = field(default_factory=dict)
    cache_folder: str | None = None
    """Default cache folder; `None` means a temporary one."""

    @property
    def connections(self) -> RequestSlots:
        """Request slots of this process."""
        return get_request_slots(self.storage.url, int(read_property(self.properties, _CONNECTIONS) or 1))


def build_remote_tier(
    storage: ObjectStore | None, cluster_id: str, cluster: ClusterEntry, cache_folder: str | None = None
) -> RemoteTier | None:
    """Return a cluster's remote tier; `None` without object storage."""
    if storage is None or cluster.storage_id is None:
        return None
    connections = int(read_property(cluster.properties, _CONNECTIONS) or 1)
    return RemoteTier(limit_connections(storage, connections), cluster_id, cluster.properties, cache_folder)


def lacks_uploaded_records(manifest: Manifest | None, head: Head) -> bool:
    """Whether a manifest is an older copy that lacks uploaded records.

    Read the head before the manifest. Records below the log start do not count.
    """
    return max(0 if manifest is None else manifest.end, head.start) < head.uploaded_to


def check_has_uploaded_records(
    manifest: Manifest | None, head: Head, partition: RemotePartition, where: object
) -> None:
    """Reject a manifest that lacks uploaded records; `where` names topic and partition."""
    if not lacks_uploaded_records(manifest, head):
        return
    problem = "is not there" if manifest is None else f"ends at offset {manifest.end}: it is an older copy"
    message = f"{where}: {partition.key} {problem}, and everything below offset {head.uploaded_to} was uploaded"
    hint = (
        "Restore the manifest from a copy or version of the bucket; nothing was changed. Where there is none: "
        "switching the topic's tiering off with remote.log.disable.policy=delete loses what is stored only remotely."
    )
    raise UserError(message, hint=hint)


def find_same_log_end(head: Head, manifest: Manifest) -> int:
    """Return the offset below which a replica's log equals its source's."""
    stop, start = head.end, max(head.start, manifest.start)
    return find_agreed_end(_list_epochs_since(head.epochs, start), _list_epochs_since(manifest.epochs, start), stop)


def has_dropped_remote(head: Head, manifest: Manifest) -> bool:
    """Whether a replica's source deleted its remote records (`onDisable: delete`).

    Heads of earlier versions store no tiered epoch; an empty manifest then shows the deletion.
    """
    if head.tiered_epoch:
        return manifest.tiered_epoch > head.tiered_epoch
    return manifest.tiered_epoch > 1 and not manifest.segments


def _list_epochs_since(epochs: Sequence[tuple[int, int]], start: int) -> list[tuple[int, int]]:
    return [
        (epoch, max(first, start))
        for place, (epoch, first) in enumerate(epochs)
        if place + 1 == len(epochs) or epochs[place + 1][1] > start
    ]
