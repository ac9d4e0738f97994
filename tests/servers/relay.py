"""A relay before a server that ends all connections at once, also after so many bytes: networks and restarts do that.

with Relay() as relay:
    relay.lead_to(port)
    relay.cut(after=1 << 20, then=swap)  # once so much has passed: swap() is called, and every connection ends
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_CHUNK: Final = 1 << 16


class Relay:
    """Passes bytes on, whatever they mean."""

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        """With the files of a certificate and its key, who comes has to speak TLS; what is passed on is clear."""
        self._context = None
        if certificate is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(*certificate)
        self.came = 0
        """Connections that were made."""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._port = 0
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._cuts: list[tuple[int, Callable[[], object]]] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.passed = 0
        """Bytes, both ways."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def lead_to(self, port: int) -> None:
        """Pass on to a server that is about to start."""
        self._port = port

    def cut(self, *, after: int, then: Callable[[], object]) -> None:
        """Call `then` when so many bytes more have passed, and end all connections; new ones may come."""
        self._cuts.append((self.passed + after, then))

    @property
    def is_cutting(self) -> bool:
        """Whether a cut that was asked for has not been made yet."""
        return bool(self._cuts)

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._end_all()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.came += 1
            try:
                if self._context is not None:
                    client = self._context.wrap_socket(client, server_side=True)
            except OSError:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                client.close()
                continue
            self._open += [client, server]
            for source, target in ((client, server), (server, client)):
                self._threads.append(threading.Thread(target=self._pass, args=(source, target), daemon=True))
                self._threads[-1].start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while came := source.recv(_CHUNK):
                self._count(len(came))
                target.sendall(came)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _count(self, size: int) -> None:
        with self._lock:
            self.passed += size
            if not self._cuts or self.passed < self._cuts[0][0]:
                return
            _, then = self._cuts.pop(0)
            then()
            self._end_all()

    def _end_all(self) -> None:
        ending, self._open = self._open, []
        for one in ending:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
