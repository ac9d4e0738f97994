"""What each login to a Confluent cluster sends, and where it sends it."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.resources.cluster import ConfluentConnection, SecuritySpec

REST = "https://host:443"
BROKER = "SASL_SSL://host:9092"
TOKENS = "https://login/token"
KEY = {"apiKey": "${env:KEY}", "apiSecret": "${env:SECRET}"}
BROKERS = {"bootstrapServers": ["host:9092"]}
PLATFORM = {"type": "platform"}
PLAIN = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "me", "password": "${env:PASSWORD}"}
OAUTH = {
    "protocol": "SASL_SSL",
    "mechanism": "OAUTHBEARER",
    "tokenEndpointUrl": TOKENS,
    "clientId": "me",
    "clientSecret": "${env:CLIENT}",
}
BY_KEY = SecuritySpec(protocol="SASL_SSL", mechanism="PLAIN", username="${env:KEY}", password="${env:SECRET}")  # noqa: S106 - a reference

LOGINS: dict[str, tuple[dict[str, Any], dict[str, set[str]], set[str]]] = {
    "a key for REST": (KEY, {"apiKey": {REST}, "apiSecret": {REST}}, {REST}),
    "a key for REST and brokers": (
        {**KEY, **BROKERS},
        {"apiKey": {REST, BROKER}, "apiSecret": {REST, BROKER}},
        {REST, BROKER},
    ),
    "a key for REST, and a user for brokers": (
        {**KEY, **BROKERS, "security": PLAIN},
        {"apiKey": {REST}, "apiSecret": {REST}, "security.password": {BROKER}},
        {REST, BROKER},
    ),
    "a key of Platform": (
        {**PLATFORM, **KEY, **BROKERS},
        {"apiKey": {REST}, "apiSecret": {REST}},
        {REST},
    ),
    "a user of REST": (
        {**PLATFORM, "rest": {"username": "me", "password": "${env:PASSWORD}"}},
        {"rest.password": {REST}},
        {REST},
    ),
    "a token of REST, and OAuth for brokers": (
        {**BROKERS, "rest": {"token": "${env:TOKEN}"}, "security": OAUTH},
        {"rest.token": {REST}, "security.clientSecret": {BROKER, TOKENS}},
        {REST, BROKER},
    ),
    "OAuth for REST": ({"security": OAUTH}, {"security.clientSecret": {REST, TOKENS}}, {REST}),
    "OAuth for REST and brokers": (
        {**BROKERS, "security": OAUTH, "rest": {"caFile": "ca.pem"}},
        {"security.clientSecret": {REST, BROKER, TOKENS}},
        {REST, BROKER},
    ),
    "none": ({**PLATFORM, **BROKERS}, {}, {REST}),
}


def connect(fields: dict[str, Any]) -> ConfluentConnection:
    return ConfluentConnection.model_validate({"restEndpoint": "https://host", "clusterId": "lkc-1", **fields})


@pytest.mark.parametrize("login", LOGINS)
def test_each_secret_goes_only_to_the_addresses_that_it_logs_in_to(login: str) -> None:
    fields, secrets, targets = LOGINS[login]
    connection = connect(fields)
    assert {name: set(addresses) for name, _, addresses in connection.list_secrets()} == secrets
    assert connection.list_secret_targets() == targets


@pytest.mark.parametrize(
    ("fields", "security"),
    [
        (KEY, None),
        ({**KEY, **BROKERS}, BY_KEY),
        ({**KEY, **BROKERS, "security": PLAIN}, SecuritySpec.model_validate(PLAIN)),
        ({**PLATFORM, **KEY, **BROKERS}, None),
        ({**KEY, **BROKERS, "security": {"protocol": "PLAINTEXT"}}, SecuritySpec()),
    ],
)
def test_the_key_logs_in_to_the_brokers_of_cloud_unless_security_does(
    fields: dict[str, Any], security: SecuritySpec | None
) -> None:
    assert connect(fields).find_security() == security


@pytest.mark.parametrize(
    ("fields", "sends_token"),
    [
        ({"security": OAUTH}, True),
        ({"security": OAUTH, "rest": {"caFile": "ca.pem"}}, True),
        ({**BROKERS, "security": OAUTH, "rest": {"token": "${env:TOKEN}"}}, False),
        ({**BROKERS, "security": OAUTH, "rest": {"certFile": "me.pem"}}, False),
        ({**BROKERS, "security": OAUTH, **KEY}, False),
        ({**BROKERS, "security": PLAIN, **PLATFORM}, False),
    ],
)
def test_rest_gets_the_token_of_the_brokers_if_it_has_no_login_of_its_own(
    fields: dict[str, Any], *, sends_token: bool
) -> None:
    assert connect(fields).sends_oauth_token is sends_token


@pytest.mark.parametrize(
    ("endpoint", "origin", "path"),
    [
        ("https://Host", "https://host:443", None),
        ("https://host/", "https://host:443", None),
        ("https://host:443/kafka/v3", "https://host:443", "/kafka/v3"),
        ("http://host/v3/", "http://host:80", "/v3"),
        ("http://[::1]:8090", "http://[::1]:8090", None),
    ],
)
def test_an_endpoint_is_an_origin_and_may_have_the_path_of_the_api(
    endpoint: str, origin: str, path: str | None
) -> None:
    connection = connect({"restEndpoint": endpoint, **PLATFORM})
    assert (connection.rest_endpoint, connection.rest_origin, connection.rest_path) == (endpoint, origin, path)


def test_files_of_both_logins_are_listed() -> None:
    files = {"caFile": "ca.pem", "certFile": "me.pem", "keyFile": "me.key"}
    connection = connect({**PLATFORM, **BROKERS, "security": {"protocol": "SSL", "caFile": "b.pem"}, "rest": files})
    expected = [("security.caFile", "b.pem"), *((f"rest.{field}", name) for field, name in files.items())]
    assert list(connection.list_files()) == expected


def test_names_are_flat_with_a_separator_that_can_be_chosen() -> None:
    assert connect(KEY).find_separator() == "."
    assert connect({**KEY, "namespaceSeparator": "_"}).find_separator() == "_"
