"""Read replicas: topics that follow the remote tier of a topic of another cluster, and only read it.

A replica has heads of its own, which say how far it shows its source's log: consumers, groups and jobs see one log
with a high watermark that moves with each look at the source. Of object storage everything here is read, nothing is
ever written. What was not uploaded is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import Manifest, RemotePartition, read_manifest, remote_partition
from reconciler.archives.recoverable import located
from reconciler.archives.storage import check_storage
from reconciler.archives.topic_manifest import read_topic_manifest
from reconciler.embedded.acl import entries_of
from reconciler.embedded.catalog.tables import Catalog, Draft, topic_with_id
from reconciler.embedded.catalog.topics import create_replica, follow_replica
from reconciler.embedded.segments.gate import remove_partition
from reconciler.embedded.segments.head import REPLICA, Head, head_register, parse_head
from reconciler.embedded.tiered.remote_tier import RemoteTier, agreed_in, gave_up_remote
from reconciler.errors import LostRaceError, QuotaExceededError, ReconcilerError, UserError
from reconciler.objectstore.register import fresh_mark
from reconciler.resources.cluster_properties import ENABLED, property_of
from reconciler.resources.mirrors import Trouble
from reconciler.resources.mount import Recoverable
from reconciler.resources.topic import SOURCE_GONE
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.model import TopicEntry
    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.acls import TopicAcl


def followable(storage: ObjectStore, location: TopicLocation) -> Recoverable:
    """Return the topic at a location as a replica would have it: one GET. Whoever has it now may go on using it.

    Raises:
        UserError: There is no such topic, it has another name, or its register is damaged or of a newer format.
    """
    found = located(storage, location)
    return Recoverable(str(found.location), found.name, found.partitions)


def make_replica(
    draft: Draft, full_name: str, found: Recoverable, *, topic_id: str, acls: Iterable[TopicAcl] = ()
) -> str:
    """Make a read replica of what was found, or find that it was made before; return its id.

    Raises:
        InvalidNamespaceError: Its namespace does not exist.
        UserError: Another topic has its name, or no topic can have it.
    """
    existing, rules = draft.topics.get(full_name), entries_of(tuple(acls))
    if existing is None:
        create_replica(draft, full_name, found.partitions, topic_id=topic_id, location=found.location, acls=rules)
    elif existing.replica is None or existing.replica.location != found.location or existing.acls != rules:
        message = f"topic {full_name} exists and is not the read replica of {found.location} that was to be created"
        raise UserError(message, hint="It was created after the plan: plan again.")
    return draft.topics[full_name].id


# Following: what the source has in object storage now becomes what the replica shows.
#
# A head is read before the manifest that it is brought to, and swapped as it was read: whoever follows at the same time
# is at least as far, and no head goes back because somebody was slow.


@dataclass(frozen=True, slots=True)
class Replicas:
    """The read replicas of one cluster. Safe to run in several processes at once."""

    store: ObjectStore
    catalog: CatalogRegister
    remote: RemoteTier | None
    now_ms: Callable[[], int]
    is_stopped: Callable[[], bool] = lambda: False

    def follow(self, is_wanted: Callable[[str], bool]) -> Mapping[str, int | ReconcilerError]:
        """Follow the sources of the replicas that are wanted, by full name; one that fails stops no other.

        Return, by topic id, how many partitions moved, or why the source could not be followed. A GET for each topic
        and each of its partitions; where `cloud_storage_enabled` is off, nothing.
        """
        found = self.catalog.read()
        remote = self.remote
        if property_of(found.cluster.properties, ENABLED) != "true":
            return {}
        ended: dict[str, int | ReconcilerError] = {}
        for full_name, topic in sorted(found.topics.items()):
            if topic.replica is None or not is_wanted(full_name):
                continue
            if self.is_stopped():
                break
            try:
                ended[topic.id] = self._follow(found, full_name, topic, remote)
            except ReconcilerError as error:
                error.message = f"read replica {full_name}: {error.message}"
                ended[topic.id] = error
        return ended

    def _follow(self, found: Catalog, full_name: str, topic: TopicEntry, remote: RemoteTier | None) -> int:
        if topic.replica is None:
            return 0
        if remote is None:
            message = "its cluster has no object storage"
            raise UserError(message, hint="Declare the objectStorage of its source on the Cluster.")
        location = TopicLocation.parse(topic.replica.location)
        source = read_topic_manifest(remote.storage, location.cluster_id, location.revision)
        if source is None:
            check_storage(remote.storage, found.cluster.storage_id)  # Another bucket says nothing of the source.
            raise self._gone(topic, location)
        failed: ReconcilerError | None = None
        if source.partitions > topic.partitions or topic.replica.trouble is not None:
            try:
                self.catalog.commit(lambda draft: follow_replica(draft, topic.id, source.partitions, None))
            except QuotaExceededError as error:
                failed = error  # Those that there is room for follow all the same.
                self.catalog.commit(lambda draft: follow_replica(draft, topic.id, topic.partitions, None))
        partitions = source.partitions if failed is None else min(source.partitions, topic.partitions)

        def brought(number: int) -> bool | ReconcilerError:
            try:
                return self._bring(full_name, topic.id, remote_partition(location, number), remote)
            except ReconcilerError as error:
                return error

        moved = 0
        for each in side_by_side(brought, range(partitions), name="replica"):
            if isinstance(each, ReconcilerError):
                failed = failed or each
            else:
                moved += each
        if failed is not None:
            raise failed
        return moved

    def _gone(self, topic: TopicEntry, location: TopicLocation) -> UserError:
        """Note that a source is gone, and return the error that says so; what was shown stays as it is."""
        message = f"its source {location} was deleted: it is no more in object storage"
        trouble = Trouble(SOURCE_GONE, message, self.now_ms())
        self.catalog.commit(lambda draft: follow_replica(draft, topic.id, topic.partitions, trouble))
        hint = (
            "Delete the read replica, or name another location in readReplicaOf: a topic that was created again under "
            "the same name has another one, which `topic storage` shows on its cluster."
        )
        return UserError(f"{message} ({SOURCE_GONE})", hint=hint)

    def _bring(self, full_name: str, topic_id: str, source: RemotePartition, remote: RemoteTier) -> bool:
        """Bring the head of one partition to what its source's manifest says; say whether it moved."""
        register = head_register(self.store, topic_id, source.number)
        held = register.read()
        before = None if held is None else parse_head(self.store, register.key, held.value)
        manifest = read_manifest(remote.storage, source)
        after = _followed(before, manifest, source)
        if after is None:
            return False
        try:
            register.swap(held, after.to_json(), mark=fresh_mark())
        except LostRaceError:
            return False  # Somebody else followed, or the topic is being deleted.
        if held is None and topic_with_id(self.catalog.read(), topic_id, full_name) is None:
            remove_partition(self.store, topic_id, source.number)
        return True


def _followed(head: Head | None, manifest: Manifest | None, source: RemotePartition) -> Head | None:
    """Return the head that shows what a manifest says; `None`: it does already.

    Raises:
        UserError: The manifest lacks what the head shows, and neither a cut of the source nor its tiering tells why.
    """
    if manifest is None and head is None:
        return None  # Nothing was ever uploaded.
    if manifest is None or (head is not None and _is_older_copy(head, manifest)):
        end = 0 if head is None else head.end
        found = "is not there" if manifest is None else f"ends at offset {manifest.end}: it is an older copy"
        message = f"partition {source.number}: {source.key} {found}, and offsets below {end} were followed"
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
    return manifest.end < head.end <= agreed_in(head, manifest) and not gave_up_remote(head, manifest)
