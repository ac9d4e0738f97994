"""Delete topics and orphaned objects from object storage.

A deletion makes each manifest's contents garbage under a tiered epoch that no writer knows. It deletes the objects,
then the manifest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.keys import (
    MOUNTABLE,
    REMOTE_TOPICS,
    build_location_prefix,
    build_topic_manifest_key,
    parse_manifest_partition,
    parse_mountable_key,
    parse_remote_key,
    parse_topic_manifest_key,
)
from reconciler.archives.location import TopicLocation, TopicTiering
from reconciler.archives.manifest import (
    Garbage,
    Manifest,
    ManifestSwap,
    RemotePartition,
    delete_garbage,
    delete_manifest_garbage,
    iter_object_keys,
    manifest_register,
    parse_manifest,
    read_manifest,
)
from reconciler.archives.objects import retry_if_missing
from reconciler.archives.ownership import Ownership, OwnershipState, delete_ownership, read_ownership_at
from reconciler.archives.pages import read_page
from reconciler.archives.storage import check_storage, check_storage_given
from reconciler.archives.topic_manifest import read_topic_manifest
from reconciler.embedded.catalog.tables import Catalog, is_closed
from reconciler.embedded.catalog.tiering_state import find_tiering, get_topic_location
from reconciler.embedded.segments.head import read_head
from reconciler.embedded.tiered.remote_tier import RemoteTier, lacks_uploaded_records
from reconciler.errors import MissingObjectError
from reconciler.objectstore.register import create_mark
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.threads import map_in_parallel, run_in_parallel

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.objectstore.base import ListedObject, ObjectStore
    from reconciler.objectstore.register import RegisterSnapshot


@dataclass(frozen=True, slots=True)
class RemoteDeletion:
    """Deletes a cluster's objects from object storage."""

    storage: ObjectStore | None
    cluster_id: str

    def delete_location(self, location: TopicLocation, storage_id: str | None) -> None:
        """Delete all manifests at a location, with the objects that they reference."""
        check_storage_given(self.storage, storage_id)
        if self.storage is None or storage_id is None:
            return  # The cluster was never bound to object storage.
        check_storage(self.storage, storage_id)
        storage, key = self.storage, build_topic_manifest_key(location.cluster_id, location.revision)
        topic = read_topic_manifest(storage, location.cluster_id, location.revision)
        if topic is not None and topic.owner != self.cluster_id:
            return
        storage.delete([key])
        run_in_parallel(self._delete_partition, list(_list_partitions(storage, location)), name="delete")
        storage.delete([key])  # A process with an older catalog may have written the register again.
        delete_ownership(storage, location, self.cluster_id)

    def _delete_partition(self, partition: RemotePartition) -> None:
        garbage = self._empty_manifest(partition)
        if garbage is not None and self.storage is not None:
            delete_garbage(self.storage, garbage)
            self.storage.delete([partition.key])

    def _empty_manifest(self, partition: RemotePartition) -> Garbage | None:
        if self.storage is None:
            return None
        storage, manifest = self.storage, Manifest(self.cluster_id)
        register = manifest_register(storage, partition)

        def empty(held: RegisterSnapshot | None) -> dict[str, Any] | None:
            nonlocal manifest
            manifest = Manifest("") if held is None else parse_manifest(storage, partition.key, held.value)
            if manifest.owner != self.cluster_id or not (manifest.pages or manifest.entries):
                return None
            pages, entries = (*manifest.garbage.pages, *manifest.pages), (*manifest.garbage.entries, *manifest.entries)
            epoch = manifest.tiered_epoch + 1
            manifest = replace(manifest, tiered_epoch=epoch, pages=(), entries=(), garbage=Garbage(pages, entries))
            return manifest.to_json()

        register.update(empty, mark=create_mark())
        return manifest.garbage if manifest.owner == self.cluster_id else None


