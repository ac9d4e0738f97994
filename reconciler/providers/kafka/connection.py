"""Connections to brokers: patience, probes, why a broker cannot be reached, and config descriptions.

By itself it hides why no broker could be reached (a wrong password, too: "Unable to bootstrap"), tries until its time
is up even where that is of no use, and waits for ever where a broker takes a connection and never greets. What we
override are methods that it has no public way to change: its version is held below 4 for that, too.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from kafka import errors as theirs
from kafka.admin import KafkaAdminClient
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket, create_connection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse
from kafka.protocol.api_header import RequestHeader

from reconciler.errors import NotAuthorizedError, ReconcilerError, RetryableError, UnansweredError, UserError
from reconciler.objectstore.base import jitter
from reconciler.providers.kafka.faults import LOGIN, OURS, UNDONE, translated
from reconciler.providers.kafka.metadata import ConfigSeen
from reconciler.providers.kafka.security import CONNECT_MS, Tls
from reconciler.providers.secrets import Secret
from reconciler.runtime.text import one_line

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from reconciler.providers.kafka.security import Tokens


# A look at a port when a connection to it died without a word: does it speak TLS, or Kafka's protocol in clear?


_SECONDS: Final = 3.0
_API_VERSIONS: Final = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
"""Length, ApiVersions, version 0, correlation 1, no client id: any listener answers it before anybody logs in."""
_ANSWER_MAX: Final = 1 << 20
_TLS_MISSING: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING"})


def refusal(address: tuple[str, int], context: ssl.SSLContext | None) -> OSError | None:
    """Return what ends a connection to a port, greeted by TLS if there is a context; `None` where it is made."""
    try:
        with socket.create_connection(address, _SECONDS) as plain:
            if context is not None:
                context.wrap_socket(plain, server_hostname=address[0]).close()
    except OSError as error:
        return error
    return None


def speaks_tls(address: tuple[str, int]) -> bool:
    """Return True if a port answers a greeting by TLS; whom it trusts and who it is does not matter here."""
    import ssl  # noqa: PLC0415 - only who failed pays

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
    """Return True if a port answers a request in clear."""
    try:
        with closing(socket.create_connection(address, _SECONDS)) as plain:
            plain.sendall(_API_VERSIONS)
            length = plain.recv(4, socket.MSG_WAITALL)
            return len(length) == len(b"size") and 0 < int.from_bytes(length, "big") < _ANSWER_MAX
    except OSError:
        return False


# Why a broker cannot be reached: from what a connection died of and, where that says nothing, a look at its port.


Address: TypeAlias = tuple[str, int]

_REFUSED_S: Final = 0.75
"""After this long a port that refuses connections is believed to mean it; attempts are half a second apart."""
_HANG_UPS: Final = 3
"""So often a broker may hang up right after greeting before it is believed to mean it."""
_SECURITY: Final = "spec.kafka.security"
_CHECK_LISTENER: Final = f"Name the port of another listener in bootstrapServers, or correct {_SECURITY}.protocol."

_ENDS: Final = ("disconnected", "reset by peer", "EOF", "Broken pipe", "KafkaConnectionError", "Invalid frame length")
"""What the end of a connection looks like; the last is TLS's own last word, read as the length of an answer."""

_OF_CERTIFICATES: Final = {
    "certificate has expired": ("its certificate has expired", "Renew the certificate of the broker."),
    "not yet valid": ("its certificate is not valid yet", "Compare the clocks of this machine and of the broker."),
    "ostname mismatch": ("its certificate is for another name", "Use a name that its certificate has."),
    "IP address mismatch": ("its certificate is for another address", "Use a name that its certificate has."),
    "": (
        "its certificate was issued by nobody we trust",
        f"Name the certificate of its issuer in {_SECURITY}.caFile.",
    ),
}
"""What OpenSSL says of a certificate, by a part of its words; the first that fits."""
_OF_ALERTS: Final = {
    "certificate required": "it demands a certificate of ours",
    "certificate expired": "our certificate has expired",
    "unknown ca": "it does not trust who issued our certificate",
    "unknown": "it does not accept our certificate",
    "bad certificate": "it does not accept our certificate",
    "handshake failure": "it refuses the handshake; perhaps it demands a certificate of ours",
}
"""What a broker says of us, by OpenSSL's words for its alert."""


