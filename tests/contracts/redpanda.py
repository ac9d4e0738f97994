"""A Redpanda cluster, emulated or the user's own, as a Cluster of a workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.resources.cluster import Cluster
from tests.servers.brokers import emptied
from tests.servers.redpandaexternal import EXTERNAL, ExternalRedpanda

if TYPE_CHECKING:
    from tests.servers.redpanda.server import Redpanda

SECRETS: Final = {"RECONCILER_REDPANDA": "admin-password" if EXTERNAL is None else EXTERNAL.password}
"""Environment that the login of the Admin API needs."""


def declared_on_redpanda(name: str, server: Redpanda | ExternalRedpanda, **spec: object) -> Cluster:
    """Return a Cluster at the addresses of a server, with the object storage that its properties name."""
    if isinstance(server, ExternalRedpanda):
        return server.declare(name, **spec)
    connection = {
        "bootstrapServers": server.kafka.split(","),
        "adminUrls": list(server.admin),
        "admin": {"username": server.user, "password": "${env:RECONCILER_REDPANDA}"},
    }
    content = {"provider": "redpanda", "redpanda": connection, "objectStorage": "s3://redpanda-bucket", **spec}
    return Cluster.model_validate({"metadata": {"name": name}, "spec": content})


def empty(server: Redpanda | ExternalRedpanda) -> None:
    """Delete the topics, groups and access rules of earlier tests."""
    if isinstance(server, ExternalRedpanda):
        server.empty()
    else:
        emptied(server.kafka)