def _list_partitions(storage: ObjectStore, location: TopicLocation) -> Iterator[RemotePartition]:
    for listed in storage.list(build_location_prefix(location.cluster_id, location.revision)):
        number = parse_manifest_partition(listed.key)
        if number is not None:
            yield RemotePartition(location.cluster_id, location.revision, number)


MIN_AGE_MS: Final = 24 * 60 * 60 * 1000
"""Minimum age of swept objects; writers reference them within half a day."""
_BATCH: Final = 1000

LocationId = tuple[str, int]
"""Cluster id and initial revision."""


@dataclass(slots=True)
class _PartitionFolder:
    partition: RemotePartition
    objects: list[ListedObject] = field(default_factory=list)

    @property
    def location(self) -> LocationId:
        return self.partition.cluster_id, self.partition.revision


@dataclass(slots=True)
class _FolderResult:
    folder: _PartitionFolder
    unnamed: list[ListedObject]
    has_manifest: bool
    is_foreign: bool = False


def sweep_remote(store: ObjectStore, remote: RemoteTier, catalog: CatalogRegister) -> tuple[int, int]:
    """Delete objects older than a day that no manifest references; return their number and bytes.

    Objects are listed before references are read. The sweep covers locations that this cluster created or mounted,
    except detached ones and those being handed over. If a manifest is missing, its objects are deleted only if neither
    catalog nor object storage knows the topic. If a manifest lacks uploads that its head has, none are deleted.
    """
    storage = remote.storage
    old_ms = storage.read_clock_ms() - MIN_AGE_MS
    known = _KnownLocations.of(catalog.read(), remote.cluster_id)
    described: set[LocationId] = set()
    look = _FolderCheck(store, remote, known)
    folders = (
        folder
        for prefix in known.list_prefixes(remote.cluster_id)
        for folder in _iter_folders(storage, prefix, old_ms, described)
    )
    results = [result for result in map_in_parallel(look, folders, name="sweep") if result is not None]
    # The catalog is read again, to include topics created during the listing.
    now = _KnownLocations.of(catalog.read(), remote.cluster_id)
    foreign = {result.folder.location for result in results if result.is_foreign}
    forgotten = {
        result.folder.location
        for result in results
        if result.unnamed and not result.has_manifest and not now.must_keep(result.folder.location, described)
    }
    foreign |= _find_foreign_locations(storage, forgotten, remote.cluster_id)
    doomed = [
        listed
        for result in results
        if result.folder.location not in foreign and (result.has_manifest or result.folder.location in forgotten)
        for listed in result.unnamed
    ]
    for at in range(0, len(doomed), _BATCH):
        storage.delete(listed.key for listed in doomed[at : at + _BATCH])
    return len(doomed), sum(listed.size for listed in doomed)


def _find_foreign_locations(
    storage: ObjectStore, forgotten: Collection[LocationId], cluster_id: str
) -> set[LocationId]:
    """Return forgotten locations that other clusters own, whose objects may be a last copy."""
    foreign: set[LocationId] = set()
    for listed in storage.list(MOUNTABLE) if forgotten else ():
        place = parse_mountable_key(listed.key)
        if place is None or place not in forgotten:
            continue
        owned = read_ownership_at(storage, listed.key)
        is_ours = isinstance(owned, Ownership) and (owned.state, owned.owner) == (OwnershipState.MOUNTED, cluster_id)
        if owned is not None and not is_ours:
            foreign.add(place)
    return foreign


