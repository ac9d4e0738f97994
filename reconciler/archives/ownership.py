"""Ownership registers of detached topics: claim, settle, release.

`detached` → `claimed` (a cluster is mounting it) → `mounted` → `detached`, each by one swap under the next epoch. Of
two clusters that mount one topic one loses the swap. The claim is a mark of the migration, by which it is continued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.keys import MOUNTABLE, is_mountable_key, mountable_key
from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import NOBODY
from reconciler.archives.objects import damaged, decoded
from reconciler.errors import OwnershipLostError, UserError
from reconciler.objectstore.register import ReadRegister, Register
from reconciler.resources.mount import way_to_free
from reconciler.runtime.threads import side_by_side

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


class Owning(StrEnum):
    """Whether a topic has an owner."""

    DETACHED = "detached"
    CLAIMED = "claimed"
    MOUNTED = "mounted"


@dataclass(frozen=True, slots=True)
class Ownership:
    """What the register of a topic says. Sizes are those it had when it was detached last."""

    location: TopicLocation
    state: Owning
    owner: str | None
    """Id of the cluster that mounts it or has it mounted; of a detached one, that of the last."""
    claim: str | None
    """Of the migration that claimed or detached it."""
    name: str
    """What it is, or was last, called by its owner."""
    partitions: int = 0
    records: int = 0
    bytes: int = 0
    at_ms: int = 0
    """When this was written, by the clock of who wrote it."""

    def to_json(self) -> Json:
        """Return what the register keeps."""
        kept = asdict(self)
        kept |= {**kept.pop("location"), "state": str(self.state)}
        return {key: kept[key] for key in _SHAPE}

    @classmethod
    def from_json(cls, kept: Json) -> Ownership:
        """Read it back."""
        place = {key: kept[key] for key in _PLACE}
        rest = {key: kept[key] for key in _SHAPE.keys() - {*_PLACE, "state"}}
        return cls(TopicLocation(**place), Owning(kept["state"]), **rest)


def read_ownership(storage: ObjectStore, location: TopicLocation) -> Ownership | None:
    """Return who owns a topic; `None`: it was never detached, and is its first owner's.

    Raises:
        UserError: The register is damaged, or of a newer format.
    """
    register = ownership_register(storage, location)
    held = register.read()
    return None if held is None else _parsed(register, held)


def ownerships(storage: ObjectStore) -> Iterator[tuple[str, Ownership | UserError]]:
    """Yield every topic that was ever detached, by the key of its register: one listing, one GET each."""
    keys = [listed.key for listed in storage.list(MOUNTABLE) if is_mountable_key(listed.key)]
    found = side_by_side(lambda key: ownership_at(storage, key), keys, name="mountable")
    yield from ((key, each) for key, each in zip(keys, found, strict=True) if each is not None)


def ownership_at(storage: ObjectStore, key: str) -> Ownership | UserError | None:
    """Return what the register with a key says, or why it cannot be read."""
    register = Register(storage, key, format=_FORMAT, shape=_SHAPE)
    try:
        held = register.read()
        return None if held is None else _parsed(register, held)
    except UserError as error:
        return error


def sound_ownerships(storage: ObjectStore) -> list[Ownership]:
    """Return every topic that was ever detached, sorted by location; costs as `ownerships`.

    Raises:
        UserError: A register is damaged.
    """
    found = []
    for _, each in ownerships(storage):
        if isinstance(each, UserError):
            raise each
        found.append(each)
    return sorted(found, key=lambda one: one.location)


def check_hands(what: object, owner: str, cluster_id: str) -> None:
    """Refuse what a migration meets in object storage that is neither the cluster's nor nobody's.

    Raises:
        OwnershipLostError: It is another cluster's by now.
    """
    if owner not in {cluster_id, NOBODY}:
        message = f"{what} belongs to cluster {owner} now"
        raise OwnershipLostError(message, hint="Nothing was changed; see who mounted it: reconciler mount list")


def update_ownership(
    storage: ObjectStore, location: TopicLocation, change: Callable[[Ownership | None], Ownership | None], *, mark: str
) -> None:
    """Change a register by one swap under the next epoch; doing it twice under one mark does it once."""
    register = ownership_register(storage, location)

    def changed(held: ReadRegister | None) -> Json | None:
        after = change(None if held is None else _parsed(register, held))
        return None if after is None else after.to_json()

    register.update(changed, mark=mark, raises_epoch=True)


_FORMAT: Final = "reconciler.mountable/1"


def ownership_register(storage: ObjectStore, location: TopicLocation) -> Register:
    """Return the register of a topic."""
    key = mountable_key(location.topic, location.cluster_id, location.revision)
    return Register(storage, key, format=_FORMAT, shape=_SHAPE)


def _parsed(register: Register, held: ReadRegister) -> Ownership:
    found = decoded(register.store, register.key, held.value, Ownership.from_json)
    place = found.location
    if mountable_key(place.topic, place.cluster_id, place.revision) != register.key:
        raise damaged(register.store, register.key, f"it is that of {place}")
    return found


def check_claimable(location: TopicLocation, found: Ownership | None, cluster_id: str | None, claim: str = "") -> None:
    """Refuse a topic that another cluster has, or another migration.

    Raises:
        OwnershipLostError: It is not detached; names who has it.
    """
    if found is None:
        message = f"{location} was never detached: it belongs to cluster {location.cluster_id}"
        raise OwnershipLostError(message, hint="Unmount it there first.")
    if found.state is Owning.DETACHED or (found.owner == cluster_id and found.claim == claim):
        return
    word = "mounted on" if found.state is Owning.MOUNTED else "being mounted on"
    whose = "this cluster" if found.owner == cluster_id else f"cluster {found.owner}"
    message = f"{location} is {word} {whose} as {found.name}"
    release = f"reconciler mount release {location} --owner {found.owner} --allow release:{location}"
    raise OwnershipLostError(message, hint=way_to_free(release, is_mounted=found.state is Owning.MOUNTED))


def claim_topic(storage: ObjectStore, location: TopicLocation, wanted: Ownership) -> None:
    """Claim a detached topic for a migration; one that has it already has it still.

    Raises:
        OwnershipLostError: Another cluster, or another migration, has it, or this one has given it back.
    """

    def claimed(found: Ownership | None) -> Ownership | None:
        check_claimable(location, found, wanted.owner, wanted.claim or "")
        if found is None or found.state is not Owning.DETACHED:
            return None
        return replace(wanted, partitions=found.partitions, records=found.records, bytes=found.bytes)

    update_ownership(storage, location, claimed, mark=_claiming(wanted.claim))
    check_owned(location, read_ownership(storage, location), wanted.owner, wanted.claim)


def check_owned(location: TopicLocation, found: Ownership | None, cluster_id: str | None, claim: str | None) -> None:
    """Refuse to go on with a topic that a migration had claimed, and has no longer.

    Raises:
        OwnershipLostError: It was given back, or taken away.
    """
    check_claimable(location, found, cluster_id, claim or "")
    if found is not None and found.state is Owning.DETACHED:
        message = f"{location} was released, or given back: the claim of this cluster is gone"
        raise OwnershipLostError(message, hint="Mount it again, if it is still detached: reconciler mount list")


def settle_topic(storage: ObjectStore, location: TopicLocation, cluster_id: str, claim: str, now_ms: int) -> None:
    """Say that a claimed topic is mounted.

    Raises:
        OwnershipLostError: The claim was taken away.
    """

    def settled(found: Ownership | None) -> Ownership | None:
        check_owned(location, found, cluster_id, claim)
        if found is None or found.state is Owning.MOUNTED:
            return None
        return replace(found, state=Owning.MOUNTED, at_ms=now_ms)

    update_ownership(storage, location, settled, mark=f"settle-{claim}")


def unclaim_topic(storage: ObjectStore, location: TopicLocation, cluster_id: str, claim: str, now_ms: int) -> None:
    """Let go of a claim, also of one that is still on its way: whoever is late finds that it was made already.

    What is another's stays so.
    """
    update_ownership(storage, location, lambda found: found, mark=_claiming(claim))

    def unclaimed(found: Ownership | None) -> Ownership | None:
        if found is None or (found.state, found.owner, found.claim) != (Owning.CLAIMED, cluster_id, claim):
            return None
        return replace(found, state=Owning.DETACHED, at_ms=now_ms)

    update_ownership(storage, location, unclaimed, mark=f"unclaim-{claim}")


def detach_topic(storage: ObjectStore, location: TopicLocation, detached: Ownership) -> None:
    """Say that a topic is nobody's: by the cluster that has it, once for each migration.

    Raises:
        OwnershipLostError: It is another cluster's.
    """

    def detach(found: Ownership | None) -> Ownership | None:
        if found is None:
            return detached
        if found.claim == detached.claim:
            return None  # Done before, by the process that was here.
        if found.owner != detached.owner or found.state is not Owning.MOUNTED:
            message = f"{location} belongs to cluster {found.owner} now"
            raise OwnershipLostError(message, hint="Nothing was changed; see who mounted it: reconciler mount list")
        return detached

    update_ownership(storage, location, detach, mark=f"detach-{detached.claim}")


def seize_topic(storage: ObjectStore, location: TopicLocation, seized: Ownership, described: str) -> None:
    """Take the claim from the owner of a topic, in whose name it stays: from here on no migration of it is its own.

    `described` is the owner by its `topic.json`: see `check_owner`.

    Raises:
        UserError: It has another owner, or none.
    """

    def seize(found: Ownership | None) -> Ownership | None:
        check_owner(location, found, seized.owner or "", described)
        return seized if found is None else replace(found, claim=seized.claim)

    update_ownership(storage, location, seize, mark=f"seize-{seized.claim}")


def check_seized(location: TopicLocation, found: Ownership | None, owner: str, claim: str) -> None:
    """Refuse to go on releasing what was let go of meanwhile, or what another process is releasing.

    Raises:
        UserError: It was, or somebody is.
    """
    check_owner(location, found, owner)
    if found is None or found.claim != claim:
        message = f"another process is releasing {location}, or cluster {owner} has let go of it"
        raise UserError(message, hint="See whose it is: reconciler mount list")


def forget_topic(storage: ObjectStore, location: TopicLocation, cluster_id: str) -> None:
    """Drop the register of a topic that its owner has deleted with all it had: nothing is left to be owned."""
    found = read_ownership(storage, location)
    if found is not None and found.owner == cluster_id and found.state is Owning.MOUNTED:
        storage.delete([mountable_key(location.topic, location.cluster_id, location.revision)])


def release_topic(storage: ObjectStore, location: TopicLocation, owner: str, released: Ownership) -> None:
    """Say that a topic that was seized is nobody's.

    Raises:
        UserError: It is not seized any more.
    """

    def release(found: Ownership | None) -> Ownership | None:
        check_seized(location, found, owner, released.claim or "")
        return released

    update_ownership(storage, location, release, mark=f"release-{released.claim}")


def check_owner(location: TopicLocation, found: Ownership | None, owner: str, described: str = NOBODY) -> None:
    """Refuse to take a topic from a cluster that does not have it.

    Without a register it was never detached, or the register is lost: whose it is says `described`, its `topic.json`.

    Raises:
        UserError: It has another owner, or none.
    """
    first = location.cluster_id if described == NOBODY else described
    has = first if found is None else found.owner
    if found is not None and found.state is Owning.DETACHED:
        message = f"{location} is detached: no cluster owns it"
        raise UserError(message, hint="Mount it where it is wanted; there is nothing to release.")
    if has != owner:
        message = f"{location} is owned by cluster {has}, not by {owner}"
        raise UserError(message, hint=f"If that is the cluster that will not come back: --owner {has}")


def _claiming(claim: str | None) -> str:
    return f"claim-{claim}"
