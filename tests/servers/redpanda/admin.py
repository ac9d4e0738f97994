"""The Admin API: one HTTP listener for each node."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from tests.servers.emulation.faults import Fault
from tests.servers.emulation.http_front import Answer, HttpFront, conforms
from tests.servers.emulation.logs import read_bounds
from tests.servers.emulation.wire import BrokerConnection
from tests.servers.redpanda.cluster import load_table
from tests.servers.redpanda.link_options import ConnectError
from tests.servers.redpanda.migrations import RefusedError
from tests.servers.redpanda.topics import READ, REPLICA_BUCKET

if TYPE_CHECKING:
    from tests.servers.redpanda.server import Redpanda

_OPEN_PATHS: Final = ("/v1/status/ready", "/v1/cluster_config/schema", "/v1/cluster/uuid", "/control/")
_LINKS: Final = "/redpanda.core.admin.v2.ShadowLinkService/"
_REFERENCE: Final = {"topic": str, "ns?": str}
_TOPICS: Final = {
    "outbound": [_REFERENCE],
    "inbound": [{"source_topic_reference": _REFERENCE, "alias?": _REFERENCE}],
}
_DEFINITION: Final = {"migration_type": str, "topics": list, "consumer_groups": [str]}


class Request(NamedTuple):
    """A request as the routes see it; `part` is the first variable part of its path, `last` the last."""

    query: dict[str, str]
    body: bytes
    part: str
    last: str

    def parse(self, shape: Any) -> Any:
        """Return the JSON body, which must have this shape and no other keys."""
        try:
            document = json.loads(self.body)
        except ValueError as error:
            raise RefusedError("json", str(error)) from error
        if not conforms(document, shape):
            raise RefusedError("schema")
        return document

    def number(self) -> int:
        if not self.part.isdigit():
            raise RefusedError("action", self.part)
        return int(self.part)


Route = Callable[[Request], Any]


class Admin(HttpFront):
    """The listeners, and what each path answers."""

    changed: ClassVar = {"state": ("state", "state"), "task": ("brokerId", "name")}
    realm = "redpanda"

    def __init__(self, server: Redpanda, certificate: tuple[Path, Path] | None, client_ca: Path | None) -> None:
        super().__init__(len(server.cluster.nodes), server.faults, certificate, client_ca)
        self.server, self.cluster = server, server.cluster
        rows = self._list_routes().items()
        self._routes = [(method, re.compile(f"{path}/?"), route) for (method, path), route in rows]

    def show_fault(self, fault: Fault) -> Answer:
        if fault.code:
            return _connect_error(ConnectError(fault.code, fault.message))
        return _error(fault.status, fault.message)

    def is_down(self, node: int) -> bool:
        return self.cluster.nodes[node - 1].down_until > time.monotonic()

    def _add_fault(self, request: Request) -> None:
        self.server.faults.add(**json.loads(request.body))

    def answer(self, method: str, target: str, authorization: str | None, body: bytes) -> Answer:
        login = base64.b64encode(f"{self.server.user}:{self.server.password}".encode()).decode()
        path, query = urlsplit(target).path, dict(parse_qsl(urlsplit(target).query))
        if not path.startswith(_OPEN_PATHS) and authorization != f"Basic {login}":
            is_connect = path.startswith(_LINKS)
            error = _error(HTTPStatus.UNAUTHORIZED, "Unauthorized")
            return _connect_error(ConnectError("unauthenticated", "Unauthenticated")) if is_connect else error
        for wanted, pattern, route in self._routes:
            if wanted == method and (match := pattern.fullmatch(path)):
                parts = match.groups() or ("",)
                try:
                    result = route(Request(query, body, parts[0], parts[-1]))
                except ConnectError as error:
                    return _connect_error(error)
                except RefusedError as error:
                    words = self.server.words or ("old" if self.server.migrations.is_old else "new")
                    return _error(error.row[words], str(error))
                return result if isinstance(result, Answer) else Answer(HTTPStatus.OK, result)
        return _error(HTTPStatus.NOT_FOUND, "Not found")

    def _list_routes(self) -> dict[tuple[str, str], Route]:
        server, cluster, migrations = self.server, self.cluster, self.server.migrations
        return {
            ("GET", "/v1/brokers"): lambda _: cluster.describe_nodes(),
            ("GET", "/v1/cluster/uuid"): lambda _: {"cluster_uuid": cluster.uuid},
            ("GET", "/v1/status/ready"): lambda _: {"status": "ready"},
            ("GET", "/v1/features"): lambda _: cluster.describe_features(),
            ("GET", "/v1/features/license"): lambda _: cluster.describe_license(),
            ("GET", "/v1/features/enterprise"): lambda _: cluster.describe_enterprise(),
            ("GET", "/v1/cluster_config"): self._read_properties,
            ("PUT", "/v1/cluster_config"): self._write_properties,
            ("GET", "/v1/cluster_config/schema"): lambda _: cluster.describe_schema(),
            ("GET", "/v1/cluster_config/status"): lambda _: cluster.read_status(),
            ("GET", "/v1/topics/mountable"): lambda _: migrations.list_mountable(),
            ("POST", "/v1/topics/mount"): lambda request: self._start("inbound", request),
            ("POST", "/v1/topics/unmount"): lambda request: self._start("outbound", request),
            ("GET", "/v1/migrations"): lambda _: migrations.read(),
            ("PUT", "/v1/migrations"): self._define,
            ("GET", "/v1/migrations/([^/]+)"): lambda request: migrations.read(request.number())[0],
            ("POST", "/v1/migrations/([^/]+)"): lambda request: migrations.act(
                request.number(), request.query.get("action", "")
            ),
            ("DELETE", "/v1/migrations/([^/]+)"): lambda request: migrations.delete(request.number()),
            ("POST", "/v1/cloud_storage/topic_recovery"): self._recover(server.recoveries.start_recovery),
            ("GET", "/v1/cloud_storage/topic_recovery"): lambda request: server.recoveries.describe_recovery(
                extended=request.query.get("extended") == "true"
            ),
            ("POST", "/v1/cloud_storage/automated_recovery"): self._recover(server.recoveries.start_restore),
            ("GET", "/v1/cloud_storage/automated_recovery"): lambda _: server.recoveries.describe_restore(),
            ("GET", "/v1/cloud_storage/lifecycle"): lambda _: {"markers": []},
            ("GET", "/v1/cloud_storage/status/([^/]+)/([0-9]+)"): self._read_storage,
            ("POST", f"{_LINKS}([A-Za-z]+)"): self._call_links,
            ("POST", "/control/faults"): self._add_fault,
            ("DELETE", "/control/faults"): lambda _: server.faults.clear(),
            ("POST", "/control/pace"): lambda request: vars(server.faults).update(json.loads(request.body)),
            ("POST", "/control/(advance|restart|lag)"): lambda request: getattr(server, request.part)(
                **json.loads(request.body or b"{}")
            ),
            ("GET", "/control/log"): lambda _: server.log,
        }

    def _read_properties(self, request: Request) -> Any:
        defaults = request.query.get("include_defaults", "true") != "false"
        properties = self.cluster.read(defaults=defaults, key=request.query.get("key"))
        return _error(HTTPStatus.BAD_REQUEST, "Unknown property") if properties is None else properties

    def _write_properties(self, request: Request) -> Any:
        document = request.parse({"upsert": dict, "remove": [str]})
        errors = self.cluster.write(**document, dry_run=request.query.get("dry_run") == "true")
        return Answer(HTTPStatus.BAD_REQUEST, errors) if errors else {"config_version": self.cluster.config_version}

    def _start(self, kind: str, request: Request) -> dict[str, int]:
        topics = request.parse({"topics": _TOPICS[kind]})["topics"]
        return {"id": self.server.migrations.create(kind, topics, [], advances=True)}

    def _define(self, request: Request) -> dict[str, int]:
        kind, topics, groups = (request.parse(_DEFINITION)[name] for name in _DEFINITION)
        if kind not in _TOPICS or not conforms(topics, _TOPICS[kind]):
            raise RefusedError("schema")
        return {"id": self.server.migrations.create(kind, topics, groups, advances=False)}

    def _recover(self, start: Callable[[Any], tuple[int, str]]) -> Route:
        """Return the route that starts a recovery, which needs no body."""

        def answer(request: Request) -> Answer:
            if not self.cluster.is_licensed:
                raise RefusedError("feature")
            status, message = start(json.loads(request.body or b"{}"))
            return Answer(status, {"status": message}) if status == HTTPStatus.ACCEPTED else _error(status, message)

        return answer

    def _call_links(self, request: Request) -> Any:
        links = self.server.links
        if not links.is_offered or not hasattr(links, f"_{request.part}"):
            return _error(HTTPStatus.NOT_FOUND, "Not found")
        try:
            document = json.loads(request.body)
        except ValueError as error:
            raise ConnectError("invalid_argument", "invalid request input") from error
        return links.call(request.part, document)

    def _read_storage(self, request: Request) -> Any:
        topic, partition = request.part, int(request.last)
        topics = self.server.topics
        with BrokerConnection(self.server.broker_port) as broker:
            bounds = read_bounds(broker, topic)
            results = broker.ask("DescribeLogDirs", 2, topics=None).results
        if partition not in bounds:
            return _error(HTTPStatus.NOT_FOUND, f"{{kafka/{topic}/{partition}}} could not be found on the node.")
        start, end = bounds[partition]
        rows = [row for result in results for each in result.topics if each.name == topic for row in each.partitions]
        size = sum(row.partition_size for row in rows if row.partition_index == partition)
        is_tiered = self.cluster.is_tiered
        writes, reads = is_tiered and topics.is_written(topic), is_tiered and topics.get(topic, READ) == "true"
        is_replica = bool(topics.get(topic, REPLICA_BUCKET))
        mode = "read_replica" if is_replica else load_table("answers.yaml")["storage_modes"][f"{reads}{writes}"]
        status = {
            "cloud_storage_mode": mode,
            "metadata_update_pending": False,
            "total_log_size_bytes": size,
            "archive_size_bytes": 0,
            **dict.fromkeys(("cloud_log_size_bytes", "stm_region_size_bytes"), size * writes),
            "local_log_size_bytes": size,
            **dict.fromkeys(("cloud_log_segment_count", "stm_region_segment_count"), int(writes and end > start)),
            "local_log_segment_count": 1,
        }
        if writes:
            status |= {"ms_since_last_manifest_upload": 0, "ms_since_last_segment_upload": 0}
        if end > start:
            status |= {"local_log_start_offset": start, "local_log_last_offset": end - 1}
        if end > start and writes:
            status |= {"cloud_log_start_offset": start, "stm_region_start_offset": start}
            status["cloud_log_last_offset"] = end - 1
        return status


def _connect_error(error: ConnectError) -> Answer:
    return Answer(error.status, {"code": error.code, "message": str(error)})


def _error(status: int, message: str) -> Answer:
    return Answer(status, {"message": message, "code": int(status)})