@dataclass(frozen=True, slots=True)
class _KnownLocations:
    tierings: dict[LocationId, TopicTiering]
    busy: frozenset[LocationId]
    topic_ids: dict[LocationId, str]

    @classmethod
    def of(cls, catalog: Catalog, cluster_id: str) -> _KnownLocations:
        tierings: dict[LocationId, TopicTiering] = {}
        topic_ids: dict[LocationId, str] = {}
        busy: set[LocationId] = set()
        for name, topic in catalog.topics.items():
            location = get_topic_location(name, topic, cluster_id)
            tiering = find_tiering(catalog, name, cluster_id)
            if topic.recovering is not None or is_closed(topic):
                busy.add((location.cluster_id, location.revision))
            elif tiering is not None:
                tierings[location.cluster_id, location.revision] = tiering
                topic_ids[location.cluster_id, location.revision] = topic.id
        for deletion in catalog.deletions.values():
            if deletion.location is not None:
                _, made_by, revision = deletion.location.split("/")
                busy.add((made_by, int(revision)))
        return cls(tierings, frozenset(busy), topic_ids)

    def list_prefixes(self, cluster_id: str) -> list[str]:
        elsewhere = sorted(location for location in self.tierings if location[0] != cluster_id)
        return [f"{REMOTE_TOPICS}{cluster_id}/", *(build_location_prefix(*location) for location in elsewhere)]

    def must_keep(self, location: LocationId, described: set[LocationId]) -> bool:
        return location in self.tierings or location in self.busy or location in described


def _iter_folders(
    storage: ObjectStore, prefix: str, old_ms: int, described: set[LocationId]
) -> Iterator[_PartitionFolder]:
    folder: _PartitionFolder | None = None
    for listed in storage.list(prefix):
        described.update(filter(None, [parse_topic_manifest_key(listed.key)]))
        place = parse_remote_key(listed.key)
        if place is None:
            continue
        partition = RemotePartition(*place[:3])
        if folder is None or folder.partition != partition:
            if folder is not None:
                yield folder
            folder = _PartitionFolder(partition)
        if listed.modified_ms < old_ms and _is_named_by_manifests(place[3]):
            folder.objects.append(listed)
    if folder is not None:
        yield folder


def _is_named_by_manifests(name: str) -> bool:
    return name.endswith((".parquet", ".index")) if "/" not in name else name.startswith("pages/")


@dataclass(frozen=True, slots=True)
class _FolderCheck:
    store: ObjectStore
    remote: RemoteTier
    known: _KnownLocations

    def __call__(self, folder: _PartitionFolder) -> _FolderResult | None:
        """Return `None` during an operation on its topic."""
        if folder.location in self.known.busy:
            return None
        return retry_if_missing(lambda: self._check_folder(folder))

    def _check_folder(self, folder: _PartitionFolder) -> _FolderResult:
        manifest = read_manifest(self.remote.storage, folder.partition)
        if manifest is None:
            return _FolderResult(folder, folder.objects, has_manifest=False)
        if manifest.owner != self.remote.cluster_id:
            return _FolderResult(folder, [], has_manifest=True, is_foreign=True)
        tiering = self.known.tierings.get(folder.location)
        if tiering is not None:
            delete_manifest_garbage(
                ManifestSwap(self.remote.storage, self.remote.cluster_id, tiering), folder.partition, manifest.garbage
            )
        named = set(_iter_named_keys(self.remote.storage, manifest))
        unnamed = [item for item in folder.objects if item.key not in named]
        return _FolderResult(
            folder, [] if unnamed and self._may_need_unnamed(folder, manifest) else unnamed, has_manifest=True
        )

    def _may_need_unnamed(self, folder: _PartitionFolder, manifest: Manifest) -> bool:
        """Whether the manifest is older than the folder, so unreferenced objects may be needed."""
        topic_id = self.known.topic_ids.get(folder.location)
        head = None if topic_id is None else read_head(self.store, topic_id, folder.partition.number)
        return head is not None and lacks_uploaded_records(manifest, head)


def _iter_named_keys(storage: ObjectStore, manifest: Manifest) -> Iterator[str]:
    yield from iter_object_keys((*manifest.entries, *manifest.garbage.entries))
    for page in manifest.pages:
        yield page.key
        yield from iter_object_keys(read_page(storage, page))
    for page in manifest.garbage.pages:
        yield page.key
        try:
            yield from iter_object_keys(read_page(storage, page))
        except MissingObjectError:
            continue
