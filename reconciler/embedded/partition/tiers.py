"""Both tiers of a topic as one log: what lies below the local start is found in the manifest, the rest in the head.

Every offset has one place at each moment: at or above the head's local start it is read locally, also where object
storage has it too; below it, remotely.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.embedded.catalog.lookups import name_with_id
from reconciler.embedded.catalog.tiering import hides_remote, location_of
from reconciler.embedded.jsonobjects import missing_offsets
from reconciler.embedded.partition.head import read_head
from reconciler.embedded.partition.pages import entries_within
from reconciler.embedded.remote.manifests.manifest import read_manifest
from reconciler.embedded.remote.storagefile import check_storage
from reconciler.embedded.remote.tier import remote_partition
from reconciler.errors import UserError
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.catalog.tiering import TopicLocation
    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.partition.pages import Paged
    from reconciler.embedded.remote.manifests.manifest import Manifest
    from reconciler.embedded.remote.tier import RemoteTier
    from reconciler.objectstore.base import ObjectStore
    from reconciler.records.log import Bounds, Isolation


@dataclass(frozen=True, slots=True)
class Piece:
    """A part, which of its offsets are meant, and where it lies."""

    entry: Entry
    offsets: OffsetRange
    store: ObjectStore
    is_remote: bool


def _is_open(_head: Head | None) -> None:
    """Let everything be read."""


@dataclass(frozen=True, slots=True)
class Tiers:
    """Where the records of one topic lie, as one look at the catalog has it."""

    store: ObjectStore
    topic_id: str
    remote: RemoteTier | None
    location: TopicLocation | None
    """Of what is remote; `None`: the topic is gone."""
    is_hiding: bool
    """Nothing may be fetched: the log begins at its local start."""
    storage_id: str | None
    """Which object storage the cluster is bound to."""
    check_open: Callable[[Head | None], None] = _is_open
    """Refuses a head that is closed to readers; `None`: there is none, or none any more."""

    @classmethod
    def of(
        cls,
        store: ObjectStore,
        catalog: Catalog,
        topic: tuple[str, str],
        remote: RemoteTier | None,
        check_open: Callable[[Head | None], None] = _is_open,
    ) -> Tiers:
        """Look up a topic by the name it was last seen under and its id."""
        full_name, topic_id = topic
        name = name_with_id(catalog, topic_id, full_name)
        entry = catalog.topics.get(name)
        location = None if entry is None or remote is None else location_of(name, entry, remote.cluster_id)
        is_hiding, storage_id = hides_remote(catalog, name), catalog.cluster.storage_id
        return cls(store, topic_id, remote, location, is_hiding, storage_id, check_open)

    def shown(self, bounds: Bounds) -> Bounds:
        """Return the bounds of a partition as readers see them."""
        return bounds.only_local() if self.is_hiding else bounds

    def pieces(
        self, partition: int, offsets: OffsetRange, isolation: Isolation, *, since_ms: int | None = None
    ) -> Iterator[Piece]:
        """Yield the parts that hold what is readable of a range, oldest first, by one look at head and manifest.

        `since_ms`: only parts that have a record at or after that time.

        Raises:
            MissingObjectError: A page is not there, or a manifest that must be; look again before it is believed.
            UserError: One is damaged, or records lie in an object storage that this process was not given.
        """
        head = read_head(self.store, self.topic_id, partition)
        self.check_open(head)
        if head is None:
            return
        bounds = self.shown(head.bounds)
        wanted = OffsetRange(max(offsets.start, bounds.start), min(offsets.stop, bounds.readable_end(isolation)))
        below = OffsetRange(wanted.start, min(wanted.stop, head.local_start))
        if below.length:
            storage, manifest = self._manifest(partition, below)
            yield from _pieces(storage, manifest, below, since_ms, is_remote=True)
            self._check_end(partition, manifest, below)
        above = OffsetRange(max(wanted.start, head.local_start), wanted.stop)
        if above.length:
            yield from _pieces(self.store, head, above, since_ms, is_remote=False)

    def _check_end(self, partition: int, manifest: Manifest, wanted: OffsetRange) -> None:
        if manifest.end < wanted.stop and self.remote is not None and self.location is not None:
            key = remote_partition(self.location, partition).key
            raise missing_offsets(self.remote.storage, key, max(wanted.start, manifest.end), wanted.stop - 1)

    def _manifest(self, partition: int, wanted: OffsetRange) -> tuple[ObjectStore, Manifest]:
        """Return what names the remote records of a range, and the object storage they lie in.

        Raises:
            MissingObjectError: It is not there, or ends before, or begins after: the head has moved on, or it is lost.
        """
        if self.remote is None or self.location is None:
            message = f"offsets {wanted.start} to {wanted.stop - 1} lie in object storage, which is not given here"
            raise UserError(message, hint="Open the cluster with its object storage (spec.objectStorage).")
        storage, place = self.remote.storage, remote_partition(self.location, partition)
        manifest = read_manifest(storage, place)
        if manifest is None:
            check_storage(storage, self.storage_id)
        if manifest is None or manifest.start > wanted.start:
            stop = wanted.stop if manifest is None else min(wanted.stop, manifest.start)
            raise missing_offsets(storage, place.key, wanted.start, stop - 1)
        return storage, manifest


def _pieces(
    store: ObjectStore, held: Paged, offsets: OffsetRange, since_ms: int | None, *, is_remote: bool
) -> Iterator[Piece]:
    for entry in entries_within(store, held, offsets, since_ms=since_ms):
        cut = OffsetRange(max(entry.base, offsets.start), min(entry.last + 1, offsets.stop))
        yield Piece(entry, cut, store, is_remote)
