"""Limits of Confluent's kinds of clusters, as far as Confluent documents them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from reconciler.resources.cluster import ConfluentConnection

# Sections of facts/confluent.md are in parentheses. Enterprise and Freight: "Supported cluster combinations" of
# https://docs.confluent.io/cloud/current/multi-cloud/cluster-linking/private-networking.html

_NEVER_SYNCED: Final = frozenset({"replication.factor", "confluent.placement.constraints"})
_READ_ONLY: Final = frozenset(
    {
        "cluster.link.retry.timeout.ms",
        "connections.max.idle.ms",
        "metadata.max.age.ms",
        "num.cluster.link.fetchers",
        "replica.fetch.backoff.ms",
        "replica.fetch.max.bytes",
        "replica.fetch.min.bytes",
        "replica.fetch.response.max.bytes",
        "replica.fetch.wait.max.ms",
        "replica.socket.timeout.ms",
        "request.timeout.ms",
        "retry.backoff.ms",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterKind:
    """What a kind of cluster allows. A limit is `None` if it depends on a kind that the manifest does not declare."""

    name: str
    """Its name in messages, for example `Confluent Cloud Basic`."""
    has_links: bool | None
    """Whether links may copy from or into it; Freight has none."""
    may_be_destination: bool | None
    """Whether links may copy into it (7)."""
    may_reverse: bool | None
    """Whether its mirrors can be reversed, if the link is bidirectional and the other cluster allows it too (3.3)."""
    may_restore: bool | None
    """Whether its topics can be truncated and restored, if the link is bidirectional: documented for Cloud (3.3)."""
    may_pause_links: bool
    """Whether whole links can be paused; single mirrors always can (3.1)."""
    may_set_replication_factor: bool
    """Whether topics may have a replication factor: Cloud always has 3 (4)."""
    has_tiering: bool
    """Whether topics have `confluent.tier.*` configs."""
    never_synced_configs: frozenset[str]
    """Topic configs that links never copy to it, next to those for tiering, throttles and schema validation (4)."""
    read_only_link_configs: frozenset[str]
    """Configs of its links that cannot be set (5)."""
    prefix_since: tuple[int, ...] = ()
    """First version whose links may have a prefix (2.3); empty: any."""
    reverse_since: tuple[int, ...] = ()
    """First version that reverses mirrors, needed on both clusters (3.3); empty: any."""


def _build_cloud_kind(
    name: str, *, has_links: bool | None, may_be_destination: bool | None, may_reverse: bool | None
) -> ClusterKind:
    return ClusterKind(
        name=name,
        has_links=has_links,
        may_be_destination=may_be_destination,
        may_reverse=may_reverse,
        may_restore=may_be_destination,  # The restored topic becomes a mirror, so its cluster a destination.
        may_pause_links=False,
        may_set_replication_factor=False,
        has_tiering=False,
        never_synced_configs=_NEVER_SYNCED | {"compression.type", "min.insync.replicas"},
        read_only_link_configs=_READ_ONLY,
    )


_CLOUD: Final = _build_cloud_kind("Confluent Cloud", has_links=None, may_be_destination=None, may_reverse=None)
_CLOUD_KINDS: Final[Mapping[str, ClusterKind]] = {
    kind: _build_cloud_kind(
        f"Confluent Cloud {kind.capitalize()}",
        has_links=kind != "freight",
        may_be_destination=kind in {"enterprise", "dedicated"},
        may_reverse=kind == "dedicated",
    )
    for kind in ("basic", "standard", "enterprise", "dedicated", "freight")
}
_PLATFORM: Final = ClusterKind(
    name="Confluent Platform",
    has_links=True,
    may_be_destination=True,
    may_reverse=True,
    may_restore=False,
    may_pause_links=True,
    may_set_replication_factor=True,
    has_tiering=True,
    never_synced_configs=_NEVER_SYNCED,
    read_only_link_configs=frozenset(),
    prefix_since=(7, 2, 0),
    reverse_since=(7, 7),
)


def find_kind(connection: ConfluentConnection) -> ClusterKind:
    """Return the declared kind. Without one, limits that differ between the kinds of Cloud clusters are `None`."""
    if connection.type == "platform":
        return _PLATFORM
    return _CLOUD if connection.kind is None else _CLOUD_KINDS[connection.kind]
