"""Cluster links by REST: creation, configs, tasks and deletion."""

from __future__ import annotations

import base64
import json
import re
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from tests.servers.confluent.api import ACCEPTED, CHANGES, CONFIGS, CONTRACT, ApiError, Document, Request, Route, refuse
from tests.servers.confluent.topics import read_changes
from tests.servers.emulation.http_front import Answer
from tests.servers.emulation.reader import ClusterReader

if TYPE_CHECKING:
    from tests.servers.confluent.mirrors import Mirror
    from tests.servers.confluent.server import Confluent

_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,200}")
_PREFIX: Final = re.compile(r"[a-zA-Z0-9._-]{0,12}")
_LOGIN: Final = re.compile(r'(username|password)="([^"]*)"')
_CLIENT: Final = CONTRACT["client_configs"]
_DEFAULTS: Final[dict[str, str | None]] = {
    **CONTRACT["link_configs"],
    **_CLIENT,
    **{f"local.{name}": value for name, value in _CLIENT.items()},
}
_IDS: Final = {
    "DESTINATION": "source_cluster_id",
    "SOURCE": "destination_cluster_id",
    "BIDIRECTIONAL": "remote_cluster_id",
}
"""By mode, the field that names the other cluster."""
_UNRESOLVED: Final = "Unable to resolve cluster link information"
_ACL_FILTERS: Final = (
    "ACL migration is enabled but acl.filters is not set. Please set acl.filters to proceed with ACL migration."
)
PREFIX, PAUSED, MODE, DIRECTION = "cluster.link.prefix", "cluster.link.paused", "link.mode", "connection.mode"
INCLUDE, AUTO_CREATE = "topic.config.sync.include", "auto.create.mirror.topics.enable"


@dataclass
class Link:
    """A link, or this cluster's half of it; `remote` is the id of the other cluster."""

    name: str
    remote: str
    configs: dict[str, str]
    id: str
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: float = field(default_factory=time.monotonic)
    mirrors: dict[str, Mirror] = field(default_factory=dict)
    state: str = "ACTIVE"
    error: str = "NO_ERROR"
    message: str | None = None
    task_errors: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Code and message by task."""
    deleted: float | None = None

    def get(self, name: str) -> str:
        return self.configs.get(name, _DEFAULTS[name]) or ""

    def is_on(self, name: str) -> bool:
        return self.get(name) == "true"

    def read_filters(self, feature: str) -> list[Document]:
        """Return the rows of a feature's filters; `feature` is the config that switches it on."""
        document = json.loads(self.get(CONTRACT["filters"][feature]) or "{}")
        rows: list[Document] = next(iter(document.values()), [])
        return rows

    def list_synced(self, *, is_cloud: bool) -> list[str]:
        """Return the topic configs that mirrors take over."""
        chosen = [name.strip() for name in self.get(INCLUDE).split(",") if name.strip()]
        names = chosen or [*CONTRACT["always"], *CONTRACT["by_default"]]
        never = (*CONTRACT["never"], *(CONTRACT["never_on_cloud"] if is_cloud else ()))
        return [name for name in names if not name.startswith(never)]


