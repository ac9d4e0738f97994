"""What is known of a Confluent cluster before it is asked: the limits of its kind, and the login to its brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import UserError
from reconciler.providers.brokers.security import (
    build_admin_settings,
    build_record_settings,
    build_token_source,
    find_principal,
    reveal_secrets,
    to_admin_settings,
)
from reconciler.providers.confluent.kinds import find_kind
from reconciler.providers.protocol import Edge
from reconciler.providers.secrets import Secret
from reconciler.resources.cluster import Cluster, ConfluentConnection

KEY = {"apiKey": "${env:KEY}", "apiSecret": "${env:SECRET}"}
BROKERS = {"bootstrapServers": ["host:9092"]}
ENVIRON = {"KEY": "the-key", "SECRET": "the-secret"}


def declare(**fields: Any) -> Cluster:
    connection = {"restEndpoint": "https://host", "clusterId": "lkc-1", **fields}
    spec = {"provider": "confluent", "confluent": connection}
    return Cluster.model_validate({"metadata": {"name": "west"}, "spec": spec})


@pytest.fixture
def edge(tmp_path: Path) -> Edge:
    return Edge(folder=tmp_path, environ=ENVIRON, new_id=lambda: "id", now_ms=lambda: 0)


DESTINATIONS: dict[str, tuple[dict[str, Any], bool | None]] = {
    "Confluent Cloud": (KEY, None),
    "Confluent Cloud Basic": ({**KEY, "kind": "basic"}, False),
    "Confluent Cloud Standard": ({**KEY, "kind": "Standard"}, False),
    "Confluent Cloud Enterprise": ({**KEY, "kind": "enterprise"}, True),
    "Confluent Cloud Dedicated": ({**KEY, "kind": "dedicated"}, True),
    "Confluent Cloud Freight": ({**KEY, "kind": "freight"}, False),
    "Confluent Platform": ({"type": "platform"}, True),
}


@pytest.mark.parametrize("name", DESTINATIONS)
def test_each_kind_has_its_limits(name: str) -> None:
    fields, may_be_destination = DESTINATIONS[name]
    connection = declare(**fields).spec.connection
    assert isinstance(connection, ConfluentConnection)
    kind, is_platform = find_kind(connection), connection.type == "platform"
    assert (kind.name, kind.may_be_destination) == (name, may_be_destination)
    assert kind.is_cloud is not is_platform
    assert ("metadata.max.age.ms" in kind.read_only_link_configs) is not is_platform


def test_the_key_of_cloud_logs_in_to_its_brokers_and_is_never_shown(edge: Edge) -> None:
    cluster = declare(**KEY, **BROKERS)
    admin, records = build_admin_settings(cluster, edge), build_record_settings(cluster, edge)
    assert (admin["security_protocol"], admin["sasl_mechanism"]) == ("SASL_SSL", "PLAIN")
    assert (admin["sasl_plain_username"], admin["sasl_plain_password"]) == (Secret("the-key"), Secret("the-secret"))
    clear = reveal_secrets(records)
    assert (clear["sasl.username"], clear["sasl.password"]) == ("the-key", "the-secret")
    assert to_admin_settings(records)["sasl_plain_username"] == admin["sasl_plain_username"]
    assert not [secret for secret in ENVIRON.values() if secret in repr(admin) + repr(records)]


@pytest.mark.parametrize(
    ("fields", "principal"),
    [
        ({**KEY, **BROKERS}, None),
        ({"type": "platform", **BROKERS}, "User:ANONYMOUS"),
        (
            {
                **KEY,
                **BROKERS,
                "security": {
                    "protocol": "SASL_SSL",
                    "mechanism": "PLAIN",
                    "username": "key",
                    "password": "${env:SECRET}",
                    "principal": "User:sa-abc123",
                },
            },
            "User:sa-abc123",
        ),
    ],
)
def test_a_key_does_not_tell_the_principal(fields: dict[str, Any], principal: str | None) -> None:
    assert find_principal(declare(**fields)) == principal


def test_a_cluster_without_brokers_has_no_settings_for_records(edge: Edge) -> None:
    with pytest.raises(UserError, match=r"cluster/west: spec\.confluent\.bootstrapServers is missing"):
        build_record_settings(declare(**KEY), edge)


def test_tokens_for_rest_need_no_brokers(edge: Edge) -> None:
    security = {
        "protocol": "SASL_SSL",
        "mechanism": "OAUTHBEARER",
        "tokenEndpointUrl": "https://login/token",
        "clientId": "me",
        "clientSecret": "${env:SECRET}",
    }
    tokens = build_token_source(declare(security=security), edge)
    assert (tokens.url, tokens.client_id, tokens.client_secret) == ("https://login/token", "me", Secret("the-secret"))
