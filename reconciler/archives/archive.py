"""Archives: topics of other platforms in object storage, in the format of a detached topic.

A mount claims a detached topic, copies its records, and settles it: the register keeps two clusters from taking one
topic. An unmount begins an archive, describes the topic before it is deleted, and detaches it. Any process may repeat
each step.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from reconciler.archives.cluster_metadata import kept_groups, place_of
from reconciler.archives.keys import index_key, location_prefix, manifest_key, remote_place_of, topic_manifest_key
from reconciler.archives.location import Tiering, TopicLocation
from reconciler.archives.manifest import (
    NOBODY,
    Garbage,
    Handing,
    Manifest,
    ManifestSwap,
    RemotePartition,
    delete_garbage,
    read_manifest,
    remote_partition,
)
from reconciler.archives.ownership import (
    Ownership,
    Owning,
    check_hands,
    check_owned,
    check_seized,
    claim_topic,
    detach_topic,
    read_ownership,
    release_topic,
    seize_topic,
    settle_topic,
    unclaim_topic,
)
from reconciler.archives.pages import all_entries, all_pages
from reconciler.archives.recoverable import located, whole_partitions_of
from reconciler.archives.storage import check_storage
from reconciler.archives.topic_manifest import Committed, TopicManifest, hand_over, read_topic_manifest
from reconciler.errors import UserError
from reconciler.lifecycles import TieringState
from reconciler.objectstore.register import fresh_mark
from reconciler.resources.configs import EMBEDDED_CONFIGS, canonical_value
from reconciler.resources.tiering_policy import RETAIN, Targets
from reconciler.runtime.threads import all_side_by_side, side_by_side

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.records.log import Bounds


_LOGGER: Final = logging.getLogger("reconciler.mounting")
_SPILL_BYTES: Final = 64 * 1024
"""As the property `cloud_storage_spillover_manifest_size` has it where nobody sets it."""
_NO_TARGETS: Final = Targets(None, None, None, None, is_strict=False)


@dataclass(frozen=True, slots=True)
class Archive:
    """One topic in object storage. Picklable: an executor opens the storage again."""

    storage: ObjectStore
    location: TopicLocation
    owner: str
    """Id (a UUID) of the cluster that owns it until it is detached."""
    storage_id: str | None = None
    """Id of the object storage, if it is known."""

    def partition(self, number: int) -> RemotePartition:
        """Return one partition's place."""
        return remote_partition(self.location, number)

    def check_shared(self) -> None:
        """Refuse a machine that sees another storage, or none: a folder that is not shared.

        Raises:
            UserError: It does.
        """
        check_storage(self.storage, self.storage_id)

    @property
    def swap(self) -> ManifestSwap:
        """What changes its manifests in its owner's name."""
        return ManifestSwap(self.storage, self.owner, self._tiering, keeps_epoch=True)

    @property
    def _tiering(self) -> Tiering:
        return Tiering(
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


def claim(archive: Archive, name: str, mark: str, *, now_ms: int) -> TopicManifest:
    """Claim a detached topic for the archive's owner, where it is called `name`; return it, whole. May be repeated.

    Raises:
        OwnershipLostError: Another cluster has it, or another attempt.
        UserError: There is none, or something that it names is lost.
    """
    topic = located(archive.storage, archive.location)
    wanted = Ownership(topic.location, Owning.CLAIMED, archive.owner, mark, name, at_ms=now_ms)
    claim_topic(archive.storage, topic.location, wanted)
    whole_partitions_of(archive.storage, topic)
    return topic


def check_claimed(archive: Archive, mark: str) -> None:
    """Refuse to go on with what was claimed, and released or taken since.

    Raises:
        OwnershipLostError: It was.
    """
    place = archive.location
    check_owned(place, read_ownership(archive.storage, place), archive.owner, mark)


def settle(archive: Archive, name: str, mark: str, *, now_ms: int) -> None:
    """Say that a claimed topic is its owner's: all its records are there. May be repeated.

    Raises:
        OwnershipLostError: The claim was taken away.
    """
    place, storage = archive.location, archive.storage
    settle_topic(storage, place, archive.owner, mark, now_ms)

    def ours(found: Manifest) -> Manifest | None:
        check_hands("a manifest of the topic", found.owner, archive.owner)
        if found.owner == archive.owner:
            return None
        return replace(found, owner=archive.owner, owner_epoch=found.owner_epoch + 1)

    topic = located(storage, place)
    Handing(storage, place, lambda: check_claimed(archive, mark))(range(topic.partitions), ours)

    def told(found: TopicManifest | None) -> TopicManifest | None:
        check_claimed(archive, mark)
        if found is None:
            return None
        check_hands(f"topic {place}", found.owner, archive.owner)
        after = replace(found, owner=archive.owner, name=name, serial=0)
        return None if after == found else after

    hand_over(storage, place, told, f"settle-{mark}")


def give_back(archive: Archive, mark: str, *, now_ms: int) -> None:
    """Let go of a claim that came to nothing; what is another's stays so."""
    unclaim_topic(archive.storage, archive.location, archive.owner, mark, now_ms)


_PLACES = ("remote.", "local.retention.", "retention.local.", "initial.retention.")
_TIERED = {"remote.write": "true", "remote.read": "true"}
"""What holds for a topic whose records are in object storage: a mount reads them there."""


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    """A topic of another platform, as far as an archive keeps it. Configs the embedded cluster has not are left out."""

    full_name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)
    """Its own."""
    effective: Mapping[str, str] = field(default_factory=dict)
    """All that hold for it, the defaults of its cluster included."""
    groups: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """The next offset that each consumer group reads, by partition."""


