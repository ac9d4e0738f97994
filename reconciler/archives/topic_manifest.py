"""`topic.json`: the register of a topic in object storage.

It is written when a topic uploads, also where no segment is there yet, and follows the catalog: `serial` is the commit
it was taken from, and an older one never replaces a newer one. Whoever lists locations finds every tiered topic by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.keys import topic_manifest_key
from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import ownership_lost
from reconciler.archives.objects import damaged, decoded
from reconciler.errors import NewerFormatError, OwnershipLostError, UserError
from reconciler.objectstore.register import ReadRegister, Register, fresh_mark

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.records.log import Bounds


Json = dict[str, Any]

MAX_PARTITIONS: Final = 100_000

_SHAPE: Final = {
    "topic": str,
    "cluster_id": str,
    "revision": int,
    "owner": str,
    "serial": int,
    "name": str,
    "partitions": int,
    "replication_factor": int,
    "configs": {str: str},
    "effective": {str: str},
    "initial": {str: str},
    "tiered_epoch?": int,
    "groups?": {str: {str: {"offset": int, "metadata": str, "at_ms": (None, int)}}},
    "ends?": {str: int},
    "streams?": {str: {"batch": int, "rows": (None, str)}},
}


@dataclass(frozen=True, slots=True)
class Committed:
    """The next offset a group wants to read of one partition, what it noted beside it, and when it said so.

    `at_ms` is `None` where nobody who reads has said so: the offset was set by a reset. `epoch` is the newest that the
    log had when it was read, where that is known (KIP-320).
    """

    offset: int
    metadata: str = ""
    at_ms: int | None = None
    epoch: int | None = None

    def clamped(self, bounds: Bounds) -> Committed:
        """Return it within a log: what lies below its start or beyond its end cannot be read.

        Where the log's end was cut since, and has grown again, it is read from the cut on: what lies there is new.
        """
        end = bounds.end if self.epoch is None else min(bounds.end, bounds.same_to(self.epoch))
        offset = max(min(self.offset, end), bounds.start)
        return self if offset == self.offset else Committed(offset, self.metadata, self.at_ms)

    def to_json(self) -> Json:
        """Return what a register keeps."""
        kept: Json = {"offset": self.offset, "metadata": self.metadata, "at_ms": self.at_ms}
        return kept if self.epoch is None else {**kept, "epoch": self.epoch}

    @classmethod
    def from_json(cls, kept: Json) -> Committed:
        """Read it back."""
        return cls(int(kept["offset"]), str(kept["metadata"]), kept["at_ms"], kept.get("epoch"))


@dataclass(frozen=True, slots=True)
class TopicManifest:
    """A topic as object storage has it."""

    location: TopicLocation
    """For life: the name, the cluster and the initial revision it was made with."""
    owner: str
    """Id of the cluster whose topic it is; `NOBODY`: it lies detached."""
    serial: int
    """Of the owner's catalog, when this was written."""
    name: str
    """What it is called there, its namespace included."""
    partitions: int
    replication_factor: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)
    """Its own."""
    effective: Mapping[str, str] = field(default_factory=dict)
    """All that were set for it: by itself, its namespaces or its cluster; what is missing had its default."""
    initial: Mapping[str, str] = field(default_factory=dict)
    """What the cluster's defaults gave it when it was made."""
    tiered_epoch: int = 0
    """Of its tiering, as the owner had it."""
    groups: Mapping[str, Mapping[int, Committed]] = field(default_factory=dict)
    """What consumer groups had committed, by group and partition, when it was detached. While it has an owner: of those
    that have no namespace there, and travel on with the topic."""
    ends: Mapping[int, int] = field(default_factory=dict)
    """Where each partition that was ever written to ended, when it was detached; else nothing."""

    streams: Mapping[str, tuple[int, str | None]] = field(default_factory=dict)
    """The last batch of each stream into it, when it was detached: its number, and what tells its rows from others."""

    def says_the_same_as(self, other: TopicManifest) -> bool:
        """Tell whether they differ in nothing but when they were written."""
        return {**self.to_json(), "serial": 0} == {**other.to_json(), "serial": 0}

    def to_json(self) -> Json:
        """Return what the register keeps."""
        kept: Json = {
            "topic": self.location.topic,
            "cluster_id": self.location.cluster_id,
            "revision": self.location.revision,
            "owner": self.owner,
            "serial": self.serial,
            "name": self.name,
            "partitions": self.partitions,
            "replication_factor": self.replication_factor,
            "configs": dict(sorted(self.configs.items())),
            "effective": dict(sorted(self.effective.items())),
            "initial": dict(sorted(self.initial.items())),
            "tiered_epoch": self.tiered_epoch,
            "groups": {
                group: {str(number): each.to_json() for number, each in sorted(offsets.items())}
                for group, offsets in sorted(self.groups.items())
            },
            "ends": {str(number): end for number, end in sorted(self.ends.items())},
        }
        if self.streams:
            kept["streams"] = {
                stream: {"batch": number, "rows": rows} for stream, (number, rows) in sorted(self.streams.items())
            }
        return kept

    @classmethod
    def from_json(cls, kept: Json) -> TopicManifest:
        """Read it back."""
        return cls(
            TopicLocation(kept["topic"], kept["cluster_id"], kept["revision"]),
            kept["owner"],
            kept["serial"],
            kept["name"],
            kept["partitions"],
            kept["replication_factor"],
            kept["configs"],
            kept["effective"],
            kept["initial"],
            kept.get("tiered_epoch", 0),
            {
                group: {int(number): Committed.from_json(each) for number, each in offsets.items()}
                for group, offsets in kept.get("groups", {}).items()
            },
            {int(number): end for number, end in kept.get("ends", {}).items()},
            {stream: (last["batch"], last["rows"]) for stream, last in kept.get("streams", {}).items()},
        )


