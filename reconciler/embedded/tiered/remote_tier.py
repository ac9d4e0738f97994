"""The remote tier of a cluster: its object storage and connections, and manifests against heads."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.manifest import RemotePartition
from reconciler.errors import UserError
from reconciler.objectstore.wrappers import WrappedStore
from reconciler.resources.cluster_properties import property_of
from reconciler.resources.mirrors import agreed_to

if TYPE_CHECKING:
    from reconciler.archives.manifest import Manifest
    from reconciler.embedded.catalog.model import ClusterEntry
    from reconciler.embedded.segments.head import Head
    from reconciler.objectstore.base import ObjectStore, Stored, Version


class Connections:
    """The requests that uploads and downloads of this process may make at once. Safe to share between threads.

    Uploads may use what downloads leave. While downloads wait, uploads begin no more than their share.
    """

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


class BoundedStore(WrappedStore):
    """Passes everything on when a connection is free; a listing, one request after the other, waits for none."""

    def __init__(self, inner: ObjectStore, limit: int) -> None:
        super().__init__(inner)
        self._limit = limit

    def __copy__(self) -> BoundedStore:
        """Return the same with a client of its own."""
        return BoundedStore(copy(self.inner), self._limit)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as what it is of, to be bounded where it arrives."""
        return BoundedStore, (self.inner, self._limit)

    @property
    def connections(self) -> Connections:
        """Those of this process."""
        return connections_to(self.inner.url, self._limit)

    def get(self, key: str) -> Stored | None:
        """Return the object, or `None` where there is none."""
        with self.connections.download():
            return super().get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return at most `length` bytes from `start`."""
        with self.connections.download():
            return super().get_range(key, start, length)

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store under a fresh name, unconditionally."""
        with self.connections.upload():
            super().put(key, body, kms_key_id=kms_key_id)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` if `key` is still at `expected`."""
        with self.connections.upload():
            return super().swap(key, body, expected=expected)

    def copy_in(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Store a copy of another store's object under a fresh name."""
        with self.connections.upload():
            super().copy_in(key, unbounded(source), source_key, kms_key_id=kms_key_id)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, unconditionally."""
        with self.connections.upload():
            super().delete(list(keys))


def unbounded(store: ObjectStore) -> ObjectStore:
    """Return the store itself: what copies from it on its own side must know it."""
    return store.inner if isinstance(store, BoundedStore) else store


_CONNECTIONS: Final = "cloud_storage_max_connections"


@dataclass(frozen=True, slots=True)
class RemoteTier:
    """Where remote objects are. Picklable: an executor opens the store anew, and caches on its own disk."""

    storage: ObjectStore
    cluster_id: str
    """Of the cluster that reads and writes there."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Of that cluster, as the catalog has them: they say where and how much is cached."""
    cache_folder: str | None = None
    """Where it is cached unless they say it; `None`: among temporary files."""

    @property
    def connections(self) -> Connections:
        """Those that uploads and downloads of this process share."""
        return connections_to(self.storage.url, int(property_of(self.properties, _CONNECTIONS) or 1))


def remote_tier(
    storage: ObjectStore | None, cluster_id: str, cluster: ClusterEntry, cache_folder: str | None = None
) -> RemoteTier | None:
    """Return the remote tier of a cluster, where it has object storage and was bound to it."""
    if storage is None or cluster.storage_id is None:
        return None
    connections = int(property_of(cluster.properties, _CONNECTIONS) or 1)
    return RemoteTier(bounded(storage, connections), cluster_id, cluster.properties, cache_folder)


def is_behind(manifest: Manifest | None, head: Head) -> bool:
    """Tell whether it lacks what is uploaded, as an older copy does: its partition stays as it is until it is restored.

    A head that was read before its manifest never shows so by chance. What is below the log's start does not count: a
    disabling that deletes counts all of it as uploaded.
    """
    return max(0 if manifest is None else manifest.end, head.start) < head.uploaded_to


def check_not_behind(manifest: Manifest | None, head: Head, partition: RemotePartition, where: object) -> None:
    """Refuse to act on a manifest that lacks what is uploaded; `where` says of which topic and partition.

    Raises:
        UserError: It does.
    """
    if not is_behind(manifest, head):
        return
    found = "is not there" if manifest is None else f"ends at offset {manifest.end}: it is an older copy"
    message = f"{where}: {partition.key} {found}, and everything below offset {head.uploaded_to} was uploaded"
    hint = (
        "Restore the manifest from a copy or version of the bucket; nothing was changed. Where there is none: "
        "switching the topic's tiering off with remote.log.disable.policy=delete gives up what is remote alone."
    )
    raise UserError(message, hint=hint)


def agreed_in(head: Head, manifest: Manifest) -> int:
    """Return the offset up to which the head of a read replica and its source's manifest are of one log.

    That is the end of the head, unless the source was cut below it: another epoch begins there then.
    """
    stop, start = head.end, max(head.start, manifest.start)
    return agreed_to(_since(head.epochs, start), _since(manifest.epochs, start), stop)


def gave_up_remote(head: Head, manifest: Manifest) -> bool:
    """Tell whether the source of a read replica has dropped all that was remote since (`onDisable: delete`).

    Its manifest may end before the head then, also when uploads have begun again. The head of a replica keeps the
    tiered epoch that it followed; an earlier version kept none, and then only an emptied manifest tells.
    """
    if head.tiered_epoch:
        return manifest.tiered_epoch > head.tiered_epoch
    return manifest.tiered_epoch > 1 and not manifest.segments


def _since(epochs: Sequence[tuple[int, int]], start: int) -> list[tuple[int, int]]:
    """Return epochs without those that end before an offset: they are dropped sooner in one place than in another."""
    return [
        (epoch, max(first, start))
        for place, (epoch, first) in enumerate(epochs)
        if place + 1 == len(epochs) or epochs[place + 1][1] > start
    ]
