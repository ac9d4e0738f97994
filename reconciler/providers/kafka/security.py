"""How a cluster is reached, in the words of both client libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconciler.errors import UserError

if TYPE_CHECKING:
    from reconciler.providers.base import Edge
    from reconciler.resources.cluster import Cluster


def admin_settings(declared: Cluster, edge: Edge) -> dict[str, Any]:
    """Return the settings of the client for administration."""
    return {"bootstrap_servers": list(_servers(declared)), "client_id": "reconciler", "reconnect_backoff_max_ms": 500}


def record_settings(declared: Cluster, edge: Edge) -> dict[str, Any]:
    """Return the settings of the client for records."""
    return {
        "bootstrap.servers": ",".join(_servers(declared)),
        "client.id": "reconciler",
        "reconnect.backoff.max.ms": 500,
    }


def _servers(declared: Cluster) -> tuple[str, ...]:
    if declared.spec.kafka is None:
        raise UserError(f"{declared.address}: spec.kafka is missing", hint="Say where its brokers are.")
    return tuple(declared.spec.kafka.bootstrap_servers)
