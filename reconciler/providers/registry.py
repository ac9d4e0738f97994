"""The only module that imports a provider, when one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import UserError

if TYPE_CHECKING:
    from reconciler.providers.protocol import Edge, Provider
    from reconciler.resources.cluster import Cluster


def open_provider(cluster: Cluster, edge: Edge) -> Provider:
    """Return the provider of a cluster; nothing is read yet.

    Raises:
        UserError: Its platform is not driven by this version.
    """
    match cluster.spec.provider:
        case "embedded":
            from reconciler.providers.embedded.provider import EmbeddedProvider  # noqa: PLC0415 - only who asks pays

            return EmbeddedProvider.of(cluster, edge)
        case "kafka":
            from reconciler.providers.kafka.provider import KafkaProvider  # noqa: PLC0415 - as above

            return KafkaProvider(cluster, edge)
        case "redpanda" | "confluent":
            message = f"cluster {cluster.metadata.name}: this version does not drive {cluster.spec.provider} clusters"
            raise UserError(message, hint="Use an embedded cluster, or leave this one out with --exclude.")
