"""The HTTP listeners of an emulated cluster, with the faults that a test asks for."""

from __future__ import annotations

import json
import ssl
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Final, NamedTuple

from tests.servers.emulation.faults import Fault, Faults

_DONE: Final = frozenset({"slow", "lost", "empty"})
"""Kinds of faults whose requests are done."""
_HTML: Final = "<html><head><title>Error {0}</title></head><body><h2>HTTP ERROR {0} {1}</h2></body></html>"


class Answer(NamedTuple):
    """A status with a JSON document, or with text that is sent as it is."""

    status: int
    document: Any = None
    text: str | None = None
    headers: Mapping[str, str] = {}


class Exchange(NamedTuple):
    """A request with its answer; `fault` is the kind of the fault that it got."""

    method: str
    target: str
    content_type: str
    body: bytes
    answer: Answer
    fault: str


def answer_html(status: int, headers: Mapping[str, str]) -> Answer:
    """Return an error as a web server answers it that knows nothing of the API."""
    text = _HTML.format(status, HTTPStatus(status).phrase)
    return Answer(status, text=text, headers={"Content-Type": "text/html;charset=iso-8859-1", **headers})


class HttpFront:
    """One listener for each node; a subclass answers."""

    changed: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """By kind of a fault: what marks the parts of an answer that it changes, and the value that it changes."""
    realm: ClassVar = ""

    def __init__(
        self, nodes: int, faults: Faults, certificate: tuple[Path, Path] | None = None, client_ca: Path | None = None
    ) -> None:
        """`certificate`: certificate and key; `client_ca`: clients need a certificate."""
        self.faults = faults
        self.requests: list[tuple[int, str, str]] = []
        """Node, method and path of every request."""
        self._listeners = [_Listener(self, node) for node in range(1, nodes + 1)]
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            if client_ca is not None:
                context.load_verify_locations(client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
            for each in self._listeners:
                each.socket = context.wrap_socket(each.socket, server_side=True, do_handshake_on_connect=False)
        scheme = "http" if certificate is None else "https"
        self.urls = [f"{scheme}://127.0.0.1:{each.server_address[1]}" for each in self._listeners]
        self._threads = [threading.Thread(target=each.serve_forever, args=(0.02,)) for each in self._listeners]

    def start(self) -> None:
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def close(self) -> None:
        for listener in self._listeners:
            listener.shutdown()
            listener.server_close()

    def answer(self, method: str, target: str, authorization: str | None, body: bytes) -> Answer:
        raise NotImplementedError

    def show_fault(self, fault: Fault) -> Answer:
        """Return the error of a fault as this API shows errors."""
        raise NotImplementedError

    def is_down(self, node: int) -> bool:
        """Whether a node does not answer."""
        return node < 0

    def record(self, exchange: Exchange) -> None:
        """Note an exchange; by default nothing is noted."""

    def answer_instead(self, fault: Fault | None, target: str) -> Answer | None:
        """Return the answer of a fault that keeps a request from being done."""
        if fault is None or fault.kind in _DONE or fault.kind in self.changed:
            return None
        if fault.kind == "redirect":
            return Answer(HTTPStatus.TEMPORARY_REDIRECT, headers={"Location": self.urls[fault.to - 1] + target})
        if fault.kind == "html":
            return answer_html(fault.status, fault.headers)
        if fault.kind == "text":
            return Answer(HTTPStatus.OK, text=fault.message)
        return self.show_fault(fault)._replace(headers=fault.headers)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, front: HttpFront, node: int) -> None:
        self.front, self.node = front, node
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print what is wrong with this server; connections that break are on purpose."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def parse_request(self) -> bool:
        is_whole = super().parse_request()
        setattr(self, f"do_{self.command}", self._respond)
        return is_whole

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def _respond(self) -> None:
        front, node, fault = self.server.front, self.server.node, None
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.path.startswith("/control/"):
            front.requests.append((node, self.command, self.path))
            fault = front.faults.take(self.command, self.path, node)
            if front.is_down(node):
                self.close_connection = True
                return
        answer = front.answer_instead(fault, self.path)
        if answer is None:
            answer = front.answer(self.command, self.path, self.headers.get("Authorization"), body)
        kind = "" if fault is None else fault.kind
        if fault is not None and kind == "slow":
            time.sleep(fault.seconds)
        if fault is not None and kind == "empty":
            answer = Answer(fault.status)
        if fault is not None and kind in front.changed and answer.status == HTTPStatus.OK:
            _change(answer.document, *front.changed[kind], fault.message)
        front.record(Exchange(self.command, self.path, self.headers.get("Content-Type", ""), body, answer, kind))
        self.close_connection = self.close_connection or kind == "lost"
        if kind != "lost":
            self._send(answer)

    def _send(self, answer: Answer) -> None:
        content = b"" if answer.document is None else json.dumps(answer.document).encode()
        content = content if answer.text is None else answer.text.encode()
        headers = {"Content-Type": "application/json", **answer.headers}
        if answer.status == HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = f'Basic realm="{self.server.front.realm}"'
        with suppress(OSError):
            self.send_response_only(answer.status)
            for name, value in {**headers, "Content-Length": len(content)}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(content)


def _change(document: Any, marker: str, name: str, value: str) -> None:
    """Change a value in all parts of a document that have a marker."""
    parts = document if isinstance(document, list) else [*document.values()] if isinstance(document, dict) else []
    for part in parts:
        _change(part, marker, name, value)
    if isinstance(document, dict) and marker in document:
        document[name] = value


def conforms(document: Any, shape: Any) -> bool:
    """Whether a document has a shape: a type, a list of one shape, or keys (`?`: may be left out) with shapes."""
    if isinstance(shape, type | UnionType):
        return isinstance(document, shape)
    if isinstance(shape, list):
        return isinstance(document, list) and all(conforms(each, shape[0]) for each in document)
    required = {name for name in shape if not name.endswith("?")}
    shapes = {name.removesuffix("?"): each for name, each in shape.items()}
    is_closed = isinstance(document, dict) and required <= document.keys() <= shapes.keys()
    return is_closed and all(conforms(value, shapes[name]) for name, value in document.items())
