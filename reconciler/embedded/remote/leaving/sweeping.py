"""The sweep of object storage: what lies at our own locations, is a day old by its clock, and no manifest names.

Objects are listed first, then names are read; nothing is deleted before all of them were. Only locations that this
cluster made, or whose topics are mounted here, are looked at; what belongs to another cluster by now is left alone.
Where a partition has no manifest, its objects may be all there is of its records: they go only where neither the
catalog nor object storage knows the topic any more. Where its manifest is an older one that was put back, none goes.
What lies detached, and what is on its way to or from another cluster, is looked at by nobody.
Topics deleted with `remote.delete=false` keep their manifests, and so their objects. Garbage that somebody left is
deleted on the way.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.holding import is_closed
from reconciler.embedded.catalog.tiering import location_of, tiering_of
from reconciler.embedded.keys import (
    MOUNTABLE,
    REMOTE_TOPICS,
    location_of_mountable,
    location_of_topic_manifest,
    location_prefix,
    remote_place_of,
)
from reconciler.embedded.mounting.ownership import Ownership, Owning, ownership_at
from reconciler.embedded.partition.head import read_head
from reconciler.embedded.partition.pages import read_page
from reconciler.embedded.remote.manifests.agreement import is_behind
from reconciler.embedded.remote.manifests.manifest import RemotePartition, read_manifest
from reconciler.embedded.remote.manifests.purging import objects_of, purge
from reconciler.embedded.remote.manifests.swaps import ManifestSwap
from reconciler.embedded.threads import SideBySide
from reconciler.errors import MissingObjectError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.catalog.tiering import Tiering
    from reconciler.embedded.remote.manifests.manifest import Manifest
    from reconciler.embedded.remote.tier import RemoteTier
    from reconciler.objectstore.base import Listed, ObjectStore

OLD_MS: Final = 24 * 60 * 60 * 1000
"""By the storage's own clock. A writer names what it put within the hour, or puts it again."""
_AT_ONCE: Final = 16
_BATCH: Final = 1000
_LOOKS: Final = 3

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
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="sweep") as threads:
        folders = (
            folder
            for prefix in known.prefixes(remote.cluster_id)
            for folder in _folders(storage, prefix, old_ms, described)
        )
        found = [one for one in SideBySide(threads, 4 * _AT_ONCE).over(look, folders) if one is not None]
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
        look = 1
        while True:
            manifest = read_manifest(self.remote.storage, folder.partition)
            if manifest is None:
                return _Found(folder, folder.objects, has_manifest=False)
            if manifest.owner != self.remote.cluster_id:
                return _Found(folder, [], has_manifest=True, is_foreign=True)
            try:
                return self._judged(folder, manifest)
            except MissingObjectError:
                # Upkeep may have put another page in its place: the manifest tells.
                if look == _LOOKS:
                    raise
            look += 1

    def _judged(self, folder: _Folder, manifest: Manifest) -> _Found:
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