def begin(archive: Archive, topic: ArchivedTopic, starts: Mapping[int, int], claim: str) -> None:
    """Make an archive that holds nothing yet, its partitions beginning at `starts`; `claim` is this attempt's mark.

    What the location held before, from an earlier time, is named no more and deleted once this one is whole.

    Raises:
        OwnershipLostError: Another cluster has the location, or it lies detached.
        UserError: Another topic lies there.
    """
    _describe(archive, topic, {}, f"begin-{claim}")

    def emptied(number: int, manifest: Manifest) -> Manifest | None:
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

    def begun(number: int) -> None:
        archive.swap(archive.partition(number), lambda manifest: emptied(number, manifest), mark=f"begin-{claim}")

    all_side_by_side(begun, range(topic.partitions), name="begin")


def describe(archive: Archive, topic: ArchivedTopic, bounds: Mapping[int, Bounds]) -> None:
    """Write down what a topic is before it goes, and let its partitions begin where it does: all of it was compared.

    Raises:
        OwnershipLostError: The topic is another cluster's by now.
    """

    def narrowed(number: int) -> None:
        start = bounds[number].start

        def change(manifest: Manifest) -> Manifest | None:
            after = max(manifest.start, min(start, manifest.end))
            return None if after == manifest.start else replace(manifest, start=after)

        archive.swap(archive.partition(number), change)

    all_side_by_side(narrowed, bounds, name="describe")
    ends = {number: found.end for number, found in bounds.items() if found.end}
    _describe(archive, topic, ends, fresh_mark())


