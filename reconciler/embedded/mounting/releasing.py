"""Taking a topic from an owner that will not come back: nobody can tell whether that is so, so somebody says it.

Its claim is seized first, so that no migration of the owner goes on; what object storage says of it and its manifests
go into nobody's hands then, so that the next swap of the owner, should it live, fails, and so does its upload. At last
its register says `detached`. What the owner had not uploaded is lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.embedded.keys import fresh_mark
from reconciler.embedded.mounting.claims import check_seized, release_topic, seize_topic
from reconciler.embedded.mounting.handing import Handing
from reconciler.embedded.mounting.ownership import Ownership, Owning, read_ownership
from reconciler.embedded.remote.manifests.manifest import NOBODY
from reconciler.embedded.remote.manifests.topicmanifest import TopicManifest, hand_over
from reconciler.embedded.remote.recovery.locating import located
from reconciler.errors import UserError

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tiering import TopicLocation
    from reconciler.embedded.remote.manifests.manifest import Manifest
    from reconciler.objectstore.base import ObjectStore


def release(storage: ObjectStore, location: TopicLocation, owner: str, *, now_ms: int) -> Ownership:
    """Make a topic nobody's that `owner` has, or was mounting; return what is there. May be repeated.

    Raises:
        UserError: There is no such topic, it has another owner or none, or a register of it is damaged.
    """
    there = located(storage, location)
    mark, place = fresh_mark(), there.location
    seized = Ownership(place, Owning.MOUNTED, owner, mark, there.name, there.partitions, at_ms=now_ms)
    seize_topic(storage, place, seized, there.owner)

    def check() -> None:
        check_seized(place, read_ownership(storage, place), owner, mark)

    def unowned(found: TopicManifest | None) -> TopicManifest | None:
        check()
        return None if found is None else replace(found, owner=NOBODY)

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
