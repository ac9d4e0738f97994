"""The REST API: login, routes, the forms of answers and errors, and how many requests a second are let through."""

from __future__ import annotations

import base64
import json
import math
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import yaml

from tests.servers.emulation.faults import Fault
from tests.servers.emulation.http_front import Answer, Exchange, HttpFront, answer_html, conforms

if TYPE_CHECKING:
    from tests.servers.confluent.server import Confluent

CONTRACT: Final[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("contract.yaml").read_text())
INVALID, UNKNOWN_TOPIC, UNSUPPORTED, RETRIABLE = 40002, 40403, 40035, 50003
ACCEPTED: Final = Answer(HTTPStatus.NO_CONTENT)
CONFIGS: Final = [{"name": str, "value?": str | None}]
CHANGES: Final = [{"name": str, "value?": str | None, "operation?": str | None}]
_HIDDEN: Final = "hidden"
_TOKENS: Final = "/oauth/token"
_PAIR: Final = ("id", "secret")

Document = dict[str, Any]


class ApiError(Exception):
    """A request that is refused; `code` is in the body, and the status by default."""

    def __init__(self, status: int, message: str, code: int | None = None) -> None:
        self.status, self.code = int(status), code or int(status)
        super().__init__(message)


def refuse(message: str, code: int = INVALID) -> ApiError:
    return ApiError(HTTPStatus.BAD_REQUEST, message, code)


class Request(NamedTuple):
    """A request as the routes see it; `base` is the URL of the cluster."""

    base: str
    query: Mapping[str, str]
    body: bytes

    def read(self, shape: Any) -> Document:
        """Return the body, which must have this shape and no other fields."""
        try:
            document: Document = json.loads(self.body or b"{}")
        except ValueError as error:
            raise refuse(f"Cannot parse the body: {error}", HTTPStatus.BAD_REQUEST) from error
        if not conforms(document, shape):
            raise refuse("Cannot deserialize the body: unknown, missing or mistyped fields", HTTPStatus.BAD_REQUEST)
        return document

    def flag(self, name: str, *, default: bool = False) -> bool:
        text = self.query.get(name, str(default).lower())
        if text not in {"true", "false"}:
            raise refuse(f"Cannot deserialize value of type `boolean` from {text!r}", HTTPStatus.BAD_REQUEST)
        return text == "true"

    def link_to(self, *parts: object) -> str:
        return "/".join([self.base, *(_quote(part) for part in parts)])

    def related(self, *parts: object) -> Document:
        return {"related": self.link_to(*parts)}

    def show(self, kind: str, path: tuple[object, ...], **fields: Any) -> Document:
        return {"kind": kind, "metadata": {"self": self.link_to(*path)}, **fields}

    def show_list(self, kind: str, path: tuple[object, ...], rows: list[Document]) -> Document:
        return {"kind": f"{kind}List", "metadata": {"self": self.link_to(*path), "next": None}, "data": rows}


Route = Callable[..., Any]
"""Takes the request and the variable parts of its path; returns a document or an answer."""


