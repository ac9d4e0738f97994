"""A server that answers as Confluent does: the Kafka API before a real broker, and the REST API v3.

    with ExitStack() as stack:
        network = Network()
        source = stack.enter_context(Confluent.start(network, kind="dedicated"))
        destination = stack.enter_context(Confluent.start(network, kind="dedicated"))
        destination.rest, destination.cluster_id, destination.key, destination.secret
        destination.faults.add("lost", "POST", "mirrors:promote")

Tests set errors with `faults` (kinds of requests in `emulation/faults.py`, of links in `copies.py`, of mirrors in
`mirrors.py`) and by attributes of the server, such as `rate`, `denied` and `settle_seconds`; `reset` ends all.

It is written from the documented contract, not from a live server; where that gives no message for a refusal, the
words are this server's. It is Cloud of a kind or Platform of a version. One broker keeps the records; replicas are
shown as Confluent would have them. Clusters of one network can hold the two halves of a link; other Kafka clusters can
be sources only.
"""

from __future__ import annotations

import secrets
import socket
import string
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from http import HTTPStatus
from pathlib import Path
from threading import RLock
from typing import Any, Final, Self

from tests.servers.confluent.access import Access
from tests.servers.confluent.api import CONTRACT, Api, ApiError
from tests.servers.confluent.copies import Copies
from tests.servers.confluent.kafka_api import ConfluentFront
from tests.servers.confluent.links import Links
from tests.servers.confluent.mirrors import Mirrors
from tests.servers.confluent.topics import Topics
from tests.servers.emulation.faults import Faults
from tests.servers.emulation.reader import ClusterReader
from tests.servers.emulation.wire import BrokerConnection
from tests.servers.kafka import Kafka

_BROKER: Final = {
    "remote.log.storage.system.enable": "false",
    "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
}
"""No internal topic of Kafka's tiering, and no limit for timestamps that are copied."""
_CLOUD: Final = {"message.max.bytes": "2097164", "log.segment.bytes": "104857600"}

_OUTSIDE: Final = "OUTSIDE"
"""The broker's listener behind the proxy, which the broker advertises there."""