@dataclass(slots=True)
class Route:
    """The way to one cluster, and what its connections died of, by broker."""

    cluster: str
    servers: tuple[Address, ...]
    protocol: str
    mechanism: str | None
    username: str | None
    has_certificate: bool
    deaths: dict[Address, BaseException] = field(default_factory=dict)
    greetings: dict[Address, int] = field(default_factory=dict)
    refused_since: dict[Address, float] = field(default_factory=dict)
    now: Callable[[], float] = monotonic
    is_open: bool = False
    """A broker was reached and gave its metadata: from here on failures may pass."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], cluster: str) -> Route:
        """Return the way that `security.admin_settings` name."""
        pairs = [server.rpartition(":") for server in settings["bootstrap_servers"]]
        return cls(
            cluster,
            tuple((host.strip("[]"), int(port)) for host, _, port in pairs),
            settings.get("security_protocol", "PLAINTEXT"),
            settings.get("sasl_mechanism"),
            settings.get("sasl_plain_username"),
            getattr(settings.get("tls"), "certificate", None) is not None,
        )

    def greeted(self, address: Address) -> None:
        """Note that a broker answered, and took our credentials if it wanted any."""
        self.greetings[address] = self.greetings.get(address, 0) + 1

    def failed(self, address: Address, error: BaseException) -> None:
        """Note what a connection died of, and let the error tell it to whoever catches it."""
        self.deaths[address] = error
        if "refused" in str(error).lower():
            self.refused_since.setdefault(address, self.now())
        else:
            self.refused_since.pop(address, None)
        error.told = lambda doing: self.explained(address, doing=doing)  # type: ignore[attr-defined]  # see faults.py

    def hopeless(self) -> BaseException | None:
        """Return what the connections died of if no other attempt can end otherwise."""
        if self.is_open or not all(server in self.deaths for server in self.servers):
            return None
        if all(self._is_final(server, self.deaths[server]) for server in self.servers):
            return self.deaths[self.servers[0]]
        return None

    def why(self, *, doing: str) -> ReconcilerError | None:
        """Return what to say where no broker was reached: of those tried, what most surely is to be mended."""
        found = [self.explained(server, doing=doing) for server in self.servers]
        told = [each for each in found if each is not None]
        return next((each for each in told if not isinstance(each, RetryableError)), told[0] if told else None)

    def explained(self, address: Address, *, doing: str) -> ReconcilerError | None:
        """Return what to say of the last death of a broker's connections, if it is one of connections."""
        error = self.deaths.get(address)
        if error is None:
            return None
        if isinstance(error, ReconcilerError):
            return type(error)(f"cluster {self.cluster}: {doing}: {error.message}", hint=error.hint)
        where = f"cluster {self.cluster}: {doing}: {address[0]}:{address[1]}"
        return (
            self._of_login(where, error)
            or self._of_tls(where, address, str(error))
            or self._of_wire(where, address, str(error))
        )

    def _is_final(self, address: Address, error: BaseException) -> bool:
        if isinstance(error, ReconcilerError):
            return not isinstance(error, RetryableError)
        if getattr(error, "errno", None) in _LOGIN:
            return True
        said = str(error)
        if "Handshake failed" in said or "DNS" in said or "SSL" in said:
            return "timed out" not in said.lower()
        if (since := self.refused_since.get(address)) is not None:
            return self.now() - since >= _REFUSED_S
        return self._hung_up(said) and (self.greetings.get(address, 0) >= _HANG_UPS or self._wants_tls(address))

    def _of_login(self, where: str, error: BaseException) -> ReconcilerError | None:
        code = getattr(error, "errno", None)
        if code == _REFUSED:
            who = f"user {self.username}" if self.username is not None else "our token"
            message = f"{where} does not accept {who} by {self.mechanism}: {_said(error)}"
            return NotAuthorizedError(message, hint=f"Check the credentials in {_SECURITY}, and that the user exists.")
        if code == _NO_MECHANISM:
            message = f"{where} does not offer the mechanism {self.mechanism}"
            return UserError(message, hint=f"Correct {_SECURITY}.mechanism, or switch it on at the brokers.")
        if code == _NO_SASL:
            message = f"{where} is a listener on which nobody logs in, and {_SECURITY}.protocol is {self.protocol}"
            return UserError(message, hint=_CHECK_LISTENER)
        return None

    def _of_tls(self, where: str, address: Address, said: str) -> ReconcilerError | None:
        if "SSL" not in self.protocol:
            if not self.is_open and self._hung_up(said) and self._wants_tls(address):
                message = f"{where} is a listener with TLS, and {_SECURITY}.protocol is {self.protocol}"
                return UserError(message, hint=_CHECK_LISTENER)
            return None
        if "CERTIFICATE_VERIFY_FAILED" in said:
            why, hint = next(found for part, found in _OF_CERTIFICATES.items() if part in said)
            return UserError(f"{where} is not trusted: {why}", hint=hint)
        alert = said.lower().rpartition("alert ")[2].replace("_", " ") if "alert" in said.lower() else ""
        if why_not := next((why for part, why in _OF_ALERTS.items() if alert and part in alert), None):
            why_not = why_not if self.has_certificate else "it demands a certificate of ours"
            hint = f"Give a valid certificate and its key in {_SECURITY}.certFile and keyFile."
            return UserError(f"{where} refuses us: {why_not}", hint=hint)
        if not self.is_open and ("Handshake failed" in said or self._hung_up(said)) and speaks_plain(address):
            message = f"{where} is a listener without TLS, and {_SECURITY}.protocol is {self.protocol}"
            return UserError(message, hint=_CHECK_LISTENER)
        return None

    def _of_wire(self, where: str, address: Address, said: str) -> ReconcilerError:
        if "DNS" in said or "not known" in said:
            hint = "Check bootstrapServers and, where brokers give that name, their advertised.listeners."
            return RetryableError(f"{where}: no such host is known here", hint=hint)
        if "refused" in said.lower():
            return RetryableError(f"{where} refuses connections: nobody listens there", hint=_ALIVE)
        if "timed out" in said.lower() or "timeout" in said.lower():
            return RetryableError(f"{where} does not answer in time", hint=_ALIVE)
        if not self.is_open and self._hung_up(said) and self.greetings.get(address) and self.mechanism is None:
            message = f"{where} hangs up on whoever does not log in, and {_SECURITY}.protocol is {self.protocol}"
            return UserError(message, hint=_CHECK_LISTENER)
        if self._hung_up(said):
            return RetryableError(f"{where} hangs up", hint=_ALIVE)
        return RetryableError(f"{where} cannot be reached: {said}", hint=_ALIVE)

    @staticmethod
    def _hung_up(said: str) -> bool:
        return any(part in said for part in _ENDS)

    def _wants_tls(self, address: Address) -> bool:
        return "SSL" not in self.protocol and speaks_tls(address)


