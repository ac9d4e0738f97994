"""`topic.json`: the register of a topic in object storage.

It is written before the first upload, and updated from the catalog. An older `serial` never replaces a newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.keys import build_topic_manifest_key
from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import ownership_lost_error
from reconciler.archives.objects import damaged_error, decode_object
from reconciler.errors import NewerFormatError, OwnershipLostError, UserError
from reconciler.objectstore.register import Register, RegisterSnapshot, create_mark
from reconciler.runtime.dataclass import dataclass, field, replace

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
class CommittedOffset:
    """A group's committed offset in a partition.

    `at_ms` is `None` after a reset. `epoch` is the log's newest epoch at the commit, if known (KIP-320).
    """

    offset: int
    metadata: str = ""
    at_ms: int | None = None
    epoch: int | None = None

    def clamp(self, bounds: Bounds) -> CommittedOffset:
        """Return the offset limited to the log's bounds and to records not truncated since the commit."""
        end = bounds.end if self.epoch is None else min(bounds.end, bounds.find_unchanged_end(self.epoch))
        offset = max(min(self.offset, end), bounds.start)
        return self if offset == self.offset else CommittedOffset(offset, self.metadata, self.at_ms)

    def to_json(self) -> Json:
        """Convert to JSON."""
        values: Json = {"offset": self.offset, "metadata": self.metadata, "at_ms": self.at_ms}
        return values if self.epoch is None else {**values, "epoch": self.epoch}

    @classmethod
    def from_json(cls, values: Json) -> CommittedOffset:
        """Parse JSON."""
        return cls(int(values["offset"]), str(values["metadata"]), values["at_ms"], values.get("epoch"))


@dataclass(frozen=True, slots=True)
class TopicManifest:
    """Content of `topic.json`: a topic's configs, partition count and owner."""

    location: TopicLocation
    owner: str
    serial: int
    name: str
    partitions: int
    replication_factor: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)
    effective: Mapping[str, str] = field(default_factory=dict)
    """Configs set on the topic, its namespaces or its cluster."""
    initial: Mapping[str, str] = field(default_factory=dict)
    tiered_epoch: int = 0
    groups: Mapping[str, Mapping[int, CommittedOffset]] = field(default_factory=dict)
    """Committed offsets by group and partition, stored at the detach."""
    ends: Mapping[int, int] = field(default_factory=dict)
    """End offsets of written partitions at the detach."""

    streams: Mapping[str, tuple[int, str | None]] = field(default_factory=dict)
    """Number and row fingerprint of each stream's last batch at the detach."""

    def equals_except_serial(self, other: TopicManifest) -> bool:
        """Return whether both manifests are equal except for `serial`."""
        return {**self.to_json(), "serial": 0} == {**other.to_json(), "serial": 0}

    def to_json(self) -> Json:
        """Convert to JSON."""
        values: Json = {
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
                group: {str(number): committed.to_json() for number, committed in sorted(offsets.items())}
                for group, offsets in sorted(self.groups.items())
            },
            "ends": {str(number): end for number, end in sorted(self.ends.items())},
        }
        if self.streams:
            values["streams"] = {
                stream: {"batch": number, "rows": rows} for stream, (number, rows) in sorted(self.streams.items())
            }
        return values

    @classmethod
    def from_json(cls, values: Json) -> TopicManifest:
        """Parse JSON."""
        return cls(
            TopicLocation(values["topic"], values["cluster_id"], values["revision"]),
            values["owner"],
            values["serial"],
            values["name"],
            values["partitions"],
            values["replication_factor"],
            values["configs"],
            values["effective"],
            values["initial"],
            values.get("tiered_epoch", 0),
            {
                group: {int(number): CommittedOffset.from_json(committed) for number, committed in offsets.items()}
                for group, offsets in values.get("groups", {}).items()
            },
            {int(number): end for number, end in values.get("ends", {}).items()},
            {stream: (last["batch"], last["rows"]) for stream, last in values.get("streams", {}).items()},
        )


def read_topic_manifest(storage: ObjectStore, cluster_id: str, revision: int) -> TopicManifest | None:
    """Return the `topic.json` at a location, or `None`."""
    register = _open_register(storage, cluster_id, revision)
    held = register.read()
    return None if held is None else _parse(register, held)


def change_topic_manifest(
    storage: ObjectStore,
    location: TopicLocation,
    change: Callable[[TopicManifest | None], TopicManifest | None],
    mark: str,
) -> None:
    """Change a topic's register, once per mark; `change` returns the content, or `None` for no change.

    Raises:
        LostRaceError: Other writers were always first.
    """
    register = _open_register(storage, location.cluster_id, location.revision)

    def change_value(held: RegisterSnapshot | None) -> Json | None:
        after = change(None if held is None else _parse(register, held))
        return None if after is None else after.to_json()

    register.update(change_value, mark=mark)


def write_topic_manifest(storage: ObjectStore, manifest: TopicManifest, *, creates: bool = True) -> bool:
    """Update a topic's register, except its groups; return whether it changed. `creates` a missing one.

    Raises:
        OwnershipLostError: Another cluster owns it.
        NewerFormatError: A newer version wrote it.
        LostRaceError: Other writers were always first.
    """
    register = _open_register(storage, manifest.location.cluster_id, manifest.location.revision)
    is_changed = False

    def change_value(held: RegisterSnapshot | None) -> Json | None:
        nonlocal is_changed
        current = None if held is None else _parse(register, held)
        if current is not None and current.owner != manifest.owner:
            raise ownership_lost_error(f"topic {current.location}", current.owner)
        after = manifest if current is None else replace(manifest, groups=current.groups)
        is_changed = (
            creates if current is None else (current.serial < after.serial and not current.equals_except_serial(after))
        )
        return after.to_json() if is_changed else None

    try:
        register.update(change_value, mark=create_mark())
    except (NewerFormatError, OwnershipLostError):
        raise
    except UserError:
        return _replace_damaged(register, manifest)
    return is_changed


def _replace_damaged(register: Register, manifest: TopicManifest) -> bool:
    stored = register.store.get(register.key)
    try:
        held = register.read()
        if held is not None:
            _parse(register, held)
    except NewerFormatError:
        raise
    except UserError:
        if stored is None:
            raise
        register.swap(RegisterSnapshot({}, 0, (), stored.version), manifest.to_json(), mark=create_mark())
        return True
    return False


def _open_register(storage: ObjectStore, cluster_id: str, revision: int) -> Register:
    key = build_topic_manifest_key(cluster_id, revision)
    return Register(storage, key, format="reconciler.topic/2", shape=_SHAPE)


def _parse(register: Register, held: RegisterSnapshot) -> TopicManifest:
    manifest = decode_object(register.store, register.key, held.value, TopicManifest.from_json)
    if build_topic_manifest_key(manifest.location.cluster_id, manifest.location.revision) != register.key:
        raise damaged_error(register.store, register.key, f"it is that of {manifest.location}")
    if not 1 <= manifest.partitions <= MAX_PARTITIONS:
        raise damaged_error(
            register.store, register.key, f"it says that the topic has {manifest.partitions:,} partitions"
        )
    return manifest
