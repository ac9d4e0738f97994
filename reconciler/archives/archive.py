"""Archives: topics of other platforms in object storage, stored like detached topics.

A mount claims a topic, copies its records and settles the claim. An unmount begins an archive, copies, describes and
detaches. Any process may repeat a step.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from reconciler.archives.cluster_metadata import build_location_key, read_stored_groups
from reconciler.archives.keys import (
    build_index_key,
    build_location_prefix,
    build_manifest_key,
    build_topic_manifest_key,
    parse_remote_key,
)
from reconciler.archives.location import TopicLocation, TopicTiering
from reconciler.archives.manifest import (
    NOBODY,
    Garbage,
    Manifest,
    ManifestHandover,
    ManifestSwap,
    RemotePartition,
    delete_garbage,
    read_manifest,
    remote_partition,
)
from reconciler.archives.ownership import (
    Ownership,
    OwnershipState,
    check_claim_held,
    check_handover_owner,
    check_seized,
    claim_topic,
    detach_topic,
    read_ownership,
    release_topic,
    seize_topic,
    settle_topic,
    unclaim_topic,
)
from reconciler.archives.pages import iter_all_entries, iter_all_pages
from reconciler.archives.recoverable import find_topic_at, read_whole_partitions
from reconciler.archives.storage import check_storage
from reconciler.archives.topic_manifest import (
    CommittedOffset,
    TopicManifest,
    change_topic_manifest,
    read_topic_manifest,
)
from reconciler.errors import UserError
from reconciler.lifecycles import TieringState
from reconciler.objectstore.register import create_mark
from reconciler.resources.configs import EMBEDDED_CONFIGS, canonicalize_value
from reconciler.resources.tiering_policy import RETAIN, Targets
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.threads import map_in_parallel, run_in_parallel

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.records.log import Bounds


_LOGGER: Final = logging.getLogger("reconciler.mounting")
_SPILL_BYTES: Final = 64 * 1024
_NO_TARGETS: Final = Targets(None, None, None, None, is_strict=False)


@dataclass(frozen=True, slots=True)
class Archive:
    """One topic in object storage. Picklable."""

    storage: ObjectStore
    location: TopicLocation
    owner: str
    """UUID of the owning cluster until the topic is detached."""
    storage_id: str | None = None

    def locate_partition(self, number: int) -> RemotePartition:
        """Return where a partition's segments and manifest are stored; it need not exist."""
        return remote_partition(self.location, number)

    def check_shared(self) -> None:
        """Reject a machine that does not see the object storage."""
        check_storage(self.storage, self.storage_id)

    @property
    def swap(self) -> ManifestSwap:
        """Function that changes the manifests as their owner."""
        return ManifestSwap(self.storage, self.owner, self._tiering, keeps_epoch=True)

    @property
    def _tiering(self) -> TopicTiering:
        return TopicTiering(
            self.location,
            TieringState.ENABLED,
            1,
            RETAIN,
            uploads=True,
            serves=True,
            targets=_NO_TARGETS,
            max_interval_ms=None,
            spill_bytes=_SPILL_BYTES,
        )


def claim_archive(archive: Archive, name: str, mark: str, *, now_ms: int) -> TopicManifest:
    """Claim a detached topic as `name`, and check that no object is lost. `mark` identifies the attempt.

    Raises:
        OwnershipLostError: Another cluster or attempt has claimed it.
    """
    topic = find_topic_at(archive.storage, archive.location)
    wanted = Ownership(topic.location, OwnershipState.CLAIMED, archive.owner, mark, name, at_ms=now_ms)
    claim_topic(archive.storage, topic.location, wanted)
    read_whole_partitions(archive.storage, topic)
    return topic


def check_claimed(archive: Archive, mark: str) -> None:
    """Raise `OwnershipLostError` if the archive's claim was released or replaced."""
    place = archive.location
    check_claim_held(place, read_ownership(archive.storage, place), archive.owner, mark)


def settle_claim(archive: Archive, name: str, mark: str, *, now_ms: int) -> None:
    """Mark a claimed topic, whose records were copied, as mounted.

    Raises:
        OwnershipLostError: The claim was replaced.
    """
    place, storage = archive.location, archive.storage
    settle_topic(storage, place, archive.owner, mark, now_ms)

    def take_ownership(manifest: Manifest) -> Manifest | None:
        check_handover_owner("a manifest of the topic", manifest.owner, archive.owner)
        if manifest.owner == archive.owner:
            return None
        return replace(manifest, owner=archive.owner, owner_epoch=manifest.owner_epoch + 1)

    topic = find_topic_at(storage, place)
    ManifestHandover(storage, place, lambda: check_claimed(archive, mark))(range(topic.partitions), take_ownership)

    def describe(current: TopicManifest | None) -> TopicManifest | None:
        check_claimed(archive, mark)
        if current is None:
            return None
        check_handover_owner(f"topic {place}", current.owner, archive.owner)
        after = replace(current, owner=archive.owner, name=name, serial=0)
        return None if after == current else after

    change_topic_manifest(storage, place, describe, f"settle-{mark}")