_REFUSED, _NO_MECHANISM, _NO_SASL = 58, 33, 34
_LOGIN: Final = frozenset({_REFUSED, _NO_MECHANISM, _NO_SASL})
_ALIVE: Final = "See whether the brokers are alive and bootstrapServers names them, then run the same command again."


def _said(error: BaseException) -> str:
    """Return what the broker said, without the names that the library puts before it."""
    return one_line(str(error).rpartition("Error: ")[2]) or "no reason is given"


_log: Final = logging.getLogger("kafka")


def opened_admin(settings: Mapping[str, Any], *, cluster: str) -> Any:
    """Return a client that has reached a broker, from `security.admin_settings`.

    Raises:
        UserError: The brokers do not take these settings, or no such brokers are there.
        NotAuthorizedError: They do not take these credentials.
        RetryableError: None answers.
    """
    # The library logs what it also raises, with what it was given; and nobody's terminal is the place for it.
    _log.addHandler(logging.NullHandler())
    _log.propagate = False
    route = Route.of(settings, cluster)
    clear = _clear(settings, route)
    opened: list[_Connections] = []
    try:
        admin = KafkaAdminClient(**clear, kafka_client=_client_over(route, opened))
    except Exception as error:
        for connections in opened:
            connections.end()
        raise route.why(doing="connecting") or translated(error, doing="connecting", cluster=cluster) from error
    route.is_open = True
    return admin