class Network:
    """Clusters that know one another, by id."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.servers: dict[str, Confluent] = {}


class Confluent(AbstractContextManager["Confluent"]):
    """An emulated cluster."""

    def __init__(  # noqa: PLR0913 - all options by name
        self,
        ports: Mapping[str, int],
        listening: socket.socket,
        network: Network,
        *,
        kind: str | None = None,
        version: str = "8.0.0",
        limits: dict[str, Any] | None = None,
        needs_login: bool = True,
        needs_kafka_login: bool = False,
        certificate: tuple[Path, Path] | None = None,
        client_ca: Path | None = None,
        exchanges: Path | None = None,
    ) -> None:
        """Serve before a broker that runs already; `start` has the options."""
        self.broker_port, self.network = ports["PLAINTEXT"], network
        self.kind, self.is_cloud = kind, kind is not None
        self.version = tuple(int(part) for part in version.split(".")[:2])
        self.limits = {**(CONTRACT["kinds"][kind] if kind else CONTRACT["platform"]), **(limits or {})}
        self.brokers = 3
        """Brokers that clients see; new topics have as many replicas."""
        self.faults = Faults()
        self.key, self.secret = (
            "".join(secrets.choice(string.ascii_uppercase) for _ in range(16)),
            secrets.token_hex(32),
        )
        self.keys = {self.key: self.secret}
        self.foreign_keys: set[str] = set()
        """Keys that are valid, and of another cluster."""
        self.tokens: dict[str, float] = {}
        """Bearer tokens, and when they expire by `time.monotonic`. `POST /oauth/token` adds one."""
        self.denied: set[str] = set()
        """Topics that clients of the REST API may read and not change."""
        self.extra: dict[str, Any] = {}
        """Fields that every object in an answer of the REST API has besides."""
        self.needs_login, self.needs_kafka_login = needs_login, needs_kafka_login
        self.exchanges = exchanges
        self._set_pace()
        with self.read_own([]) as own:
            broker_id = own.cluster_id
        self.cluster_id = f"lkc-{secrets.token_hex(3)}" if self.is_cloud else broker_id
        self.topics, self.access = Topics(self), Access(self)
        self.links, self.mirrors, self.copies = Links(self), Mirrors(self), Copies(self)
        self.front = ConfluentFront(self, ports[_OUTSIDE], listening)
        self._api = Api(self, certificate, client_ca)
        for routes in (self.topics, self.access, self.links, self.mirrors):
            self._api.add(routes.list_routes())
        network.servers[self.cluster_id] = self
        self._stack = ExitStack()
        self._parts = (self._api, self.copies, self.front)
        for part in self._parts:
            part.start()

    def _set_pace(self) -> None:
        self.rate: float | None = None
        """Requests a second that are let through."""
        self.rate_header = ""
        """The header of a 429 that says how long to wait: `Retry-After`, `X-RateLimit-Reset` or none."""
        self.rate_is_json = False
        """Whether a 429 has a JSON body instead of a web page."""
        self.token_seconds = 3600.0
        """How long new tokens are valid."""
        self.step_seconds = 0.0
        """How long a mirror stays in a pending state at least."""
        self.settle_seconds = 0.0
        """How long new links and mirrors cannot be read, deleted links can, and a destination's half is not found."""
        self.retry_seconds = 300.0
        """How long a source topic may be missing until its mirror fails."""

    @classmethod
    def start(cls, network: Network | None = None, *, heap: str = "320m", **options: Any) -> Self:
        """Start a broker and serve before it; 10,000 topics need a `heap` of 2 GB.

        `kind`: of a Cloud cluster; without it, Platform of a `version`. `limits`: overrides of `contract.yaml`.
        `needs_login`: to the REST API; `needs_kafka_login`: to the Kafka API, by SASL/PLAIN without TLS.
        `certificate`: certificate and key of the REST API; `client_ca`: clients need a certificate.
        `exchanges`: a file that gets a line of JSON for each request, without secrets.
        """
        listeners = dict.fromkeys(("PLAINTEXT", _OUTSIDE), "PLAINTEXT")
        listening = socket.create_server(("127.0.0.1", 0))
        extra = {**_BROKER, **(_CLOUD if options.get("kind") else {})}

        def advertise(kafka: Kafka) -> None:
            ports = {**kafka.brokers[0].node.ports, _OUTSIDE: listening.getsockname()[1]}
            extra["advertised.listeners"] = ",".join(f"{name}://127.0.0.1:{ports[name]}" for name in listeners)

        with ExitStack() as stack:
            stack.callback(listening.close)
            kafka = stack.enter_context(Kafka.start(listeners=listeners, extra=extra, heap=heap, before=advertise))
            server = cls(kafka.brokers[0].node.ports, listening, network or Network(), **options)
            server._stack = stack.pop_all()
        return server

    @property
    def kafka(self) -> str:
        """The address of the Kafka API."""
        return f"127.0.0.1:{self.front.ports[0]}"

    @property
    def rest(self) -> str:
        """The URL of the REST API, without `/kafka/v3`."""
        return self._api.urls[0]

    @property
    def requests(self) -> list[tuple[int, str, str]]:
        """Node, method and path of every request to the REST API."""
        return self._api.requests

    @property
    def passed(self) -> list[tuple[float, str, str]]:
        """Time (`time.monotonic`), method and path of each request that was let through."""
        return self._api.passed

    def connect(self) -> BrokerConnection:
        return BrokerConnection(self.broker_port)

    def read_own(self, names: Iterable[str] | None = None) -> ClusterReader:
        return ClusterReader({"bootstrapServers": [f"127.0.0.1:{self.broker_port}"]}, names)

    @property
    def token_url(self) -> str:
        """Where clients get bearer tokens, with a key as their id."""
        return f"{self.rest}/oauth/token"

    def check_right(self, topic: str) -> None:
        """Raise an error for a topic that no client may change."""
        if topic in self.denied:
            raise ApiError(HTTPStatus.FORBIDDEN, "Request is not authorized", 40301)

    def reset(self) -> None:
        """Forget faults, pace, keys and links: the test that left them has ended."""
        self.faults.clear()
        self._set_pace()
        self.keys, self.foreign_keys, self.tokens = {self.key: self.secret}, set(), {}
        self.denied, self.extra = set(), {}
        with self.network.lock:
            self.links.rows.clear()
            self.mirrors.publish()

    def close(self) -> None:
        for part in self._parts:
            part.close()
        self.network.servers.pop(self.cluster_id, None)
        self._stack.close()

    def __exit__(self, *_: object) -> None:
        self.close()
