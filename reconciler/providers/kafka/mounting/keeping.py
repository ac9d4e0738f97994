"""Moves between brokers and object storage, and where what was mounted lies, as entries of the ledger. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.lifecycles.mounting import MigrationState
from reconciler.providers.hibernating import Kept

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.providers.kafka.ledger import Entries, Key, Value

MOUNTING: Final = "mounting"
MOUNTED: Final = "mounted"
KINDS: Final = (MOUNTING, MOUNTED)
FILLED: Final = "filled"
"""What a topic set itself before it was filled by a move, by its id."""
LEFT: Final = "left"
"""Where a topic ended when all of it was elsewhere, by its id: it is deleted only where it still ends there."""
SEALED: Final = "sealed"
"""Topics whose brokers refuse every record, and what each said itself before, by its id."""
WRITER: Final = "reconciler.mountings"
"""The transactional id through which they are written."""


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


def mounting_key(mounting: str) -> Key:
    """Return the key of a move, by the full name of the mounting that asked for it."""
    return (MOUNTING, mounting)


def mounted_key(topic_id: str) -> Key:
    """Return the key of where a mounted topic lies."""
    return (MOUNTED, topic_id)


def value_of(move: Kept) -> Value:
    """Return a move as the ledger has it."""
    return {
        "direction": move.direction,
        "topic": move.topic,
        "location": move.location,
        "claim": move.claim,
        "at_ms": move.at_ms,
        "state": str(move.state),
        "topic_id": move.topic_id,
        "ends": {str(number): list(ends) for number, ends in sorted(move.ends.items())},
    }


def moves_in(entries: Entries) -> Iterator[Kept]:
    """Yield the moves under way, by the names of their mountings."""
    for key in sorted(key for key in entries if key[0] == MOUNTING):
        value = entries[key]
        yield Kept(
            direction=value["direction"],
            mounting=str(key[1]),
            topic=value["topic"],
            location=value["location"],
            claim=value["claim"],
            at_ms=value["at_ms"],
            state=MigrationState(value["state"]),
            topic_id=value["topic_id"],
            ends={int(number): (ends[0], ends[1]) for number, ends in value["ends"].items()},
        )


def places_in(entries: Entries) -> dict[str, str]:
    """Return where mounted topics lie, by their ids."""
    return {str(key[1]): entries[key]["location"] for key in entries if key[0] == MOUNTED}
