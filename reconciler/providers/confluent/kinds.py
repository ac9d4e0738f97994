"""Documented limits of Confluent's kinds of clusters (confluent.md).

Enterprise and Freight: "Supported cluster combinations" of
https://docs.confluent.io/cloud/current/multi-cloud/cluster-linking/private-networking.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.resources.cluster import ConfluentConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterKind:
    """What a kind of cluster allows."""

    name: str
    """Its name in messages, for example `Confluent Cloud Basic`."""
    may_be_destination: bool | None
    """Whether links may copy into it (7); `None` if that depends on a kind that the manifest does not declare."""
    may_swap_roles: bool
    """Whether mirrors of its bidirectional links can be reversed and restored (3.3)."""
    is_cloud: bool
    """Cloud pauses no links (3.1), has three replicas of every topic (4), and tiers all topics by itself."""
    read_only_link_configs: frozenset[str]
    """Configs of its links that cannot be set (5), of those that a MirrorLink has."""


def _build_cloud_kind(name: str, *, may_be_destination: bool | None, may_swap_roles: bool = True) -> ClusterKind:
    return ClusterKind(
        name=name,
        may_be_destination=may_be_destination,
        may_swap_roles=may_swap_roles,
        is_cloud=True,
        read_only_link_configs=frozenset({"cluster.link.retry.timeout.ms", "metadata.max.age.ms"}),
    )


_CLOUD: Final = _build_cloud_kind("Confluent Cloud", may_be_destination=None)
_CLOUD_KINDS: Final[Mapping[str, ClusterKind]] = {
    kind: _build_cloud_kind(
        f"Confluent Cloud {kind.capitalize()}",
        may_be_destination=kind in {"enterprise", "dedicated"},
        may_swap_roles=kind == "dedicated",
    )
    for kind in ("basic", "standard", "enterprise", "dedicated", "freight")
}
_PLATFORM: Final = ClusterKind(
    name="Confluent Platform",
    may_be_destination=True,
    may_swap_roles=True,
    is_cloud=False,
    read_only_link_configs=frozenset(),
)


def find_kind(connection: ConfluentConnection) -> ClusterKind:
    """Return the declared kind. Without one, limits that differ between the kinds of Cloud clusters are `None`."""
    if connection.type == "platform":
        return _PLATFORM
    return _CLOUD if connection.kind is None else _CLOUD_KINDS[connection.kind]