def let_go(admin: Any) -> None:
    """Close a client that nobody holds any more: its own thread may be who notices, and cannot await itself."""
    if threading.current_thread() is admin._net._io_thread:  # noqa: SLF001 - as the module says
        threading.Thread(target=admin.close, name="kafka-closing", daemon=True).start()
    else:
        admin.close()


def _clear(settings: Mapping[str, Any], route: Route) -> dict[str, Any]:
    """Return what the library takes; secrets are clear in it."""
    found: dict[str, Any] = {
        name: value.reveal() if isinstance(value, Secret) else value for name, value in settings.items()
    }
    tls, tokens = found.pop("tls", None), found.pop("tokens", None)
    if tls is not None:
        found["ssl_context"] = tls.context(where=f"cluster {route.cluster}: spec.kafka.security")
    if tokens is not None:
        found["sasl_oauth_token_provider"] = _Provider(tokens)
    return found


class _Provider(AbstractTokenProvider):  # type: ignore[misc]  # the library has no types
    """Tokens as the library asks for them."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._tokens = tokens

    def token(self) -> str:
        return self._tokens.token()


def _client_over(route: Route, opened: list[_Connections]) -> Any:
    def client(**configs: Any) -> KafkaNetClient:
        net = NetworkSelector(**configs)
        opened.append(_Connections(net, route, **configs))
        return KafkaNetClient(net=net, manager=opened[-1], **configs)

    return client


class _Sockets(KafkaNetSocket):  # type: ignore[misc]  # the library has no types
    """Sockets that are closed where connecting fails, which the library leaves to chance."""

    SCHEMES = ("closing",)

    async def sock_connect(self, net: Any, sock: Any, sockaddr: Any, timeout_at: float | None = None) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


class _Plain(KafkaTCPTransport):  # type: ignore[misc]  # as above
    """A connection in clear."""

    def _sock_recv(self) -> tuple[bytes, Any]:
        return _last_words(super()._sock_recv())


class _Encrypted(KafkaSSLTransport):  # type: ignore[misc]  # as above
    """A connection by TLS, whose greeting has a deadline."""

    def _sock_recv(self) -> tuple[bytes, Any]:
        return _last_words(super()._sock_recv())

    async def greet(self, until: float) -> None:
        import ssl  # noqa: PLC0415 - only who encrypts pays

        while True:
            try:
                self._sock.do_handshake()
            except ssl.SSLWantReadError:
                await self._net.wait_read(self._sock, timeout_at=until)
            except ssl.SSLWantWriteError:
                await self._net.wait_write(self._sock, timeout_at=until)
            else:
                return


def _last_words(came: tuple[bytes, Any]) -> tuple[bytes, Any]:
    """Return what came before the end first: the library drops why a login is refused if the end comes with it."""
    return (came[0], None) if came[0] else came


class _Connections(KafkaConnectionManager):  # type: ignore[misc]  # the library has no types
    """Connections to brokers that remember why they failed, give up where trying again is no use, and never hang."""

    def __init__(self, net: Any, route: Route, **configs: Any) -> None:
        super().__init__(net, **configs)
        self.route = route
        self.silent_since: float | None = None
        """When a request failed for the first time since the last that did not (`patience.py`)."""

    def get_connection(self, node_id: Any, *args: Any, **named: Any) -> Any:
        """Return a connection; while none ever worked, raise what no other attempt can change."""
        if (failure := self.route.hopeless()) is not None:
            raise failure
        known = self._conns.get(node_id)
        found = super().get_connection(node_id, *args, **named)
        if found is not known:
            node = self.cluster.broker_metadata(node_id)
            address = (node.host, node.port)
            found.init_future.add_callback(lambda _: self.route.greeted(address))
            found.close_future.add_errback(lambda error: self.route.failed(address, error))
        return found

    def end(self) -> None:
        """Close all, and end the thread that goes on trying."""
        self.close()
        self._net.close()

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        try:
            return await self._made(node, timeout_at)
        except Exception as error:
            error.is_unsent = True  # type: ignore[attr-defined]  # see patience.py
            raise

    async def _made(self, node: Any, timeout_at: float | None) -> Any:
        until = monotonic() + CONNECT_MS / 1000
        until = until if timeout_at is None else min(until, timeout_at)
        options = self.config["socket_options"]
        sock = await create_connection(self._net, node.host, node.port, options, proxy_url=_DIRECT, timeout_at=until)
        if not self.ssl_enabled:
            return _Plain(self._net, sock, host=node.host)
        transport = _Encrypted(self._net, sock, host=node.host, ssl_context=self.config["ssl_context"])
        try:
            await transport.greet(until)
        except Exception as error:
            transport.close()
            raise theirs.KafkaConnectionError(f"Handshake failed: {error}") from error
        return transport


_DIRECT: Final = "closing://"
"""The name under which the library finds `_Sockets`."""


# How long brokers are waited for, and what is asked of them again.
#
# What was never sent, or changes nothing, is sent again. A change whose answer is lost is not: whoever asked looks what
# is there. What brokers say they did not do (`codes.UNDONE`) is asked again for as long as the rest gets done, as
# slowly as they want it: a throttled connection stands still for the time they name.


T = TypeVar("T")
A = TypeVar("A")

READ_MS: Final = 30_000
WRITE_MS: Final = 90_000
"""More than brokers are given to do it in: they should be the ones who say that time is up."""
_AGAIN_SECONDS: Final = 20.0
"""For how long what can be sent again is, since brokers last answered anything: a dead cluster is waited for once."""
_THROTTLED_SECONDS: Final = 120.0
"""The longest that a throttled connection may stand still."""
_STALLED_SECONDS: Final = 60.0
"""After so long without a single thing done, what brokers leave undone is given up."""
_TRIES: Final = 8
_FIRST_SECONDS: Final = 0.1
_LONGEST_SECONDS: Final = 2.0
_READING: Final = ("Describe", "List", "Metadata", "Find", "OffsetFetch", "ApiVersions")
"""How the names of requests begin that change nothing."""


def sent(connections: Any, request: Any, node: int | None, *, doing: str, cluster: str) -> Any:
    """Return the answer to a request, to one broker or to any.

    Raises:
        UnansweredError: It would change something, and nobody knows whether it did.
        ReconcilerError: It was not sent, or changes nothing; it was tried for a while where that is of use.
    """
    reads = _reads(request)
    limit = READ_MS if reads else WRITE_MS

    def may_repeat(error: BaseException) -> bool:
        return reads or _is_unsent(error)

    try:
        return _again(
            connections,
            lambda: connections.run(connections.send, request, node, limit),
            may_repeat,
            lambda error: translated(error, doing=doing, cluster=cluster),
        )
    except RetryableError as error:
        if error.__cause__ is None or may_repeat(error.__cause__):
            raise
        message = f"{error.message}; whether it was done is not known"
        raise UnansweredError(message, hint=error.hint) from error.__cause__


def called(connections: Any, call: Callable[[], T], *, doing: str, cluster: str) -> T:
    """Return what a call of the library answers that may be made again: it changes nothing, or to what it says.

    Raises:
        ReconcilerError: It was tried for a while where that is of use.
    """

    def told(error: Exception) -> ReconcilerError:
        connections.cluster._coordinators.clear()  # noqa: SLF001 - kept for ever, also when they move
        return translated(error, doing=doing, cluster=cluster)

    return _again(connections, call, lambda _error: True, told)


def _again(
    connections: Any,
    call: Callable[[], T],
    may_repeat: Callable[[BaseException], bool],
    told: Callable[[Exception], ReconcilerError],
) -> T:
    """Call until there is an answer, as long as that is of use; what is raised is in our words."""
    tries = 0
    while True:
        try:
            answer = call()
        except Exception as error:
            found = told(error)
            tries += not _is_throttled(error)
            connections.silent_since = connections.silent_since or monotonic()
            patience = _THROTTLED_SECONDS if _is_throttled(error) else _AGAIN_SECONDS
            is_over = tries >= _TRIES or monotonic() - connections.silent_since > patience
            if is_over or not isinstance(found, RetryableError) or not may_repeat(error):
                raise found from error
        else:
            connections.silent_since = None
            return answer
        pause(_after(tries))


def in_rounds(
    items: Sequence[T],
    ask: Callable[[Sequence[T]], Iterable[tuple[T, A]]],
    code: Callable[[A], int],
    may_go_on: Callable[[], None],
) -> Iterator[tuple[T, A]]:
    """Ask about all, then again about those that were left undone; yield each with the last answer about it.

    `may_go_on` is asked before every round but the first.
    """
    left, changed, tries = list(items), monotonic(), 0
    while left:
        undone: list[tuple[T, A]] = []
        for item, answer in ask(left):
            if code(answer) in UNDONE:
                undone.append((item, answer))
            else:
                yield item, answer
        if len(undone) < len(left):
            changed, tries = monotonic(), 0
        if undone and monotonic() - changed > _STALLED_SECONDS:
            yield from undone
            return
        left = [item for item, _ in undone]
        if left:
            tries += 1
            pause(_after(tries))
            may_go_on()


def _reads(request: Any) -> bool:
    return type(request).__name__.startswith(_READING) or bool(getattr(request, "validate_only", False))


def _is_throttled(error: BaseException) -> bool:
    return "throttle" in str(error) and type(error).__name__ == "NodeNotReadyError"


def _is_unsent(error: BaseException) -> bool:
    """Return True if no broker can have seen the request: `connecting.py` marks what no connection was made for."""
    return type(error).__name__ == "NodeNotReadyError" or getattr(error, "is_unsent", False)


def _after(tries: int) -> float:
    """Return how long to wait after so many tries, in seconds."""
    return float(min(_LONGEST_SECONDS, _FIRST_SECONDS * 2 ** min(tries, _TRIES)) * jitter())


def pause(seconds: float) -> None:
    """Wait before asking again."""
    time.sleep(seconds)  # noqa: TID251 - a blocking call below Effects; correctness never rests on it


# Errors of librdkafka in our words; where it only says that time is up, with what the brokers' ports say about it.


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


# Descriptions of configs, read straight from what brokers send.
#
# Brokers say all thirty-three keys of every topic, and thousands of topics say the same: what is byte for byte as it
# was for the topic before is not read again. The library makes an object of each entry instead, which takes most of the
# time of a look at a cluster.


VERSION: Final = 4
"""Of the request, which every broker has that tells the ids of topics (2.8), as `KafkaClient.topics` asks it to."""
_MORE: Final = 0x80
"""Set in every byte of a number but its last."""


@dataclass(frozen=True, slots=True)
class Described:
    """The configs of one topic or broker; not to be changed: those that are alike share them."""

    resource_name: str
    error_code: int
    error_message: str | None
    configs: Mapping[str, ConfigSeen]


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry, and the bytes that say it."""

    raw: bytes
    name: str
    seen: ConfigSeen


