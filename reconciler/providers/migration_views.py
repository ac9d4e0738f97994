"""Detached topics in object storage, which can be mounted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from reconciler.archives.archive import release_archive
from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import read_manifest, remote_partition
from reconciler.archives.ownership import Ownership, check_owner, iter_ownerships, list_valid_ownerships, read_ownership
from reconciler.archives.recoverable import find_topic_at
from reconciler.errors import UserError
from reconciler.resources.mount import Direction, MountableTopic
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.address import Address


def list_mountable_topics(cluster: Address, storage: ObjectStore | None) -> Sequence[MountableTopic]:
    """Return all detached topics, sorted by location."""
    return [to_mountable(ownership) for ownership in list_valid_ownerships(require_storage(cluster, storage))]


def finish_command(direction: Direction, *topics: Address) -> str:
    """Return the command that finishes a prepared migration."""
    verb = "mount" if direction == "inbound" else "unmount"
    return f"continue it with: reconciler topic {verb} --finish {' '.join(topics)}"


def require_storage(cluster: Address, storage: ObjectStore | None) -> ObjectStore:
    """Return a cluster's object storage; raise if it has none."""
    if storage is None:
        hint = "Declare its objectStorage: topics are mounted from it."
        raise UserError(f"{cluster} has no object storage", hint=hint)
    return storage


def to_mountable(ownership: Ownership) -> MountableTopic:
    """Return the topic that an ownership register describes."""
    return MountableTopic(
        str(ownership.location),
        ownership.location.topic,
        ownership.state.value,
        ownership.owner,
        ownership.name,
        ownership.partitions,
        ownership.records,
        ownership.bytes,
        ownership.at_ms,
    )


def list_registers(storage: ObjectStore) -> Iterator[tuple[str, MountableTopic | UserError]]:
    """Yield each detached topic's location, with the topic or an error. Sends one GET each."""
    for key, ownership in iter_ownerships(storage):
        yield key, ownership if isinstance(ownership, UserError) else to_mountable(ownership)


def read_releasable_topic(storage: ObjectStore, location: str, owner: str) -> MountableTopic:
    """Return a topic of `owner` from its current manifests, with one GET per partition."""
    topic = find_topic_at(storage, TopicLocation.parse(location))
    ownership = read_ownership(storage, topic.location)
    check_owner(topic.location, ownership, owner, topic.owner)
    manifests = [
        manifest
        for manifest in map_in_parallel(
            lambda number: read_manifest(storage, remote_partition(topic.location, number)),
            range(topic.partitions),
            name="release",
        )
        if manifest is not None
    ]
    return MountableTopic(
        str(topic.location),
        topic.location.topic,
        "mounted" if ownership is None else ownership.state.value,
        owner,
        topic.name if ownership is None else ownership.name,
        topic.partitions,
        sum(manifest.records for manifest in manifests),
        sum(manifest.stored_bytes for manifest in manifests),
        None if ownership is None else ownership.at_ms,
    )


def release_lost_topic(storage: ObjectStore, location: str, owner: str, *, now_ms: int) -> MountableTopic:
    """Release a topic of a lost owner: first its manifests, then its register."""
    return to_mountable(release_archive(storage, TopicLocation.parse(location), owner, now_ms=now_ms))
