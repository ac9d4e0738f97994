"""An archive from its first write to the moment it is nobody's: what an unmount does, where jobs do it.

`begin` makes the manifests, empty, and `topic.json`; the records come through `ArchiveSink`. `describe` writes down
what the topic was, before it is deleted; `detach` lets go of it: from then on anybody may mount it. All of it may be
done again, by anybody, at any point.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from reconciler.embedded.catalog.configs import checked_configs
from reconciler.embedded.consuming.offsets import Committed
from reconciler.embedded.keys import (
    fresh_mark,
    index_key,
    location_prefix,
    manifest_key,
    remote_place_of,
    topic_manifest_key,
)
from reconciler.embedded.mounting.claims import detach_topic
from reconciler.embedded.mounting.handing import Handing
from reconciler.embedded.mounting.ownership import Ownership, Owning, check_hands
from reconciler.embedded.partition.pages import all_entries, all_pages
from reconciler.embedded.remote.manifests.manifest import NOBODY, Garbage, Manifest, read_manifest
from reconciler.embedded.remote.manifests.purging import delete_garbage
from reconciler.embedded.remote.manifests.topicmanifest import TopicManifest, hand_over, read_topic_manifest
from reconciler.embedded.threads import all_side_by_side, side_by_side
from reconciler.errors import UserError
from reconciler.resources.configs import EMBEDDED_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.archiving.archive import Archive
    from reconciler.records.log import Bounds

_PLACES = ("remote.", "local.retention.", "retention.local.", "initial.retention.")
_TIERED = {"remote.write": "true", "remote.read": "true"}
"""What holds for a topic whose records lie in object storage: whoever mounts it reads them there."""


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

    Raises:
        OwnershipLostError: It is another cluster's by now.
    """
    place, storage = archive.location, archive.storage
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

    Only while it is ours, or nobody's by our own hand: nobody writes there then.
    """
    place, storage = archive.location, archive.storage
    listed = [each.key for each in storage.list(location_prefix(place.cluster_id, place.revision))]
    partitions = range(_there(archive).partitions)
    manifests = dict(
        zip(partitions, side_by_side(lambda one: _manifest(archive, one), partitions, name="tidy"), strict=True)
    )
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
    """Return the configs that an embedded cluster has too, and takes; what lies where is not for those to say."""
    return {
        key: value for key, value in sorted(configs.items()) if not key.startswith(_PLACES) and _is_taken(key, value)
    }


def _is_taken(key: str, value: str) -> bool:
    if key not in EMBEDDED_CONFIGS:
        return False
    try:
        checked_configs("an archive", {key: value})
    except UserError:
        return False
    return True