class _Answer:
    """The answer as the library takes it, with `Described` as its results."""

    parse_header = DescribeConfigsResponse[VERSION].parse_header

    @staticmethod
    def decode(came: Any) -> Any:
        """Return what follows the header."""
        reading = _Reading(came.read())
        throttled = reading.number(4)
        return DescribeConfigsResponse(throttle_time_ms=throttled, results=list(reading.results()), version=VERSION)


class _Header(RequestHeader, init=False):  # type: ignore[misc, call-arg]  # the library has no types
    """The header of a request, which knows who reads the answer."""

    def get_response_class(self) -> type[_Answer]:
        return _Answer


class DescribeAllConfigsRequest(DescribeConfigsRequest, init=False):  # type: ignore[misc, call-arg]  # as above
    """A request for configs whose answer is read here."""

    header_class = _Header

    def __init__(self, resources: Sequence[tuple[int, str, list[str] | None]]) -> None:
        super().__init__(resources=list(resources), min_version=VERSION, max_version=VERSION)


class _Reading:
    """One answer, and how far it is read."""

    def __init__(self, buffer: bytes) -> None:
        self._buffer, self._at = buffer, 0
        self._before: list[_Entry] = []
        """The entries of the topic before; then all of them as one."""
        self._same: tuple[bytes, Mapping[str, ConfigSeen]] = (b"", {})

    def results(self) -> Iterator[Described]:
        for _ in range(self._length()):
            code, message = self.number(2), self._text()
            self.number(1)
            name = self._text() or ""
            yield Described(name, code, message, self._configs())
            self._skip_tags()

    def number(self, width: int) -> int:
        """Return a whole number of so many bytes."""
        begin, self._at = self._at, self._at + width
        if self._at > len(self._buffer):
            message = f"the answer ends after {len(self._buffer)} bytes"
            raise ValueError(message)
        return int.from_bytes(self._buffer[begin : self._at], "big", signed=True)

    def _configs(self) -> Mapping[str, ConfigSeen]:
        begin, (raw, same) = self._at, self._same
        if raw and self._buffer.startswith(raw, begin):
            self._at += len(raw)
            return same
        found = [self._entry(place) for place in range(self._length())]
        configs = {entry.name: entry.seen for entry in found}
        self._before, self._same = found or self._before, (self._buffer[begin : self._at], configs)
        return configs

    def _entry(self, place: int) -> _Entry:
        if place < len(self._before):
            before = self._before[place]
            if self._buffer.startswith(before.raw, self._at):
                self._at += len(before.raw)
                return before
        begin = self._at
        name, value = self._text() or "", self._text()
        is_read_only, source, is_sensitive = bool(self.number(1)), self.number(1), bool(self.number(1))
        for _ in range(self._length()):  # What the key would be if this value were not: nobody asks.
            self._text(), self._text(), self.number(1)
            self._skip_tags()
        kind = self.number(1)
        self._text()
        self._skip_tags()
        return _Entry(self._buffer[begin : self._at], name, ConfigSeen(value, source, is_read_only, is_sensitive, kind))

    def _text(self) -> str | None:
        length = self._length()
        if length < 0:
            return None
        begin, self._at = self._at, self._at + length
        return self._buffer[begin : self._at].decode()

    def _length(self) -> int:
        """Return how long what follows is: brokers send one more, and 0 for what is null."""
        return self._unsigned() - 1

    def _unsigned(self) -> int:
        found = shift = 0
        while True:
            byte = self.number(1) & 0xFF
            found |= (byte & ~_MORE) << shift
            if not byte & _MORE:
                return found
            shift += 7

    def _skip_tags(self) -> None:
        for _ in range(self._unsigned()):
            self._unsigned()
            self._at += self._unsigned()
