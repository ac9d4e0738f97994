"""A Kafka cluster as a link reads it: topics, configs, records, groups and access rules."""

from __future__ import annotations

import ssl
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import RLock
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.net.sasl.scram import ScramClient

from tests.servers.emulation.logs import Batch, append, fill, list_committed
from tests.servers.emulation.wire import REQUESTS, BrokerConnection

EARLIEST, LATEST = -2, -1
_SECONDS: Final = 3.0
_CHUNK: Final = 1 << 22
_METADATA: Final = (8, 12)
"""Versions of Metadata: the newest without topic ids, and the newest that is read here."""

Partition = tuple[str, int]


@dataclass(frozen=True)
class Topic:
    """A topic of the cluster; `id` is empty where brokers tell none."""

    id: str
    leaders: dict[int, int]
    replicas: int
    is_internal: bool


class SourceLog(NamedTuple):
    """A partition of the source: where copies start, and where its decided transactions end."""

    topic: str
    number: int
    start: int
    end: int


class ClusterReader(AbstractContextManager["ClusterReader"]):
    """Connections to the brokers of a cluster; every failure of one is an `OSError`."""

    def __init__(self, options: dict[str, Any], names: Iterable[str] | None = None) -> None:
        """Connect and read the topics with these names, all by default."""
        self._names = None if names is None else [{"name": name} for name in names]
        self._tls, self._logins = options.get("tlsSettings"), options.get("authenticationConfiguration") or {}
        self._connections: dict[tuple[str, int], BrokerConnection] = {}
        self._places: dict[int, tuple[str, int]] = {}
        servers = [server.rpartition(":") for server in options["bootstrapServers"]]
        failures = []
        for host, _, port in servers:
            try:
                self._first = self._connect((host, int(port)))
                break
            except OSError as error:
                failures.append(f"{host}:{port}: {error}")
        else:
            raise ConnectionError("; ".join(failures))
        try:
            answer = self._first.ask("ApiVersions", 0)
            newest = {row.api_key: row.max_version for row in answer.api_keys}[REQUESTS["Metadata"].API_KEY]
            self._version = max(_METADATA[0], min(_METADATA[1], newest))
            self.refresh()
        except OSError:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def refresh(self) -> None:
        """Read brokers and topics again."""
        answer = self._first.ask("Metadata", self._version, topics=self._names, allow_auto_topic_creation=False)
        self._places = {row.node_id: (row.host, row.port) for row in answer.brokers}
        self.cluster_id, self.controller = answer.cluster_id, answer.controller_id
        self.topics = {row.name: self._describe(row) for row in answer.topics if not row.error_code}

    def list_offsets(
        self, partitions: Iterable[Partition], timestamp: int, *, stable: bool = False
    ) -> dict[Partition, int]:
        """Return the offset of each partition that has a leader; `stable`: the end of decided transactions."""
        nodes: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for topic, partition in partitions:
            if (node := self.topics[topic].leaders[partition]) in self._places:
                nodes[node][topic].append(partition)
        offsets: dict[Partition, int] = {}
        for leader, topics in nodes.items():
            rows = [
                {"name": topic, "partitions": [{"partition_index": each, "timestamp": timestamp} for each in numbers]}
                for topic, numbers in topics.items()
            ]
            answer = self._ask(leader, "ListOffsets", 4, replica_id=-1, isolation_level=int(stable), topics=rows)
            offsets |= {
                (row.name, each.partition_index): each.offset
                for row in answer.topics
                for each in row.partitions
                if not each.error_code
            }
        return offsets

    def fetch(self, topic: str, partition: int, offset: int) -> tuple[list[Batch], list[tuple[int, int]]]:
        """Return batches of decided transactions, and producer and first offset of the aborted ones."""
        row = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": _CHUNK}
        topics = [{"topic": topic, "partitions": [row]}]
        wanted = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": _CHUNK, "isolation_level": 1, "topics": topics}
        answer = self._ask(self.topics[topic].leaders[partition], "Fetch", 11, **wanted).responses[0].partitions[0]
        if answer.error_code:
            raise ConnectionError(f"{topic}/{partition}: fetch is refused with error {answer.error_code}")
        aborted = [(each.first_offset, each.producer_id) for each in answer.aborted_transactions or ()]
        return Batch.split(bytes(answer.records or b"")), aborted

    def copy(
        self,
        log: SourceLog,
        broker: BrokerConnection,
        target: str,
        position: int,
        lock: RLock,
        may_write: Callable[[], bool],
    ) -> int:
        """Copy records to the end of a topic's partition, `position`; return its new end.

        `may_write` is asked under the lock before each write.

        Raises:
            StoppedError: A gap cannot be written; the batches before it are.
        """
        while position < max(log.start, log.end):
            wanted = max(position, log.start)
            fetched, aborted = self.fetch(log.topic, log.number, wanted) if wanted < log.end else ([], [])
            batches = [batch for batch in fetched if batch.end > position]
            first = min(log.start, batches[0].base) if batches else log.start
            end = batches[-1].end if batches else max(log.start, log.end)
            with lock:
                if not may_write():
                    break
                if position < first:
                    fill(broker, target, log.number, first - position)
                append(broker, target, log.number, list_committed(batches, aborted), max(position, first), end)
            position = end
        return position

    def read_configs(self, topics: list[str]) -> dict[str, dict[str, str]]:
        """Return the configs of each topic that can be described."""
        rows = [{"resource_type": 2, "resource_name": topic} for topic in topics]
        answer = self._ask(self.controller, "DescribeConfigs", 2, resources=rows) if rows else None
        return {
            row.resource_name: {each.name: each.value for each in row.configs if each.value is not None}
            for row in (answer.results if answer else ())
            if not row.error_code
        }

    def list_groups(self) -> list[str]:
        answers = [self._ask(node, "ListGroups", 2) for node in self._places]
        return sorted({group.group_id for answer in answers for group in answer.groups})

    def read_commits(self, group: str) -> dict[Partition, int]:
        """Return the committed offsets of a group."""
        coordinator = self._first.ask("FindCoordinator", 2, key=group, key_type=0)
        if coordinator.error_code:
            return {}
        answer = self._ask(coordinator.node_id, "OffsetFetch", 5, group_id=group, topics=None)
        rows = [(row.name, each) for row in answer.topics for each in row.partitions]
        return {
            (name, each.partition_index): each.committed_offset for name, each in rows if each.committed_offset >= 0
        }

    def read_acls(self, fields: dict[str, Any]) -> list[dict[str, Any]]:
        """Return access rules as the fields of a CreateAcls request."""
        return [
            {
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
                "resource_pattern_type": resource.pattern_type,
                **{name: getattr(acl, name) for name in ("principal", "host", "operation", "permission_type")},
            }
            for resource in self._first.ask("DescribeAcls", 1, **fields).resources
            for acl in resource.acls
        ]

    def _ask(self, node: int, name: str, version: int, **values: Any) -> Any:
        place = self._places.get(node)
        if place is None:
            raise ConnectionError(f"broker {node} is not available")
        return self._connect(place).ask(name, version, **values)

    def _connect(self, place: tuple[str, int]) -> BrokerConnection:
        if place not in self._connections:
            connection = BrokerConnection(place[1], place[0], seconds=_SECONDS, tls=self._read_tls())
            self._connections[place] = connection
            try:
                for kind, login in self._logins.items():
                    _log_in(connection, kind, login)
            except OSError:
                self._connections.pop(place).close()
                raise
        return self._connections[place]

    def _read_tls(self) -> ssl.SSLContext | None:
        if not self._tls or not self._tls.get("enabled"):
            return None
        files, pem = (self._tls.get(kind) or {} for kind in ("tlsFileSettings", "tlsPemSettings"))
        context = ssl.create_default_context(cafile=files.get("caPath") or None, cadata=pem.get("ca") or None)
        if files.get("certPath"):
            context.load_cert_chain(files["certPath"], files["keyPath"])
        return context

    def _describe(self, row: Any) -> Topic:
        topic_id = getattr(row, "topic_id", None) if self._version > _METADATA[0] + 1 else None
        leaders = {each.partition_index: each.leader_id for each in row.partitions}
        replicas = max((len(each.replica_nodes) for each in row.partitions), default=1)
        return Topic(str(topic_id) if topic_id and topic_id != UUID(int=0) else "", leaders, replicas, row.is_internal)


def _log_in(connection: BrokerConnection, kind: str, login: dict[str, Any]) -> None:
    user, password = login["username"], login["password"]
    mechanism = "PLAIN"
    if kind == "scramConfiguration":
        mechanism = login["scramMechanism"].removeprefix("SCRAM_MECHANISM_").replace("_", "-")
    connection.ask("SaslHandshake", 1, mechanism=mechanism)
    if mechanism == "PLAIN":
        _authenticate(connection, f"\0{user}\0{password}".encode())
        return
    client = ScramClient(user, password, mechanism)
    client.process_server_first_message(_authenticate(connection, client.first_message()))
    client.process_server_final_message(_authenticate(connection, client.final_message()))


def _authenticate(connection: BrokerConnection, content: bytes) -> bytes:
    answer = connection.ask("SaslAuthenticate", 1, auth_bytes=content)
    if answer.error_code:
        raise ConnectionError(f"login failed: {answer.error_message}")
    return bytes(answer.auth_bytes)
