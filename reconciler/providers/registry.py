"""Creation of providers, which are imported lazily."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from reconciler.providers.protocol import Edge, Provider
    from reconciler.providers.redpanda.bucket import ClusterRecovery
    from reconciler.resources.cluster import Cluster

# ruff: noqa: PLC0415 - a cluster imports only its own platform


def open_provider(cluster: Cluster, edge: Edge) -> Provider:
    """Return a cluster's provider without reading it."""
    return PLATFORMS[cluster.spec.provider](cluster, edge)


def open_recovery(cluster: Cluster, edge: Edge) -> ClusterRecovery | None:
    """Return the recovery of a whole cluster by its platform; `None` if the platform has none."""
    if cluster.spec.provider != "redpanda":
        return None
    from reconciler.providers.redpanda.bucket import ClusterRecovery
    from reconciler.providers.redpanda.client import AdminClient

    return ClusterRecovery(AdminClient(cluster, edge))


def _open_embedded(cluster: Cluster, edge: Edge) -> Provider:
    from reconciler.providers.embedded.provider import EmbeddedProvider

    return EmbeddedProvider.open(cluster, edge)


def _open_kafka(cluster: Cluster, edge: Edge) -> Provider:
    from reconciler.providers.kafka import KafkaProvider

    return KafkaProvider(cluster, edge)


def _open_redpanda(cluster: Cluster, edge: Edge) -> Provider:
    from reconciler.providers.redpanda.provider import RedpandaProvider

    return RedpandaProvider(cluster, edge)


def _open_confluent(cluster: Cluster, edge: Edge) -> Provider:
    from reconciler.providers.confluent.provider import ConfluentProvider

    return ConfluentProvider(cluster, edge)


PLATFORMS: Final[dict[str, Callable[[Cluster, Edge], Provider]]] = {
    "embedded": _open_embedded,
    "kafka": _open_kafka,
    "redpanda": _open_redpanda,
    "confluent": _open_confluent,
}
