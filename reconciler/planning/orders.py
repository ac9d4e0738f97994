"""Orders: what a command wants and the files do not say.

The plan of an order is made over what is recorded and observed. It holds the actions of the order, what these need, and
nothing else, so it needs no files. Each order stands alone: one that is refused stops no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from reconciler.resources.acls import NamespaceAcl
    from reconciler.resources.address import Address
    from reconciler.resources.mirror_link import MirrorLink
    from reconciler.resources.mount import Direction, MountSource, Phase


@dataclass(frozen=True, slots=True)
class ForgetOrder:
    """Stop owning what a pattern names; with `is_recursive` also what is in those namespaces and on those clusters."""

    pattern: str
    is_recursive: bool = False


@dataclass(frozen=True, slots=True)
class ReaddressOrder:
    """Record `before` as `after` from now on, a namespace with all that is in it."""

    before: Address
    after: Address


@dataclass(frozen=True, slots=True)
class CreateNamespaceOrder:
    """Create a namespace with configs, and the levels above it that do not exist."""

    cluster: str
    name: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AlterNamespaceOrder:
    """Give configs and access rules of a namespace values; `None` resets a config."""

    cluster: str
    name: str
    configs: Mapping[str, str | None]
    acls: tuple[NamespaceAcl, ...] = ()
    """Each replaces the rule of the same principal, host, resources and names."""
    removed_acls: tuple[NamespaceAcl, ...] = ()
    """Rules to remove, whatever their operations."""


@dataclass(frozen=True, slots=True)
class DeleteNamespaceOrder:
    """Delete a namespace with the topics in it; with `is_recursive` also the namespaces in it, with theirs."""

    cluster: str
    name: str
    is_recursive: bool = False


@dataclass(frozen=True, slots=True)
class MoveTopicsOrder:
    """Move topics of one namespace to another: the named ones, or all in it and below it."""

    cluster: str
    source: str
    target: str
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicOrder:
    """Create a topic; `None` leaves a number to the cluster's default."""

    topic: Address
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AlterTopicOrder:
    """Give configs of a topic or mirror values, where `None` resets one, and add partitions up to a number."""

    topic: Address
    configs: Mapping[str, str | None]
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopicOrder:
    """Delete a topic with its records."""

    topic: Address


@dataclass(frozen=True, slots=True)
class CreateLinkOrder:
    """Create a link without mirrors, and its other half if it has two."""

    resource: MirrorLink


@dataclass(frozen=True, slots=True)
class AlterLinkOrder:
    """Give fields of a link values; `None` resets one."""

    link: Address
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class PauseLinkOrder:
    """Pause or resume a link. One that a pattern chose, and that is so already, is left as it is."""

    link: Address
    is_paused: bool
    is_named: bool = True


@dataclass(frozen=True, slots=True)
class DeleteLinkOrder:
    """Delete a link; `is_forced`: fail its mirrors over first."""

    link: Address
    is_forced: bool = False


LinkOrder: TypeAlias = CreateLinkOrder | AlterLinkOrder | PauseLinkOrder | DeleteLinkOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class MountOrder:
    """Mount a topic on its cluster, or unmount it, as far as `phase` says.

    Topics of one cluster are one migration where the cluster does that by itself.
    """

    topic: Address
    direction: Direction
    source: MountSource
    """Where it is stored, or will be."""
    phase: Phase = "whole"

    @property
    def needs_mirrors(self) -> bool:
        """Whether it takes a topic away that mirrors on other clusters may follow."""
        return self.direction == "outbound" and self.phase != "finish"


RoleVerb: TypeAlias = Literal[
    "pause", "resume", "promote", "failover", "reverse-and-start", "reverse-and-pause", "truncate-and-restore"
]
"""A verb of the lifecycle of mirrors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleOrder:
    """Apply a verb to a mirror; to restore one, to the original source of a stopped mirror."""

    mirror: Address
    verb: RoleVerb
    is_named: bool = True
    """Named by its address: it is an error if the verb has nothing left to do. Else a pattern or a link names it."""
    links: tuple[str, ...] = ()
    """For a restore: the names of the links whose stopped mirrors it may be from; empty: any."""
    timeout_ms: int | None = None
    """For a promotion: how long the lag may not shrink; `None`: as the link says."""
    keeps_diverged: bool = False
    """For a restore: keep the records that only the original source has, whatever the link says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateMirrorOrder:
    """Create a mirror over an existing link."""

    mirror: Address
    link: str
    source: str | None = None
    """Full name of the source; `None`: that of the mirror without the prefix of the link."""
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DeleteMirrorOrder:
    """Delete a mirror with its records."""

    mirror: Address


Order: TypeAlias = (
    ForgetOrder
    | ReaddressOrder
    | CreateNamespaceOrder
    | AlterNamespaceOrder
    | DeleteNamespaceOrder
    | MoveTopicsOrder
    | CreateTopicOrder
    | AlterTopicOrder
    | DeleteTopicOrder
    | LinkOrder
    | MountOrder
    | RoleOrder
    | CreateMirrorOrder
    | DeleteMirrorOrder
)
