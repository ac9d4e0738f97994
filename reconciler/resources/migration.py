"""A migration as a cluster has it: topics on their way into object storage, or out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Direction: TypeAlias = Literal["inbound", "outbound"]
"""Onto the cluster (a mount), or from it (an unmount)."""


@dataclass(frozen=True, slots=True)
class Migrant:
    """A topic that is mounted or unmounted."""

    full_name: str
    """What it is called on the cluster."""
    location: str
    mounting: str | None
    """The Mounting that asked for it; `None`: somebody did by hand."""
    partitions: int | None = None
    """`None`: it is not on the cluster, yet or any more."""
    is_closed: bool = False
    """Whether it takes and gives no records there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """A migration of one cluster, as it is now."""

    id: int
    direction: Direction
    state: str
    """A `lifecycles.mounting.MigrationState`; its table says what may be asked for then."""
    topics: tuple[Migrant, ...]
    created_ms: int
    completed_ms: int | None = None
    bytes_left: int | None = None
    """Stored bytes still to be uploaded; `None`: nothing is, or nothing more than was."""
    is_automatic: bool = True
    """Whether it goes on by itself from state to state."""
    by_jobs: bool = False
    """Whether jobs of an apply do it: nobody else brings it further."""
    waits: tuple[str, ...] = ()
    """What keeps it from going on, as far as a look tells."""
