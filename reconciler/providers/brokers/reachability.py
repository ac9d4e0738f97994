"""Explanations why a broker cannot be reached, from probes of its port and librdkafka's errors."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import closing
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from reconciler.errors import NotAuthorizedError, ReconcilerError, RetryableError, UserError
from reconciler.providers.brokers.faults import LIBRARY_PERMANENT, LIBRARY_TRANSIENT, translate_error
from reconciler.providers.brokers.security import MSK, Tls
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.retry import Backoff, Tries
from reconciler.runtime.text import to_one_line

if TYPE_CHECKING:
    import ssl

    from confluent_kafka import Consumer, TopicPartition

# ruff: noqa: PLC0415


_SECONDS: Final = 3.0
_API_VERSIONS: Final = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
"""ApiVersions request, version 0, which brokers answer before login."""
_ANSWER_MAX: Final = 1 << 20
_TLS_MISSING: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING"})


def find_connection_error(address: tuple[str, int], context: ssl.SSLContext | None) -> OSError | None:
    """Return the error of a connection to a port; `None` on success. A `context` adds a TLS handshake."""
    try:
        with socket.create_connection(address, _SECONDS) as plain:
            if context is not None:
                context.wrap_socket(plain, server_hostname=address[0]).close()
    except OSError as error:
        return error
    return None


def speaks_tls(address: tuple[str, int]) -> bool:
    """Return whether a port speaks TLS. Certificates are not checked."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection(address, _SECONDS) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        return error.reason not in _TLS_MISSING and not isinstance(error, ssl.SSLEOFError)
    except OSError:
        return False


def speaks_plain(address: tuple[str, int]) -> bool:
    """Return whether a port speaks Kafka's protocol without TLS."""
    try:
        with closing(socket.create_connection(address, _SECONDS)) as plain:
            plain.sendall(_API_VERSIONS)
            length = plain.recv(4, socket.MSG_WAITALL)
            return len(length) == len(b"size") and 0 < int.from_bytes(length, "big") < _ANSWER_MAX
    except OSError:
        return False


Address: TypeAlias = tuple[str, int]

_REFUSED_S: Final = 0.75
"""Seconds after which a refused connection counts as permanent. Attempts are half a second apart."""
_HANG_UPS: Final = 3
_CHECK_AWS: Final = "Allow kafka-cluster:Connect to this AWS identity, and check security.region and the clock."
_CHECK_LISTENER: Final = "Name the port of another listener in bootstrapServers, or correct security.protocol."

_ENDS: Final = ("disconnected", "reset by peer", "EOF", "Broken pipe", "KafkaConnectionError", "Invalid frame length")

_OF_CERTIFICATES: Final = {
    "certificate has expired": ("its certificate has expired", "Renew the certificate of the broker."),
    "not yet valid": ("its certificate is not valid yet", "Compare the clocks of this machine and of the broker."),
    "ostname mismatch": ("its certificate is for another name", "Use a name that its certificate has."),
    "IP address mismatch": ("its certificate is for another address", "Use a name that its certificate has."),
    "": (
        "its certificate is of an issuer that is not trusted",
        "Name the certificate of its issuer in security.caFile.",
    ),
}
"""Explanation and hint by OpenSSL's text about a certificate. The first match counts."""
_OF_ALERTS: Final = {
    "certificate required": "it requires a client certificate",
    "certificate expired": "our certificate has expired",
    "unknown ca": "it does not trust who issued our certificate",
    "unknown": "it does not accept our certificate",
    "bad certificate": "it does not accept our certificate",
    "handshake failure": "it refuses the handshake; perhaps it requires a client certificate",
}


