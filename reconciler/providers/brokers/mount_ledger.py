"""Ledger entries of mounts, unmounts and moves, and topics' locations in object storage."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final
from uuid import NAMESPACE_OID, UUID, uuid5

from reconciler.lifecycles import MigrationState
from reconciler.providers.protocol_moves import MountJob
from reconciler.resources.base import LONG_MAX
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.providers.brokers.ledger import Entries, Key, Value
    from reconciler.providers.brokers.translate import TopicMetadata


MOUNTING: Final = "mounting"
MOUNTED: Final = "mounted"
KINDS: Final = (MOUNTING, MOUNTED)
FILLED: Final = "filled"
"""Kind of a topic that a move fills: its own configs and switched groups, by topic id."""
COPIED_TOPIC: Final = "left"
"""Kind of a completely copied topic: end offsets by topic id. It is deleted only if these are unchanged."""
SEALED: Final = "sealed"
"""Kind of a sealed topic: its own values of the sealing configs, by topic id."""
WRITER: Final = "reconciler.mountings"


_LARGEST_RECORD: Final = str(100 << 20)
"""Maximum size of a request (`socket.request.max.bytes`)."""
FILLING: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(LONG_MAX),
    "message.timestamp.after.max.ms": str(LONG_MAX),
    "max.message.bytes": _LARGEST_RECORD,
}


def compute_configs_after_filling(before: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the own configs that a topic gets after filling. Values changed meanwhile stay."""
    ours = {key for key, value in FILLING.items() if own.get(key) == value}
    return {
        **{key: value for key, value in own.items() if key not in ours},
        **{key: value for key, value in before.items() if key in ours},
    }


def list_configs_after_filling(
    entries: Entries, topics: Mapping[str, TopicMetadata], configs: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """Return the own configs that topics get after filling, by brokers' name."""
    stored = {str(key[1]): value["configs"] for key, value in entries.items() if key[0] == FILLED}
    ids = {name: seen.id for name, seen in topics.items() if seen.id in stored} if stored else {}
    return {
        name: compute_configs_after_filling(stored[topic_id], configs[name])
        for name, topic_id in ids.items()
        if name in configs
    }


CONFIGS: Final = {"max.message.bytes": "80", "compression.type": "gzip"}


def is_sealed(own: Mapping[str, str | None]) -> bool:
    """Return whether a topic's own configs are those of a seal."""
    return own.items() >= CONFIGS.items()


@dataclass(frozen=True, slots=True)
class Seal:
    """A topic's seal: two configs with which brokers reject all records."""

    topic: str
    own: Mapping[str, str | None]
    """Values before the seal; `None` if a config was not set."""
    effective: Mapping[str, str]

    def restore_configs(self, configs: Mapping[str, str]) -> dict[str, str]:
        """Return `configs` with the values before the seal."""
        others = {key: value for key, value in configs.items() if key not in self.own}
        return {**others, **{key: value for key, value in self.own.items() if value is not None}}


def seal_key(topic_id: str) -> Key:
    """Return the ledger key of the entry that closes a topic to producers."""
    return (SEALED, topic_id)


def parse_seals(entries: Entries) -> dict[str, Seal]:
    """Return the stored seals by topic id."""
    by_id = {str(key[1]): value for key, value in entries.items() if key[0] == SEALED}
    return {name: Seal(value["topic"], value["own"], value["said"]) for name, value in by_id.items()}


def find_effective_seals(
    entries: Entries, topics: Mapping[str, TopicMetadata], configs: Mapping[str, Mapping[str, str]]
) -> dict[str, Seal]:
    """Return the seals that no user has reset, by the brokers' topic name. `configs` are own configs."""
    seals = parse_seals(entries)
    by_name = {name: seals[seen.id] for name, seen in topics.items() if seen.id in seals}
    return {name: seal for name, seal in by_name.items() if is_sealed(configs.get(name, CONFIGS))}


def mounting_key(mounting: str) -> Key:
    """Return the ledger key of a mount or unmount; `mounting` is the Mounting's full name."""
    return (MOUNTING, mounting)


def mounted_key(topic_id: str) -> Key:
    """Return the ledger key of a mounted topic's location."""
    return (MOUNTED, topic_id)


def format_move(move: MountJob) -> Value:
    """Return a move as a ledger entry."""
    return {
        "direction": move.direction,
        "topic": move.topic,
        "location": move.location,
        "claim": move.claim,
        "at_ms": move.at_ms,
        "state": str(move.state),
        "topic_id": move.topic_id,
        **({"by_hand": True} if move.by_hand else {}),
        "ends": {str(number): list(ends) for number, ends in sorted(move.ends.items())},
    }


def list_moves(entries: Entries) -> Iterator[MountJob]:
    """Yield the moves in progress, sorted by mounting."""
    for key in sorted(key for key in entries if key[0] == MOUNTING):
        value = entries[key]
        yield MountJob(
            direction=value["direction"],
            mounting=str(key[1]),
            topic=value["topic"],
            location=value["location"],
            claim=value["claim"],
            at_ms=value["at_ms"],
            state=MigrationState(value["state"]),
            topic_id=value["topic_id"],
            by_hand=value.get("by_hand", False),
            ends={int(number): (ends[0], ends[1]) for number, ends in value["ends"].items()},
        )


def parse_locations(entries: Entries) -> dict[str, str]:
    """Return the locations of mounted topics by topic id."""
    return {str(key[1]): entries[key]["location"] for key in entries if key[0] == MOUNTED}


_BYTES: Final = 16
_REVISION_BYTES: Final = 6
"""Size of a revision. Two of ten thousand topics collide in one of five million clusters."""


def to_cluster_uuid(cluster_id: str) -> str:
    """Return a cluster id as UUID; ids other than 16 base64 bytes are hashed."""
    try:
        decoded = base64.b64decode(cluster_id + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    return str(UUID(bytes=decoded) if len(decoded) == _BYTES else uuid5(NAMESPACE_OID, cluster_id))


def derive_revision(topic_id: str) -> int:
    """Return a topic's initial revision for object storage, derived from its id."""
    return int.from_bytes(UUID(topic_id).bytes[:_REVISION_BYTES], "big")


def build_location(full_name: str, cluster_id: str, topic_id: str) -> str:
    """Return the permanent location of a topic created, not mounted, on this cluster."""
    return f"{full_name}/{to_cluster_uuid(cluster_id)}/{derive_revision(topic_id)}"
