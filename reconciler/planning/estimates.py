"""What an action is expected to cost, and why a guard refuses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reconciler.resources.address import Address
from reconciler.resources.standing import Stretch, length_of


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Offsets of one partition, `start` to before `stop`, that nobody could read any more, and their stored bytes."""

    topic: Address
    partition: int
    start: int
    stop: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RoleCost:
    """What another role of a mirror costs, as both of its sides were when they were looked at."""

    lost: tuple[Stretch, ...] = ()
    """What nobody can read any more: by a failover what its source alone has, by a restore what is cut off."""
    behind: tuple[Stretch, ...] = ()
    """What a promotion or a reversal copies first."""
    unknown: str | None = None
    """Why neither can be told."""
    fetched: tuple[tuple[int, int], ...] = ()
    """(partition, the last offset that was copied of it), where nothing else is known; -1: none ever was."""
    groups_set_back: tuple[str, ...] | None = ()
    """Consumer groups that have read beyond where a restore cuts; `None`: we cannot tell."""
    timeout_ms: int | None = None
    """A promotion is given up where what is behind does not shrink for so long."""

    @property
    def lost_offsets(self) -> int | None:
        """How much is lost; `None`: we cannot tell."""
        return None if self.unknown is not None else length_of(self.lost)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What an action is expected to move or remove."""

    bytes: int = 0
    records: int = 0
    seconds: int = 1
    groups: tuple[str, ...] | None = ()
    """Consumer groups that are reading it; `None`: we cannot tell."""
    uploads: int = 0
    """Stored bytes that `run` would copy to object storage."""
    unreadable: tuple[Unreadable, ...] = ()
    """What lies in object storage alone, and would be deleted there."""
    location: str | None = None
    """Where the remote objects of a topic lie that is deleted, mounted, unmounted, or forgotten while it sleeps."""
    partitions: int = 0
    """Of a topic that is mounted or unmounted, or whose replicas move."""
    no_writes_seconds: int = 0
    """For about so long nobody can write to a topic that is unmounted and exists still; a rough guess."""
    role: RoleCost | None = None
    """Of a mirror that gets another role; `None`: that neither loses nor copies anything."""
    replicated: int = 0
    """Stored bytes that brokers copy to each other for another replication factor, where that was measured."""


NO_COST: Final = Estimate()
"""That of an action that moves and removes nothing."""


@dataclass(frozen=True, slots=True)
class Block:
    """Why a guard refuses an action, and the `VERB:ADDR` that would allow it (`None`: nothing does)."""

    guard: str
    message: str
    allow: str | None
    instead: str | None = None
    """The document to declare in place of it, as one line of YAML, where that loses nothing."""
