"""The Admin API: one HTTP listener for each node."""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

from tests.servers.redpanda import wire
from tests.servers.redpanda.bucket import read_bounds
from tests.servers.redpanda.faults import FIELDS, Fault
from tests.servers.redpanda.migrations import RefusedError
from tests.servers.redpanda.topics import READ

if TYPE_CHECKING:
    from tests.servers.redpanda.server import Redpanda

_OPEN_PATHS: Final = ("/v1/status/ready", "/v1/cluster_config/schema", "/v1/cluster/uuid", "/control/")
_REFERENCE: Final = {"topic": str, "ns?": str}
_MOUNT_TOPIC: Final = {"source_topic_reference": _REFERENCE, "alias?": _REFERENCE}
_MOUNT: Final = {"topics": [_MOUNT_TOPIC]}
_UNMOUNT: Final = {"topics": [_REFERENCE]}
_DEFINITION: Final = {"migration_type": str, "topics": [], "consumer_groups": [str]}
_PROPERTIES: Final = {"upsert": dict, "remove": [str]}


class Request(NamedTuple):
    """A request as the routes see it."""

    node: int
    query: dict[str, str]
    body: bytes
    parts: tuple[str, ...]
    """Variable parts of the path."""

    def parse(self, shape: Any) -> Any:
        """Return the JSON body, which must have this shape and no other keys."""
        try:
            document = json.loads(self.body)
        except ValueError as error:
            raise RefusedError("json", str(error)) from error
        if not _conforms(document, shape):
            raise RefusedError("schema")
        return document


class Answer(NamedTuple):
    """A status with a JSON document, or with text that is sent as it is."""

    status: int
    document: Any = None
    text: str | None = None
    location: str | None = None


Route = Callable[[Request], Any]


