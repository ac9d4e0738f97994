"""Admin connections by kafka-python, and a fast parser of config descriptions.

kafka-python hides why a connection failed, retries futilely, and hangs on silent brokers. Without public hooks, private
methods are overridden, so its minor release is pinned.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, Final

from kafka import errors as theirs
from kafka.admin import KafkaAdminClient
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket, create_connection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse
from kafka.protocol.api_header import RequestHeader

from reconciler.providers.brokers.faults import translate_error
from reconciler.providers.brokers.reachability import Route
from reconciler.providers.brokers.security import (
    CONNECT_MS,
    CloudTokenSource,
    KerberosLogin,
    MskTokenSource,
    TokenSource,
)
from reconciler.providers.brokers.translate import ConfigState
from reconciler.providers.secrets import Secret
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.retry import RateLimit

_RECEIVED_BYTES: Final = 64 << 10
_TLS_WAITS: Final = frozenset({"SSLWantReadError", "SSLWantWriteError"})
"""Names of exceptions of `ssl`, imported only for TLS."""
_log: Final = logging.getLogger("kafka")


def open_admin(settings: Mapping[str, Any], *, cluster: str) -> Any:
    """Return a connected client for `security.build_admin_settings`.

    Raises:
        UserError: The brokers reject these settings, or do not exist.
        NotAuthorizedError: The brokers reject the credentials.
        RetryableError: No broker answers.
    """
    # The library logs its settings together with errors, so its log must not reach the terminal.
    _log.addHandler(logging.NullHandler())
    _log.propagate = False
    route = Route.from_settings(settings, cluster)
    clear = _build_library_options(settings, route)
    open_connections: list[_ConnectionManager] = []
    try:
        admin = KafkaAdminClient(**clear, kafka_client=_make_client_factory(route, open_connections))
    except Exception as error:
        for connections in open_connections:
            connections.close_all()
        raise route.explain(doing="connecting") or translate_error(
            error, doing="connecting", cluster=cluster
        ) from error
    route.is_open = True
    open_connections[-1].rate = settings.get("rate")
    return admin


def close_admin(admin: Any) -> None:
    """Close a client, in another thread if called from its own, which cannot join itself."""
    if threading.current_thread() is admin._net._io_thread:  # noqa: SLF001 - as the module says
        threading.Thread(target=admin.close, name="kafka-closing", daemon=True).start()
    else:
        admin.close()


def _build_library_options(settings: Mapping[str, Any], route: Route) -> dict[str, Any]:
    options: dict[str, Any] = {
        name: value.reveal() if isinstance(value, Secret) else value for name, value in settings.items()
    }
    tls, tokens = options.pop("tls", None), options.pop("tokens", None)
    options.pop("rate", None)
    if tls is not None:
        options["ssl_context"] = tls.build_context(where=f"cluster {route.cluster}: security")
    if (tickets := options.pop("tickets", None)) is not None:
        # The library has no option for credentials of Kerberos, and reads this one for OAUTHBEARER only.
        options["sasl_oauth_token_provider"] = tickets
        register_sasl_mechanism("GSSAPI", _Kerberos, overwrite=True)
    if tokens is not None:
        options["sasl_mechanism"] = "OAUTHBEARER"
        options["sasl_oauth_token_provider"] = _TokenProvider(tokens)
    return options


class _TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # the library has no types
    def __init__(self, tokens: TokenSource | CloudTokenSource | MskTokenSource) -> None:
        super().__init__()
        self._tokens = tokens

    def token(self) -> str:
        return self._tokens.get_token()


class _Kerberos(SaslMechanismGSSAPI):  # type: ignore[misc]  # the library has no types
    def __init__(self, **config: Any) -> None:
        login: KerberosLogin = config["sasl_oauth_token_provider"]
        self._is_done = self._is_authenticated = False
        self.auth_id = login.principal or ""
        self._client_ctx, self._next_token = login.open_context(config["host"])


def _make_client_factory(route: Route, open_connections: list[_ConnectionManager]) -> Any:
    def client(**configs: Any) -> KafkaNetClient:
        net = NetworkSelector(**configs)
        open_connections.append(_ConnectionManager(net, route, **configs))
        return KafkaNetClient(net=net, manager=open_connections[-1], **configs)

    return client


class _ClosingSocket(KafkaNetSocket):  # type: ignore[misc]  # the library has no types
    SCHEMES = ("closing",)

    async def sock_connect(self, net: Any, sock: Any, sockaddr: Any, timeout_at: float | None = None) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


class _PlainTransport(KafkaTCPTransport):  # type: ignore[misc]
    def _sock_recv(self) -> tuple[bytes, Any]:
        return _receive(self._sock) or super()._sock_recv()


class _TlsTransport(KafkaSSLTransport):  # type: ignore[misc]
    """TLS transport whose handshake has a deadline."""

    def _sock_recv(self) -> tuple[bytes, Any]:
        return _receive(self._sock) or super()._sock_recv()

    async def complete_handshake(self, until: float) -> None:
        import ssl  # noqa: PLC0415 - only TLS needs it

        while True:
            try:
                self._sock.do_handshake()
            except ssl.SSLWantReadError:
                await self._net.wait_read(self._sock, timeout_at=until)
            except ssl.SSLWantWriteError:
                await self._net.wait_write(self._sock, timeout_at=until)
            else:
                return


def _receive(sock: Any) -> tuple[bytes, Any] | None:
    """Return received bytes, and an error that the library would drop; `None` if nothing arrived."""
    chunks: list[bytes] = []
    try:
        while chunk := sock.recv(_RECEIVED_BYTES):
            chunks.append(chunk)
    except OSError as error:
        is_empty = isinstance(error, BlockingIOError | InterruptedError) or type(error).__name__ in _TLS_WAITS
        if not chunks and not is_empty:
            return b"", theirs.KafkaConnectionError(error)
    return (b"".join(chunks), None) if chunks else None


class _ConnectionManager(KafkaConnectionManager):  # type: ignore[misc]  # the library has no types
    def __init__(self, net: Any, route: Route, **configs: Any) -> None:
        super().__init__(net, **configs)
        self.route = route
        self.rate: RateLimit | None = None
        self.silent_since: float | None = None
        """Time of the first failure since the last success."""

    def get_connection(self, node_id: Any, *args: Any, **named: Any) -> Any:
        if (failure := self.route.find_final_error()) is not None:
            raise failure
        known = self._conns.get(node_id)
        connection = super().get_connection(node_id, *args, **named)
        if connection is not known:
            node = self.cluster.broker_metadata(node_id)
            address = (node.host, node.port)
            connection.init_future.add_callback(lambda _: self.route.record_greeting(address))
            connection.close_future.add_errback(lambda error: self.route.record_failure(address, error))
        return connection

    def close_all(self) -> None:
        self.close()
        self._net.close()

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        try:
            return await self._open_transport(node, timeout_at)
        except Exception as error:
            error.is_unsent = True  # type: ignore[attr-defined]  # see client.py
            raise

    async def _open_transport(self, node: Any, timeout_at: float | None) -> Any:
        until = monotonic() + CONNECT_MS / 1000
        until = until if timeout_at is None else min(until, timeout_at)
        options = self.config["socket_options"]
        sock = await create_connection(self._net, node.host, node.port, options, proxy_url=_DIRECT, timeout_at=until)
        if not self.ssl_enabled:
            return _PlainTransport(self._net, sock, host=node.host)
        transport = _TlsTransport(self._net, sock, host=node.host, ssl_context=self.config["ssl_context"])
        try:
            await transport.complete_handshake(until)
        except Exception as error:
            transport.close()
            raise theirs.KafkaConnectionError(f"Handshake failed: {error}") from error
        return transport


_DIRECT: Final = "closing://"
"""URL scheme under which the library creates a `_ClosingSocket`."""


# Most topics have equal configs. Equal bytes are parsed once, because parsing takes most of an observation's time.


VERSION: Final = 4
"""Request version, supported by all brokers with topic ids (Kafka 2.8), which are required."""
_MORE: Final = 0x80


@dataclass(frozen=True, slots=True)
class ConfigDescription:
    """Configs of a topic or broker. Topics share equal configs."""

    resource_name: str
    error_code: int
    error_message: str | None
    configs: Mapping[str, ConfigState]


@dataclass(frozen=True, slots=True)
class _ParsedConfig:
    raw: bytes
    name: str
    state: ConfigState


class _ConfigsResponse:
    parse_header = DescribeConfigsResponse[VERSION].parse_header

    @staticmethod
    def decode(response: Any) -> Any:
        parser = _ResponseParser(response.read())
        throttled = parser.read_number(4)
        return DescribeConfigsResponse(throttle_time_ms=throttled, results=list(parser.read_results()), version=VERSION)


class _ConfigsRequestHeader(RequestHeader, init=False):  # type: ignore[misc, call-arg]  # the library has no types
    def get_response_class(self) -> type[_ConfigsResponse]:
        return _ConfigsResponse


class DescribeAllConfigsRequest(DescribeConfigsRequest, init=False):  # type: ignore[misc, call-arg]
    """Request for configs with a custom response parser."""

    header_class = _ConfigsRequestHeader

    def __init__(self, resources: Sequence[tuple[int, str, list[str] | None]]) -> None:
        super().__init__(resources=list(resources), min_version=VERSION, max_version=VERSION)


class _ResponseParser:
    def __init__(self, buffer: bytes) -> None:
        self._buffer, self._at = buffer, 0
        self._previous: list[_ParsedConfig] = []
        self._last_configs: tuple[bytes, Mapping[str, ConfigState]] = (b"", {})

    def read_results(self) -> Iterator[ConfigDescription]:
        for _ in range(self._read_length()):
            code, message = self.read_number(2), self._read_text()
            self.read_number(1)
            name = self._read_text() or ""
            yield ConfigDescription(name, code, message, self._read_configs())
            self._skip_tags()

    def read_number(self, width: int) -> int:
        begin, self._at = self._at, self._at + width
        if self._at > len(self._buffer):
            message = f"the answer ends after {len(self._buffer)} bytes"
            raise ValueError(message)
        return int.from_bytes(self._buffer[begin : self._at], "big", signed=True)

    def _read_configs(self) -> Mapping[str, ConfigState]:
        begin, (raw, same) = self._at, self._last_configs
        if raw and self._buffer.startswith(raw, begin):
            self._at += len(raw)
            return same
        entries = [self._read_config(place) for place in range(self._read_length())]
        configs = {entry.name: entry.state for entry in entries}
        self._previous, self._last_configs = entries or self._previous, (self._buffer[begin : self._at], configs)
        return configs

    def _read_config(self, place: int) -> _ParsedConfig:
        if place < len(self._previous):
            before = self._previous[place]
            if self._buffer.startswith(before.raw, self._at):
                self._at += len(before.raw)
                return before
        begin = self._at
        name, value = self._read_text() or "", self._read_text()
        is_read_only, source, is_sensitive = bool(self.read_number(1)), self.read_number(1), bool(self.read_number(1))
        for _ in range(self._read_length()):
            self._read_text(), self._read_text(), self.read_number(1)
            self._skip_tags()
        kind = self.read_number(1)
        self._read_text()
        self._skip_tags()
        state = ConfigState(value, source, is_read_only, is_sensitive, kind)
        return _ParsedConfig(self._buffer[begin : self._at], name, state)

    def _read_text(self) -> str | None:
        length = self._read_length()
        if length < 0:
            return None
        begin, self._at = self._at, self._at + length
        return self._buffer[begin : self._at].decode()

    def _read_length(self) -> int:
        return self._read_unsigned() - 1

    def _read_unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self.read_number(1) & 0xFF
            value |= (byte & ~_MORE) << shift
            if not byte & _MORE:
                return value
            shift += 7

    def _skip_tags(self) -> None:
        for _ in range(self._read_unsigned()):
            self._read_unsigned()
            size = self._read_unsigned()  # `_read_unsigned` advances `_at`, too.
            self._at += size
