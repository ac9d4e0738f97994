"""Inventories: address → what the files say, what we last applied, what the platform says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from reconciler.errors import NotAuthorizedError, ReconcilerError
from reconciler.resources.address import Address
from reconciler.resources.kinds import Resource

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

Ownership: TypeAlias = Literal["created", "adopted"]


@dataclass(frozen=True, slots=True)
class Declared:
    """A resource of the files, and where it stands (`manifests/topics.yaml:88`, relative to the workspace)."""

    resource: Resource
    source: str
    origins: Mapping[str, str] | None = None
    """Of what was applied before, and is wanted as it was: where its values came from. It is effective already."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A resource as we last applied it: canonical and effective, secrets as references."""

    resource: Resource
    incarnation: str | None = None
    """What tells this one from an earlier one of the same name: a topic id, a cluster id."""
    physical_name: str | None = None
    ownership: Ownership = "created"
    protect: bool = False
    run: str = ""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Field path → the address or file it came from, where that is not the resource itself."""


@dataclass(frozen=True, slots=True)
class SeenStorage:
    """What a cluster says of object storage: which one it is bound to, and which one it is declared with."""

    bound: str | None = None
    """The id of the storage its topics are tiered into."""
    found: str | None = None
    """The id of the one that is declared; `None`: none is, or nobody has tiered into it yet."""
    tiered: tuple[str, ...] = ()
    """Topics with records there, or that may have some: they do not move between storages."""
    problem: ReconcilerError | None = None
    """Why the declared one cannot be used, as far as that is seen without writing."""


@dataclass(frozen=True, slots=True)
class RemoteLegacy:
    """What becomes of what a topic has in object storage when it is deleted as it is now."""

    location: str
    """`<topic>/<cluster uuid>/<initial revision>`: it can be recovered from there as long as it is kept."""
    is_deleted: bool
    is_lost: bool = False
    """Whether that belongs to nobody or to another cluster by now: it was released."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A resource as the platform says it is."""

    resource: Resource
    incarnation: str | None = None
    physical_name: str | None = None
    state: str | None = None
    """Where a lifecycle has it: `ACTIVE`, `DELETING`, a migration's state; `None` where there is none."""
    first_copy_done: bool = True
    """For mirrors: whether the first copy has reached the end the source had when it began."""
    is_internal: bool = False
    """Made by the platform for itself: never managed, drift or unmanaged."""
    hidden: NotAuthorizedError | None = None
    """Why whoever acts may not see it; what is hidden is told apart from what is missing, and shown to nobody."""
    initial: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """Configs that the cluster's defaults gave it when it was made; what it or a tier says itself goes before them."""
    storage: SeenStorage | None = None
    """Of a cluster: what it says of its object storage; `None` where it has none to speak of."""
    legacy: RemoteLegacy | None = None
    """Of a topic: what becomes of its remote objects when it is deleted; `None` where it was never tiered."""
    is_automatic: bool = False
    """Of a mirror: made by its link, whose filters take its name."""
    since_ms: int = 0
    """Of a mirror: when it came into the state it keeps; tells which side of a link stopped last."""
    stopped_by: str | None = None
    """Of a stopped mirror: the verb that ended it, as far as its cluster tells."""
    is_sealed: bool = False
    """Of a topic: whether its brokers refuse every record, since it is about to be deleted."""
    becomes: Resource | None = None
    """Of a live mirror: the ordinary topic it would be, were it stopped as it is now."""


Desired: TypeAlias = Mapping[Address, Declared]
Record: TypeAlias = Mapping[Address, Recorded]
Inventory: TypeAlias = Mapping[Address, Observed]
