"""Frames of the Kafka protocol, decoded and encoded by kafka-python's protocol classes."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl  # noqa: F401 - importing registers the message classes
from kafka.protocol.api_message import ApiMessage

_CHUNK: Final = 1 << 16
_SECONDS: Final = 120.0

PRODUCE, FETCH, METADATA, FIND_COORDINATOR, LIST_GROUPS, API_VERSIONS = 0, 1, 3, 10, 16, 18
CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CONFIGS, ALTER_CONFIGS, DESCRIBE_LOG_DIRS = 19, 20, 32, 33, 35
CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS, DESCRIBE_CLUSTER, LIST_TRANSACTIONS = 37, 44, 60, 66

INVALID_TOPIC, UNSUPPORTED_VERSION, INVALID_REPLICATION_FACTOR = 17, 35, 38
INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION = 40, 42, 44

_MESSAGES: Final = [each for each in ApiMessage.__subclasses__() if each.type in {"request", "response"}]
REQUESTS: Final[dict[int, Any]] = {each.API_KEY: each for each in _MESSAGES if each.type == "request"}
RESPONSES: Final[dict[int, Any]] = {each.API_KEY: each for each in _MESSAGES if each.type == "response"}
API_NAMES: Final = {key: request.name.removesuffix("Request") for key, request in REQUESTS.items()}


class Header(NamedTuple):
    """The fields at the start of every request."""

    key: int
    version: int
    correlation: int


def read_frame(connection: socket.socket) -> bytes | None:
    """Return one frame without its length; `None` at the end of the connection."""
    size = _read_exactly(connection, 4)
    return None if size is None else _read_exactly(connection, int.from_bytes(size, "big"))


def write_frame(connection: socket.socket, frame: bytes) -> None:
    connection.sendall(len(frame).to_bytes(4, "big") + frame)


def read_header(frame: bytes) -> Header:
    fields = (frame[0:2], frame[2:4], frame[4:8])
    return Header(*(int.from_bytes(field, "big", signed=True) for field in fields))


def encode_request(request: Any, version: int, correlation: int = 1) -> bytes:
    request._header = None
    request.API_VERSION = version
    request.with_header(correlation, "contract-server")
    return bytes(request.encode(header=True))


def encode_response(response: Any, header: Header, version: int | None = None) -> bytes:
    response._header = None
    response.API_VERSION = header.version if version is None else version
    response.with_header(header.correlation)
    return bytes(response.encode(header=True))


class BrokerLine:
    """One connection to the real broker; requests are answered in order."""

    def __init__(self, port: int) -> None:
        self._connection = socket.create_connection(("127.0.0.1", port), timeout=_SECONDS)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lock = threading.Lock()

    def forward(self, frame: bytes, *, is_answered: bool = True) -> bytes | None:
        with self._lock:
            write_frame(self._connection, frame)
            return read_frame(self._connection) if is_answered else None

    def ask(self, request: Any, version: int) -> Any:
        """Send a request of kafka-python's classes and return the decoded response."""
        frame = self.forward(encode_request(request, version))
        if frame is None:
            raise ConnectionError("the broker closed the connection")
        return RESPONSES[request.API_KEY].decode(frame, version=version, header=True)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _read_exactly(connection: socket.socket, count: int) -> bytes | None:
    chunks: list[bytes] = []
    while count:
        chunk = connection.recv(min(_CHUNK, count))
        if not chunk:
            return None
        chunks.append(chunk)
        count -= len(chunk)
    return b"".join(chunks)
