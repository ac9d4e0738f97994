"""Taking a topic from an owner that will not come back: nobody can tell whether that is so, so somebody says it.

Its manifests go into nobody's hands first: the next swap of the owner, should it live, fails, and so does its upload.
Then its register says `detached`. What the owner had not uploaded is lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reconciler.embedded.keys import fresh_mark
from reconciler.embedded.mounting.ownership import (
    Ownership,
    Owning,
    check_owner,
    read_ownership,
    release_topic,
)
from reconciler.embedded.remote.manifests.manifest import NOBODY, manifest_register, parse_manifest
from reconciler.embedded.remote.manifests.topicmanifest import TopicManifest, hand_over
from reconciler.embedded.remote.recovery.locating import located
from reconciler.embedded.remote.tier import remote_partition
from reconciler.embedded.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tiering import TopicLocation
    from reconciler.embedded.remote.manifests.manifest import Manifest
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import Held


def release(storage: ObjectStore, location: TopicLocation, owner: str, *, now_ms: int) -> Ownership:
    """Make a topic nobody's that `owner` has, or was mounting; return what is there. May be repeated.

    Raises:
        UserError: There is no such topic, it has another owner or none, or a register of it is damaged.
    """
    there = located(storage, location)
    check_owner(there.location, read_ownership(storage, there.location), owner)
    manifests = [each for each in _taken(storage, there) if each is not None]
    mark = fresh_mark()
    hand_over(storage, there.location, lambda found: None if found is None else replace(found, owner=NOBODY), mark)
    released = Ownership(
        there.location,
        Owning.DETACHED,
        owner,
        mark,
        there.name,
        there.partitions,
        sum(manifest.records for manifest in manifests),
        sum(manifest.stored_bytes for manifest in manifests),
        now_ms,
    )
    release_topic(storage, there.location, owner, released)
    return released


def _taken(storage: ObjectStore, there: TopicManifest) -> list[Manifest | None]:
    """Take every manifest out of everybody's hands; `None`: nothing of the partition was ever uploaded."""

    def take(number: int) -> Manifest | None:
        place = remote_partition(there.location, number)
        register = manifest_register(storage, place)

        def nobodys(held: Held | None) -> dict[str, Any] | None:
            found = None if held is None else parse_manifest(storage, register.key, held.value)
            if found is None or found.owner == NOBODY:
                return None
            return replace(found, owner=NOBODY, owner_epoch=found.owner_epoch + 1).to_json()

        held = register.update(nobodys, mark=fresh_mark(), raises_epoch=True)
        return None if held is None else parse_manifest(storage, register.key, held.value)

    return list(side_by_side(take, range(there.partitions), name="release"))
