"""Ownership registers of detached topics.

The states are `detached` → `claimed` (a mount is running) → `mounted` → `detached`. Each change is one swap under the
next epoch, so only one of two clusters succeeds. The claim is the migration's mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.keys import MOUNTABLE, build_mountable_key, is_mountable_key
from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import NOBODY
from reconciler.archives.objects import damaged_error, decode_object
from reconciler.errors import OwnershipLostError, UserError
from reconciler.objectstore.register import Register, RegisterSnapshot
from reconciler.resources.mount import explain_release
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore


Json = dict[str, Any]

_SHAPE: Final = {
    "state": str,
    "owner": (None, str),
    "claim": (None, str),
    "topic": str,
    "cluster_id": str,
    "revision": int,
    "name": str,
    "partitions": int,
    "records": int,
    "bytes": int,
    "at_ms": int,
}
_PLACE: Final = ("topic", "cluster_id", "revision")


class OwnershipState(StrEnum):
    """Ownership state of a topic."""

    DETACHED = "detached"
    CLAIMED = "claimed"
    MOUNTED = "mounted"


@dataclass(frozen=True, slots=True)
class Ownership:
    """Content of a topic's ownership register, with sizes from the last detach."""

    location: TopicLocation
    state: OwnershipState
    owner: str | None
    claim: str | None
    """Mark of the migration that claimed or detached the topic."""
    name: str
    partitions: int = 0
    records: int = 0
    bytes: int = 0
    at_ms: int = 0

    def to_json(self) -> Json:
        """Convert to JSON."""
        values = asdict(self)
        values |= {**values.pop("location"), "state": str(self.state)}
        return {key: values[key] for key in _SHAPE}

    @classmethod
    def from_json(cls, values: Json) -> Ownership:
        """Parse JSON."""
        place = {key: values[key] for key in _PLACE}
        rest = {key: values[key] for key in _SHAPE.keys() - {*_PLACE, "state"}}
        return cls(TopicLocation(**place), OwnershipState(values["state"]), **rest)


def read_ownership(storage: ObjectStore, location: TopicLocation) -> Ownership | None:
    """Return a topic's ownership; `None` if never detached."""
    register = open_ownership_register(storage, location)
    held = register.read()
    return None if held is None else _parse(register, held)


def iter_ownerships(storage: ObjectStore) -> Iterator[tuple[str, Ownership | UserError]]:
    """Yield the ownership of every topic ever detached: one LIST, and one GET each."""
    keys = [listed.key for listed in storage.list(MOUNTABLE) if is_mountable_key(listed.key)]
    results = map_in_parallel(lambda key: read_ownership_at(storage, key), keys, name="mountable")
    yield from ((key, result) for key, result in zip(keys, results, strict=True) if result is not None)


def read_ownership_at(storage: ObjectStore, key: str) -> Ownership | UserError | None:
    """Return the ownership at a key (`None` if missing), or its read error."""
    register = Register(storage, key, format=_FORMAT, shape=_SHAPE)
    try:
        held = register.read()
        return None if held is None else _parse(register, held)
    except UserError as error:
        return error


def list_valid_ownerships(storage: ObjectStore) -> list[Ownership]:
    """Return all ownerships, sorted by location; raise `UserError` for a damaged register."""
    sound = []
    for _, ownership in iter_ownerships(storage):
        if isinstance(ownership, UserError):
            raise ownership
        sound.append(ownership)
    return sorted(sound, key=lambda item: item.location)


def check_handover_owner(what: object, owner: str, cluster_id: str) -> None:
    """Raise `OwnershipLostError` if an object does not belong to the migrating cluster."""
    if owner not in {cluster_id, NOBODY}:
        message = f"{what} belongs to cluster {owner} now"
        raise OwnershipLostError(
            message, hint="Nothing was changed; list topics with their owners: reconciler mount list"
        )


def update_ownership(
    storage: ObjectStore, location: TopicLocation, change: Callable[[Ownership | None], Ownership | None], *, mark: str
) -> None:
    """Change a topic's ownership by one swap under the next epoch, once per `mark`; `None` from `change` keeps it."""
    register = open_ownership_register(storage, location)

    def change_value(held: RegisterSnapshot | None) -> Json | None:
        after = change(None if held is None else _parse(register, held))
        return None if after is None else after.to_json()

    register.update(change_value, mark=mark, raises_epoch=True)


_FORMAT: Final = "reconciler.mountable/1"


def open_ownership_register(storage: ObjectStore, location: TopicLocation) -> Register:
    """Return a topic's ownership register."""
    key = build_mountable_key(location.topic, location.cluster_id, location.revision)
    return Register(storage, key, format=_FORMAT, shape=_SHAPE)


def _parse(register: Register, held: RegisterSnapshot) -> Ownership:
    ownership = decode_object(register.store, register.key, held.value, Ownership.from_json)
    place = ownership.location
    if build_mountable_key(place.topic, place.cluster_id, place.revision) != register.key:
        raise damaged_error(register.store, register.key, f"it is that of {place}")
    return ownership


def check_claimable(
    location: TopicLocation, ownership: Ownership | None, cluster_id: str | None, claim: str = ""
) -> None:
    """Raise `OwnershipLostError` unless a topic is detached or claimed by this migration."""
    if ownership is None:
        message = f"{location} was never detached: it belongs to cluster {location.cluster_id}"
        raise OwnershipLostError(message, hint="Unmount it there first.")
    if ownership.state is OwnershipState.DETACHED or (ownership.owner == cluster_id and ownership.claim == claim):
        return
    word = "mounted on" if ownership.state is OwnershipState.MOUNTED else "being mounted on"
    whose = "this cluster" if ownership.owner == cluster_id else f"cluster {ownership.owner}"
    message = f"{location} is {word} {whose} as {ownership.name}"
    release = f"reconciler mount release {location} --owner {ownership.owner} --allow release:{location}"
    raise OwnershipLostError(
        message, hint=explain_release(release, is_mounted=ownership.state is OwnershipState.MOUNTED)
    )


