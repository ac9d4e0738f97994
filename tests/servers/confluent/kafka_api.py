"""The Kafka API: a proxy before a broker with login by API key, Confluent's replication, and read-only mirrors."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from tests.servers.confluent.api import CONTRACT, ApiError
from tests.servers.emulation import wire
from tests.servers.emulation.kafka_front import Exchange, KafkaFront

if TYPE_CHECKING:
    from tests.servers.confluent.server import Confluent

_PRODUCE: Final = 8
"""The newest version of Produce whose requests are read here."""
_LOGIN: Final = frozenset({"ApiVersions", "SaslHandshake", "SaslAuthenticate"})
_AUTHENTICATION_FAILED: Final = 58


class ConfluentFront(KafkaFront):
    """The Kafka API of a cluster."""

    def __init__(self, server: Confluent, broker_port: int, listening: socket.socket) -> None:
        super().__init__(broker_port, 1, server.faults, listening)
        self.server = server
        self.read_only: set[str] = set()
        """Topics that a link writes."""
        self._logins: WeakSet[wire.BrokerConnection] = WeakSet()

    def _answer(self, exchange: Exchange) -> bytes | None:
        if self.server.needs_kafka_login and exchange.name not in _LOGIN and exchange.broker not in self._logins:
            raise ConnectionAbortedError("a client has to log in first")
        return super()._answer(exchange)

    def _api_versions(self, exchange: Exchange) -> Any:
        response = exchange.ask()
        for row in response.api_keys:
            if wire.NAMES.get(row.api_key) == "Produce":
                row.max_version = _PRODUCE
        return response

    def _sasl_handshake(self, exchange: Exchange) -> Any:
        is_plain = exchange.request.mechanism == "PLAIN"
        return exchange.respond(error_code=0 if is_plain else 33, mechanisms=["PLAIN"])

    def _sasl_authenticate(self, exchange: Exchange) -> Any:
        _, key, secret = bytes(exchange.request.auth_bytes).decode().split("\0")
        if self.server.keys.get(key) != secret:
            return exchange.respond(
                error_code=_AUTHENTICATION_FAILED, error_message="Authentication failed", auth_bytes=b""
            )
        self._logins.add(exchange.broker)
        return exchange.respond(error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=0)

    def _metadata(self, exchange: Exchange) -> Any:
        response = self._name_cluster(exchange)
        for topic in response.topics:
            nodes = list(range(1, self.server.topics.factors.get(topic.name, self.server.brokers) + 1))
            for partition in topic.partitions:
                partition.replica_nodes = partition.isr_nodes = nodes
        return response

    def _describe_cluster(self, exchange: Exchange) -> Any:
        return self._name_cluster(exchange)

    def _name_cluster(self, exchange: Exchange) -> Any:
        response = exchange.ask()
        response.cluster_id = self.server.cluster_id
        return response

    def _produce(self, exchange: Exchange) -> Any:
        message = "Cannot append records to read-only mirror topic"
        return self._pass_produce(exchange, dict.fromkeys(self.read_only, wire.INVALID_REQUEST), message)

    def _create_topics(self, exchange: Exchange) -> Any:
        forwarded, refused, factors, kept = [], [], {}, {}
        for topic in exchange.request.topics:
            factor = len(topic.assignments[0].broker_ids) if topic.assignments else topic.replication_factor
            configs = {each.name: each.value for each in topic.configs}
            try:
                factors[topic.name] = self.server.topics.check_factor(factor)
                self.server.topics.check(configs)
            except ApiError as error:
                refusal = {"error_code": wire.POLICY_VIOLATION, "error_message": str(error)}
                refused.append({"name": topic.name, **refusal})
                continue
            for each in topic.assignments:
                each.broker_ids = [1]
            topic.replication_factor = -1 if topic.assignments else 1
            kept[topic.name] = {name: value for name, value in configs.items() if name in CONTRACT["own"]}
            topic.configs = [each for each in topic.configs if each.name not in CONTRACT["own"]]
            forwarded.append(topic)
        response = exchange.ask_for("topics", forwarded)
        for result in response.topics or () if not exchange.request.validate_only else ():
            if not result.error_code:
                self.server.topics.factors[result.name] = result.replication_factor = factors[result.name]
                self.server.topics.keep(result.name, kept[result.name])
        return exchange.extend(response, "topics", refused)
