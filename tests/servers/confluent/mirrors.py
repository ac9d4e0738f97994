"""Mirror topics by REST: creation, lists with lags, and the verbs, by the table of states in `contract.yaml`."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from tests.servers.confluent.api import (
    ACCEPTED,
    CONFIGS,
    CONTRACT,
    UNKNOWN_TOPIC,
    UNSUPPORTED,
    ApiError,
    Document,
    Request,
    Route,
    refuse,
)
from tests.servers.confluent.links import AUTO_CREATE, MODE, PAUSED, PREFIX, Link
from tests.servers.emulation.http_front import Answer
from tests.servers.emulation.logs import create_topic, read_bounds
from tests.servers.emulation.reader import EARLIEST, LATEST, ClusterReader, Partition

if TYPE_CHECKING:
    from tests.servers.confluent.server import Confluent

MIRROR: Final = "MIRROR"
"""The method of faults of mirrors. `refused`, with `status`, `code` and `message`, has the path `VERB/TOPIC/` and is
the error of a topic in a batch. `hangs`, with `code` and `message`, has the path `TOPIC/STATE/` and keeps it in a
pending state; each look of the thread uses it once."""
RESTORE: Final = "truncate-and-restore"
_LONGEST: Final = 249
_LEADER_SECONDS: Final = 10.0
_ALTER: Final = {"mirror_topic_names?": [str], "mirror_topic_name_pattern?": str}


@dataclass
class Mirror:
    """A mirror topic, or what a link remembers of one."""

    name: str
    source: str
    state: str = "ACTIVE"
    since: float = field(default_factory=time.time)
    created: float = field(default_factory=time.time)
    looked: float = 0.0
    """When the lags were read."""
    error: str = "NO_ERROR"
    errors: list[Document] = field(default_factory=list)
    """Why a transition is not done."""
    lags: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By partition: records that are missing, and the last offset that was fetched."""
    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    """Where the log ended when mirroring stopped."""
    cuts: dict[int, int] = field(default_factory=dict)
    """Where a restore truncates the log."""
    reversal: str = ""
    """The state that the source gets once this mirror has taken its place."""
    source_id: str = ""
    missing: float | None = None
    """Since when the source topic is missing."""
    given: dict[str, str | None] = field(default_factory=dict)
    configs: dict[str, str] = field(default_factory=dict)
    is_new: bool = True
    """Whether the first records are not copied yet."""

    @property
    def lag(self) -> int:
        return sum(lag for lag, _ in self.lags.values())

    def move(self, state: str) -> None:
        self.state, self.since, self.errors = state, time.time(), []

    def read_status(self, link: Link) -> str:
        """Return the state as it is reported: that of the link comes before its own."""
        if self.state not in {"ACTIVE", "PAUSED"}:
            return self.state
        if link.state in {"FAILED", "PAUSED"}:
            return f"LINK_{link.state}"
        return "SOURCE_UNAVAILABLE" if link.state == "UNAVAILABLE" and self.state == "ACTIVE" else self.state