def release_claim(archive: Archive, mark: str, *, now_ms: int) -> None:
    """Drop a failed claim, unless another cluster has the topic."""
    unclaim_topic(archive.storage, archive.location, archive.owner, mark, now_ms)


_STORAGE_CONFIGS = ("remote.", "local.retention.", "retention.local.", "initial.retention.")
_ARCHIVE_CONFIGS = {"remote.write": "true", "remote.read": "true"}


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    """A topic of another platform, with only configs that the embedded cluster supports."""

    full_name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)
    effective: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


def begin_archive(archive: Archive, topic: ArchivedTopic, starts: Mapping[int, int], claim: str) -> None:
    """Create an empty archive whose partitions begin at `starts`; `claim` identifies this attempt.

    Earlier records become garbage.

    Raises:
        OwnershipLostError: The archive is detached or has another owner.
    """
    _write_description(archive, topic, {}, f"begin-{claim}")

    def empty_manifest(number: int, manifest: Manifest) -> Manifest | None:
        start = starts.get(number, 0)
        garbage = Garbage((*manifest.garbage.pages, *manifest.pages), (*manifest.garbage.entries, *manifest.entries))
        return Manifest(
            archive.owner,
            owner_epoch=manifest.owner_epoch,
            start=start,
            end=start,
            epochs=((0, start),),
            garbage=garbage,
        )

    def begin_partition(number: int) -> None:
        archive.swap(
            archive.locate_partition(number), lambda manifest: empty_manifest(number, manifest), mark=f"begin-{claim}"
        )

    run_in_parallel(begin_partition, range(topic.partitions), name="begin")


def describe_archive(archive: Archive, topic: ArchivedTopic, bounds: Mapping[int, Bounds]) -> None:
    """Store the description of a copied topic; raise partitions' start offsets to `bounds`.

    Raises:
        OwnershipLostError: Another cluster owns the topic.
    """

    def narrow_partition(number: int) -> None:
        start = bounds[number].start

        def change(manifest: Manifest) -> Manifest | None:
            after = max(manifest.start, min(start, manifest.end))
            return None if after == manifest.start else replace(manifest, start=after)

        archive.swap(archive.locate_partition(number), change)

    run_in_parallel(narrow_partition, bounds, name="describe")
    ends = {number: bound.end for number, bound in bounds.items() if bound.end}
    _write_description(archive, topic, ends, create_mark())


def detach_archive(archive: Archive, claim: str, *, now_ms: int) -> Ownership:
    """Detach a topic, so any cluster may mount it; return its ownership.

    Raises:
        OwnershipLostError: Another cluster took the topic over before it was detached.
    """
    place, storage = archive.location, archive.storage
    ownership = read_ownership(storage, place)
    is_let_go = ownership is not None and (
        ownership.state is OwnershipState.DETACHED or ownership.owner != archive.owner
    )
    if ownership is not None and is_let_go and _require_topic(archive).owner != archive.owner:
        return ownership
    change_topic_manifest(storage, place, lambda current: _drop_owner(archive, current), f"detach-{claim}")

    def remove_owner(current: Manifest) -> Manifest | None:
        check_handover_owner("a manifest of the topic", current.owner, archive.owner)
        return None if current.owner == NOBODY else replace(current, owner=NOBODY, owner_epoch=current.owner_epoch + 1)

    topic = _require_topic(archive)
    manifests = ManifestHandover(storage, place, lambda: None)(range(topic.partitions), remove_owner)
    detached = Ownership(
        place,
        OwnershipState.DETACHED,
        archive.owner,
        claim,
        topic.name,
        topic.partitions,
        sum(manifest.records for manifest in manifests.values()),
        sum(manifest.stored_bytes for manifest in manifests.values()),
        now_ms,
    )
    detach_topic(storage, place, detached)
    return detached


def delete_unreferenced_objects(archive: Archive) -> int:
    """Delete objects that no manifest references; return their number.

    Call it only before the detach: a mount stores objects before a manifest references them.
    """
    place, storage = archive.location, archive.storage
    listed = [row.key for row in storage.list(build_location_prefix(place.cluster_id, place.revision))]
    topic = _require_topic(archive)
    partitions = range(topic.partitions)
    manifests = dict(
        zip(partitions, map_in_parallel(lambda one: _read_manifest(archive, one), partitions, name="tidy"), strict=True)
    )
    if {topic.owner, *(one.owner for one in manifests.values() if one is not None)} != {archive.owner}:
        return 0
    named = {build_topic_manifest_key(place.cluster_id, place.revision)}
    for number, manifest in manifests.items():
        named.add(build_manifest_key(place.cluster_id, place.revision, number))
        if manifest is None:
            continue
        named |= {page.key for page in iter_all_pages(storage, manifest)}
        named |= {
            key for entry in iter_all_entries(storage, manifest) for key in (entry.key, build_index_key(entry.key))
        }
        delete_garbage(storage, manifest.garbage)
    left = [key for key in listed if key not in named and parse_remote_key(key) is not None]
    storage.delete(left)
    return len(left)


