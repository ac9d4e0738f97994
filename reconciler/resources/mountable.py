"""What lies detached in object storage, who has what was, and what a mounting of a plan would take from there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from reconciler.errors import UserError
from reconciler.resources.address import Address
from reconciler.resources.recoverable import Recoverable

MIGRATING: Final = "MIGRATING"
"""What a cluster says of a topic that is being mounted or unmounted."""


@dataclass(frozen=True, slots=True)
class Mountable:
    """A topic that was ever detached. Sizes are those it had when it was detached last."""

    location: str
    """`<topic>/<cluster uuid>/<initial revision>`: for life, the namespace included."""
    full_name: str
    """The name it was made with: what it is mounted by. An alias is never kept."""
    state: Literal["detached", "claimed", "mounted"]
    owner: str | None
    """Id of the cluster that mounts it or has it mounted; of a detached one, that of the last."""
    name: str
    """What its owner calls it, or called it last."""
    partitions: int = 0
    records: int = 0
    bytes: int = 0
    at_ms: int | None = None
    """Since when it is so."""


@dataclass(frozen=True, slots=True)
class MountSource:
    """What a mounting of a plan takes."""

    location: str
    found: Recoverable | None
    """What lies there; `None`: it is attached still, and this plan detaches it first."""
    unmounts: Address | None = None
    """The mounting of this plan that detaches it."""


Mounts: TypeAlias = Mapping[Address, MountSource | UserError]
"""By the address of a mounting whose topic is not there yet: what it takes, or why that cannot be."""
