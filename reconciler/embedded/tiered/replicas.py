"""Read replicas: topics that read another cluster's topic from object storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import Manifest, RemotePartition, read_manifest, remote_partition
from reconciler.archives.recoverable import find_topic_at
from reconciler.archives.storage import check_storage
from reconciler.archives.topic_manifest import read_topic_manifest
from reconciler.embedded.acl import to_acl_entries
from reconciler.embedded.catalog.tables import Catalog, Draft, find_topic_by_id
from reconciler.embedded.catalog.topics import create_replica, record_replica_state
from reconciler.embedded.segments.gate import remove_partition
from reconciler.embedded.segments.head import REPLICA, Head, head_register, parse_head
from reconciler.embedded.tiered.remote_tier import RemoteTier, find_same_log_end, has_dropped_remote
from reconciler.errors import LostRaceError, QuotaExceededError, ReconcilerError, UserError
from reconciler.objectstore.register import create_mark
from reconciler.resources.cluster_properties import ENABLED, read_property
from reconciler.resources.mirrors import Trouble
from reconciler.resources.mount import RecoverableTopic
from reconciler.resources.topic import SOURCE_GONE
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.model import TopicEntry
    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.acls import TopicAcl


def read_replica_source(storage: ObjectStore, location: TopicLocation) -> RecoverableTopic:
    """Return the topic at a location by one GET."""
    topic = find_topic_at(storage, location)
    return RecoverableTopic(str(topic.location), topic.name, topic.partitions)


def create_replica_topic(
    draft: Draft, full_name: str, source: RecoverableTopic, *, topic_id: str, acls: Iterable[TopicAcl] = ()
) -> str:
    """Create a read replica if missing; return its topic id."""
    existing, rules = draft.topics.get(full_name), to_acl_entries(tuple(acls))
    if existing is None:
        create_replica(draft, full_name, source.partitions, topic_id=topic_id, location=source.location, acls=rules)
    elif existing.replica is None or existing.replica.location != source.location or existing.acls != rules:
        message = f"topic {full_name} exists and is not the read replica of {source.location} that was to be created"
        raise UserError(message, hint="It was created after the plan: plan again.")
    return draft.topics[full_name].id


@dataclass(frozen=True, slots=True)
class Replicas:
    """A cluster's read replicas. Several processes may run at once.

    A head is read before its manifest, and swapped only if unchanged, so a slow process never restores an older end.
    """

    store: ObjectStore
    catalog: CatalogRegister
    remote: RemoteTier | None
    now_ms: Callable[[], int]
    is_stopped: Callable[[], bool] = lambda: False

    def refresh_wanted(self, is_wanted: Callable[[str], bool]) -> Mapping[str, int | ReconcilerError]:
        """Refresh wanted replicas; return the number of changed partitions, or the error, by topic id.

        This takes one GET per topic and partition.
        """
        catalog = self.catalog.read()
        remote = self.remote
        if read_property(catalog.cluster.properties, ENABLED) != "true":
            return {}
        ended: dict[str, int | ReconcilerError] = {}
        for full_name, topic in sorted(catalog.topics.items()):
            if topic.replica is None or not is_wanted(full_name):
                continue
            if self.is_stopped():
                break
            try:
                ended[topic.id] = self._refresh_topic(catalog, full_name, topic, remote)
            except ReconcilerError as error:
                error.message = f"read replica {full_name}: {error.message}"
                ended[topic.id] = error
        return ended

    def _refresh_topic(self, catalog: Catalog, full_name: str, topic: TopicEntry, remote: RemoteTier | None) -> int:
        if topic.replica is None:
            return 0
        if remote is None:
            message = "its cluster has no object storage"
            raise UserError(message, hint="Declare the objectStorage of its source on the Cluster.")
        location = TopicLocation.parse(topic.replica.location)
        source = read_topic_manifest(remote.storage, location.cluster_id, location.revision)
        if source is None:
            # If this is another bucket than the cluster's, a missing source was not deleted.
            check_storage(remote.storage, catalog.cluster.storage_id)
            raise self._record_source_gone(topic, location)
        failed: ReconcilerError | None = None
        if source.partitions > topic.partitions or topic.replica.trouble is not None:
            try:
                self.catalog.commit(lambda draft: record_replica_state(draft, topic.id, source.partitions, None))
            except QuotaExceededError as error:
                failed = error
                self.catalog.commit(lambda draft: record_replica_state(draft, topic.id, topic.partitions, None))
        partitions = source.partitions if failed is None else min(source.partitions, topic.partitions)

        def refresh(number: int) -> bool | ReconcilerError:
            try:
                return self._refresh_head(full_name, topic.id, remote_partition(location, number), remote)
            except ReconcilerError as error:
                return error

        moved = 0
        for result in map_in_parallel(refresh, range(partitions), name="replica"):
            if isinstance(result, ReconcilerError):
                failed = failed or result
            else:
                moved += result
        if failed is not None:
            raise failed
        return moved

    def _record_source_gone(self, topic: TopicEntry, location: TopicLocation) -> UserError:
        message = f"its source {location} was deleted: it is no longer in object storage"
        trouble = Trouble(SOURCE_GONE, message, self.now_ms())
        self.catalog.commit(lambda draft: record_replica_state(draft, topic.id, topic.partitions, trouble))
        hint = (
            "Delete the read replica, or name another location in readReplicaOf: a topic that was created again under "
            "the same name has another one, which `topic storage` shows on its cluster."
        )
        return UserError(f"{message} ({SOURCE_GONE})", hint=hint)

    def _refresh_head(self, full_name: str, topic_id: str, source: RemotePartition, remote: RemoteTier) -> bool:
        register = head_register(self.store, topic_id, source.number)
        held = register.read()
        before = None if held is None else parse_head(self.store, register.key, held.value)
        manifest = read_manifest(remote.storage, source)
        after = _build_head(before, manifest, source)
        if after is None:
            return False
        try:
            register.swap(held, after.to_json(), mark=create_mark())
        except LostRaceError:
            return False  # Another process changed the head, or the topic is being deleted.
        if held is None and find_topic_by_id(self.catalog.read(), topic_id, full_name) is None:
            remove_partition(self.store, topic_id, source.number)
        return True


def _build_head(head: Head | None, manifest: Manifest | None, source: RemotePartition) -> Head | None:
    if manifest is None and head is None:
        return None
    if manifest is None or (head is not None and _is_older_copy(head, manifest)):
        end = 0 if head is None else head.end
        problem = "is not there" if manifest is None else f"ends at offset {manifest.end}: it is an older copy"
        message = f"partition {source.number}: {source.key} {problem}, and offsets below {end} were followed"
        raise UserError(message, hint="Restore it from a version or copy of the bucket; nothing was changed here.")
    after = replace(
        Head(REPLICA, is_settled=True) if head is None else head,
        start=manifest.start,
        local_start=manifest.end,
        end=manifest.end,
        epochs=manifest.epochs,
        compacted_to=min(manifest.compacted_to, manifest.end),
        uploaded_to=manifest.end,
        tiered_epoch=manifest.tiered_epoch,
    )
    return None if after == head else after


def _is_older_copy(head: Head, manifest: Manifest) -> bool:
    return manifest.end < head.end <= find_same_log_end(head, manifest) and not has_dropped_remote(head, manifest)