class Mirrors:
    """The mirror topics of a cluster."""

    def __init__(self, server: Confluent) -> None:
        self.server = server

    def list_routes(self) -> dict[str, Route]:
        verbs = {
            f"POST /links/{{}}/mirrors:{verb}?validate_only": lambda request, name, verb=verb: self._alter(
                request, name, verb
            )
            for verb in CONTRACT["verbs"]
        }
        return {
            "GET /links/-/mirrors?mirror_status": lambda request: self._list(
                request, "-", list(self.server.links.rows.values())
            ),
            "GET /links/{}/mirrors?mirror_status": lambda request, name: self._list(
                request, name, [self.server.links.find(name)]
            ),
            "POST /links/{}/mirrors": self._create,
            "GET /links/{}/mirrors/{}?include_state_transition_errors": self._get,
            f"POST /links/{{}}/mirrors:{RESTORE}?validate_only&include_partition_level_truncation_data": (
                lambda request, name: self._alter(request, name, RESTORE)
            ),
            **verbs,
        }

    # What other parts of the cluster ask

    def list_all(self) -> list[tuple[Link, Mirror]]:
        return [(link, mirror) for link in self.server.links.rows.values() for mirror in link.mirrors.values()]

    def publish(self) -> None:
        """Tell the Kafka API which topics are read-only from now on."""
        self.server.front.read_only = {mirror.name for _, mirror in self.list_all() if mirror.state != "STOPPED"}

    def drop(self, name: str) -> None:
        """Forget a topic that was deleted."""
        for link, mirror in self.list_all():
            if mirror.name == name:
                del link.mirrors[name]
        self.publish()

    def check_configs(self, name: str, changes: Mapping[str, str | None]) -> None:
        for link, mirror in self.list_all():
            synced = {*changes} & {*link.list_synced(is_cloud=self.server.is_cloud)}
            if mirror.name == name and mirror.state != "STOPPED" and synced:
                raise refuse(f"Cannot set configuration {min(synced)} for mirror topic '{name}'")

    def check_partitions(self, name: str) -> None:
        if name in self.server.front.read_only:
            raise refuse(f"Cannot change the number of partitions of mirror topic '{name}'")

    def check_deletion(self, name: str) -> None:
        for link, mirror in self.list_all():
            status = mirror.read_status(link)
            if mirror.name == name and status not in CONTRACT["deletable"]:
                raise refuse(f"Mirror topic '{name}' is {status} and cannot be deleted")
            is_selected = link.is_on(AUTO_CREATE) and selects(mirror.source, link.read_filters(AUTO_CREATE))
            if mirror.name == name and is_selected and status not in {"FAILED", "STOPPED"}:
                raise refuse(f"Mirror topic '{name}' matches the filters of auto-create and cannot be deleted")

    def create(self, link: Link, source: ClusterReader, topic: str, configs: Mapping[str, str | None]) -> None:
        """Create a mirror of a topic that exists at the source; to be called under the lock."""
        row = source.topics[topic]
        name = link.get(PREFIX) + topic
        mirror = Mirror(name, topic, source_id=row.id, given=dict(configs))
        keys = [(topic, number) for number in row.leaders]
        ends, spec = _list_offsets(source, keys, LATEST), link.get("mirror.start.offset.spec")
        starts = ends if spec == "latest" else {}
        if spec not in {"latest", "earliest"}:
            moment = int(dt.datetime.fromisoformat(spec).timestamp() * 1000)
            offsets = _list_offsets(source, keys, moment)
            starts = {key: offset if offset >= 0 else ends[key] for key, offset in offsets.items()}
        mirror.starts = {number: offset for (_, number), offset in starts.items()}
        firsts = _list_offsets(source, keys, EARLIEST) | starts
        mirror.lags = {number: (ends[topic, number] - firsts[topic, number], -1) for _, number in keys}
        with self.server.connect() as broker:
            create_topic(broker, name, len(row.leaders))
        self.server.topics.factors[name] = self.server.brokers
        link.mirrors[name] = mirror
        self.publish()

    def stop(self, mirror: Mirror) -> None:
        """End mirroring for good."""
        with self.server.connect() as broker:
            mirror.ends = {number: end for number, (_, end) in read_bounds(broker, mirror.name).items()}
        mirror.reversal = ""
        mirror.move("STOPPED")
        self.publish()

    def adopt(self, link: str, names: list[str]) -> None:
        """Make mirrors of equal topics of both clusters, faster than by creating them one by one."""
        while len(rows := self.server.topics.read(names)) < len(names):
            pass  # The controller answers before the broker shows new topics.
        row = self.server.links.rows[link]
        sources, synced = (
            {name: name.removeprefix(row.get(PREFIX)) for name in names},
            row.list_synced(is_cloud=self.server.is_cloud),
        )
        with self.server.copies.open(row, sources.values()) as reader, self.server.network.lock:
            configs = reader.read_configs([*sources.values()])
            for name, source in sources.items():
                mirror = Mirror(name, source, source_id=reader.topics[source].id, is_new=False)
                mirror.lags = dict.fromkeys(range(len(rows[name].partitions)), (0, -1))
                mirror.configs = {key: value for key, value in configs[source].items() if key in synced}
                row.mirrors[name] = mirror
            self.publish()

    def set_state(self, link: str, name: str, state: str) -> None:
        """Give a mirror a state, known or not, for which nothing has happened."""
        with self.server.network.lock:
            self.server.links.rows[link].mirrors[name].move(state)
            self.publish()

    # Routes

    def _create(self, request: Request, link_name: str) -> Answer:
        fields = {"mirror_topic_name?": str, "replication_factor?": int, "configs?": CONFIGS}
        document = request.read({"source_topic_name": str, **fields})
        with self.server.network.lock:
            link = self.server.links.find(link_name)
            topic, prefix = document["source_topic_name"], link.get(PREFIX)
            name = document.get("mirror_topic_name", "" if prefix else topic)
            configs = {row["name"]: row.get("value") for row in document.get("configs", [])}
            self.server.check_right(name)
            if link.get(MODE) == "SOURCE":
                raise refuse(f"Cluster link '{link.name}' has no mirror topics at its source")
            if name != prefix + topic:
                raise refuse("Topic renaming for mirroring not yet supported.", UNSUPPORTED)
            if len(name) > _LONGEST:
                raise refuse(f"Topic name {name} is longer than the max allowed length {_LONGEST}")
            self.server.topics.check_factor(document.get("replication_factor"))
            if synced := sorted(configs.keys() & {*link.list_synced(is_cloud=self.server.is_cloud)}):
                raise refuse(f"Cannot set configuration {synced[0]} for mirror topic '{name}'")
            self.server.topics.check(configs)
            if self.server.topics.read([name]):
                raise refuse(f"Topic '{name}' already exists.")
            self._create_from_source(link, topic, configs)
        return Answer(HTTPStatus.CREATED, {}) if self.server.is_cloud else ACCEPTED

    def _create_from_source(self, link: Link, topic: str, configs: Mapping[str, str | None]) -> None:
        try:
            source = self.server.copies.open(link, [topic])
        except OSError as error:
            message = f"The server received the request, but the operation timed out: {error}"
            raise ApiError(HTTPStatus.REQUEST_TIMEOUT, message) from error
        with source:
            if topic not in source.topics:
                message = "This server does not host this topic-partition."
                raise ApiError(HTTPStatus.NOT_FOUND, message, UNKNOWN_TOPIC)
            self.create(link, source, topic, configs)

    def _list(self, request: Request, place: str, links: list[Link]) -> Document:
        wanted = request.query.get("mirror_status", "").upper()
        rows = [(link, mirror) for link in links for _, mirror in sorted(link.mirrors.items())]
        rows = [(link, mirror) for link, mirror in rows if not wanted or mirror.read_status(link) == wanted]
        path = ("links", place, "mirrors")
        return request.show_list("KafkaMirrorData", path, [self._show(request, link, mirror) for link, mirror in rows])

    def _get(self, request: Request, link_name: str, name: str) -> Document:
        link = self.server.links.find(link_name)
        mirror = link.mirrors.get(name)
        if mirror is None or time.time() - mirror.created < self.server.settle_seconds:
            raise ApiError(HTTPStatus.NOT_FOUND, f"Topic '{name}' is not mirrored.")
        shown = self._show(request, link, mirror)
        if request.flag("include_state_transition_errors"):
            shown["mirror_state_transition_errors"] = mirror.errors
        return shown

    def _show(self, request: Request, link: Link, mirror: Mirror) -> Document:
        return request.show(
            "KafkaMirrorData",
            ("links", link.name, "mirrors", mirror.name),
            link_name=link.name,
            mirror_topic_name=mirror.name,
            source_topic_name=mirror.source,
            num_partitions=len(mirror.lags),
            mirror_lags=_show_lags(mirror),
            mirror_status=mirror.read_status(link),
            mirror_topic_error=mirror.error,
            state_time_ms=int(mirror.since * 1000),
        )

    def _alter(self, request: Request, link_name: str, verb: str) -> Document:
        document, is_trial = request.read(_ALTER), request.flag("validate_only")
        if len(document) != 1:
            raise refuse("Either mirror_topic_names or mirror_topic_name_pattern is needed", HTTPStatus.BAD_REQUEST)
        with self.server.network.lock:
            link, rows = self.server.links.find(link_name), []
            for name in self._select(link, document, verb):
                fields: Document = {"error_code": None, "error_message": None}
                cuts: dict[int, tuple[int, int]] = {}
                try:
                    cuts = self._apply(verb, link, name, is_trial=is_trial)
                except ApiError as error:
                    fields = {"error_code": error.code, "error_message": str(error)}
                mirror = link.mirrors.get(name)
                fields["mirror_lags"] = _show_lags(mirror) if mirror else []
                fields["messages_truncated"] = sum(count for _, count in cuts.values()) if cuts else None
                names, details = ("offset_truncated_to", "messages_truncated"), []
                if request.query.get("include_partition_level_truncation_data") == "true":
                    details = [
                        {"partition_id": number, **dict(zip(names, cut, strict=True))} for number, cut in cuts.items()
                    ]
                fields["partition_level_truncation_data"] = details
                path = ("links", link.name, "mirrors", name)
                rows.append(request.show("AlterMirrorsData", path, mirror_topic_name=name, **fields))
        return request.show_list("AlterMirrorsData", ("links", link_name, f"mirrors:{verb}"), rows)

    def _select(self, link: Link, document: Document, verb: str) -> list[str]:
        if "mirror_topic_names" in document:
            names: list[str] = document["mirror_topic_names"]
            return names
        peer = self.server.links.find_peer(link)
        known = [mirror.source for mirror in peer[1].mirrors.values()] if verb == RESTORE and peer else [*link.mirrors]
        try:
            pattern = re.compile(document["mirror_topic_name_pattern"])
        except re.error as error:
            raise refuse(f"Invalid pattern: {error}", HTTPStatus.BAD_REQUEST) from error
        return sorted(name for name in known if pattern.fullmatch(name))

    def _apply(self, verb: str, link: Link, name: str, *, is_trial: bool) -> dict[int, tuple[int, int]]:
        """Begin a transition; return what a restore truncates, by partition: the new end, and records that are lost."""
        fault = self.server.faults.take(MIRROR, f"{verb}/{name}/")
        if fault is not None and fault.kind == "refused":
            raise ApiError(fault.status, fault.message, int(fault.code or fault.status))
        self.server.check_right(name)
        if verb == RESTORE:
            return self._restore(link, name, is_trial=is_trial)
        mirror = link.mirrors.get(name)
        if mirror is None:
            raise refuse(f"Topic '{name}' is not mirrored.", HTTPStatus.BAD_REQUEST)
        status, is_suspended = mirror.read_status(link), mirror.state == "PAUSED" and bool(mirror.reversal)
        target = CONTRACT["verbs"][verb].get(status)
        if status == "STOPPED" and verb in {"promote", "failover"}:
            message = f"Topic '{name}' has already stopped its mirror from '{link.name}'"
            raise refuse(message, HTTPStatus.BAD_REQUEST)
        if target is None or (is_suspended and verb == "promote"):
            raise refuse(f"Mirror topic '{name}' is {status}: {verb} is not allowed", HTTPStatus.BAD_REQUEST)
        peer = self._check_reversal(link, mirror) if verb.startswith("reverse") else None
        if is_trial:
            return {}
        if target == "STOPPED":
            self.stop(mirror)
        else:
            mirror.move("PENDING_SYNCHRONIZE" if is_suspended and verb == "resume" else target)
        if peer is not None:
            mirror.reversal = "ACTIVE" if "start" in verb else "PAUSED"
            lags = dict.fromkeys(mirror.lags, (0, -1))
            peer[1].mirrors[mirror.source] = Mirror(
                mirror.source, mirror.name, "PENDING_MIRROR", lags=lags, is_new=False
            )
            peer[0].mirrors.publish()
        return {}

    def _check_pair(self, link: Link, verb: str, since: list[int], *, needs_kind: bool) -> tuple[Confluent, Link]:
        """Return the other half of a bidirectional link whose clusters have a verb."""
        if link.get(MODE) != "BIDIRECTIONAL":
            raise refuse(f"{verb} needs a bidirectional link")
        peer = self.server.links.find_peer(link)
        if peer is None:
            raise refuse(f"REMOTE_LINK_NOT_FOUND_ERROR: cluster {link.remote} has no link '{link.name}'")
        for one in (self.server, peer[0]):
            is_old = not one.is_cloud and one.version < tuple(since)
            if is_old or one.is_cloud != self.server.is_cloud or (needs_kind and not one.limits["reverses"]):
                message = "The version of this API is not supported in the underlying Kafka cluster."
                raise refuse(message, UNSUPPORTED)
        return peer

    def _check_reversal(self, link: Link, mirror: Mirror) -> tuple[Confluent, Link]:
        peer = self._check_pair(link, "reverse", CONTRACT["reverse_since"], needs_kind=True)
        if link.get(PREFIX) or peer[1].get(PREFIX):
            raise refuse("reverse is not supported on a link with a prefix")
        record = peer[1].mirrors.get(mirror.source)
        if record is not None and record.state != "STOPPED":
            raise refuse(f"Topic '{mirror.source}' is a mirror topic of the other cluster")
        if peer[1].state != "ACTIVE" or peer[1].is_on(PAUSED):
            raise refuse(f"The half of cluster link '{link.name}' on the other cluster is {peer[1].state}")
        return peer

    def _restore(self, link: Link, name: str, *, is_trial: bool) -> dict[int, tuple[int, int]]:
        other, half = self._check_pair(link, RESTORE, CONTRACT["restore_since"], needs_kind=False)
        stopped = next((row for row in half.mirrors.values() if row.source == name and row.state == "STOPPED"), None)
        if stopped is None:
            message = f"REMOTE_MIRROR_NOT_FOUND_ERROR: cluster {link.remote} has no stopped mirror of '{name}'"
            raise refuse(message, HTTPStatus.BAD_REQUEST)
        record = link.mirrors.get(name)
        if record is not None and (record.state != "STOPPED" or record.since > stopped.since):
            message = f"Topic '{name}' is {record.state} and not the original source of '{stopped.name}'"
            raise refuse(message, HTTPStatus.BAD_REQUEST)
        with self.server.connect() as broker:
            bounds = read_bounds(broker, name)
        if not bounds:
            message = "This server does not host this topic-partition."
            raise ApiError(HTTPStatus.NOT_FOUND, message, UNKNOWN_TOPIC)
        cuts = {number: min(end, stopped.ends.get(number, end)) for number, (_, end) in bounds.items()}
        if not is_trial:
            source_id = other.topics.find(stopped.name).topic_id
            state = "PENDING_SETUP_FOR_RESTORE"
            lags = dict.fromkeys(bounds, (0, -1))
            mirror = Mirror(name, stopped.name, state, cuts=cuts, lags=lags, source_id=str(source_id), is_new=False)
            link.mirrors[name] = mirror
            self.publish()
        return {number: (cuts[number], end - cuts[number]) for number, (_, end) in bounds.items()}


def _list_offsets(source: ClusterReader, keys: list[Partition], moment: int) -> dict[Partition, int]:
    """Return the offset of each partition, also of those that have no leader yet."""
    deadline = time.monotonic() + _LEADER_SECONDS
    while time.monotonic() < deadline:
        offsets = source.list_offsets(keys, moment)
        if len(offsets) == len(keys):
            return offsets
        source.refresh()
    raise TimeoutError(f"{keys} have no leader")


def selects(name: str, filters: list[Document]) -> bool:
    """Whether a name passes filters: an exclusion wins, wherever it stands."""
    matching = {row["filterType"].upper() for row in filters if _matches(name, row)}
    return matching == {"INCLUDE"}


def _matches(name: str, row: Document) -> bool:
    if row["patternType"].upper() == "PREFIXED":
        return name.startswith(str(row["name"]))
    return row["name"] in {name, "*"}


def _show_lags(mirror: Mirror) -> list[Document]:
    return [
        {"partition": number, "lag": lag, "last_source_fetch_offset": offset}
        for number, (lag, offset) in sorted(mirror.lags.items())
    ]
