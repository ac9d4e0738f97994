"""Detached topics and migrations in the words of the protocol, for every platform."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from reconciler.archives.archive import release
from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import read_manifest, remote_partition
from reconciler.archives.ownership import Ownership, check_owner, ownerships, read_ownership, sound_ownerships
from reconciler.archives.recoverable import located
from reconciler.errors import UserError
from reconciler.resources.mount import Direction, Mountable
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.address import Address


def mountable_in(cluster: Address, storage: ObjectStore | None) -> Sequence[Mountable]:
    """Return every topic that was ever detached, sorted by location.

    Raises:
        UserError: There is no object storage, or a register of it is damaged.
    """
    return [mountable_of(each) for each in sound_ownerships(given(cluster, storage))]


def goes_on_by_hand(direction: Direction, *topics: Address) -> str:
    """Return what a prepared migration that a command began waits for."""
    verb = "mount" if direction == "inbound" else "unmount"
    return f"it continues when it is asked to: reconciler topic {verb} --finish {' '.join(topics)}"


def given(cluster: Address, storage: ObjectStore | None) -> ObjectStore:
    """Return the object storage of a cluster.

    Raises:
        UserError: It has none.
    """
    if storage is None:
        hint = "Declare its objectStorage: topics are mounted from it."
        raise UserError(f"{cluster} has no object storage", hint=hint)
    return storage


def mountable_of(found: Ownership) -> Mountable:
    """Say what a register does in the words of plans."""
    return Mountable(
        str(found.location),
        found.location.topic,
        found.state.value,
        found.owner,
        found.name,
        found.partitions,
        found.records,
        found.bytes,
        found.at_ms,
    )


def detached_in(storage: ObjectStore) -> Iterator[tuple[str, Mountable | UserError]]:
    """Yield what the registers say: one listing, one GET each."""
    for key, found in ownerships(storage):
        yield key, found if isinstance(found, UserError) else mountable_of(found)


def releasable_in(storage: ObjectStore, location: str, owner: str) -> Mountable:
    """Return a topic as its manifests are now: a GET for each partition.

    Raises:
        UserError: There is no such topic, or it has another owner or none.
    """
    there = located(storage, TopicLocation.parse(location))
    found = read_ownership(storage, there.location)
    check_owner(there.location, found, owner, there.owner)
    manifests = [
        each
        for each in side_by_side(
            lambda number: read_manifest(storage, remote_partition(there.location, number)),
            range(there.partitions),
            name="release",
        )
        if each is not None
    ]
    return Mountable(
        str(there.location),
        there.location.topic,
        "mounted" if found is None else found.state.value,
        owner,
        there.name if found is None else found.name,
        there.partitions,
        sum(each.records for each in manifests),
        sum(each.stored_bytes for each in manifests),
        None if found is None else found.at_ms,
    )


def released_in(storage: ObjectStore, location: str, owner: str, *, now_ms: int) -> Mountable:
    """Take a topic from an owner that will not come back, manifest by manifest, then its register.

    Raises:
        UserError: As of `releasable_in`.
    """
    return mountable_of(release(storage, TopicLocation.parse(location), owner, now_ms=now_ms))
