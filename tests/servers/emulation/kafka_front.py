"""The Kafka API of an emulated cluster: a proxy before a real broker that may answer some requests itself."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import cached_property
from typing import Any, Final

from tests.servers.emulation import wire
from tests.servers.emulation.faults import KAFKA, Faults

_WORDS: Final = re.compile("([A-Z])")


class Exchange:
    """One request and its way to the broker."""

    def __init__(self, frame: bytes, node: int, broker: wire.BrokerConnection) -> None:
        self.frame, self.node, self.broker = frame, node, broker
        self.header = wire.Header.read(frame)
        self.name = wire.NAMES.get(self.header.key, "")
        self.body_start = 10 + max(0, int.from_bytes(frame[8:10], "big", signed=True))

    @cached_property
    def request(self) -> Any:
        return wire.REQUESTS[self.name].decode(self.frame, version=self.header.version, header=True)

    def ask(self) -> Any:
        """Return the broker's response to the frame as it came."""
        return wire.RESPONSES[self.name].decode(
            self.broker.forward(self.frame), version=self.header.version, header=True
        )

    def ask_for(self, part: str, rows: list[Any]) -> Any:
        """Return the broker's response to the request with these rows only; an empty one without rows."""
        setattr(self.request, part, rows)
        self.frame = wire.encode(self.request, self.header.version, self.header.correlation)
        return self.ask() if rows else self.respond()

    def respond(self, **values: Any) -> Any:
        return wire.build(wire.RESPONSES[self.name], **values)

    def extend(self, response: Any, part: str, rows: list[dict[str, Any]]) -> Any:
        """Add rows to a list of a response."""
        added = getattr(self.respond(**{part: rows}), part)
        setattr(response, part, [*(getattr(response, part) or ()), *added])
        return response


class KafkaFront:
    """Listens once for every node and passes requests on to one broker.

    A subclass answers an API by a method of its name, such as `_create_topics`: with a response, the bytes of a request
    to pass on, or `None`.
    """

    def __init__(self, broker_port: int, nodes: int, faults: Faults, listening: socket.socket | None = None) -> None:
        """`listening`: the socket of the only node, where the broker advertises its address."""
        self._broker_port, self._faults = broker_port, faults
        self._listening = [listening] if listening else [socket.create_server(("127.0.0.1", 0)) for _ in range(nodes)]
        self.ports: list[int] = [listening.getsockname()[1] for listening in self._listening]
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._ends = threading.Event()

    def start(self) -> None:
        for node, listening in enumerate(self._listening, 1):
            self._run(self._accept, listening, node)

    def close(self) -> None:
        self._ends.set()
        for connection in [*self._listening, *self._open]:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for listening in self._listening:
            listening.close()

    def _run(self, target: Callable[..., None], *arguments: Any) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self, listening: socket.socket, node: int) -> None:
        while not self._ends.is_set():
            with suppress(OSError):  # a client that gave up must not end the node
                client, _ = listening.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open.add(client)
                self._run(self._serve, client, node)

    def _serve(self, client: socket.socket, node: int) -> None:
        with closing(client), suppress(OSError), wire.BrokerConnection(self._broker_port) as broker:
            while (frame := wire.read_frame(client)) is not None:
                exchange = Exchange(frame, node, broker)
                fault = self._faults.take(KAFKA, exchange.name, node)
                response = self._answer(exchange)
                if fault is not None and fault.kind == "lost":
                    break
                time.sleep(0 if fault is None else fault.seconds)
                if response is not None:
                    wire.write_frame(client, response)
        self._open.discard(client)

    def _answer(self, exchange: Exchange) -> bytes | None:
        handler = getattr(self, _WORDS.sub(r"_\1", exchange.name).lower(), None)
        answer = exchange.frame if handler is None else handler(exchange)
        if isinstance(answer, bytes):
            return exchange.broker.forward(answer)
        return None if answer is None else wire.encode(answer, exchange.header.version, exchange.header.correlation)

    def _pass_produce(self, exchange: Exchange, codes: Mapping[str, int], message: str | None = None) -> Any:
        """Return the answer to Produce where topics are refused; `codes`: the error of each."""
        frame, at = exchange.frame, exchange.body_start
        at += 2 + max(0, int.from_bytes(frame[at : at + 2], "big", signed=True))
        is_answered = frame[at : at + 2] != b"\x00\x00"
        if not codes:
            return frame if is_answered else exchange.broker.send(frame)
        topics = exchange.request.topic_data
        refused = [topic for topic in topics if topic.name in codes]
        if not is_answered:
            return None if refused else exchange.broker.send(frame)
        response = exchange.ask_for("topic_data", [topic for topic in topics if topic not in refused])
        error = {"base_offset": -1, "error_message": message}
        rows = [
            (
                topic.name,
                [{"index": each.index, "error_code": codes[topic.name], **error} for each in topic.partition_data],
            )
            for topic in refused
        ]
        return exchange.extend(
            response, "responses", [{"name": name, "partition_responses": row} for name, row in rows]
        )
