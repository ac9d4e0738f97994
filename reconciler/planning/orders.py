"""Orders: changes that a command requests instead of the manifests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.resources.acls import NamespaceAcl
    from reconciler.resources.address import Address
    from reconciler.resources.measures import TopicReaders
    from reconciler.resources.mirror_link import MirrorLink
    from reconciler.resources.mount import Direction, MountSource, Phase


@dataclass(frozen=True, slots=True)
class ForgetOrder:
    """Forget matching resources and, with `is_recursive`, the content of namespaces and clusters."""

    pattern: str
    is_recursive: bool = False


@dataclass(frozen=True, slots=True)
class ReaddressOrder:
    """Change the recorded address of a resource and, for a namespace, of its content."""

    before: Address
    after: Address


@dataclass(frozen=True, slots=True)
class CreateNamespaceOrder:
    """Create a namespace with configs and its missing parents."""

    cluster: str
    name: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AlterNamespaceOrder:
    """Set configs and access rules of a namespace. `None` resets a config."""

    cluster: str
    name: str
    configs: Mapping[str, str | None]
    acls: tuple[NamespaceAcl, ...] = ()
    """Rules to set, which replace rules with the same principal, host, resources and names."""
    removed_acls: tuple[NamespaceAcl, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteNamespaceOrder:
    """Delete a namespace with its topics and, with `is_recursive`, the namespaces below it."""

    cluster: str
    name: str
    is_recursive: bool = False


@dataclass(frozen=True, slots=True)
class MoveTopicsOrder:
    """Move the named topics, or all topics in and below `source`, to another namespace."""

    cluster: str
    source: str
    target: str
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicOrder:
    """Create a topic, with the cluster's defaults for `None`."""

    topic: Address
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AlterTopicOrder:
    """Set configs of a topic or mirror, or add partitions. `None` resets a config."""

    topic: Address
    configs: Mapping[str, str | None]
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopicOrder:
    """Delete a topic with its records."""

    topic: Address


@dataclass(frozen=True, slots=True)
class TrimTopicOrder:
    """Delete a topic's records below offsets, by partition."""

    topic: Address
    offsets: Mapping[int, int]
    note: str | None = None
    """Remark on how a limit became offsets."""
    readers: TopicReaders | None = None
    """Positions in the topic when it was observed; `None` if it does not exist."""


@dataclass(frozen=True, slots=True)
class CreateLinkOrder:
    """Create a link without mirrors, on both clusters if the mode requires it."""

    resource: MirrorLink


@dataclass(frozen=True, slots=True)
class AlterLinkOrder:
    """Set fields of a link. `None` resets a field."""

    link: Address
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class PauseLinkOrder:
    """Pause or resume a link. `is_named`: the command names this link instead of a pattern."""

    link: Address
    is_paused: bool
    is_named: bool = True


@dataclass(frozen=True, slots=True)
class DeleteLinkOrder:
    """Delete a link, with `is_forced` after a failover of its mirrors."""

    link: Address
    is_forced: bool = False


LinkOrder: TypeAlias = CreateLinkOrder | AlterLinkOrder | PauseLinkOrder | DeleteLinkOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class MountOrder:
    """Mount or unmount a topic, or only a `phase` of it."""

    topic: Address
    direction: Direction
    source: MountSource
    phase: Phase = "whole"

    @property
    def needs_mirrors(self) -> bool:
        """Whether the plan must read mirrors on other clusters, because their source is unmounted."""
        return self.direction == "outbound" and self.phase != "finish"


RoleVerb: TypeAlias = Literal[
    "pause", "resume", "promote", "failover", "reverse-and-start", "reverse-and-pause", "truncate-and-restore"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleOrder:
    """Apply a lifecycle verb to a mirror. A restore turns `mirror`, an original source, into a mirror."""

    mirror: Address
    verb: RoleVerb
    is_named: bool = True
    """Whether the command names the mirror instead of a pattern."""
    links: tuple[str, ...] = ()
    """Links whose stopped mirrors a restore considers; all if empty."""
    timeout_ms: int | None = None
    """Time after which a promotion fails unless the lag shrinks. `None` selects the link's setting."""
    keeps_diverged: bool = False
    """Whether a restore keeps records that only the original source has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateMirrorOrder:
    """Create a mirror over an existing link."""

    mirror: Address
    link: str
    source: str | None = None
    """Full name of the source, by default the mirror's name without the link's prefix."""
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
    | TrimTopicOrder
    | LinkOrder
    | MountOrder
    | RoleOrder
    | CreateMirrorOrder
    | DeleteMirrorOrder
)
