"""Delete topics and orphaned objects from object storage.

Of each partition the manifest is emptied, all that it named garbage, under a tiered epoch that no writer knows; then
the objects go, by their names, and the manifest last. Every step may be repeated. What a manifest never named is left
to the sweep. A partition that belongs to another cluster by now is left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.keys import (
    MOUNTABLE,
    REMOTE_TOPICS,
    location_of_mountable,
    location_of_topic_manifest,
    location_prefix,
    partition_of_manifest,
    remote_place_of,
    topic_manifest_key,
)
from reconciler.archives.location import Tiering, TopicLocation
from reconciler.archives.manifest import (
    Garbage,
    Manifest,
    ManifestSwap,
    RemotePartition,
    delete_garbage,
    manifest_register,
    objects_of,
    parse_manifest,
    purge,
    read_manifest,
)
from reconciler.archives.objects import look_again
from reconciler.archives.ownership import Ownership, Owning, forget_topic, ownership_at
from reconciler.archives.pages import read_page
from reconciler.archives.storage import check_given, check_storage
from reconciler.archives.topic_manifest import read_topic_manifest
from reconciler.embedded.catalog.tables import Catalog, is_closed
from reconciler.embedded.catalog.tiering_state import location_of, tiering_of
from reconciler.embedded.segments.head import read_head
from reconciler.embedded.tiered.remote_tier import RemoteTier, is_behind
from reconciler.errors import MissingObjectError
from reconciler.objectstore.register import fresh_mark
from reconciler.runtime.threads import all_side_by_side, side_by_side

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.objectstore.base import Listed, ObjectStore
    from reconciler.objectstore.register import ReadRegister


@dataclass(frozen=True, slots=True)
class RemoteDeletion:
    """Deletes what the cluster `cluster_id` owns in its object storage, where that is at hand."""

    storage: ObjectStore | None
    cluster_id: str

    def delete(self, location: TopicLocation, storage_id: str | None) -> None:
        """Delete all that manifests name at a location, and the manifests; `storage_id`: where it is.

        Raises:
            UserError: Object storage is not at hand, or another one; a manifest or page of it is damaged.
            LostRaceError: Others were faster every time.
        """
        check_given(self.storage, storage_id)
        if self.storage is None or storage_id is None:
            return  # The cluster was never bound to object storage: nothing can be there.
        check_storage(self.storage, storage_id)
        storage, key = self.storage, topic_manifest_key(location.cluster_id, location.revision)
        topic = read_topic_manifest(storage, location.cluster_id, location.revision)
        if topic is not None and topic.owner != self.cluster_id:
            return
        storage.delete([key])
        all_side_by_side(self._delete, list(_partitions(storage, location)), name="delete")
        storage.delete([key])  # Somebody may have described the topic again, who read the catalog before.
        forget_topic(storage, location, self.cluster_id)

    def _delete(self, partition: RemotePartition) -> None:
        garbage = self._emptied(partition)
        if garbage is not None and self.storage is not None:
            delete_garbage(self.storage, garbage)
            self.storage.delete([partition.key])

    def _emptied(self, partition: RemotePartition) -> Garbage | None:
        """Mark all that a manifest names; return that, `None` where it is gone or another cluster's."""
        if self.storage is None:
            return None
        storage, found = self.storage, Manifest(self.cluster_id)
        register = manifest_register(storage, partition)

        def emptied(held: ReadRegister | None) -> dict[str, Any] | None:
            nonlocal found
            found = Manifest("") if held is None else parse_manifest(storage, partition.key, held.value)
            if found.owner != self.cluster_id or not (found.pages or found.entries):
                return None
            pages, entries = (*found.garbage.pages, *found.pages), (*found.garbage.entries, *found.entries)
            epoch = found.tiered_epoch + 1
            found = replace(found, tiered_epoch=epoch, pages=(), entries=(), garbage=Garbage(pages, entries))
            return found.to_json()

        register.update(emptied, mark=fresh_mark())
        return found.garbage if found.owner == self.cluster_id else None


