"""How a cluster is reached, in the words of both client libraries.

Both results are plain values that travel to executors; passwords and keys stay `Secret` in them, and whoever opens a
client reveals them: `connecting.py` for administration, `revealing.py` for records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from reconciler.errors import UserError
from reconciler.providers.kafka.reaching.tls import Tls
from reconciler.providers.secrets import resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.providers.base import Edge
    from reconciler.providers.secrets import Secret
    from reconciler.resources.cluster import Cluster
    from reconciler.resources.connections import KafkaConnection, SecuritySpec

CONNECT_MS: Final = 10_000
"""For a connection, greetings and credentials included, and for reaching any broker at all."""
REQUEST_MS: Final = 60_000
"""For the answer to one request: a controller that creates thousands of topics takes its time."""
_BACKOFF_MAX_MS: Final = 500
_HIGHEST_PORT: Final = 65_535

_IN_FLIGHT: Final = 1_000
"""Requests on one connection: threads share it, and beyond the limit the library finds no broker to ask."""
_PATIENT: Final = {
    "client_id": "reconciler",
    "reconnect_backoff_max_ms": _BACKOFF_MAX_MS,
    "bootstrap_timeout_ms": CONNECT_MS,
    "request_timeout_ms": REQUEST_MS,
    "max_in_flight_requests_per_connection": _IN_FLIGHT,
}


def admin_settings(declared: Cluster, edge: Edge) -> dict[str, Any]:
    """Return the settings of the client for administration, as `connecting.opened_admin` takes them.

    Raises:
        UserError: A secret or a file cannot be read, or an address is none.
    """
    connection = _connection(declared)
    settings: dict[str, Any] = {
        "bootstrap_servers": list(_servers(declared)),
        **_PATIENT,
    }
    if connection.security is None:
        return settings
    security, where = connection.security, _where(declared)
    settings["security_protocol"] = security.protocol
    if security.protocol.endswith("SSL"):
        settings["tls"] = Tls.of(security, edge, where=where)
    return settings | _admin_login(security, edge, where)


def record_settings(declared: Cluster, edge: Edge) -> dict[str, Any]:
    """Return the settings of the client for records.

    Raises:
        UserError: As of `admin_settings`.
    """
    connection = _connection(declared)
    settings: dict[str, Any] = {
        "bootstrap.servers": ",".join(_servers(declared)),
        "client.id": "reconciler",
        "reconnect.backoff.max.ms": _BACKOFF_MAX_MS,
        "socket.connection.setup.timeout.ms": CONNECT_MS,
        "socket.timeout.ms": REQUEST_MS,
    }
    if connection.security is None:
        return settings
    security, where = connection.security, _where(declared)
    settings["security.protocol"] = security.protocol
    if security.protocol.endswith("SSL"):
        settings |= Tls.of(security, edge, where=where).of_records()
    return settings | _record_login(security, edge, where)


def as_admin(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the client for administration that reaches what `settings` of the one for records do."""
    found: dict[str, Any] = {
        "bootstrap_servers": settings["bootstrap.servers"].split(","),
        **_PATIENT,
        "security_protocol": settings.get("security.protocol", "PLAINTEXT"),
    }
    if found["security_protocol"].endswith("SSL"):
        found["tls"] = Tls(*(settings.get(f"ssl.{part}.pem") for part in ("ca", "certificate", "key")))
    mechanism = settings.get("sasl.mechanism")
    if mechanism == "OAUTHBEARER":
        from reconciler.providers.kafka.reaching.tokens import Tokens  # noqa: PLC0415 - only who uses tokens pays

        tokens = Tokens(
            settings["sasl.oauthbearer.token.endpoint.url"],
            settings["sasl.oauthbearer.client.id"],
            settings["sasl.oauthbearer.client.secret"] or None,
            settings.get("sasl.oauthbearer.scope"),
            Tls(ca=settings.get("https.ca.pem")),
        )
        return found | {"sasl_mechanism": mechanism, "tokens": tokens}
    if mechanism is not None:
        found["sasl_mechanism"] = mechanism
        found["sasl_plain_username"] = settings["sasl.username"]
        found["sasl_plain_password"] = settings["sasl.password"]
    return found


def _admin_login(security: SecuritySpec, edge: Edge, where: str) -> dict[str, Any]:
    if security.mechanism is None:
        return {}
    if security.mechanism == "OAUTHBEARER":
        from reconciler.providers.kafka.reaching.tokens import Tokens  # noqa: PLC0415 - only who uses tokens pays

        trusted = Tls(ca=Tls.of(security, edge, where=where).ca)
        url, client_id = _endpoint(security, where), security.client_id or ""
        tokens = Tokens(url, client_id, _secret(security.client_secret, edge), security.scope, trusted)
        return {"sasl_mechanism": "OAUTHBEARER", "tokens": tokens}
    return {
        "sasl_mechanism": security.mechanism,
        "sasl_plain_username": security.username,
        "sasl_plain_password": _secret(security.password, edge),
    }


def _record_login(security: SecuritySpec, edge: Edge, where: str) -> dict[str, Any]:
    if security.mechanism is None:
        return {}
    if security.mechanism != "OAUTHBEARER":
        return {
            "sasl.mechanism": security.mechanism,
            "sasl.username": security.username,
            "sasl.password": _secret(security.password, edge),
        }
    ca = Tls.of(security, edge, where=where).ca
    found = {
        "sasl.oauthbearer.token.endpoint.url": _endpoint(security, where),
        "sasl.oauthbearer.client.id": security.client_id,
        # The library demands one; endpoints that want none take an empty one for none.
        "sasl.oauthbearer.client.secret": _secret(security.client_secret, edge) or "",
        "sasl.oauthbearer.scope": security.scope,
        "https.ca.pem": None if ca is None else ca + _trusted_by_the_system(),
    }
    given = {name: value for name, value in found.items() if value is not None}
    return {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc", **given}


def _trusted_by_the_system() -> str:
    """Return its certificates: librdkafka trusts either those it is given or those of the system, not both."""
    import ssl  # noqa: PLC0415 - only who uses tokens pays

    context = ssl.create_default_context()
    found = context.get_ca_certs(binary_form=True)
    return "".join(ssl.DER_cert_to_PEM_cert(each) for each in found)


def _endpoint(security: SecuritySpec, where: str) -> str:
    url = security.token_endpoint_url or ""
    if urlsplit(url).scheme not in {"https", "http"} or not urlsplit(url).hostname:
        message = f"{where}.tokenEndpointUrl: {url!r} is no address of the web"
        raise UserError(message, hint="Write it like https://login.example.com/oauth2/token")
    return url


def _secret(reference: str | None, edge: Edge) -> Secret | None:
    return None if reference is None else resolve(reference, edge.environ)


def _connection(declared: Cluster) -> KafkaConnection:
    if declared.spec.kafka is None:
        raise UserError(f"{declared.address}: spec.kafka is missing", hint="Say where its brokers are.")
    return declared.spec.kafka


def _where(declared: Cluster) -> str:
    return f"{declared.address}: spec.kafka.security"


def _servers(declared: Cluster) -> tuple[str, ...]:
    servers = tuple(server.strip() for server in _connection(declared).bootstrap_servers)
    for server in servers:
        host, _, port = server.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= _HIGHEST_PORT:
            message = f"{declared.address}: spec.kafka.bootstrapServers: {server!r} is no address of a broker"
            raise UserError(message, hint="Write each as host:port, for example broker-1:9092")
    return servers
