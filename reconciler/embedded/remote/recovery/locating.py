"""Which topics lie in an object storage, and what could be made of each: read, and nothing written."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.tiering import TopicLocation
from reconciler.embedded.keys import (
    REMOTE_TOPICS,
    location_of_topic_manifest,
    partition_of_manifest,
    remote_place_of,
    topic_manifest_key,
)
from reconciler.embedded.mounting.ownership import Owning, read_ownership
from reconciler.embedded.remote.manifests.topicmanifest import read_topic_manifest
from reconciler.embedded.remote.recovery.wholeness import whole_partitions_of
from reconciler.errors import UserError
from reconciler.resources.address import split_name
from reconciler.resources.recoverable import Recoverable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.embedded.partition.entries import Entry, PageRef
    from reconciler.embedded.remote.manifests.manifest import Manifest
    from reconciler.embedded.remote.manifests.topicmanifest import TopicManifest
    from reconciler.objectstore.base import ObjectStore

_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class Lying:
    """What lies at one location, by its names alone."""

    is_described: bool
    """Whether there is a `topic.json`: without it, nobody knows what topic it was."""
    manifests: int
    """Of so many partitions."""


def lying_in(storage: ObjectStore, cluster_id: str | None = None) -> dict[tuple[str, int], Lying]:
    """Return what lies there, by cluster id and initial revision, or what one cluster made of it: one listing."""
    prefix = REMOTE_TOPICS if cluster_id is None else f"{REMOTE_TOPICS}{cluster_id}/"
    described: set[tuple[str, int]] = set()
    manifests: Counter[tuple[str, int]] = Counter()
    for listed in storage.list(prefix):
        topic, place = location_of_topic_manifest(listed.key), remote_place_of(listed.key)
        if topic is not None:
            described.add(topic)
        elif place is not None and partition_of_manifest(listed.key) is not None:
            manifests[place[:2]] += 1
    return {each: Lying(each in described, manifests[each]) for each in sorted(described | manifests.keys())}


def located(storage: ObjectStore, location: TopicLocation) -> TopicManifest:
    """Return the topic at a location.

    Raises:
        UserError: There is none, it has another name, its register is damaged or of a newer format.
    """
    found = read_topic_manifest(storage, location.cluster_id, location.revision)
    if found is None:
        lost = topic_manifest_key(location.cluster_id, location.revision)
        hint = (
            "See which there are: reconciler export CLUSTER --from-object-storage --out FOLDER. Where its partitions "
            "lie there, restore that object from a version or copy of the bucket."
        )
        raise UserError(f"there is no topic at {location} in {storage.url}: {lost} is not there", hint=hint)
    name = found.location.topic
    if location.topic not in {name, split_name(name)[1]}:
        message = f"at {location} in {storage.url} lies topic {name}"
        raise UserError(message, hint=f"Write {found.location}, or correct the cluster id and revision.")
    return found


def location_named(storage: ObjectStore, full_name: str) -> TopicLocation:
    """Return the one location of a topic by its full name: what `remote.recovery` asks for.

    Raises:
        UserError: There is none, or there are several; says where.
    """
    found = sorted(_called(storage, full_name))
    if len(found) == 1:
        return found[0]
    if not found:
        raise UserError(
            f"there is no topic {full_name} in {storage.url}",
            hint="See which there are: reconciler export CLUSTER --from-object-storage --out FOLDER",
        )
    named = ", ".join(map(str, found[:_NAMED])) + (" …" if found[_NAMED:] else "")
    message = f"{len(found)} topics called {full_name} lie in {storage.url}: {named}"
    raise UserError(message, hint="Name one of them as recoverFrom.")


def recoverable(storage: ObjectStore, location: TopicLocation, cluster_id: str | None) -> Recoverable:
    """Return what the cluster `cluster_id` (`None`: one still to be made) would get: see `whole_partitions_of`.

    Raises:
        UserError: There is no such topic, it is mounted on another cluster, damaged, of a newer format, or not whole.
    """
    found = located(storage, location)
    check_unmounted(storage, found.location, cluster_id)
    manifests = whole_partitions_of(storage, found)
    return Recoverable(
        str(found.location),
        found.name,
        found.partitions,
        found.replication_factor,
        found.effective,
        sum(manifest.stored_bytes for manifest in manifests.values()),
        sum(manifest.records for manifest in manifests.values()),
        {number: (manifest.start, manifest.end) for number, manifest in manifests.items()},
        tuple((each.max_ts, each.bytes) for manifest in manifests.values() for each in _named(manifest)),
        found.configs,
        found.initial,
    )


def check_unmounted(storage: ObjectStore, location: TopicLocation, cluster_id: str | None) -> None:
    """Refuse a topic that was detached once and belongs to another cluster now.

    Raises:
        UserError: It does, or the register that says so is damaged.
    """
    found = read_ownership(storage, location)
    if found is not None and found.state is not Owning.DETACHED and found.owner != cluster_id:
        message = f"{location} is mounted on cluster {found.owner}"
        hint = (
            "Mirror it from there, or unmount it there first. Where that cluster, or its topic, is gone for good: "
            f"reconciler mount release {location} --owner {found.owner} --allow release:{location}"
        )
        raise UserError(message, hint=hint)


def _named(manifest: Manifest) -> tuple[PageRef | Entry, ...]:
    return (*manifest.pages, *manifest.entries)


def _called(storage: ObjectStore, full_name: str) -> Iterator[TopicLocation]:
    for cluster_id, revision in lying_in(storage):
        found = read_topic_manifest(storage, cluster_id, revision)
        if found is not None and full_name in {found.name, found.location.topic}:
            yield found.location
