"""Who owns a topic that was ever detached: one register in object storage, changed by compare-and-swap alone.

`detached` → `claimed` (a cluster is mounting it) → `mounted` → `detached`, under the next epoch each. Two clusters that
mount one topic swap the same register, so one of them loses, however they race; what it claimed is known again by its
claim, a mark of the migration, so that whoever finishes a migration finds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from reconciler.embedded.catalog.tiering import TopicLocation
from reconciler.embedded.jsonobjects import damaged
from reconciler.embedded.keys import MOUNTABLE, is_mountable_key, mountable_key
from reconciler.embedded.remote.manifests.manifest import NOBODY
from reconciler.embedded.threads import side_by_side
from reconciler.errors import OwnershipLostError, UserError
from reconciler.objectstore.register import Register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import Held

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
        return {
            "state": str(self.state),
            "owner": self.owner,
            "claim": self.claim,
            "topic": self.location.topic,
            "cluster_id": self.location.cluster_id,
            "revision": self.location.revision,
            "name": self.name,
            "partitions": self.partitions,
            "records": self.records,
            "bytes": self.bytes,
            "at_ms": self.at_ms,
        }

    @classmethod
    def from_json(cls, kept: Json) -> Ownership:
        """Read it back."""
        return cls(
            TopicLocation(kept["topic"], kept["cluster_id"], kept["revision"]),
            Owning(kept["state"]),
            kept["owner"],
            kept["claim"],
            kept["name"],
            kept["partitions"],
            kept["records"],
            kept["bytes"],
            kept["at_ms"],
        )


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

    def changed(held: Held | None) -> Json | None:
        after = change(None if held is None else _parsed(register, held))
        return None if after is None else after.to_json()

    register.update(changed, mark=mark, raises_epoch=True)


_FORMAT: Final = "reconciler.mountable/1"


def ownership_register(storage: ObjectStore, location: TopicLocation) -> Register:
    """Return the register of a topic."""
    key = mountable_key(location.topic, location.cluster_id, location.revision)
    return Register(storage, key, format=_FORMAT, shape=_SHAPE)


def _parsed(register: Register, held: Held) -> Ownership:
    try:
        found = Ownership.from_json(held.value)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(register.store, register.key, f"{type(error).__name__}: {error}") from error
    place = found.location
    if mountable_key(place.topic, place.cluster_id, place.revision) != register.key:
        raise damaged(register.store, register.key, f"it is that of {place}")
    return found
