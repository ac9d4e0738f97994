"""The remote tier of a cluster: its object storage, `storage.json` and connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from reconciler.embedded.keys import CLUSTER, REMOTE_TOPICS, STORAGE
from reconciler.embedded.objects import damaged, parsed
from reconciler.embedded.tiered.manifest import RemotePartition
from reconciler.errors import LostRaceError, ReconcilerError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.register import create, is_cut_off
from reconciler.objectstore.wrappers import WrappedStore
from reconciler.resources.cluster import is_overlapping
from reconciler.resources.cluster_properties import property_of
from reconciler.runtime.effects import this_host

if TYPE_CHECKING:
    from reconciler.embedded.catalog.model import ClusterEntry
    from reconciler.embedded.catalog.tiering_state import TopicLocation
    from reconciler.objectstore.base import ObjectStore, Stored, Version


# Connections to one object storage: uploads and downloads of a process share so many, and no more.
#
# Whoever finds all of them busy waits. Uploads may use what downloads leave; while downloads wait, uploads begin no
# more than their share: a backlog that grows earns a larger one, and readers are never starved of the rest.


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


def remote_partition(location: TopicLocation, number: int) -> RemotePartition:
    """Return one partition of what lies at a location."""
    return RemotePartition(location.cluster_id, location.revision, number)


# Object storage and the roots of clusters lie apart: a sweep deletes what its own cluster does not name.


APART: Final = "Give objectStorage a location of its own, beside the roots of clusters, never in or around one."
_FOLDER: Final = "file://"
_MARK: Final = b'"reconciler.cluster/'
_LOOKED_AT: Final = 1000
"""One page of a listing."""


def check_place(storage: ObjectStore, root: str | None = None) -> None:
    """Refuse as object storage what is, lies in or holds the root of a cluster, as far as that can be told.

    `root`: the URL of the cluster that is to tier there. A GET, and one page of a LIST.

    Raises:
        UserError: It is one, or cannot be read.
    """
    if root is not None and root.startswith(_FOLDER) and is_overlapping(root, storage.url):
        raise UserError(
            f"{storage.url} and the root of the cluster, {root}, are one place or lie in each other", hint=APART
        )
    if storage.get(CLUSTER) is not None:
        raise UserError(f"{storage.url} is the root of a cluster: it holds {CLUSTER}", hint=APART)
    for listed in islice(storage.list(""), _LOOKED_AT):
        if listed.key.endswith(f"/{CLUSTER}") and _is_cluster(storage, listed.key):
            raise UserError(f"{storage.url} holds the root of a cluster: {listed.key}", hint=APART)
    above = next(_roots_above(storage), None)
    if above is not None:
        raise UserError(f"{storage.url} lies in the root of a cluster, {above.url}", hint=APART)


def _roots_above(storage: ObjectStore) -> Iterator[ObjectStore]:
    """Yield the roots that a folder lies in; of a bucket only what the plan is told can be known."""
    if storage.url.startswith(_FOLDER):
        for folder in Path(storage.url.removeprefix(_FOLDER)).parents:
            with suppress(ReconcilerError):  # Who may not look there cannot tell.
                if _is_cluster(DirectoryStore(folder), CLUSTER):
                    yield DirectoryStore(folder)


def _is_cluster(store: ObjectStore, key: str) -> bool:
    found = store.get(key)  # Others may have files of that name.
    return found is not None and _MARK in found.body


# `storage.json`: which object storage this is. Written once, by the process that binds the first cluster to it.


_FORMAT: Final = "reconciler.object-storage/1"


def read_storage_id(storage: ObjectStore) -> str | None:
    """Return the id of an object storage; `None`: nobody has tiered into it yet.

    Raises:
        UserError: The file is damaged, or of a newer format.
    """
    stored = storage.get(STORAGE)
    if stored is None or is_cut_off(stored.body):
        return None
    content = parsed(storage, STORAGE, stored.body)
    found = content.get("id")
    if content.get("format") != _FORMAT or not isinstance(found, str) or not found:
        raise damaged(storage, STORAGE, f"its format is {content.get('format')!r}, not {_FORMAT!r}")
    return found


def create_storage(storage: ObjectStore, new_id: Callable[[], str]) -> str:
    """Make it an object storage, if it is none yet, and return its id: that of whoever came first.

    Raises:
        UserError: It does not honour conditional writes, we may not write, list or delete there, a cluster lies there,
            or it was one and has lost its id.
    """
    found = read_storage_id(storage)
    if found is not None:
        return found
    check_place(storage)
    check_not_lost(storage, None)  # Under another id, clusters that are bound to it would find theirs no more.
    check_usable(storage)
    body = orjson.dumps({"format": _FORMAT, "id": new_id()}, option=orjson.OPT_APPEND_NEWLINE)
    with suppress(LostRaceError):  # Somebody else was faster: theirs holds.
        create(storage, STORAGE, body)
    return read_storage_id(storage) or ""


def check_usable(storage: ObjectStore) -> None:
    """Write, change and delete an object, as a remote tier does all the time.

    Raises:
        UserError: It does not honour conditional writes, or we may not write or delete there.
    """
    problems = storage.probe()
    if problems:
        message = f"{storage.url} cannot hold a remote tier: {'; '.join(problems)}"
        raise UserError(message, hint="Name another location: a local disk, or a bucket with conditional writes.")


def check_storage(storage: ObjectStore, expected: str | None) -> None:
    """Refuse another storage than the cluster was bound to: its topics' records are not there (F-R-013).

    Raises:
        UserError: It is another one.
    """
    found = read_storage_id(storage)
    if expected is not None and found is None:
        check_not_lost(storage, expected)
    if expected is not None and found != expected:
        what = "holds nothing of it" if found is None else f"is object storage {found}"
        message = f"{storage.url} {what}: this cluster's topics lie in object storage {expected}"
        raise UserError(message, hint="Set objectStorage back: topics do not move between buckets.")


def check_storage_shared(storage: ObjectStore, expected: str | None) -> None:
    """Refuse another storage where an executor looks: perhaps it is only this machine that does not see the right one.

    Raises:
        UserError: It is another one.
    """
    try:
        check_storage(storage, expected)
    except UserError as error:
        seen = f"If {storage.url} is as it was, the executor on {this_host()} does not see it"
        error.hint = f"{seen}: put it on storage that every executor sees. Otherwise: {error.hint}"
        raise


def check_not_lost(storage: ObjectStore, expected: str | None) -> None:
    """Tell an object storage that lost its `storage.json` from a place where nothing is: one LIST.

    Raises:
        UserError: Remote objects of topics lie there.
    """
    if _holds_topics(storage):
        raise _lost(storage, expected)


def check_given(storage: ObjectStore | None, bound: str | None) -> None:
    """Refuse to go on without the object storage that a cluster is bound to.

    Raises:
        UserError: It is bound to one, and none was given.
    """
    if storage is None and bound is not None:
        message = f"what is remote lies in object storage {bound}, and the cluster is opened without one"
        raise UserError(message, hint="Declare objectStorage of the cluster as it was.")


def _holds_topics(storage: ObjectStore) -> bool:
    return next(iter(storage.list(REMOTE_TOPICS)), None) is not None


def _lost(storage: ObjectStore, expected: str | None) -> UserError:
    """Return the error for an object storage without its id; `expected` is what a cluster that is bound to it knows."""
    bound = "" if expected is None else f": this cluster's topics lie in object storage {expected}"
    content = orjson.dumps({"format": _FORMAT, "id": expected or "ID"}).decode()
    if expected is None:
        more = "with the ID that plans of the clusters bound to it name; where none is left, any new one"
    else:
        more = "if that is it; otherwise set objectStorage back"
    return UserError(
        f"{storage.url} has no {STORAGE}, though remote objects of topics lie there{bound}",
        hint=f"Restore {STORAGE}, or write {content} there, {more}.",
    )
