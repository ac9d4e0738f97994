"""Deleting a topic from object storage: its register first, so that nobody recovers what is going, then its partitions.

Of each partition the manifest is emptied, all that it named garbage, under a tiered epoch that no writer knows; then
the objects go, by their names, and the manifest last. Every step may be repeated. What a manifest never named is left
to the sweep. A partition that belongs to another cluster by now is left alone.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.embedded.keys import fresh_mark, location_prefix, partition_of_manifest, topic_manifest_key
from reconciler.embedded.mounting.claims import forget_topic
from reconciler.embedded.remote.manifests.manifest import (
    Garbage,
    Manifest,
    RemotePartition,
    manifest_register,
    parse_manifest,
)
from reconciler.embedded.remote.manifests.purging import delete_garbage
from reconciler.embedded.remote.manifests.topicmanifest import read_topic_manifest
from reconciler.embedded.remote.storagefile import check_given, check_storage
from reconciler.embedded.threads import SideBySide

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.embedded.catalog.tiering import TopicLocation
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import Held

_AT_ONCE: Final = 16


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
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="delete") as threads:
            for _ in SideBySide(threads, 4 * _AT_ONCE).over(self._delete, list(_partitions(storage, location))):
                pass
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

        def emptied(held: Held | None) -> dict[str, Any] | None:
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
