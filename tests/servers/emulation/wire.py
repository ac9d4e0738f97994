"""Frames of the Kafka protocol, decoded and encoded by kafka-python's protocol classes."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl  # noqa: F401 - importing registers the message classes
from kafka.protocol.api_message import ApiMessage

_SECONDS: Final = 120.0
INVALID_TOPIC, UNSUPPORTED_VERSION, INVALID_REPLICATION_FACTOR = 17, 35, 38
INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION = 40, 42, 44

_MESSAGES: Final = [each for each in ApiMessage.__subclasses__() if each.type in {"request", "response"}]
REQUESTS: Final[dict[str, Any]] = {each.name.removesuffix("Request"): each for each in _MESSAGES if each.is_request()}
RESPONSES: Final[dict[str, Any]] = {
    each.name.removesuffix("Response"): each for each in _MESSAGES if not each.is_request()
}
NAMES: Final = {request.API_KEY: name for name, request in REQUESTS.items()}


class Header(NamedTuple):
    """The fields at the start of every request."""

    key: int
    version: int
    correlation: int

    @classmethod
    def read(cls, frame: bytes) -> Header:
        fields = (frame[0:2], frame[2:4], frame[4:8])
        return cls(*(int.from_bytes(field, "big", signed=True) for field in fields))


def build(message: Any, **values: Any) -> Any:
    """Return a message or a part of one; lists of dictionaries become its parts."""
    for name, value in values.items():
        field = message.fields[name]
        if field.is_struct_array() and value is not None:
            values[name] = [build(field.data_class, **row) if isinstance(row, dict) else row for row in value]
    return message(**values)


def encode(message: Any, version: int, correlation: int = 1) -> bytes:
    message._header = None
    message.API_VERSION = version
    message.with_header(correlation)
    return bytes(message.encode(header=True))


def read_frame(connection: socket.socket) -> bytes | None:
    """Return one frame without its length; `None` at the end of the connection."""
    size = _read_exactly(connection, 4)
    return None if size is None else _read_exactly(connection, int.from_bytes(size, "big"))


def write_frame(connection: socket.socket, frame: bytes) -> None:
    connection.sendall(len(frame).to_bytes(4, "big") + frame)


class BrokerConnection(AbstractContextManager["BrokerConnection"]):
    """One connection to a broker: the real one, if no host is given."""

    def __init__(
        self, port: int, host: str = "127.0.0.1", *, seconds: float = _SECONDS, tls: ssl.SSLContext | None = None
    ) -> None:
        self._connection = socket.create_connection((host, port), timeout=seconds)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._connection = tls.wrap_socket(self._connection, server_hostname=host)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def send(self, frame: bytes) -> None:
        write_frame(self._connection, frame)

    def forward(self, frame: bytes) -> bytes:
        self.send(frame)
        answer = read_frame(self._connection)
        if answer is None:
            raise ConnectionAbortedError("the broker closed the connection")
        return answer

    def ask(self, name: str, version: int, **values: Any) -> Any:
        """Send a request with these fields and return the decoded response."""
        frame = self.forward(encode(build(REQUESTS[name], **values), version))
        return RESPONSES[name].decode(frame, version=version, header=True)

    def commit(self, group: str, commits: Iterable[tuple[str, int, int]]) -> bool:
        """Commit offsets for a group without members; return whether all were."""
        topics: dict[str, list[dict[str, int]]] = {}
        for name, number, offset in commits:
            topics.setdefault(name, []).append({"partition_index": number, "committed_offset": offset})
        rows = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
        self.ask("FindCoordinator", 2, key=group, key_type=0)
        member = {"generation_id_or_member_epoch": -1, "member_id": ""}
        answer = self.ask("OffsetCommit", 7, group_id=group, **member, topics=rows)
        return not any(each.error_code for row in answer.topics for each in row.partitions)


def _read_exactly(connection: socket.socket, count: int) -> bytes | None:
    chunks: list[bytes] = []
    while count:
        chunk = connection.recv(min(1 << 16, count))
        if not chunk:
            return None
        chunks.append(chunk)
        count -= len(chunk)
    return b"".join(chunks)