def detach(archive: Archive, claim: str, *, now_ms: int) -> Ownership:
    """Let go of a topic that is whole in its archive: its registers are nobody's, and anybody may mount it.

    Return what its register says then: another cluster may have it by now, where this is done again.

    Raises:
        OwnershipLostError: It is another cluster's by now, and was never detached.
    """
    place, storage = archive.location, archive.storage
    there = read_ownership(storage, place)
    is_let_go = there is not None and (there.state is Owning.DETACHED or there.owner != archive.owner)
    if there is not None and is_let_go and _there(archive).owner != archive.owner:
        return there  # It was let go of before.
    hand_over(storage, place, lambda found: _unowned(archive, found), f"detach-{claim}")

    def let_go(found: Manifest) -> Manifest | None:
        check_hands("a manifest of the topic", found.owner, archive.owner)
        return None if found.owner == NOBODY else replace(found, owner=NOBODY, owner_epoch=found.owner_epoch + 1)

    topic = _there(archive)
    manifests = Handing(storage, place, lambda: None)(range(topic.partitions), let_go)
    detached = Ownership(
        place,
        Owning.DETACHED,
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


def tidy(archive: Archive) -> int:
    """Delete what a whole archive does not name, left by earlier times and by tasks that died; return how many.

    Before it is detached: who mounts it then puts objects there that no manifest names yet. Where it is not ours any
    more, nothing is deleted.
    """
    place, storage = archive.location, archive.storage
    listed = [each.key for each in storage.list(location_prefix(place.cluster_id, place.revision))]
    topic = _there(archive)
    partitions = range(topic.partitions)
    manifests = dict(
        zip(partitions, side_by_side(lambda one: _manifest(archive, one), partitions, name="tidy"), strict=True)
    )
    if {topic.owner, *(one.owner for one in manifests.values() if one is not None)} != {archive.owner}:
        return 0
    named = {topic_manifest_key(place.cluster_id, place.revision)}
    for number, manifest in manifests.items():
        named.add(manifest_key(place.cluster_id, place.revision, number))
        if manifest is None:
            continue
        named |= {page.key for page in all_pages(storage, manifest)}
        named |= {key for entry in all_entries(storage, manifest) for key in (entry.key, index_key(entry.key))}
        delete_garbage(storage, manifest.garbage)
    left = [key for key in listed if key not in named and remote_place_of(key) is not None]
    storage.delete(left)
    return len(left)


def _describe(archive: Archive, topic: ArchivedTopic, ends: Mapping[int, int], mark: str) -> None:
    place = archive.location
    told = TopicManifest(
        place,
        archive.owner,
        0,
        topic.full_name,
        topic.partitions,
        topic.replication_factor,
        _known(topic.configs),
        {**_known(topic.effective), **_TIERED},
        {},
        1,
        {
            group: {number: Committed(offset) for number, offset in offsets.items()}
            for group, offsets in topic.groups.items()
        },
        ends,
    )

    def change(found: TopicManifest | None) -> TopicManifest | None:
        if found is not None:
            check_hands(f"topic {place}", found.owner, archive.owner)
            if found.owner == NOBODY or found.location != place:
                message = f"at {place} in {archive.storage.url} lies topic {found.location}, detached"
                raise UserError(message, hint="See whose it is: reconciler mount list. Nothing was changed.")
        return None if found == told else told

    hand_over(archive.storage, place, change, mark)


def _unowned(archive: Archive, found: TopicManifest | None) -> TopicManifest | None:
    if found is None:
        return None
    check_hands(f"topic {found.location}", found.owner, archive.owner)
    return None if found.owner == NOBODY else replace(found, owner=NOBODY, name=found.location.topic)


def _there(archive: Archive) -> TopicManifest:
    place = archive.location
    found = read_topic_manifest(archive.storage, place.cluster_id, place.revision)
    if found is None:
        message = f"there is no topic at {place} in {archive.storage.url}"
        raise UserError(message, hint="Is objectStorage what it was when the topic was archived? Set it back.")
    return found


def _manifest(archive: Archive, number: int) -> Manifest | None:
    return read_manifest(archive.storage, archive.partition(number))


def _known(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the configs that an embedded cluster takes, without those of where records are stored."""
    return {
        key: value for key, value in sorted(configs.items()) if not key.startswith(_PLACES) and _is_taken(key, value)
    }


def _is_taken(key: str, value: str) -> bool:
    if key not in EMBEDDED_CONFIGS:
        return False
    try:
        canonical_value(key, value)
    except ValueError:
        return False
    return True


def release(storage: ObjectStore, location: TopicLocation, owner: str, *, now_ms: int) -> Ownership:
    """Make a topic nobody's that `owner` has, or was mounting; return what is there. May be repeated.

    The claim is seized first, so that no migration of the owner continues. Then `topic.json` and the manifests lose
    their owner, so that its next swap or upload fails. What it had not uploaded is lost; offsets of its groups travel
    with the topic if they were kept.

    Raises:
        UserError: There is no such topic, it has another owner or none, or a register of it is damaged.
    """
    there = located(storage, location)
    mark, place = fresh_mark(), there.location
    seized = Ownership(place, Owning.MOUNTED, owner, mark, there.name, there.partitions, at_ms=now_ms)
    seize_topic(storage, place, seized, there.owner)
    groups = _groups_left(storage, there, owner)

    def check() -> None:
        check_seized(place, read_ownership(storage, place), owner, mark)

    def unowned(found: TopicManifest | None) -> TopicManifest | None:
        check()
        return None if found is None else replace(found, owner=NOBODY, groups={**groups, **found.groups})

    def taken(found: Manifest) -> Manifest:
        if found.owner not in {owner, NOBODY}:
            message = f"a manifest of {place} belongs to cluster {found.owner}, not to {owner}"
            raise UserError(message, hint="See whose it is: reconciler mount list")
        return replace(found, owner=NOBODY, owner_epoch=found.owner_epoch + 1)  # Who read it before is refused.

    hand_over(storage, place, unowned, mark)
    manifests = Handing(storage, place, check)(range(there.partitions), taken).values()
    released = replace(
        seized,
        state=Owning.DETACHED,
        records=sum(manifest.records for manifest in manifests),
        bytes=sum(manifest.stored_bytes for manifest in manifests),
    )
    release_topic(storage, place, owner, released)
    return released


def _groups_left(storage: ObjectStore, there: TopicManifest, owner: str) -> dict[str, dict[int, Committed]]:
    """Return where the groups of a lost owner were, none beyond what it had uploaded."""
    place = there.location
    kept, why = kept_groups(storage, owner)
    if why is not None:
        _LOGGER.warning("topic %s: the offsets of its groups do not travel with it: %s", place, why.message)
    if kept is None:
        return {}
    manifests = {number: read_manifest(storage, remote_partition(place, number)) for number in range(there.partitions)}
    ends = {number: 0 if manifest is None else manifest.end for number, manifest in manifests.items()}
    return {
        group: {
            number: replace(each, offset=min(each.offset, ends[number]), epoch=None)
            for number, each in offsets.items()
            if number in ends
        }
        for group, offsets in kept.offsets_of(place_of(place.cluster_id, place.revision)).items()
    }
