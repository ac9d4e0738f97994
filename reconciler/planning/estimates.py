"""What an action is expected to cost, and why a guard refuses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reconciler.resources.address import Address


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Offsets of one partition, `start` to before `stop`, that nobody could read any more, and their stored bytes."""

    topic: Address
    partition: int
    start: int
    stop: int
    bytes: int


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
    """Of a topic that is mounted or unmounted."""
    no_writes_seconds: int = 0
    """For about so long nobody can write to a topic that is unmounted and exists still; a rough guess."""


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