@dataclass(slots=True)
class Route:
    """Addresses and settings of one cluster, with each broker's last connection error."""

    cluster: str
    servers: tuple[Address, ...]
    protocol: str
    mechanism: str | None
    username: str | None
    has_certificate: bool
    last_errors: dict[Address, BaseException] = field(default_factory=dict)
    greetings: dict[Address, int] = field(default_factory=dict)
    refused_since: dict[Address, float] = field(default_factory=dict)
    clock: Callable[[], float] = monotonic
    is_open: bool = False
    """Whether a broker has ever responded, so failures may be temporary."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], cluster: str) -> Route:
        """Return the route for settings of `security.build_admin_settings`."""
        pairs = [server.rpartition(":") for server in settings["bootstrap_servers"]]
        return cls(
            cluster,
            tuple((host.strip("[]"), int(port)) for host, _, port in pairs),
            settings.get("security_protocol", "PLAINTEXT"),
            settings.get("sasl_mechanism"),
            settings.get("sasl_plain_username"),
            getattr(settings.get("tls"), "certificate", None) is not None,
        )

    def record_greeting(self, address: Address) -> None:
        """Record that a broker completed a connection, including any login."""
        self.greetings[address] = self.greetings.get(address, 0) + 1

    def record_failure(self, address: Address, error: BaseException) -> None:
        """Record a connection's error, and attach `explain` for `faults.py`."""
        self.last_errors[address] = error
        if "refused" in str(error).lower():
            self.refused_since.setdefault(address, self.clock())
        else:
            self.refused_since.pop(address, None)
        error.explain = lambda doing: self.explain_error(address, doing=doing)  # type: ignore[attr-defined]  # see faults.py

    def find_final_error(self) -> BaseException | None:
        """Return an error that no retry can resolve, or `None`."""
        if self.is_open or not all(server in self.last_errors for server in self.servers):
            return None
        if all(self._is_final(server, self.last_errors[server]) for server in self.servers):
            return self.last_errors[self.servers[0]]
        return None

    def is_any_up(self) -> bool:
        """Return whether any address accepts connections."""
        return any(find_connection_error(server, None) is None for server in self.servers)

    def explain(self, *, doing: str) -> ReconcilerError | None:
        """Return an error that explains why no broker was reached, preferably a permanent one."""
        errors = [self.explain_error(server, doing=doing) for server in self.servers]
        explanations = [explanation for explanation in errors if explanation is not None]
        return next(
            (explanation for explanation in explanations if not isinstance(explanation, RetryableError)),
            explanations[0] if explanations else None,
        )

    def explain_error(self, address: Address, *, doing: str) -> ReconcilerError | None:
        """Return the explanation of the last connection error to a broker, or `None`."""
        error = self.last_errors.get(address)
        if error is None:
            return None
        if isinstance(error, ReconcilerError):
            return type(error)(f"cluster {self.cluster}: {doing}: {error.message}", hint=error.hint)
        where = f"cluster {self.cluster}: {doing}: {address[0]}:{address[1]}"
        return (
            self._explain_login(where, error)
            or self._explain_tls(where, address, str(error))
            or self._explain_network_error(where, address, str(error))
        )

    def _is_final(self, address: Address, error: BaseException) -> bool:
        if isinstance(error, ReconcilerError):
            return not isinstance(error, RetryableError)
        if getattr(error, "errno", None) in _LOGIN:
            return True
        text = str(error)
        if "Handshake failed" in text or "DNS" in text or "SSL" in text:
            return "timed out" not in text.lower()
        if (since := self.refused_since.get(address)) is not None:
            return self.clock() - since >= _REFUSED_S
        return self._has_hung_up(text) and (self.greetings.get(address, 0) >= _HANG_UPS or self._requires_tls(address))

    def _explain_login(self, where: str, error: BaseException) -> ReconcilerError | None:
        code = getattr(error, "errno", None)
        if code == _REFUSED:
            who = f"user {self.username}" if self.username is not None else "our token"
            message = f"{where} does not accept {who} by {self.mechanism}: {_extract_broker_message(error)}"
            hint = "Check the credentials in `security` of the Cluster, and that the user exists."
            return NotAuthorizedError(message, hint=_CHECK_AWS if self.mechanism == MSK else hint)
        if code == _NO_MECHANISM:
            message = f"{where} does not offer the mechanism {self.mechanism}"
            return UserError(message, hint="Correct security.mechanism, or switch it on at the brokers.")
        if code == _NO_SASL:
            message = f"{where} is a listener without login (SASL), and security.protocol is {self.protocol}"
            return UserError(message, hint=_CHECK_LISTENER)
        return None

    def _explain_tls(self, where: str, address: Address, text: str) -> ReconcilerError | None:
        if "SSL" not in self.protocol:
            if not self.is_open and self._has_hung_up(text) and self._requires_tls(address):
                message = f"{where} is a listener with TLS, and security.protocol is {self.protocol}"
                return UserError(message, hint=_CHECK_LISTENER)
            return None
        if "CERTIFICATE_VERIFY_FAILED" in text:
            why, hint = next(explanation for part, explanation in _OF_CERTIFICATES.items() if part in text)
            return UserError(f"{where} is not trusted: {why}", hint=hint)
        alert = text.lower().rpartition("alert ")[2].replace("_", " ") if "alert" in text.lower() else ""
        if why_not := next((why for part, why in _OF_ALERTS.items() if alert and part in alert), None):
            why_not = why_not if self.has_certificate else "it requires a client certificate"
            hint = "Give a valid certificate and its key in security.certFile and keyFile."
            return UserError(f"{where} refuses the connection: {why_not}", hint=hint)
        if not self.is_open and ("Handshake failed" in text or self._has_hung_up(text)) and speaks_plain(address):
            message = f"{where} is a listener without TLS, and security.protocol is {self.protocol}"
            return UserError(message, hint=_CHECK_LISTENER)
        return None

    def _explain_network_error(self, where: str, address: Address, text: str) -> ReconcilerError:
        if "DNS" in text or "not known" in text:
            hint = "Check bootstrapServers and, if brokers advertise that name, their advertised.listeners."
            return RetryableError(f"{where}: no such host is known here", hint=hint)
        if "refused" in text.lower():
            return RetryableError(f"{where} refuses connections: nothing listens on that port", hint=_ALIVE)
        if "timed out" in text.lower() or "timeout" in text.lower():
            return RetryableError(f"{where} does not answer in time", hint=_ALIVE)
        if not self.is_open and self._has_hung_up(text) and self.greetings.get(address) and self.mechanism is None:
            message = f"{where} closes connections without login (SASL), and security.protocol is {self.protocol}"
            return UserError(message, hint=_CHECK_LISTENER)
        if self._has_hung_up(text):
            return RetryableError(f"{where} closes the connection", hint=_ALIVE)
        return RetryableError(f"{where} cannot be reached: {text}", hint=_ALIVE)

    @staticmethod
    def _has_hung_up(text: str) -> bool:
        return any(part in text for part in _ENDS)

    def _requires_tls(self, address: Address) -> bool:
        return "SSL" not in self.protocol and speaks_tls(address)


