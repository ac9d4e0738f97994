"""An HTTP proxy beneath a client, which loses, delays and repeats: what happens to requests on a bad day.

    with Proxy(server.endpoint) as proxy:
        proxy.on("PUT", Lost(), key="head.json")  # the next PUT of such a key lands, and its answer is lost
        store = open_store(server.settings(endpoint=proxy.endpoint))

A fault is used up by the first requests it fits; everything else goes through as it is. Requests reach the server with
the Host they were signed for.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self, TypeAlias, assert_never
from urllib.parse import unquote, urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.servers.weed import REGION, credentials_of

_PATIENCE_SECONDS = 60


def _nothing() -> None:
    return


@dataclass(frozen=True)
class Lost:
    """It is done, and the connection breaks instead of an answer."""

    then: Callable[[], None] = _nothing
    """Called between the two: where somebody else gets in."""


@dataclass(frozen=True)
class Late:
    """The connection breaks at once, and it is done when `arrive` is set."""

    arrive: threading.Event
    arrived: threading.Event = field(default_factory=threading.Event)
    then: Callable[[], None] = _nothing
    """Called before the connection breaks."""


@dataclass(frozen=True)
class Slow:
    """It is done, and the answer comes only after this long."""

    seconds: float
    then: Callable[[], None] = _nothing
    """Called between the two."""


@dataclass(frozen=True)
class Mute:
    """It is not done, and nobody answers."""

    then: Callable[[], None] = _nothing
    """Called when it has come."""


@dataclass(frozen=True)
class Repeated:
    """It is done twice, as by a network that repeats packets or a proxy that tries again; the second answer counts."""

    then: Callable[[], None] = _nothing
    """Called between the two."""


@dataclass(frozen=True)
class FailedChore:
    """It is not done; the answer is this error."""

    status: int
    code: str
    message: str = "said by the proxy"
    headers: dict[str, str] = field(default_factory=dict)
    then: Callable[[], None] = _nothing
    """Called before the answer."""


@dataclass(frozen=True)
class Answered:
    """It is not done; the answer has this body, and says that all is well."""

    body: bytes


@dataclass(frozen=True)
class Broken:
    """It is done, and the answer breaks off in the middle of its body."""


@dataclass(frozen=True)
class Stripped:
    """It is done without these headers, as by stores that take no notice of them."""

    headers: tuple[str, ...]


@dataclass(frozen=True)
class Cut:
    """Its sender dies in the middle: the server gets this much of head and body, and then the end of the connection."""

    head: int | None = None
    """Bytes of the head; `None`: all of it."""
    body: int = 0
    then: Callable[[], None] = _nothing
    """Called once the server no longer owns it."""


Fault: TypeAlias = Cut | Lost | Late | Slow | Mute | Repeated | FailedChore | Answered | Broken | Stripped


@dataclass
class _Waiting:
    fault: Fault | None
    method: str
    key: str
    left: int


@dataclass(frozen=True)
class Asked:
    """One request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes


class Proxy:
    """Forwards to a server on this machine, but for the faults it was given."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream)
        self._waiting: list[_Waiting] = []
        self._lock = threading.Lock()
        self.asked: list[Asked] = []
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def on(self, method: str, fault: Fault | None, *, key: str = "", times: int = 1) -> None:
        """Do this to the next requests of a method whose path and query contain `key`."""
        with self._lock:
            self._waiting.append(_Waiting(fault, method, key, times))

    def let_pass(self, method: str, times: int, *, key: str = "") -> None:
        """Let the next requests through, before what was or will be asked of them comes to bear."""
        self.on(method, None, key=key, times=times)

    def heal(self) -> None:
        """Forget all faults."""
        with self._lock:
            self._waiting.clear()

    def count(self, method: str, key: str = "") -> int:
        """Return how many such requests came."""
        return sum(one.method == method and key in one.path for one in self.asked)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.is_over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def taken(self, asked: Asked) -> Fault | None:
        """Return the fault meant for a request, which is used up by that."""
        with self._lock:
            self.asked.append(asked)
            for waiting in self._waiting:
                if waiting.left and waiting.method == asked.method and waiting.key in unquote(asked.path):
                    waiting.left -= 1
                    return waiting.fault
        return None

    def forward_part(self, asked: Asked, cut: Cut) -> None:
        """Send as much as a sender that died had sent, and wait until the server has closed its side."""
        lines = [
            f"{asked.method} {asked.path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in asked.headers.items()),
        ]
        head = ("\r\n".join(lines) + "\r\n\r\n").encode()
        sent = head + asked.body[: cut.body] if cut.head is None else head[: cut.head]
        place = (self._upstream.hostname or "", self._upstream.port or 0)
        with socket.create_connection(place, timeout=_PATIENCE_SECONDS) as connection, suppress(ConnectionError):
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass

    def forward(self, asked: Asked) -> _Answer:
        connection = http.client.HTTPConnection(
            self._upstream.hostname or "", self._upstream.port, timeout=_PATIENCE_SECONDS
        )
        try:
            connection.request(asked.method, asked.path, asked.body, asked.headers)
            answer = connection.getresponse()
            return _Answer(answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.is_over = threading.Event()
        super().__init__(("127.0.0.1", 0), _Request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: connections break here on purpose."""


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits for the head before it to be acknowledged
    server: _Server

    def parse_request(self) -> bool:
        is_whole = super().parse_request()
        if is_whole:
            setattr(self, f"do_{self.command}", self._pass)
        return is_whole

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        del format, args

    def _pass(self) -> None:
        proxy = self.server.proxy
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked = Asked(self.command, self.path, dict(self.headers.items()), body)
        match proxy.taken(asked):
            case None:
                self._answer(proxy.forward(asked))
            case Cut() as cut:
                proxy.forward_part(asked, cut)
                cut.then()
                self.close_connection = True
            case Lost() as lost:
                proxy.forward(asked)
                lost.then()
                self.close_connection = True
            case Late() as late:
                threading.Thread(target=_arrive, args=(proxy, asked, late), daemon=True).start()
                late.then()
                self.close_connection = True
            case Slow(seconds, then):
                answer = proxy.forward(asked)
                then()
                time.sleep(seconds)
                self._answer(answer)
            case Mute(then):
                then()
                self.server.is_over.wait()
                self.close_connection = True
            case Repeated(then):
                proxy.forward(asked)
                then()
                self._answer(proxy.forward(asked))
            case FailedChore() as refused:
                refused.then()
                self._answer(_refusal(refused))
            case Answered(body):
                self._answer(_Answer(HTTPStatus.OK, [("Content-Type", "application/xml")], body))
            case Broken():
                self._answer(proxy.forward(asked), breaks=True)
            case Stripped(headers):
                self._answer(proxy.forward(_signed_anew(proxy, asked, headers)))
            case never:
                assert_never(never)

    def _answer(self, answer: _Answer, *, breaks: bool = False) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            if name.lower() not in {"connection", "transfer-encoding", "content-length"}:
                self.send_header(name, value)
        if self.command == "HEAD":
            length = next((value for name, value in answer.headers if name.lower() == "content-length"), "0")
        else:
            length = str(len(answer.body))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(answer.body[: len(answer.body) // 2] if breaks else answer.body)
        self.close_connection = self.close_connection or breaks


def _arrive(proxy: Proxy, asked: Asked, late: Late) -> None:
    late.arrive.wait(_PATIENCE_SECONDS)
    with suppress(OSError):  # its test may have ended, and the server with the last of them
        proxy.forward(asked)
    late.arrived.set()


def _refusal(refused: FailedChore) -> _Answer:
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{refused.code}</Code><Message>{refused.message}</Message></Error>"
    )
    return _Answer(refused.status, [("Content-Type", "application/xml"), *refused.headers.items()], body.encode())


def _signed_anew(proxy: Proxy, asked: Asked, without: tuple[str, ...]) -> Asked:
    """Return the request without some headers; one that is signed for S3, as if it had never had them."""
    dropped = {*without, "x-amz-date"}
    headers = {name: value for name, value in asked.headers.items() if name.lower() not in dropped}
    name = next((name for name in headers if name.lower() == "authorization"), None)
    if name is None or not headers.pop(name).startswith("AWS4"):
        kept = {} if name is None else {name: asked.headers[name]}
        return Asked(asked.method, asked.path, {**headers, **kept}, asked.body)
    credentials = credentials_of("admin")
    request = AWSRequest(asked.method, proxy.endpoint + asked.path, headers, asked.body)
    S3SigV4Auth(Credentials(credentials.access_key, credentials.secret_key.text), "s3", REGION).add_auth(request)
    return Asked(asked.method, asked.path, dict(request.headers.items()), asked.body)