def _write_description(archive: Archive, topic: ArchivedTopic, ends: Mapping[int, int], mark: str) -> None:
    place = archive.location
    described = TopicManifest(
        place,
        archive.owner,
        0,
        topic.full_name,
        topic.partitions,
        topic.replication_factor,
        _select_supported_configs(topic.configs),
        {**_select_supported_configs(topic.effective), **_ARCHIVE_CONFIGS},
        {},
        1,
        {
            group: {number: CommittedOffset(offset) for number, offset in offsets.items()}
            for group, offsets in topic.groups.items()
        },
        ends,
    )

    def change(current: TopicManifest | None) -> TopicManifest | None:
        if current is not None:
            check_handover_owner(f"topic {place}", current.owner, archive.owner)
            if current.owner == NOBODY or current.location != place:
                message = f"at {place} in {archive.storage.url} is the topic {current.location}, detached"
                raise UserError(
                    message, hint="List topics with their owners: reconciler mount list. Nothing was changed."
                )
        return None if current == described else described

    change_topic_manifest(archive.storage, place, change, mark)


def _drop_owner(archive: Archive, manifest: TopicManifest | None) -> TopicManifest | None:
    if manifest is None:
        return None
    check_handover_owner(f"topic {manifest.location}", manifest.owner, archive.owner)
    return None if manifest.owner == NOBODY else replace(manifest, owner=NOBODY, name=manifest.location.topic)


def _require_topic(archive: Archive) -> TopicManifest:
    place = archive.location
    manifest = read_topic_manifest(archive.storage, place.cluster_id, place.revision)
    if manifest is None:
        message = f"there is no topic at {place} in {archive.storage.url}"
        raise UserError(message, hint="Set objectStorage to the value that it had when the topic was archived.")
    return manifest


def _read_manifest(archive: Archive, number: int) -> Manifest | None:
    return read_manifest(archive.storage, archive.locate_partition(number))


def _select_supported_configs(configs: Mapping[str, str]) -> dict[str, str]:
    return {
        key: value
        for key, value in sorted(configs.items())
        if not key.startswith(_STORAGE_CONFIGS) and _is_supported(key, value)
    }


def _is_supported(key: str, value: str) -> bool:
    if key not in EMBEDDED_CONFIGS:
        return False
    try:
        canonicalize_value(key, value)
    except ValueError:
        return False
    return True


def release_archive(storage: ObjectStore, location: TopicLocation, owner: str, *, now_ms: int) -> Ownership:
    """Detach a topic that `owner` has mounted or was mounting; return its new ownership. Repeatable.

    Replacing the claim stops the owner's migrations. Removing the owner from `topic.json` and the manifests makes its
    next swap fail. Records that were not uploaded are lost; stored group offsets stay.
    """
    topic = find_topic_at(storage, location)
    mark, place = create_mark(), topic.location
    seized = Ownership(place, OwnershipState.MOUNTED, owner, mark, topic.name, topic.partitions, at_ms=now_ms)
    seize_topic(storage, place, seized, topic.owner)
    groups = _read_groups(storage, topic, owner)

    def check() -> None:
        check_seized(place, read_ownership(storage, place), owner, mark)

    def detach_topic_manifest(current: TopicManifest | None) -> TopicManifest | None:
        check()
        return None if current is None else replace(current, owner=NOBODY, groups={**groups, **current.groups})

    def detach_manifest(manifest: Manifest) -> Manifest:
        if manifest.owner not in {owner, NOBODY}:
            message = f"a manifest of {place} belongs to cluster {manifest.owner}, not to {owner}"
            raise UserError(message, hint="List topics with their owners: reconciler mount list")
        # The higher epoch fences writers of the former manifest.
        return replace(manifest, owner=NOBODY, owner_epoch=manifest.owner_epoch + 1)

    change_topic_manifest(storage, place, detach_topic_manifest, mark)
    manifests = ManifestHandover(storage, place, check)(range(topic.partitions), detach_manifest).values()
    released = replace(
        seized,
        state=OwnershipState.DETACHED,
        records=sum(manifest.records for manifest in manifests),
        bytes=sum(manifest.stored_bytes for manifest in manifests),
    )
    release_topic(storage, place, owner, released)
    return released


def _read_groups(storage: ObjectStore, topic: TopicManifest, owner: str) -> dict[str, dict[int, CommittedOffset]]:
    place = topic.location
    metadata, why = read_stored_groups(storage, owner)
    if why is not None:
        _LOGGER.warning("topic %s: the offsets of its groups do not travel with it: %s", place, why.message)
    if metadata is None:
        return {}
    manifests = {number: read_manifest(storage, remote_partition(place, number)) for number in range(topic.partitions)}
    ends = {number: 0 if manifest is None else manifest.end for number, manifest in manifests.items()}
    return {
        group: {
            number: replace(committed, offset=min(committed.offset, ends[number]), epoch=None)
            for number, committed in offsets.items()
            if number in ends
        }
        for group, offsets in metadata.read_group_offsets(build_location_key(place.cluster_id, place.revision)).items()
    }
