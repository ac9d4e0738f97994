"""An emulated Confluent cluster as a Cluster of a workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from reconciler.resources.cluster import Cluster

if TYPE_CHECKING:
    from tests.servers.confluent.server import Confluent

SECRETS: Final = {"CONTRACT_KEY": "contracts", "CONTRACT_SECRET": "secret-of-contracts"}
"""Environment that the login to a declared cluster needs."""


def declared_on_confluent(name: str, server: Confluent) -> Cluster:
    """Return a Cluster at the addresses of a server, which knows the key from now on."""
    server.keys[SECRETS["CONTRACT_KEY"]] = SECRETS["CONTRACT_SECRET"]
    spec = {"provider": "confluent", "confluent": describe_connection(server, "CONTRACT")}
    return Cluster.model_validate({"metadata": {"name": name}, "spec": spec})


def describe_connection(server: Confluent, variables: str, **fields: Any) -> dict[str, Any]:
    """Return `spec.confluent` of a cluster whose login is in variables of that prefix; `None` leaves a field out."""
    connection = {
        "type": "cloud" if server.is_cloud else "platform",
        "kind": server.kind,
        "restEndpoint": server.rest,
        "clusterId": server.cluster_id,
        "apiKey": f"${{env:{variables}_KEY}}",
        "apiSecret": f"${{env:{variables}_SECRET}}",
        "bootstrapServers": server.kafka.split(","),
        "security": None if is_secured(server) else {"protocol": "PLAINTEXT"},
        **fields,
    }
    return {field: value for field, value in connection.items() if value is not None}


def is_secured(server: Confluent) -> bool:
    """Return whether the brokers need a login: on a user's clusters with TLS."""
    return server.rest.startswith("https:")
