"""A proxy before a broker that loses answers: what happens to requests on a bad day.

port = free_ports(1)[0]
kafka = start_kafka(extra={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"})
with KafkaProxy(port, kafka.brokers[0].node.ports["PLAINTEXT"]) as proxy:
    proxy.lose(CREATE_TOPICS)  # the next one is done, and the connection ends instead of an answer
"""

from __future__ import annotations

import socket
import threading
from contextlib import closing, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from tests.servers.kafka import Kafka

DESCRIBE_ACLS, DESCRIBE_CONFIGS, DESCRIBE_CLUSTER = 29, 32, 60
METADATA, CREATE_TOPICS, DELETE_TOPICS, ALTER_CONFIGS, CREATE_PARTITIONS = 3, 19, 20, 44, 37
_WITH_TRIALS: Final = frozenset({CREATE_TOPICS, ALTER_CONFIGS, CREATE_PARTITIONS})
"""Requests that end with whether they are only a trial, and no tags; a trial's answer is not lost."""
_CHUNK: Final = 1 << 16
_DONE_SECONDS: Final = 60


class KafkaProxy:
    """Passes requests on, one connection beside another, and loses the answers it was told to lose.

    `asked`: the codes of all requests that came. `answered_bytes`: the size of all answers.
    `connections`: how many were opened. `is_hung`: requests are read, and never answered.
    """

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._broker = 0
        self._lock = threading.Lock()
        self._losing: list[int] = []
        self.lost: list[int] = []
        self.is_hung = False
        self.forget()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def lead_to(self, kafka: Kafka) -> None:
        """Pass on to a broker that is about to start."""
        self._broker = kafka.brokers[0].node.ports["PLAINTEXT"]

    def lose(self, kind: int, times: int = 1) -> None:
        """Lose the answers to the next requests of a kind (their code in the protocol)."""
        with self._lock:
            self._losing += [kind] * times

    def forget(self) -> None:
        """Count from here."""
        self.asked: list[int] = []
        self.answered_bytes = 0
        self.connections = 0

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._pass, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _pass(self, client: socket.socket) -> None:
        with closing(client), suppress(OSError), socket.create_connection(("127.0.0.1", self._broker)) as broker:
            answered = threading.Event()
            back = threading.Thread(target=self._answer, args=(broker, client, answered), daemon=True)
            back.start()
            while (request := _framed(client)) is not None:
                self.asked.append(int.from_bytes(request[4:6], "big"))
                if self.is_hung:
                    continue
                if self._loses(int.from_bytes(request[4:6], "big"), request):
                    client.shutdown(socket.SHUT_WR)  # Before the broker can answer.
                    answered.clear()
                    broker.sendall(request)
                    answered.wait(_DONE_SECONDS)
                    break
                broker.sendall(request)
            with suppress(OSError):
                broker.shutdown(socket.SHUT_RDWR)
            back.join(10)

    def _answer(self, broker: socket.socket, client: socket.socket, answered: threading.Event) -> None:
        with suppress(OSError):
            while came := broker.recv(_CHUNK):
                answered.set()
                self.answered_bytes += len(came)
                with suppress(OSError):  # Nobody hears it any more; the broker must not notice.
                    client.sendall(came)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)  # As the broker has ended, so does what its client sees.

    def _loses(self, kind: int, request: bytes) -> bool:
        is_trial = kind in _WITH_TRIALS and bool(request[-2])
        with self._lock:
            if kind not in self._losing or is_trial:
                return False
            self._losing.remove(kind)
            self.lost.append(kind)
            return True


def _framed(client: socket.socket) -> bytes | None:
    """Return one request with its length, `None` at the end."""
    length = _exactly(client, 4)
    body = None if length is None else _exactly(client, int.from_bytes(length, "big"))
    return None if length is None or body is None else length + body


def _exactly(client: socket.socket, count: int) -> bytes | None:
    found = b""
    while len(found) < count:
        came = client.recv(min(_CHUNK, count - len(found)))
        if not came:
            return None
        found += came
    return found
