"""Connections to brokers for administration, by kafka-python; and config descriptions, read as they are sent.

By itself it hides why no broker could be reached (a wrong password, too: "Unable to bootstrap"), tries until its time
is up even where that is of no use, and waits for ever where a broker takes a connection and never greets. What we
override are methods that it has no public way to change: its version is held below 4 for that, too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

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

from reconciler.providers.kafka.faults import translated
from reconciler.providers.kafka.reachability import Route
from reconciler.providers.kafka.security import CONNECT_MS, Tokens
from reconciler.providers.kafka.translate import ConfigSeen
from reconciler.providers.secrets import Secret

_RECEIVED_BYTES: Final = 64 << 10
_TLS_WAITS: Final = frozenset({"SSLWantReadError", "SSLWantWriteError"})
"""Of `ssl`, which only who encrypts imports."""
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
    """Close a client that no process holds any more: its own thread may be who notices, and cannot await itself."""
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
        return _received(self._sock) or super()._sock_recv()


class _Encrypted(KafkaSSLTransport):  # type: ignore[misc]  # as above
    """A connection by TLS, whose greeting has a deadline."""

    def _sock_recv(self) -> tuple[bytes, Any]:
        return _received(self._sock) or super()._sock_recv()

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


def _received(sock: Any) -> tuple[bytes, Any] | None:
    """Return what has come, or why nothing can; `None`: nothing has. Many KiB at once, where the library takes 4.

    The library drops why a login is refused if the end of the connection comes with it; so that comes on its own.
    """
    came: list[bytes] = []
    try:
        while some := sock.recv(_RECEIVED_BYTES):
            came.append(some)
    except OSError as error:
        is_empty = isinstance(error, BlockingIOError | InterruptedError) or type(error).__name__ in _TLS_WAITS
        if not came and not is_empty:
            return b"", theirs.KafkaConnectionError(error)
    return (b"".join(came), None) if came else None


class _Connections(KafkaConnectionManager):  # type: ignore[misc]  # the library has no types
    """Connections to brokers that remember why they failed, give up where trying again is no use, and never hang."""

    def __init__(self, net: Any, route: Route, **configs: Any) -> None:
        super().__init__(net, **configs)
        self.route = route
        self.silent_since: float | None = None
        """When a request failed for the first time since the last that did not (`client.py`)."""

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
            error.is_unsent = True  # type: ignore[attr-defined]  # see client.py
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
            size = self._unsigned()  # which moves on itself
            self._at += size