def _partitions(storage: ObjectStore, location: TopicLocation) -> Iterator[RemotePartition]:
    for listed in storage.list(location_prefix(location.cluster_id, location.revision)):
        number = partition_of_manifest(listed.key)
        if number is not None:
            yield RemotePartition(location.cluster_id, location.revision, number)


# The sweep of object storage: what lies at our own locations, is a day old by its clock, and no manifest names.
#
# Objects are listed first, then names are read; nothing is deleted before all of them were. Only locations that this
# cluster made, or whose topics are mounted here, are looked at; what belongs to another cluster by now is left alone.
# Where a partition has no manifest, its objects may be all there is of its records: they go only where neither the
# catalog nor object storage knows the topic any more. Where its manifest is an older one that was put back, none goes.
# What lies detached, and what is on its way to or from another cluster, is looked at by nobody. Topics deleted with
# `remote.delete=false` keep their manifests, and so their objects. Garbage that somebody left is deleted on the way.


OLD_MS: Final = 24 * 60 * 60 * 1000
"""By the storage's own clock. A writer names what it put within half a day, or puts it again."""
_BATCH: Final = 1000

Location = tuple[str, int]
"""Cluster id and initial revision."""


@dataclass(slots=True)
class _Folder:
    """What lies in the folder of one partition: the objects whose names a manifest may have, old ones only."""

    partition: RemotePartition
    objects: list[Listed] = field(default_factory=list)

    @property
    def location(self) -> Location:
        """Of its topic."""
        return self.partition.cluster_id, self.partition.revision


@dataclass(slots=True)
class _Found:
    """What one folder was found to be."""

    folder: _Folder
    unnamed: list[Listed]
    has_manifest: bool
    is_foreign: bool = False


def sweep_remote(store: ObjectStore, remote: RemoteTier, catalog: CatalogRegister) -> tuple[int, int]:
    """Delete what no manifest names and is older than a day; return how many objects, and their bytes.

    Raises:
        UserError: A manifest or page cannot be read; nothing was deleted.
    """
    storage = remote.storage
    old_ms = storage.clock_ms() - OLD_MS
    known = _Known.of(catalog.read(), remote.cluster_id)
    described: set[Location] = set()
    look = _Look(store, remote, known)
    folders = (
        folder
        for prefix in known.prefixes(remote.cluster_id)
        for folder in _folders(storage, prefix, old_ms, described)
    )
    found = [one for one in side_by_side(look, folders, name="sweep") if one is not None]
    # Read again: what was made since the listing began is in it by now.
    now = _Known.of(catalog.read(), remote.cluster_id)
    foreign = {one.folder.location for one in found if one.is_foreign}
    forgotten = {
        one.folder.location
        for one in found
        if one.unnamed and not one.has_manifest and not now.has(one.folder.location, described)
    }
    foreign |= _elsewhere(storage, forgotten, remote.cluster_id)
    doomed = [
        listed
        for one in found
        if one.folder.location not in foreign and (one.has_manifest or one.folder.location in forgotten)
        for listed in one.unnamed
    ]
    for at in range(0, len(doomed), _BATCH):
        storage.delete(listed.key for listed in doomed[at : at + _BATCH])
    return len(doomed), sum(listed.size for listed in doomed)


def _elsewhere(storage: ObjectStore, forgotten: Collection[Location], cluster_id: str) -> set[Location]:
    """Return which locations that nothing but their ownership knows are detached, or are another cluster's.

    Their manifests were lost: what lies there may be all there is of a topic, and is not ours to delete.
    """
    found: set[Location] = set()
    for listed in storage.list(MOUNTABLE) if forgotten else ():
        place = location_of_mountable(listed.key)
        if place is None or place not in forgotten:
            continue
        owned = ownership_at(storage, listed.key)
        is_ours = isinstance(owned, Ownership) and (owned.state, owned.owner) == (Owning.MOUNTED, cluster_id)
        if owned is not None and not is_ours:
            found.add(place)
    return found