class Api(HttpFront):
    """The listener, and what each path answers."""

    changed: ClassVar = {
        "state": ("mirror_status", "mirror_status"),
        "link_state": ("link_state", "link_state"),
        "task": ("task_name", "task_name"),
        "task_state": ("task_name", "state"),
    }
    realm: ClassVar = "Confluent"

    def __init__(self, server: Confluent, certificate: tuple[Path, Path] | None, client_ca: Path | None) -> None:
        super().__init__(1, server.faults, certificate, client_ca)
        self.server = server
        self._routes: list[tuple[str, re.Pattern[str], set[str], Route]] = []
        self._lock, self._tokens, self._filled = threading.Lock(), 0.0, time.monotonic()
        self.passed: list[tuple[float, str, str]] = []
        self._bases = "/kafka/v3" if server.is_cloud else "/kafka/v3|/v3"
        self.add({"GET": self._list_clusters}, root="/clusters")
        self.add({"GET": self._show_cluster} | ({} if server.is_cloud else {"GET /brokers": self._list_brokers}))

    def add(self, routes: Mapping[str, Route], root: str = "/clusters/{}") -> None:
        """Add routes by method and path below a cluster, such as `GET /topics/{}?include_authorized_operations`."""
        for key, route in routes.items():
            method, _, place = key.partition(" ")
            path, _, names = place.partition("?")
            pattern = re.escape(root + path).replace(re.escape("{}"), "([^/]+)")
            self._routes.append((method, re.compile(pattern), set(filter(None, names.split("&"))), route))

    def show_fault(self, fault: Fault) -> Answer:
        default = RETRIABLE if fault.status == HTTPStatus.SERVICE_UNAVAILABLE else fault.status
        return _show_error(fault.status, int(fault.code or default), fault.message)

    def answer(self, method: str, target: str, authorization: str | None, body: bytes) -> Answer:
        seconds = self._wait_seconds()
        if seconds:
            name = self.server.rate_header
            headers = {name: str(math.ceil(seconds))} if name else {}
            if self.server.rate_is_json:
                return _show_error(HTTPStatus.TOO_MANY_REQUESTS, 429, "Too Many Requests")._replace(headers=headers)
            return answer_html(HTTPStatus.TOO_MANY_REQUESTS, headers)
        self.passed.append((time.monotonic(), method, target))
        if (method, target) == ("POST", _TOKENS):
            return self._issue_token(authorization, body)
        try:
            self._check_login(authorization)
            return self._route(method, target, body)
        except ApiError as error:
            return _show_error(error.status, error.code, str(error))
        except (OSError, TimeoutError) as error:
            return _show_error(HTTPStatus.SERVICE_UNAVAILABLE, RETRIABLE, f"Retriable Kafka error: {error}")

    def _route(self, method: str, target: str, body: bytes) -> Answer:
        url = urlsplit(target)
        base = re.match(self._bases, url.path)
        path = url.path[base.end() :].rstrip("/") if base else ""
        matches = [(row, match) for row in self._routes if base and (match := row[1].fullmatch(path))]
        if not matches:
            raise ApiError(HTTPStatus.NOT_FOUND, "HTTP 404 Not Found")
        found = next(((row, match) for row, match in matches if row[0] == method), None)
        if found is None:
            raise ApiError(HTTPStatus.METHOD_NOT_ALLOWED, "HTTP 405 Method Not Allowed")
        (_, _, names, route), match = found
        query, parts = dict(parse_qsl(url.query, keep_blank_values=True)), [unquote(part) for part in match.groups()]
        if parts and parts[0] != self.server.cluster_id:
            raise ApiError(HTTPStatus.NOT_FOUND, f"Cluster {parts[0]} cannot be found.")
        if unknown := sorted(query.keys() - names):
            raise refuse(f"Unknown query parameter {unknown[0]}", HTTPStatus.BAD_REQUEST)
        prefix = base.group() if base else ""
        request = Request(f"{self.urls[0]}{prefix}/clusters/{self.server.cluster_id}", query, body)
        if method != "GET" and path.startswith(f"/clusters/{self.server.cluster_id}/topics/"):
            self.server.check_right(parts[1])
        result = route(request, *parts[1:])
        answer = result if isinstance(result, Answer) else Answer(HTTPStatus.OK, result)
        return answer._replace(document=_extend(answer.document, self.server.extra)) if self.server.extra else answer

    def _list_clusters(self, request: Request) -> Document:
        shown = request.show_list("KafkaCluster", (), [self._show_cluster(request)])
        shown["metadata"]["self"] = request.base.rpartition("/")[0]
        return shown

    def _show_cluster(self, request: Request) -> Document:
        names = {"acls": "acls", "brokers": "brokers", "broker_configs": "broker-configs", "topics": "topics"}
        names |= {"consumer_groups": "consumer-groups", "partition_reassignments": "topics/-/partitions/-/reassignment"}
        related = {name: {"related": f"{request.base}/{path}"} for name, path in names.items()}
        return request.show("KafkaCluster", (), cluster_id=self.server.cluster_id, **related)

    def _list_brokers(self, request: Request) -> Document:
        rows = []
        for number in range(1, self.server.brokers + 1):
            place, host = ("brokers", number), {"host": "127.0.0.1", "port": self.server.front.ports[0], "rack": None}
            related = {
                name: request.related(*place, name.replace("_", "-")) for name in ("configs", "partition_replicas")
            }
            fields = {"cluster_id": self.server.cluster_id, "broker_id": number, **host, **related}
            rows.append(request.show("KafkaBroker", place, **fields))
        return request.show_list("KafkaBroker", ("brokers",), rows)

    def _issue_token(self, authorization: str | None, body: bytes) -> Answer:
        """Answer as an OAuth server does; clients log in with a key and its secret, as RFC 6749 says."""
        form = dict(parse_qsl(body.decode()))
        basic = _read_basic(authorization)
        key, secret = [unquote(part) for part in basic] if basic else [form.get(f"client_{part}", "") for part in _PAIR]
        if form.get("grant_type") != "client_credentials":
            return Answer(HTTPStatus.BAD_REQUEST, {"error": "unsupported_grant_type"})
        if self.server.keys.get(key) != secret:
            return Answer(HTTPStatus.UNAUTHORIZED, {"error": "invalid_client"})
        token, seconds = secrets.token_hex(32), self.server.token_seconds
        self.server.tokens[token] = time.monotonic() + seconds
        return Answer(HTTPStatus.OK, {"access_token": token, "token_type": "Bearer", "expires_in": int(seconds)})

    def _check_login(self, authorization: str | None) -> None:
        kind, _, login = (authorization or "").partition(" ")
        is_token = kind == "Bearer" and self.server.tokens.get(login, 0.0) > time.monotonic()
        if is_token or not self.server.needs_login:
            return
        key, secret = _read_basic(authorization) or ("", "")
        if self.server.keys.get(key) == secret and key:
            return
        if key in self.server.foreign_keys:
            raise ApiError(HTTPStatus.FORBIDDEN, "Request is not authorized", 40301)
        raise ApiError(HTTPStatus.UNAUTHORIZED, "Authentication failed", 40101)

    def _wait_seconds(self) -> float:
        """Return 0 for a request that may pass, else how long to wait."""
        rate = self.server.rate
        if rate is None:
            return 0.0
        with self._lock:
            now = time.monotonic()
            self._tokens = min(rate, self._tokens + (now - self._filled) * rate)
            self._filled = now
            if self._tokens < 1:
                return (1 - self._tokens) / rate
            self._tokens -= 1
            return 0.0

    def record(self, exchange: Exchange) -> None:
        """Append an exchange to the file of exchanges, without the values of secrets."""
        if self.server.exchanges is None:
            return
        path, _, query = exchange.target.partition("?")
        if path == _TOKENS:
            return
        answer = exchange.answer
        row = {
            "method": exchange.method,
            "path": path,
            "query": query,
            "request_type": exchange.content_type,
            "request": _read_request(path, exchange.body),
            "status": answer.status,
            "answer_type": answer.headers.get("Content-Type", "application/json"),
            "answer": answer.document if answer.text is None else answer.text,
            "fault": exchange.fault,
        }
        text = json.dumps(row)
        for server in [*self.server.network.servers.values()]:
            for secret in (*server.keys.values(), *server.tokens):
                text = text.replace(secret, _HIDDEN)
        with self._lock, self.server.exchanges.open("a") as file:
            file.write(text + "\n")