def read_topic_manifest(storage: ObjectStore, cluster_id: str, revision: int) -> TopicManifest | None:
    """Return what object storage has of a topic, by the cluster and initial revision of its location.

    `None`: there is no such location.

    Raises:
        UserError: It is damaged, or of a newer format.
    """
    register = _register(storage, cluster_id, revision)
    held = register.read()
    return None if held is None else _parsed(register, held)


def hand_over(
    storage: ObjectStore,
    location: TopicLocation,
    change: Callable[[TopicManifest | None], TopicManifest | None],
    mark: str,
) -> None:
    """Let a topic have another owner: `change` gets what is there and returns what shall be, `None` for no change.

    Doing it twice under one mark does it once.

    Raises:
        UserError: It is damaged, or of a newer format.
        LostRaceError: Others were faster every time.
    """
    register = _register(storage, location.cluster_id, location.revision)

    def changed(held: ReadRegister | None) -> Json | None:
        after = change(None if held is None else _parsed(register, held))
        return None if after is None else after.to_json()

    register.update(changed, mark=mark)


def write_topic_manifest(storage: ObjectStore, manifest: TopicManifest, *, creates: bool = True) -> bool:
    """Let object storage say of a topic what `manifest` does; say whether anything was to be changed.

    `creates`: also where it says nothing of it yet. Groups that travel with it stay. What is damaged is replaced.

    Raises:
        OwnershipLostError: It belongs to another cluster now.
        NewerFormatError: A newer version wrote what is there.
        LostRaceError: Others were faster every time.
    """
    register = _register(storage, manifest.location.cluster_id, manifest.location.revision)
    is_changed = False

    def changed(held: ReadRegister | None) -> Json | None:
        nonlocal is_changed
        found = None if held is None else _parsed(register, held)
        if found is not None and found.owner != manifest.owner:
            raise ownership_lost(f"topic {found.location}", found.owner)
        after = manifest if found is None else replace(manifest, groups=found.groups)
        is_changed = creates if found is None else (found.serial < after.serial and not found.says_the_same_as(after))
        return after.to_json() if is_changed else None

    try:
        register.update(changed, mark=fresh_mark())
    except (NewerFormatError, OwnershipLostError):
        raise
    except UserError:
        return _is_replaced(register, manifest)
    return is_changed


def _is_replaced(register: Register, manifest: TopicManifest) -> bool:
    """Swap what is damaged; `False`: it is not any more."""
    stored = register.store.get(register.key)
    try:
        held = register.read()
        if held is not None:
            _parsed(register, held)
    except NewerFormatError:
        raise
    except UserError:
        if stored is None:
            raise
        register.swap(ReadRegister({}, 0, (), stored.version), manifest.to_json(), mark=fresh_mark())
        return True
    return False


def _register(storage: ObjectStore, cluster_id: str, revision: int) -> Register:
    key = topic_manifest_key(cluster_id, revision)
    return Register(storage, key, format="reconciler.topic/2", shape=_SHAPE)


def _parsed(register: Register, held: ReadRegister) -> TopicManifest:
    found = decoded(register.store, register.key, held.value, TopicManifest.from_json)
    if topic_manifest_key(found.location.cluster_id, found.location.revision) != register.key:
        raise damaged(register.store, register.key, f"it is that of {found.location}")
    if not 1 <= found.partitions <= MAX_PARTITIONS:  # Readers look at each partition.
        raise damaged(register.store, register.key, f"it says that the topic has {found.partitions:,} partitions")
    return found