@dataclass(frozen=True, slots=True)
class _Known:
    """The locations that a catalog knows: of topics that are there, and of those that are being made or deleted."""

    tierings: dict[Location, Tiering]
    busy: frozenset[Location]
    topic_ids: dict[Location, str]
    """Of those with a tiering."""

    @classmethod
    def of(cls, catalog: Catalog, cluster_id: str) -> _Known:
        """Turn a catalog around."""
        tierings: dict[Location, Tiering] = {}
        topic_ids: dict[Location, str] = {}
        busy: set[Location] = set()
        for name, topic in catalog.topics.items():
            location = location_of(name, topic, cluster_id)
            tiering = tiering_of(catalog, name, cluster_id)
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

    def prefixes(self, cluster_id: str) -> list[str]:
        """Return what the keys begin with that are looked at."""
        elsewhere = sorted(location for location in self.tierings if location[0] != cluster_id)
        return [f"{REMOTE_TOPICS}{cluster_id}/", *(location_prefix(*location) for location in elsewhere)]

    def has(self, location: Location, described: set[Location]) -> bool:
        """Tell whether somebody knows the topic at a location: objects without a manifest stay then."""
        return location in self.tierings or location in self.busy or location in described


def _folders(storage: ObjectStore, prefix: str, old_ms: int, described: set[Location]) -> Iterator[_Folder]:
    """Yield what lies in each partition's folder; note which locations have a topic's register."""
    folder: _Folder | None = None
    for listed in storage.list(prefix):
        described.update(filter(None, [location_of_topic_manifest(listed.key)]))
        place = remote_place_of(listed.key)
        if place is None:
            continue
        partition = RemotePartition(*place[:3])
        if folder is None or folder.partition != partition:
            if folder is not None:
                yield folder
            folder = _Folder(partition)
        if listed.modified_ms < old_ms and _is_named_by_manifests(place[3]):
            folder.objects.append(listed)
    if folder is not None:
        yield folder


def _is_named_by_manifests(name: str) -> bool:
    return name.endswith((".parquet", ".index")) if "/" not in name else name.startswith("pages/")


@dataclass(frozen=True, slots=True)
class _Look:
    """Looks at the folders of partitions, from any thread."""

    store: ObjectStore
    remote: RemoteTier
    known: _Known

    def __call__(self, folder: _Folder) -> _Found | None:
        """Return what no manifest names there; `None`: somebody is at work on the topic."""
        if folder.location in self.known.busy:
            return None
        return look_again(lambda: self._judged(folder))

    def _judged(self, folder: _Folder) -> _Found:
        manifest = read_manifest(self.remote.storage, folder.partition)
        if manifest is None:
            return _Found(folder, folder.objects, has_manifest=False)
        if manifest.owner != self.remote.cluster_id:
            return _Found(folder, [], has_manifest=True, is_foreign=True)
        tiering = self.known.tierings.get(folder.location)
        if tiering is not None:
            purge(
                ManifestSwap(self.remote.storage, self.remote.cluster_id, tiering), folder.partition, manifest.garbage
            )
        named = set(_named(self.remote.storage, manifest))
        unnamed = [each for each in folder.objects if each.key not in named]
        return _Found(folder, [] if unnamed and self._is_behind(folder, manifest) else unnamed, has_manifest=True)

    def _is_behind(self, folder: _Folder, manifest: Manifest) -> bool:
        """Tell whether the manifest lacks what was uploaded: what it does not name is the right one's."""
        topic_id = self.known.topic_ids.get(folder.location)
        head = None if topic_id is None else read_head(self.store, topic_id, folder.partition.number)
        return head is not None and is_behind(manifest, head)


def _named(storage: ObjectStore, manifest: Manifest) -> Iterator[str]:
    """Yield every key a manifest names, garbage included: that is deleted as such."""
    yield from objects_of((*manifest.entries, *manifest.garbage.entries))
    for page in manifest.pages:
        yield page.key
        yield from objects_of(read_page(storage, page))
    for page in manifest.garbage.pages:
        yield page.key
        try:
            yield from objects_of(read_page(storage, page))
        except MissingObjectError:
            continue  # All that it named went before it.