def _read_request(path: str, body: bytes) -> Any:
    """Return a body without secrets; one that is not JSON is left out."""
    try:
        document = json.loads(body) if body else None
    except ValueError:
        return None
    if isinstance(document, dict) and "value" in document and _is_secret(path.rpartition("/")[2]):
        return document | {"value": _HIDDEN}
    return _hide(document)


def _read_basic(authorization: str | None) -> tuple[str, str] | None:
    kind, _, login = (authorization or "").partition(" ")
    try:
        key, _, secret = base64.b64decode(login).decode().partition(":")
    except ValueError:
        return None
    return (key, secret) if kind == "Basic" else None


def _extend(document: Any, extra: Document) -> Any:
    """Add fields to every object of an answer."""
    if isinstance(document, list):
        return [_extend(row, extra) for row in document]
    if isinstance(document, dict):
        return {name: _extend(value, extra) for name, value in document.items()} | extra
    return document


@lru_cache(maxsize=1 << 16)
def _quote(part: object) -> str:
    return quote(str(part), safe=":")


def _is_secret(name: str) -> bool:
    return name.removeprefix("local.") in CONTRACT["secrets"] or "password" in name


def _hide(document: Any) -> Any:
    if isinstance(document, list):
        return [_hide(row) for row in document]
    if isinstance(document, dict):
        is_hidden = _is_secret(str(document.get("name", ""))) and document.get("value") is not None
        return {name: _hide(value) for name, value in document.items()} | ({"value": _HIDDEN} if is_hidden else {})
    return document


def _show_error(status: int, code: int, message: str) -> Answer:
    return Answer(status, {"error_code": code, "message": message})
