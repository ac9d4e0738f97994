"""Mounts in the ledger, and where topics are in object storage."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import NAMESPACE_OID, UUID, uuid5

from reconciler.lifecycles import MigrationState
from reconciler.providers.protocol_moves import MountJob
from reconciler.resources.base import LONG_MAX

if TYPE_CHECKING:
    from reconciler.providers.kafka.ledger import Entries, Key, Value
    from reconciler.providers.kafka.translate import TopicSeen


MOUNTING: Final = "mounting"
MOUNTED: Final = "mounted"
KINDS: Final = (MOUNTING, MOUNTED)
FILLED: Final = "filled"
"""What a topic set itself before it was filled by a move, and which groups were switched to it, by its id."""
LEFT: Final = "left"
"""Where a topic ended when all of it was elsewhere, by its id: it is deleted only where it still ends there."""
SEALED: Final = "sealed"
"""Topics whose brokers refuse every record, and what each said itself before, by its id."""
WRITER: Final = "reconciler.mountings"
"""The transactional id through which they are written."""


_LARGEST_RECORD: Final = str(100 << 20)
"""As large as a request may be (`socket.request.max.bytes`)."""
FILLING: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(LONG_MAX),
    "message.timestamp.after.max.ms": str(LONG_MAX),
    "max.message.bytes": _LARGEST_RECORD,
}
"""What holds for a topic while it is filled."""


def unfilled(kept: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return what a topic sets itself once it is filled: what it was filled with says nothing of it.

    `kept` is what it set before; all else is as it was set last, by a plan or by a person.
    """
    ours = {key for key, value in FILLING.items() if own.get(key) == value}
    return {
        **{key: value for key, value in own.items() if key not in ours},
        **{key: value for key, value in kept.items() if key in ours},
    }


def filled_in(
    entries: Entries, topics: Mapping[str, TopicSeen], configs: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """Return what topics set once they are filled that moves fill now, by their names on the brokers."""
    kept = {str(key[1]): value["configs"] for key, value in entries.items() if key[0] == FILLED}
    ids = {name: seen.id for name, seen in topics.items() if seen.id in kept} if kept else {}
    return {name: unfilled(kept[found], configs[name]) for name, found in ids.items() if name in configs}


CONFIGS: Final = {"max.message.bytes": "80", "compression.type": "gzip"}
"""What a sealed topic says itself."""


def is_sealed(own: Mapping[str, str | None]) -> bool:
    """Tell whether what a topic sets itself is what the seal sets."""
    return own.items() >= CONFIGS.items()


@dataclass(frozen=True, slots=True)
class Seal:
    """What a sealed topic said before of what the seal sets."""

    topic: str
    """The name its brokers give it."""
    own: Mapping[str, str | None]
    """What it said itself; `None`: nothing."""
    said: Mapping[str, str]
    """What held for it and was no default."""

    def opened(self, configs: Mapping[str, str]) -> dict[str, str]:
        """Return what a topic says itself, were its seal taken off."""
        found = {key: value for key, value in configs.items() if key not in self.own}
        return {**found, **{key: value for key, value in self.own.items() if value is not None}}


def seal_key(topic_id: str) -> Key:
    """Return the key of the seal of a topic."""
    return (SEALED, topic_id)


def seals_in(entries: Entries) -> dict[str, Seal]:
    """Return the seals of topics, by their ids."""
    found = {str(key[1]): value for key, value in entries.items() if key[0] == SEALED}
    return {name: Seal(value["topic"], value["own"], value["said"]) for name, value in found.items()}


def holding_seals(
    entries: Entries, topics: Mapping[str, TopicSeen], configs: Mapping[str, Mapping[str, str]]
) -> dict[str, Seal]:
    """Return the seals that hold, by the names of topics on the brokers: of some a person has changed the configs back.

    `configs` is what topics set themselves; a topic whose configs are not known counts as sealed.
    """
    seals = seals_in(entries)
    kept = {name: seals[seen.id] for name, seen in topics.items() if seen.id in seals}
    return {name: seal for name, seal in kept.items() if is_sealed(configs.get(name, CONFIGS))}


def mounting_key(mounting: str) -> Key:
    """Return the key of a move, by the full name of the mounting that asked for it."""
    return (MOUNTING, mounting)


def mounted_key(topic_id: str) -> Key:
    """Return the key of where a mounted topic lies."""
    return (MOUNTED, topic_id)


def value_of(move: MountJob) -> Value:
    """Return a move as the ledger has it."""
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


def moves_in(entries: Entries) -> Iterator[MountJob]:
    """Yield the moves under way, by the names of their mountings."""
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


def places_in(entries: Entries) -> dict[str, str]:
    """Return where mounted topics lie, by their ids."""
    return {str(key[1]): entries[key]["location"] for key in entries if key[0] == MOUNTED}


# Where topics of a Kafka cluster lie in object storage: ids of brokers in the words of locations. Pure.


_BYTES: Final = 16
_REVISION_BYTES: Final = 6
"""48 bits of a topic's id: two of ten thousand topics have the same by chance once in five million clusters."""


def cluster_uuid(cluster_id: str) -> str:
    """Return the UUID that a cluster's id stands for: 16 bytes, URL-safe base64 without padding.

    Ids of another form (of clusters that somebody hosts) get one made of their name, always the same.
    """
    try:
        found = base64.b64decode(cluster_id + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        found = b""
    return str(UUID(bytes=found) if len(found) == _BYTES else uuid5(NAMESPACE_OID, cluster_id))


def revision_of(topic_id: str) -> int:
    """Return what stands for the initial revision of a topic: Kafka counts none, its id is as lasting."""
    return int.from_bytes(UUID(topic_id).bytes[:_REVISION_BYTES], "big")


def location_of(full_name: str, cluster_id: str, topic_id: str) -> str:
    """Return the location of a topic that was made on its cluster, for life."""
    return f"{full_name}/{cluster_uuid(cluster_id)}/{revision_of(topic_id)}"
