"""Passwords that would go over a connection that anybody on the way can read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.planning.finding import Finding
from reconciler.resources.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Desired

HINT = "Use SASL_SSL and https. Where the network is safe, say `allowPlaintextPasswords: true` beside `protocol`."


def plaintext_of(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Yield the fields of a cluster by which a password or token is sent in clear, and what is wrong with each."""
    for kind, connection in (("kafka", cluster.spec.kafka), ("redpanda", cluster.spec.redpanda)):
        security = None if connection is None else connection.security
        if security is None or security.mechanism is None or security.allow_plaintext_passwords:
            continue
        if security.protocol == "SASL_PLAINTEXT":
            yield (
                f"spec.{kind}.security.protocol",
                "SASL_PLAINTEXT sends passwords over a connection without encryption",
            )
        url = security.token_endpoint_url or ""
        if security.client_secret is not None and url.lower().startswith("http://"):
            yield f"spec.{kind}.security.tokenEndpointUrl", f"{url} is asked for tokens without encryption"


def check_plaintext(desired: Desired) -> Iterator[Finding]:
    """Yield the declared clusters of which that is so."""
    for address, declared in sorted(desired.items()):
        if isinstance(declared.resource, Cluster):
            yield from _findings(address, declared.source, declared.resource)


def _findings(address: Address, source: str, cluster: Cluster) -> Iterator[Finding]:
    for field, message in plaintext_of(cluster):
        path = tuple(field.removeprefix("spec.").split("."))
        yield Finding(address, source, message, HINT, ((address, ("spec", *path)),))