class Admin:
    """The listeners, and what each path answers."""

    def __init__(self, server: Redpanda, certificate: tuple[Path, Path] | None, client_ca: Path | None) -> None:
        self.server = server
        self.cluster = server.cluster
        self.requests: list[tuple[int, str, str]] = []
        """Node, method and path of every request."""
        self._scheme = "http" if certificate is None else "https"
        self._listeners = [_Listener(self, node.id) for node in self.cluster.nodes]
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            if client_ca is not None:
                context.load_verify_locations(client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
            for listener in self._listeners:
                listener.socket = context.wrap_socket(listener.socket, server_side=True, do_handshake_on_connect=False)
        self._threads = [
            threading.Thread(target=each.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
            for each in self._listeners
        ]
        self._routes: list[tuple[str, re.Pattern[str], Route]] = [
            (method, re.compile(path + "/?"), route) for method, path, route in self._paths()
        ]

    @property
    def urls(self) -> list[str]:
        return [f"{self._scheme}://127.0.0.1:{each.server_address[1]}" for each in self._listeners]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        for listener, thread in zip(self._listeners, self._threads, strict=True):
            listener.shutdown()
            thread.join(10)
            listener.server_close()

    def answer(self, method: str, target: str, node: int, authorization: str | None, body: bytes) -> Answer:
        path = urlsplit(target).path
        if not path.startswith(_OPEN_PATHS) and authorization != self._authorization():
            return _error(HTTPStatus.UNAUTHORIZED, "Unauthorized")
        for wanted, pattern, route in self._routes:
            if wanted == method and (match := pattern.fullmatch(path)):
                query = {key: values[-1] for key, values in parse_qs(urlsplit(target).query, True).items()}  # noqa: FBT003
                return self._run(route, Request(node, query, body, match.groups()))
        return _error(HTTPStatus.NOT_FOUND, "Not found")

    def _run(self, route: Route, request: Request) -> Answer:
        try:
            result = route(request)
        except RefusedError as error:
            is_old = self.server.migrations.is_old if self.server.words is None else self.server.words == "old"
            return _error(error.row["old" if is_old else "new"], error.message())
        return result if isinstance(result, Answer) else Answer(HTTPStatus.OK, result)

    def _authorization(self) -> str:
        login = f"{self.server.user}:{self.server.password}"
        return "Basic " + base64.b64encode(login.encode()).decode()

    def _paths(self) -> list[tuple[str, str, Route]]:
        cluster, migrations = self.cluster, self.server.migrations
        return [
            ("GET", "/v1/brokers", lambda _: cluster.describe_nodes()),
            ("GET", "/v1/cluster/uuid", lambda _: {"cluster_uuid": cluster.uuid}),
            ("GET", "/v1/status/ready", lambda _: {"status": "ready"}),
            ("GET", "/v1/features", lambda _: cluster.describe_features()),
            ("GET", "/v1/features/license", lambda _: cluster.describe_license()),
            ("GET", "/v1/features/enterprise", lambda _: cluster.describe_enterprise()),
            ("GET", "/v1/cluster_config", self._read_properties),
            ("PUT", "/v1/cluster_config", self._write_properties),
            ("GET", "/v1/cluster_config/schema", lambda _: cluster.describe_schema()),
            ("GET", "/v1/cluster_config/status", lambda _: cluster.read_status()),
            ("GET", "/v1/topics/mountable", lambda _: {"topics": migrations.list_mountable()}),
            ("POST", "/v1/topics/mount", lambda request: self._start("inbound", request.parse(_MOUNT))),
            ("POST", "/v1/topics/unmount", lambda request: self._start("outbound", request.parse(_UNMOUNT))),
            ("GET", "/v1/migrations", lambda _: migrations.read()),
            ("PUT", "/v1/migrations", self._define),
            ("GET", "/v1/migrations/([^/]+)", self._read_migration),
            ("POST", "/v1/migrations/([^/]+)", self._act),
            ("DELETE", "/v1/migrations/([^/]+)", lambda request: migrations.delete(_number(request))),
            ("GET", "/v1/cloud_storage/status/([^/]+)/([0-9]+)", self._read_storage),
            ("POST", "/control/faults", self._add_fault),
            ("DELETE", "/control/faults", lambda _: self.server.faults.clear()),
            ("POST", "/control/pace", self._set_pace),
            ("POST", "/control/advance", lambda request: self.server.advance(**json.loads(request.body or b"{}"))),
            ("POST", "/control/restart", lambda request: self.server.restart(**json.loads(request.body or b"{}"))),
            ("POST", "/control/lag", lambda request: self.server.lag(**json.loads(request.body))),
            ("GET", "/control/log", lambda _: migrations.log),
        ]

    def _read_properties(self, request: Request) -> Any:
        defaults = request.query.get("include_defaults", "true") != "false"
        properties = self.cluster.read(defaults=defaults, key=request.query.get("key"))
        return _error(HTTPStatus.BAD_REQUEST, "Unknown property") if properties is None else properties

    def _write_properties(self, request: Request) -> Any:
        document = request.parse(_PROPERTIES)
        is_trial = request.query.get("dry_run") == "true"
        errors = self.cluster.write(document["upsert"], document["remove"], dry_run=is_trial)
        return Answer(HTTPStatus.BAD_REQUEST, errors) if errors else {"config_version": self.cluster.config_version}

    def _start(self, kind: str, document: dict[str, Any]) -> dict[str, int]:
        return {"id": self.server.migrations.create(kind, document["topics"], [], advances=True)}

    def _define(self, request: Request) -> dict[str, int]:
        document = request.parse(_DEFINITION)
        kind = document["migration_type"]
        shapes = {"inbound": _MOUNT_TOPIC, "outbound": _REFERENCE}
        if kind not in shapes or not _conforms(document["topics"], [shapes[kind]]):
            raise RefusedError("schema")
        groups = document["consumer_groups"]
        return {"id": self.server.migrations.create(kind, document["topics"], groups, advances=False)}

    def _read_migration(self, request: Request) -> Any:
        documents = self.server.migrations.read(_number(request))
        if not documents:
            raise RefusedError("unknown")
        return documents[0]

    def _act(self, request: Request) -> None:
        self.server.migrations.act(_number(request), request.query.get("action", ""))

    def _read_storage(self, request: Request) -> Any:
        topic, partition = request.parts[0], int(request.parts[1])
        with wire.BrokerLine(self.server.broker_port) as line:
            bounds = read_bounds(line, topic)
            sizes = _read_sizes(line)
        if partition not in bounds:
            return _error(HTTPStatus.NOT_FOUND, f"Could not find ntp: kafka/{topic}/{partition}")
        topics = self.server.topics
        reads, writes = topics.get(topic, READ) == "true", topics.is_written(topic)
        mode = {(True, True): "full", (True, False): "read_only", (False, True): "write_only"}
        start, end = bounds[partition]
        local = sizes.get((topic, partition), 0)
        return {
            "cloud_storage_mode": mode.get((reads, writes), "disabled"),
            "ms_since_last_manifest_upload": 0, "ms_since_last_segment_upload": 0, "ms_since_last_manifest_sync": 0,
            "metadata_update_pending": False, "total_log_size_bytes": local,
            "cloud_log_size_bytes": local if writes else 0, "local_log_size_bytes": local,
            "cloud_log_segment_count": int(writes), "local_log_segment_count": 1,
            "local_log_start_offset": start, "local_log_last_offset": end - 1,
            **({"cloud_log_start_offset": start, "cloud_log_last_offset": end - 1} if writes else {}),
        }  # fmt: skip

    def _add_fault(self, request: Request) -> None:
        options = json.loads(request.body)
        if not options.keys() <= FIELDS:
            raise RefusedError("schema", f"a fault has {sorted(FIELDS)}")
        self.server.faults.add(**options)

    def _set_pace(self, request: Request) -> None:
        options = json.loads(request.body)
        self.server.faults.pace = options["pace"]
        self.server.faults.polls_per_step = options.get("polls_per_step", 1)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, admin: Admin, node: int) -> None:
        self.admin, self.node = admin, node
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: faults break connections."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener
    error_types: ClassVar = {"Content-Type": "application/json"}

    def parse_request(self) -> bool:
        is_whole = super().parse_request()
        if is_whole:
            setattr(self, f"do_{self.command}", self._respond)
        return is_whole

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        del format, args

    def _respond(self) -> None:
        admin, node = self.server.admin, self.server.node
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.path.startswith("/control/"):
            admin.requests.append((node, self.command, self.path))
            if admin.cluster.nodes[node - 1].down_until > time.monotonic():
                self.close_connection = True
                return
        is_control = self.path.startswith("/control/")
        fault = None if is_control else admin.server.faults.take(self.command, self.path, node)
        answer = _answer_instead(fault, admin.urls, self.path)
        if answer is None:
            answer = admin.answer(self.command, self.path, node, self.headers.get("Authorization"), body)
        if fault is not None and fault.kind == "lost":
            self.close_connection = True
            return
        if fault is not None and fault.kind == "slow":
            time.sleep(fault.seconds)
        if fault is not None and fault.kind == "state" and answer.status == HTTPStatus.OK:
            for document in answer.document if isinstance(answer.document, list) else [answer.document]:
                document["state"] = fault.message
        self._send(answer)

    def _send(self, answer: Answer) -> None:
        content = b"" if answer.document is None else json.dumps(answer.document).encode()
        content = content if answer.text is None else answer.text.encode()
        with suppress(OSError):
            self.send_response_only(answer.status)
            if answer.location is not None:
                self.send_header("Location", answer.location)
            if answer.status == HTTPStatus.UNAUTHORIZED:
                self.send_header("WWW-Authenticate", 'Basic realm="redpanda"')
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)


