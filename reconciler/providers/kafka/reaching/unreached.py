"""Errors of librdkafka in our words; where it only says that time is up, with what the brokers' ports say about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import RetryableError
from reconciler.providers.kafka.codes import LOGIN, OURS
from reconciler.providers.kafka.faults import translated
from reconciler.providers.kafka.reaching.diagnosing import Route
from reconciler.providers.kafka.reaching.probing import refusal
from reconciler.providers.kafka.reaching.tls import Tls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.errors import ReconcilerError

_WORDLESS: Final = OURS.keys() | LOGIN.keys()


def told(error: Any, settings: Mapping[str, Any], *, doing: str, cluster: str) -> ReconcilerError:
    """Return an error of a client of records; `settings` are those that it was made of, secrets hidden."""
    from confluent_kafka import KafkaException  # noqa: PLC0415 - whoever copies nothing imports no client

    found = unreached(settings, doing=doing, cluster=cluster) if error.code() in _WORDLESS else None
    return found or translated(KafkaException(error), doing=doing, cluster=cluster)


def check_hope(settings: Mapping[str, Any], *, doing: str, cluster: str) -> None:
    """Return if what keeps a client waiting may pass by itself.

    Raises:
        UserError: It does not: no certificate of theirs is trusted, for example.
    """
    found = unreached(settings, doing=doing, cluster=cluster)
    if found is not None and not isinstance(found, RetryableError):
        raise found


def unreached(settings: Mapping[str, Any], *, doing: str, cluster: str) -> ReconcilerError | None:
    """Return why no connection to any of the brokers can be made; `None` where one can."""
    protocol = settings.get("security.protocol", "PLAINTEXT")
    given = {"bootstrap_servers": settings["bootstrap.servers"].split(","), "security_protocol": protocol}
    route = Route.of(given, cluster)
    route.is_open = True  # It was reached before with these settings, or nobody would copy.
    tls = Tls(settings.get("ssl.ca.pem"), settings.get("ssl.certificate.pem"), settings.get("ssl.key.pem"))
    context = tls.context(where=f"cluster {cluster}: spec.kafka.security") if protocol.endswith("SSL") else None
    for address in route.servers:
        if (error := refusal(address, context)) is None:
            return None
        route.failed(address, error)
    return route.why(doing=doing)