def claim_topic(storage: ObjectStore, location: TopicLocation, wanted: Ownership) -> None:
    """Claim a detached topic for a migration. Repeatable; raises `OwnershipLostError`."""

    def claim(current: Ownership | None) -> Ownership | None:
        check_claimable(location, current, wanted.owner, wanted.claim or "")
        if current is None or current.state is not OwnershipState.DETACHED:
            return None
        return replace(wanted, partitions=current.partitions, records=current.records, bytes=current.bytes)

    update_ownership(storage, location, claim, mark=_claim_mark(wanted.claim))
    check_claim_held(location, read_ownership(storage, location), wanted.owner, wanted.claim)


def check_claim_held(
    location: TopicLocation, ownership: Ownership | None, cluster_id: str | None, claim: str | None
) -> None:
    """Raise `OwnershipLostError` if a migration's claim was released or replaced."""
    check_claimable(location, ownership, cluster_id, claim or "")
    if ownership is not None and ownership.state is OwnershipState.DETACHED:
        message = f"{location} was released: the claim of this cluster no longer exists"
        raise OwnershipLostError(message, hint="Mount it again, if it is still detached: reconciler mount list")


def settle_topic(storage: ObjectStore, location: TopicLocation, cluster_id: str, claim: str, now_ms: int) -> None:
    """Mark a claimed topic as mounted; raise `OwnershipLostError` for a replaced claim."""

    def settle(current: Ownership | None) -> Ownership | None:
        check_claim_held(location, current, cluster_id, claim)
        if current is None or current.state is OwnershipState.MOUNTED:
            return None
        return replace(current, state=OwnershipState.MOUNTED, at_ms=now_ms)

    update_ownership(storage, location, settle, mark=f"settle-{claim}")


def unclaim_topic(storage: ObjectStore, location: TopicLocation, cluster_id: str, claim: str, now_ms: int) -> None:
    """Release a claim, and make a delayed claim fail; skip other clusters' topics."""
    update_ownership(storage, location, lambda current: current, mark=_claim_mark(claim))

    def unclaim(current: Ownership | None) -> Ownership | None:
        if current is None or (current.state, current.owner, current.claim) != (
            OwnershipState.CLAIMED,
            cluster_id,
            claim,
        ):
            return None
        return replace(current, state=OwnershipState.DETACHED, at_ms=now_ms)

    update_ownership(storage, location, unclaim, mark=f"unclaim-{claim}")


def detach_topic(storage: ObjectStore, location: TopicLocation, detached: Ownership) -> None:
    """Mark a mounted topic as detached, once per migration; raise `OwnershipLostError` for another owner."""

    def detach(current: Ownership | None) -> Ownership | None:
        if current is None:
            return detached
        if current.claim == detached.claim:
            return None
        if current.owner != detached.owner or current.state is not OwnershipState.MOUNTED:
            message = f"{location} belongs to cluster {current.owner} now"
            raise OwnershipLostError(
                message, hint="Nothing was changed; list topics with their owners: reconciler mount list"
            )
        return detached

    update_ownership(storage, location, detach, mark=f"detach-{detached.claim}")


def seize_topic(storage: ObjectStore, location: TopicLocation, seized: Ownership, described: str) -> None:
    """Replace the owner's claim, which stops its migrations. `described` is the owner in `topic.json`."""

    def seize(current: Ownership | None) -> Ownership | None:
        check_owner(location, current, seized.owner or "", described)
        return seized if current is None else replace(current, claim=seized.claim)

    update_ownership(storage, location, seize, mark=f"seize-{seized.claim}")


def check_seized(location: TopicLocation, ownership: Ownership | None, owner: str, claim: str) -> None:
    """Raise `UserError` unless the topic's register still has this process's claim."""
    check_owner(location, ownership, owner)
    if ownership is None or ownership.claim != claim:
        message = f"another process is releasing {location}, or cluster {owner} no longer owns it"
        raise UserError(message, hint="List topics with their owners: reconciler mount list")


def delete_ownership(storage: ObjectStore, location: TopicLocation, cluster_id: str) -> None:
    """Delete the register of a topic deleted by its owner."""
    ownership = read_ownership(storage, location)
    if ownership is not None and ownership.owner == cluster_id and ownership.state is OwnershipState.MOUNTED:
        storage.delete([build_mountable_key(location.topic, location.cluster_id, location.revision)])


def release_topic(storage: ObjectStore, location: TopicLocation, owner: str, released: Ownership) -> None:
    """Mark a seized topic as detached."""

    def release(current: Ownership | None) -> Ownership | None:
        check_seized(location, current, owner, released.claim or "")
        return released

    update_ownership(storage, location, release, mark=f"release-{released.claim}")


def check_owner(location: TopicLocation, ownership: Ownership | None, owner: str, described: str = NOBODY) -> None:
    """Raise `UserError` unless `owner` owns a topic.

    A topic without a register belongs to `described`, the owner in `topic.json`.
    """
    first = location.cluster_id if described == NOBODY else described
    has = first if ownership is None else ownership.owner
    if ownership is not None and ownership.state is OwnershipState.DETACHED:
        message = f"{location} is detached: no cluster owns it"
        raise UserError(message, hint="Nothing to release: mount it on any cluster.")
    if has != owner:
        message = f"{location} is owned by cluster {has}, not by {owner}"
        raise UserError(message, hint=f"If that is the cluster that will not come back: --owner {has}")


def _claim_mark(claim: str | None) -> str:
    return f"claim-{claim}"