def _answer_instead(fault: Fault | None, urls: list[str], path: str) -> Answer | None:
    """Return the answer of a fault that keeps a request from being done."""
    if fault is None or fault.kind in {"slow", "lost", "state"}:
        return None
    if fault.kind == "redirect":
        return Answer(HTTPStatus.TEMPORARY_REDIRECT, location=urls[fault.to - 1] + path)
    if fault.kind == "text":
        return Answer(HTTPStatus.OK, text=fault.message)
    return _error(fault.status, fault.message)


def _error(status: int, message: str) -> Answer:
    return Answer(status, {"message": message, "code": int(status)})


def _number(request: Request) -> int:
    if not request.parts[0].isdigit():
        raise RefusedError("action", request.parts[0])
    return int(request.parts[0])


def _conforms(document: Any, shape: Any) -> bool:
    """Whether a document has a shape: a type, a list of one shape, or keys (`?`: may be left out) with shapes."""
    if isinstance(shape, type):
        return isinstance(document, shape)
    if isinstance(shape, list):
        return isinstance(document, list) and all(_conforms(each, shape[0]) for each in document if shape)
    required = {name for name in shape if not name.endswith("?")}
    shapes = {name.removesuffix("?"): each for name, each in shape.items()}
    return (
        isinstance(document, dict)
        and required <= document.keys() <= shapes.keys()
        and all(_conforms(value, shapes[name]) for name, value in document.items())
    )


def _read_sizes(line: wire.BrokerLine) -> dict[tuple[str, int], int]:
    answer = line.ask(wire.REQUESTS[wire.DESCRIBE_LOG_DIRS](topics=None), 2)
    return {
        (topic.name, each.partition_index): each.partition_size
        for result in answer.results
        for topic in result.topics
        for each in topic.partitions
    }
