"""Connections for administration: what kafka-python leaves out of its errors is remembered, and nothing hangs.

By itself it hides why no broker could be reached (a wrong password, too: "Unable to bootstrap"), tries until its time
is up even where that is of no use, and waits for ever where a broker takes a connection and never greets. What we
override are methods that it has no public way to change: its version is held below 4 for that, too.
"""

from __future__ import annotations

import logging
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from kafka import errors as theirs
from kafka.admin import KafkaAdminClient
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket, create_connection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from reconciler.providers.kafka.faults import translated
from reconciler.providers.kafka.reaching.diagnosing import Route
from reconciler.providers.kafka.reaching.security import CONNECT_MS
from reconciler.providers.secrets import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.providers.kafka.reaching.tokens import Tokens

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