_REFUSED, _NO_MECHANISM, _NO_SASL = 58, 33, 34
_LOGIN: Final = frozenset({_REFUSED, _NO_MECHANISM, _NO_SASL})
_ALIVE: Final = "See whether the brokers are alive and bootstrapServers names them, then run the same command again."


def _extract_broker_message(error: BaseException) -> str:
    return to_one_line(str(error).rpartition("Error: ")[2]) or "no reason was reported"


_WORDLESS: Final = LIBRARY_TRANSIENT.keys() | LIBRARY_PERMANENT.keys()
LEADERLESS: Final = frozenset({-195, -187, -185, -137, 5, 6, 7, 8, 13, 74, 75, 78})
"""Error codes after the death or change of a partition's leader."""
_ELECTION_S: Final = 30.0
"""Maximum wait in seconds for a new leader. Brokers elect one after nine seconds."""
_ANSWER_S: Final = 10.0
"""Seconds to wait for a response before a request is repeated."""
_ELECTION: Final = Backoff(first_s=0.2, longest_s=2.0)


def translate_record_error(error: Any, settings: Mapping[str, Any], *, doing: str, cluster: str) -> ReconcilerError:
    """Translate an error of a record client."""
    from confluent_kafka import KafkaException

    reason = explain_unreachable(settings, doing=doing, cluster=cluster) if error.code() in _WORDLESS else None
    return reason or translate_error(KafkaException(error), doing=doing, cluster=cluster)


def check_can_recover(settings: Mapping[str, Any], *, doing: str, cluster: str) -> None:
    """Raise if brokers are unreachable for a permanent reason."""
    reason = explain_unreachable(settings, doing=doing, cluster=cluster)
    if reason is not None and not isinstance(reason, RetryableError):
        raise reason


def read_watermarks(consumer: Consumer, place: TopicPartition, settings: Mapping[str, Any]) -> tuple[int, int]:
    """Return a partition's first offset and end; wait while it has no leader."""
    from confluent_kafka import KafkaException

    tries = Tries(_ELECTION, within_s=_ELECTION_S)
    while True:
        try:
            if tries.failed:  # The client caches the old leader until it reads the topic again.
                consumer.list_topics(place.topic, _ANSWER_S)
            return consumer.get_watermark_offsets(place, _ANSWER_S)
        except KafkaException as error:
            is_over = error.args[0].code() not in LEADERLESS or tries.has_ended
            if is_over or explain_unreachable(settings, doing="", cluster="") is not None:
                raise
        tries.wait()


def explain_unreachable(settings: Mapping[str, Any], *, doing: str, cluster: str) -> ReconcilerError | None:
    """Return the reason why no broker accepts connections; `None` if one does."""
    protocol = settings.get("security.protocol", "PLAINTEXT")
    admin_options = {"bootstrap_servers": settings["bootstrap.servers"].split(","), "security_protocol": protocol}
    route = Route.from_settings(admin_options, cluster)
    route.is_open = True  # A client with these settings was connected before, so failures may be temporary.
    tls = Tls(settings.get("ssl.ca.pem"), settings.get("ssl.certificate.pem"), settings.get("ssl.key.pem"))
    context = tls.build_context(where=f"cluster {cluster}: security") if protocol.endswith("SSL") else None
    for address in route.servers:
        if (error := find_connection_error(address, context)) is None:
            return None
        route.record_failure(address, error)
    return route.explain(doing=doing)