class Links:
    """The links of a cluster."""

    def __init__(self, server: Confluent) -> None:
        self.server = server
        self.rows: dict[str, Link] = {}

    def list_routes(self) -> dict[str, Route]:
        return {
            "GET /links": lambda request: request.show_list(
                "KafkaLinkData", ("links",), [self._show(request, link) for _, link in sorted(self.rows.items())]
            ),
            "POST /links?link_name&validate_only&validate_link": self._create,
            "GET /links/{}?include_tasks": lambda request, name: self._show(request, self.find(name)),
            "DELETE /links/{}?force&validate_only": self._delete,
            "GET /links/{}/configs": lambda request, name: request.show_list(
                "KafkaLinkConfigData", ("links", name, "configs"), self._show_configs(request, self.find(name))
            ),
            "GET /links/{}/configs/{}": self._find_config,
            "PUT /links/{}/configs/{}": lambda request, name, key: self._change(
                name, {key: request.read({"value": str})["value"]}
            ),
            "DELETE /links/{}/configs/{}": lambda _, name, key: self._change(name, {key: None}),
            "PUT /links/{}/configs:alter?validate_only": lambda request, name: self._change(
                name, read_changes(request.read({"data": CHANGES})["data"]), is_trial=request.flag("validate_only")
            ),
        }

    def find(self, name: str) -> Link:
        if name not in self.rows:
            raise ApiError(HTTPStatus.NOT_FOUND, f"Cluster link '{name}' does not exist.")
        if time.monotonic() - self.rows[name].created < self.server.settle_seconds:
            raise ApiError(HTTPStatus.NOT_FOUND, _UNRESOLVED)
        return self.rows[name]

    def find_peer(self, link: Link) -> tuple[Confluent, Link] | None:
        """Return the other cluster and its half of a link, if it is in the network and has one."""
        other = self.server.network.servers.get(link.remote)
        half = other.links.rows.get(link.name) if other else None
        return (other, half) if other and half and half.remote == self.server.cluster_id else None

    def open(self, link: Link, names: Iterable[str] | None = None) -> ClusterReader:
        """Connect to the other cluster, and read the topics with these names, all by default.

        Raises:
            OSError: It does not answer, refuses the login, or is another cluster.
        """
        if link.get(DIRECTION) == "INBOUND":
            peer = self.find_peer(link)
            if peer is None or peer[1].get(DIRECTION) != "OUTBOUND":
                raise ConnectionError(f"the other half of cluster link {link.name} does not connect")
            return peer[0].read_own(names)
        reader = ClusterReader(self._read_client(link), names)
        if reader.cluster_id != link.remote:
            reader.close()
            raise ConnectionError(f"Unexpected cluster id {reader.cluster_id} instead of {link.remote}")
        return reader

    def _read_client(self, link: Link) -> Document:
        """Return the options of a reader. Clusters of the network speak no TLS, whatever the protocol says."""
        servers, protocol = link.get("bootstrap.servers").split(","), link.get("security.protocol")
        options: Document = {"bootstrapServers": servers}
        if protocol.endswith("SSL") and not {one.kafka for one in self.server.network.servers.values()} & {*servers}:
            ca = link.get("ssl.truststore.certificates")
            options["tlsSettings"] = {"enabled": True, "tlsPemSettings": {"ca": ca}}
        if protocol.startswith("SASL"):
            mechanism, login = link.get("sasl.mechanism"), dict(_LOGIN.findall(link.get("sasl.jaas.config")))
            kind = "plainConfiguration" if mechanism == "PLAIN" else "scramConfiguration"
            login = {"username": "", "password": "", **login}
            scram = {"scramMechanism": f"SCRAM_MECHANISM_{mechanism.replace('-', '_')}"}
            options["authenticationConfiguration"] = {kind: {**login, **scram}}
        return options

    def _create(self, request: Request) -> Answer:
        server, ids = self.server, dict.fromkeys((f"{field}?" for field in _IDS.values()), str)
        document = request.read({**ids, "cluster_link_id?": str, "configs?": CONFIGS})
        name = request.query.get("link_name", "")
        configs = {row["name"]: row["value"] for row in document.get("configs", []) if row.get("value") is not None}
        if not _NAME.fullmatch(name):
            raise refuse("Invalid Cluster Link Name.", HTTPStatus.BAD_REQUEST)
        mode = configs.get(MODE, "DESTINATION")
        if mode not in server.limits["links"]:
            raise refuse("Cluster linking is disabled in this cluster" if mode in _IDS else f"Invalid link.mode {mode}")
        if [field for field in _IDS.values() if field in document] != [_IDS[mode]]:
            raise refuse(f"A link of mode {mode} needs {_IDS[mode]}, and no id of another field")
        link = Link(name, document[_IDS[mode]], {}, base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
        if link.remote == server.cluster_id:
            raise refuse("A cluster cannot be linked to itself")
        with server.network.lock:
            if name in self.rows:
                message = "A cluster link already exists with the provided link name"
                raise ApiError(HTTPStatus.CONFLICT, message, 40902)
            self._check(link, {}, configs)
            link.configs = configs
            self._check_halves(link, document.get("cluster_link_id"))
            if request.flag("validate_link", default=True) and link.get(DIRECTION) == "OUTBOUND":
                try:
                    self.open(link, []).close()
                except OSError as error:
                    raise refuse(f"Unable to validate cluster link due to error: {error}") from error
            if not request.flag("validate_only"):
                self.rows[name] = link
        return Answer(HTTPStatus.CREATED, {}) if server.is_cloud else ACCEPTED

    def _check(self, link: Link, old: Mapping[str, str], configs: Mapping[str, str]) -> None:
        """Raise an error for configs that a link may not have; `old`: those that it has had."""
        changed = {name for name in {*configs, *old} if configs.get(name) != old.get(name)}
        if unknown := sorted(changed - _DEFAULTS.keys()):
            raise refuse(f"Unknown cluster link config {unknown[0]}")
        if refused := sorted(changed & self._list_read_only()):
            raise refuse(f"Cluster link config {refused[0]} cannot be set on this cluster")
        trial = Link(link.name, link.remote, dict(configs), link.id)
        mode, prefix = trial.get(MODE), trial.get(PREFIX)
        if (trial.get(DIRECTION) == "OUTBOUND") != bool(trial.get("bootstrap.servers")):
            raise refuse("bootstrap.servers is required for OUTBOUND connections, and for no others")
        if mode == "SOURCE" and trial.get(DIRECTION) == "INBOUND":
            raise refuse("A link of mode SOURCE needs connection.mode OUTBOUND")
        if not _PREFIX.fullmatch(prefix):
            raise refuse(f"Invalid cluster.link.prefix {prefix!r}: at most 12 of a-z, A-Z, 0-9, '.', '_' and '-'")
        if prefix and trial.is_on("acl.sync.enable"):
            raise refuse("Invalid configuration: cluster.link.prefix and acl.sync.enable exclude each other")
        if prefix and any(row.get(PREFIX) == prefix for row in self.rows.values() if row.name != link.name):
            raise refuse(f"Cluster link prefix {prefix} already exists")
        if mode == "BIDIRECTIONAL" and trial.is_on("consumer.group.prefix.enable"):
            raise refuse("Invalid configuration: consumer.group.prefix.enable on a bidirectional link")
        self._check_values(trial)

    def _check_values(self, link: Link) -> None:
        for name, least in CONTRACT["minimums"].items():
            if not link.get(name).isdigit() or int(link.get(name)) < least:
                raise refuse(f"Invalid value {link.get(name)} for {name}: must be at least {least}")
        for feature, filters in CONTRACT["filters"].items():
            try:
                rows = link.read_filters(feature)
            except (ValueError, AttributeError) as error:
                raise refuse(f"Invalid value for {filters}: {error}") from error
            if link.is_on(feature) and not rows and feature != "acl.sync.enable":
                raise refuse(f"{filters} is required when {feature} is true")
        missing = [name for name in CONTRACT["always"] if name not in link.get(INCLUDE)]
        if link.get(INCLUDE) and missing:
            raise refuse(f"{INCLUDE} must include {missing[0]}")

    def _check_halves(self, link: Link, wanted: str | None) -> None:
        """Give a second half the id of the first one, which the half at the destination has to be."""
        peer = self.find_peer(link)
        is_found = peer is not None and time.monotonic() - peer[1].created >= self.server.settle_seconds
        if link.get(MODE) == "SOURCE" and not is_found:
            raise refuse(f"The destination cluster does not have a link named {link.name}", HTTPStatus.BAD_REQUEST)
        if wanted is not None and (peer is None or peer[1].id != wanted):
            raise refuse(f"Unexpected cluster link id {wanted}")
        link.id = peer[1].id if peer and link.get(MODE) != "DESTINATION" else link.id

    def _list_read_only(self) -> set[str]:
        names = [*CONTRACT["link_read_only"]]
        if self.server.is_cloud:
            names += [*CONTRACT["link_read_only_on_cloud"], *CONTRACT["only_on_platform"]]
        return {*names}

    def _change(self, name: str, changes: Mapping[str, str | None], *, is_trial: bool = False) -> Answer:
        with self.server.network.lock:
            link = self.find(name)
            configs = {key: value for key, value in {**link.configs, **changes}.items() if value is not None}
            if fixed := [key for key in CONTRACT["fixed"] if link.configs.get(key) != configs.get(key)]:
                raise refuse(f"Cluster link config {fixed[0]} cannot be changed")
            for feature, filters in CONTRACT["filters"].items():
                if link.is_on(feature) and configs.get(feature, "false") != "true":
                    configs.pop(filters, None)  # A feature that is switched off clears its filters.
            self._check(link, link.configs, configs)
            link.configs = link.configs if is_trial else configs
        return ACCEPTED

    def _delete(self, request: Request, name: str) -> Answer:
        with self.server.network.lock:
            link = self.find(name)
            active = [mirror.name for mirror in link.mirrors.values() if mirror.state != "STOPPED"]
            if active and not request.flag("force"):
                raise ApiError(HTTPStatus.FORBIDDEN, f"Cluster link '{name}' is in use by topics: {sorted(active)}")
            if not request.flag("validate_only"):
                link.deleted = time.monotonic()
                link.mirrors.clear()
                self.server.mirrors.publish()
                self.remove_deleted()
        return Answer(HTTPStatus.OK) if self.server.is_cloud else ACCEPTED

    def remove_deleted(self) -> None:
        """Remove the links that were deleted long enough ago."""
        now, seconds = time.monotonic(), self.server.settle_seconds
        for link in [row for row in self.rows.values() if row.deleted is not None and now - row.deleted >= seconds]:
            del self.rows[link.name]

    def _show(self, request: Request, link: Link) -> Document:
        ids = {**dict.fromkeys(_IDS.values()), _IDS[link.get(MODE)]: link.remote}
        counts = Counter(_category(mirror.read_status(link)) for mirror in link.mirrors.values())
        fields: Document = {"tasks": self._show_tasks(link)} if request.query.get("include_tasks") == "true" else {}
        return request.show(
            "KafkaLinkData",
            ("links", link.name),
            **ids,
            link_name=link.name,
            link_id=link.uid,
            cluster_link_id=link.id,
            topic_names=sorted(link.mirrors),
            link_state=link.state,
            link_error=link.error,
            link_error_message=link.message,
            category_counts=[{"state_category": name, "count": count} for name, count in sorted(counts.items())],
            **fields,
        )

    def _show_tasks(self, link: Link) -> list[Document]:
        tasks = []
        for name, feature in CONTRACT["tasks"].items():
            errors = {name: link.task_errors[name]} if name in link.task_errors else {}
            if name == "AclSync" and link.is_on(feature) and not link.read_filters(feature):
                errors[name] = ("MISCONFIGURATION_ERROR", _ACL_FILTERS)
            state = "ACTIVE" if link.state == "ACTIVE" else f"LINK_{link.state}"
            state = "IN_ERROR" if errors and state == "ACTIVE" else state
            if link.get(MODE) == "SOURCE" or (feature and not link.is_on(feature)):
                state, errors = "NOT_CONFIGURED", {}
            rows = [{"error_code": code, "error_message": message} for code, message in errors.values()]
            tasks.append({"task_name": name, "state": state, "errors": rows})
        return tasks

    def _show_configs(self, request: Request, link: Link) -> list[Document]:
        read_only = self._list_read_only()
        hidden = CONTRACT["only_on_platform"] if self.server.is_cloud else ()
        rows = []
        for name in sorted(_DEFAULTS.keys() - {*hidden}):
            is_secret = name.removeprefix("local.") in CONTRACT["secrets"]
            value = link.configs.get(PREFIX if name == "link.prefix" else name, _DEFAULTS[name])
            source = "DYNAMIC_CLUSTER_LINK_CONFIG" if name in link.configs else "DEFAULT_CONFIG"
            fields: Document = {"is_read_only": name in read_only, "is_sensitive": is_secret}
            fields["is_default"] = name not in link.configs
            fields |= {"cluster_id": self.server.cluster_id, "link_name": link.name, "name": name, "source": source}
            place = ("links", link.name, "configs", name)
            value = None if is_secret else value
            rows.append(request.show("KafkaLinkConfigData", place, **fields, value=value, synonyms=[]))
        return rows

    def _find_config(self, request: Request, name: str, key: str) -> Document:
        rows = [row for row in self._show_configs(request, self.find(name)) if row["name"] == key]
        if not rows:
            raise refuse("Invalid Config Name.", HTTPStatus.BAD_REQUEST)
        return rows[0]


def _category(status: str) -> str:
    if status.startswith("PENDING_"):
        return "PENDING"
    categories = {"ACTIVE": "ACTIVE", "PAUSED": "PAUSED", "LINK_PAUSED": "PAUSED", "STOPPED": "NOT_APPLICABLE"}
    return categories.get(status, "IN_ERROR")
