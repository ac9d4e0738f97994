"""Orders: changes that a command requests instead of the manifests.

An order is planned from the record and the observed state, and plans only its own actions and their dependencies.
A rejected order does not stop others.
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
    """Forget matching resources; with `is_recursive` also those in matching namespaces and clusters."""

    pattern: str
    is_recursive: bool = False


@dataclass(frozen=True, slots=True)
class ReaddressOrder:
    """Move the record of `before` to the address `after`; a namespace is moved with its content."""

    before: Address
    after: Address


@dataclass(frozen=True, slots=True)
class CreateNamespaceOrder:
    """Create a namespace with configs, and its missing parents."""

    cluster: str
    name: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AlterNamespaceOrder:
    """Set configs and access rules of a namespace; `None` resets a config."""

    cluster: str
    name: str
    configs: Mapping[str, str | None]
    acls: tuple[NamespaceAcl, ...] = ()
    """Each replaces the rule with the same principal, host, resources and names."""
    removed_acls: tuple[NamespaceAcl, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteNamespaceOrder:
    """Delete a namespace and its topics; with `is_recursive` also the namespaces below it."""

    cluster: str
    name: str
    is_recursive: bool = False


@dataclass(frozen=True, slots=True)
class MoveTopicsOrder:
    """Move topics to another namespace: those named, or all in and below `source`."""

    cluster: str
    source: str
    target: str
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicOrder:
    """Create a topic; `None` means the cluster's default."""

    topic: Address
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AlterTopicOrder:
    """Set configs of a topic or mirror (`None` resets one), or raise its partition count."""

    topic: Address
    configs: Mapping[str, str | None]
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopicOrder:
    """Delete a topic with its records."""

    topic: Address


@dataclass(frozen=True, slots=True)
class CreateLinkOrder:
    """Create a link without mirrors; on both clusters if its mode needs that."""

    resource: MirrorLink


@dataclass(frozen=True, slots=True)
class AlterLinkOrder:
    """Set fields of a link; `None` resets one."""

    link: Address
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class PauseLinkOrder:
    """Pause or resume a link.

    `is_named`: the command names this link. A link matched by a pattern is skipped if it is in this state already.
    """

    link: Address
    is_paused: bool
    is_named: bool = True


@dataclass(frozen=True, slots=True)
class DeleteLinkOrder:
    """Delete a link; `is_forced` fails its mirrors over first."""

    link: Address
    is_forced: bool = False


LinkOrder: TypeAlias = CreateLinkOrder | AlterLinkOrder | PauseLinkOrder | DeleteLinkOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class MountOrder:
    """Mount or unmount a topic up to `phase`; orders for topics of one cluster are joined into one migration."""

    topic: Address
    direction: Direction
    source: MountSource
    phase: Phase = "whole"

    @property
    def needs_mirrors(self) -> bool:
        """Whether planning must read mirrors on other clusters, because an unmount removes their source."""
        return self.direction == "outbound" and self.phase != "finish"


RoleVerb: TypeAlias = Literal[
    "pause", "resume", "promote", "failover", "reverse-and-start", "reverse-and-pause", "truncate-and-restore"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleOrder:
    """Apply a lifecycle verb to a mirror. For a restore, `mirror` is the original source of a stopped mirror."""

    mirror: Address
    verb: RoleVerb
    is_named: bool = True
    """Whether the command names the mirror, not a pattern or link; if nothing is to do, it is an error."""
    links: tuple[str, ...] = ()
    """For a restore: names of the links over which the mirror was stopped; empty for any link."""
    timeout_ms: int | None = None
    """For a promotion: give up if the lag does not shrink for this long; `None` for the link's setting."""
    keeps_diverged: bool = False
    """For a restore: keep records that only the original source has, even if the link does not declare it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateMirrorOrder:
    """Create a mirror over an existing link."""

    mirror: Address
    link: str
    source: str | None = None
    """Full name of the source topic; `None` for the mirror's name without the link's prefix."""
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
