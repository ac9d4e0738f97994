"""Recoveries from the bucket: a topic at its creation, topics by a pattern, and all that a lost cluster left."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from tests.servers.emulation.faults import RECOVERY, Faults
from tests.servers.emulation.logs import (
    StoppedError,
    create_topic,
    list_partitions,
    read_bounds,
    read_configs,
    set_configs,
)
from tests.servers.emulation.reader import ClusterReader
from tests.servers.emulation.wire import BrokerConnection
from tests.servers.redpanda.bucket import Bucket, Location
from tests.servers.redpanda.kafka_api import RECOVERIES, RedpandaFront
from tests.servers.redpanda.topics import READ, REPLICATION, WRITE, Configs, TopicStore

_LOG: Final = 5
"""States of a recovery that are shown."""
_TRIES, _PAUSE_SECONDS = 200, 0.05
_TEMPORARY_BYTES: Final = str(1 << 30)
_RECOVERED: Final = (
    *("compression.type", "cleanup.policy", "retention.bytes", "retention.ms"),
    *("segment.bytes", "message.timestamp.type"),
)
"""Configs that a recovery by pattern keeps."""
_REQUEST: Final = {"topic_names_pattern": str, "retention_bytes": int, "retention_ms": int}
_EVERY_RULE: Final = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
_ALL: Final = frozenset({"change", "produce", "fetch"})
_STAGES: Final = ("starting", "recovered_cluster_config", "recovered_acls", "recovered_topic_data")


class Recoveries:
    """What a cluster writes to its bucket for a recovery, and the recoveries from it."""

    def __init__(
        self, broker_port: int, bucket: Bucket, topics: TopicStore, front: RedpandaFront, faults: Faults
    ) -> None:
        self._broker_port = broker_port
        self._bucket, self._topics, self._front, self._faults = bucket, topics, front, faults
        self._cluster = topics.cluster
        self._threads: list[threading.Thread] = []
        self._states: deque[dict[str, Any]] = deque(maxlen=_LOG)
        self._stage, self._error = "complete", ""
        self.log: list[str] = []
        """Why topics came back without some of their records."""
        self._push("inactive", {}, {})
        front.offload, front.recover = self._offload, self._recover_at_creation

    def forget(self) -> None:
        """Forget what can be recovered: the test that left it has ended."""
        for name in self._bucket.list_recoverable():
            self._bucket.withdraw(name)

    def close(self) -> None:
        for thread in self._threads:
            thread.join(30)

    def start_recovery(self, request: Any) -> tuple[int, str]:
        """Start the recovery of topics by a pattern; return status and message."""
        if not self._cluster.is_tiered:
            return HTTPStatus.BAD_REQUEST, "Topic recovery is not available. is cloud storage enabled?"
        try:
            is_valid = all(isinstance(value, _REQUEST[name]) for name, value in dict(request).items())
            re.compile(request.get("topic_names_pattern", ""))
        except (KeyError, TypeError, ValueError, re.error):
            is_valid = False
        if not is_valid or {"retention_bytes", "retention_ms"} <= request.keys():
            return HTTPStatus.BAD_REQUEST, "bad recovery request payload"
        if self._states[-1]["state"] != "inactive":
            return HTTPStatus.CONFLICT, "A recovery is already active"
        self._push("starting", {}, request)
        self._run(self._recover_topics, request)
        return HTTPStatus.ACCEPTED, "recovery started"

    def describe_recovery(self, *, extended: bool) -> Any:
        return list(self._states) if extended else self._states[-1]

    def start_restore(self, request: Any) -> tuple[int, str]:
        """Start the restore of a whole cluster; return status and message."""
        wanted = request.get("cluster_uuid_override") if isinstance(request, dict) else None
        if not isinstance(request, dict) or not request.keys() <= {"cluster_uuid_override"}:
            return HTTPStatus.BAD_REQUEST, "Request body does not conform to schema"
        if not self._cluster.is_tiered:
            return HTTPStatus.BAD_REQUEST, "Cluster recovery is not available. Missing bucket property"
        if self._stage not in {"complete", "failed"}:
            return HTTPStatus.CONFLICT, "Recovery already active"
        clusters = self._bucket.list_clusters()
        chosen = [row for row in clusters if row["uuid"] == (wanted or row["uuid"]) != self._cluster.uuid]
        if not chosen:
            message = "Error starting cluster recovery request: No matching metadata"
            return HTTPStatus.INTERNAL_SERVER_ERROR, message
        self._stage, self._error = "initialized", ""
        self._run(self._restore_cluster, chosen[-1])
        return HTTPStatus.ACCEPTED, "Recovery initialized"

    def describe_restore(self) -> dict[str, str]:
        if self._stage == "complete":
            return {"state": "inactive"}
        return {"state": f"recovery_stage::{self._stage}"} | ({"error": self._error} if self._error else {})

    def upload(self) -> None:
        """Write topics, rules, properties and commits to the bucket, with the records of tiered topics."""
        options = {"bootstrapServers": [f"127.0.0.1:{self._broker_port}"]}
        with ClusterReader(options) as own, BrokerConnection(self._broker_port) as broker:
            names = sorted(name for name, row in own.topics.items() if not row.is_internal)
            topics = {name: self._upload_topic(broker, name) for name in names}
            commits = {
                group: [[*key, offset] for key, offset in own.read_commits(group).items()]
                for group in own.list_groups()
            }
            rules = own.read_acls(dict(_EVERY_RULE))
        document = {"topics": topics, "properties": self._cluster.stored, "acls": rules, "commits": commits}
        self._bucket.store_cluster(self._cluster.uuid, document)

    def _upload_topic(self, broker: BrokerConnection, name: str) -> dict[str, Any]:
        kept = self._topics.kept.get(name, {})
        if self._cluster.is_tiered and self._topics.is_written(name):
            location = Location(*self._topics.locate(name))
            self._bucket.store(broker, name, location, kept)
            self._bucket.offer(name, location)
        return {"partitions": len(read_bounds(broker, name)), "configs": read_configs(broker, name), "settings": kept}

    def _offload(self, name: str) -> None:
        """Leave the records of a topic in the bucket before it is deleted, if its configs say so."""
        is_written = self._cluster.is_tiered and self._topics.is_written(name)
        if is_written and self._topics.get(name, "redpanda.remote.delete") == "false":
            with BrokerConnection(self._broker_port) as broker:
                self._upload_topic(broker, name)

    def _recover_at_creation(self, name: str, configs: Configs, factor: int) -> int | None:
        """Create a topic from the bucket; return its partitions, or `None` if the bucket has no such topic."""
        location = self._bucket.list_recoverable().get(name)
        with BrokerConnection(self._broker_port) as broker:
            if location is None or not self._cluster.is_tiered or list_partitions(broker, name):
                return None
            document = self._bucket.read_topic(location)
            chosen = {key: value for key, value in configs.items() if value and key in self._topics.broker_keys}
            kept = self._topics.initial({**document["settings"], **configs})
            settings = {**kept, REPLICATION: str(factor)}
            self._restore(broker, name, location, {**document["configs"], **chosen}, settings)
        return len(document["bounds"])

    def _recover_topics(self, request: dict[str, Any]) -> None:
        counts: dict[str, list[int]] = {}
        try:
            with BrokerConnection(self._broker_port) as broker:
                self._push("scanning_bucket", counts, request)
                pattern = re.compile(request.get("topic_names_pattern", ""))
                locations = {
                    name: location
                    for name, location in sorted(self._bucket.list_recoverable().items())
                    if pattern.search(name) and not list_partitions(broker, name)
                }
                documents = {name: self._bucket.read_topic(location) for name, location in locations.items()}
                counts |= {name: [len(document["bounds"]), 0, 0] for name, document in documents.items()}
                for state in ("creating_topics", "recovering_data") if counts else ():
                    self._push(state, counts, request)
                for name, document in documents.items():
                    configs = {key: value for key, value in document["configs"].items() if key in _RECOVERED}
                    factor = document["settings"].get(REPLICATION, "1")
                    kept = {WRITE: "true", READ: "true", REPLICATION: factor, **_choose_local_retention(request)}
                    is_whole = self._restore(broker, name, locations[name], configs, self._topics.initial(kept))
                    counts[name] = [0, counts[name][0] * is_whole, counts[name][0] * (not is_whole)]
                    self._push("recovering_data", counts, request)
        finally:
            self._push("inactive", counts, request)

    def _restore_cluster(self, document: dict[str, Any]) -> None:
        fault = self._faults.take(RECOVERY, "cluster/")
        try:
            with BrokerConnection(self._broker_port) as broker:
                for stage in _STAGES:
                    self._stage = stage
                    time.sleep(fault.seconds if fault and fault.kind == "slow" else 0)
                    if fault and fault.kind == "fails":
                        self._stage, self._error = "failed", fault.message
                        return
                    getattr(self, f"_restore_{stage}", lambda *_: None)(broker, document)
        except (OSError, AssertionError, TimeoutError) as error:
            self._stage, self._error = "failed", repr(error)
        else:
            self._stage = "complete"

    def _restore_recovered_cluster_config(self, _: BrokerConnection, document: dict[str, Any]) -> None:
        self._cluster.write({**document["properties"], **self._cluster.stored}, [])

    def _restore_recovered_acls(self, broker: BrokerConnection, document: dict[str, Any]) -> None:
        if document["acls"]:
            broker.ask("CreateAcls", 1, creations=document["acls"])

    def _restore_recovered_topic_data(self, broker: BrokerConnection, document: dict[str, Any]) -> None:
        """Create the topics with their records, those without remote write empty, and the commits of their groups."""
        locations = self._bucket.list_recoverable()
        for name, row in document["topics"].items():
            if list_partitions(broker, name):
                continue
            if name in locations:
                self._restore(broker, name, locations[name], row["configs"], row["settings"])
            else:
                self._create_empty(broker, name, row["partitions"], row["configs"])
                self._topics.kept[name] = row["settings"]
        for group, rows in document["commits"].items():
            commits = [(topic, number, offset) for topic, number, offset in rows if topic in locations]
            for _ in range(_TRIES if commits else 0):
                if broker.commit(group, commits):
                    break
                time.sleep(_PAUSE_SECONDS)  # The coordinator loads.

    def _restore(
        self, broker: BrokerConnection, name: str, location: Location, configs: dict[str, str], kept: dict[str, str]
    ) -> bool:
        """Create a topic with its records, which no client sees before all are in; return whether all came back."""
        held = self._front.held
        held[RECOVERIES] = {**held[RECOVERIES], name: _ALL}
        fault = self._faults.take(RECOVERY, f"{name}/")
        is_whole = not (fault and fault.kind == "fails")
        try:
            if is_whole:
                self._bucket.restore(broker, name, location, configs)
            else:
                self._create_empty(broker, name, len(self._bucket.read_topic(location)["bounds"]), configs)
            time.sleep(fault.seconds if fault and fault.kind == "slow" else 0)
        except StoppedError as error:
            self.log.append(f"recovery of {location}, this server writes no such gap: {error}")
            is_whole = False
        finally:
            self._topics.kept[name], self._topics.origins[name] = kept, tuple(location)
            held[RECOVERIES] = {key: value for key, value in held[RECOVERIES].items() if key != name}
        self._bucket.withdraw(name)
        return is_whole

    def _create_empty(self, broker: BrokerConnection, name: str, partitions: int, configs: dict[str, str]) -> None:
        create_topic(broker, name, partitions)
        set_configs(broker, name, {"retention.ms": None, "retention.bytes": None, "max.message.bytes": None, **configs})

    def _push(self, state: str, counts: dict[str, list[int]], request: dict[str, Any]) -> None:
        names = ("pending_downloads", "successful_downloads", "failed_downloads")
        rows = [
            {"topic_namespace": f"{{kafka/{name}}}", **dict(zip(names, numbers, strict=True))}
            for name, numbers in counts.items()
        ]
        shown = {"topic_names_pattern": "none", "retention_bytes": -1, "retention_ms": -1, **request}
        self._states.append({"state": state, "topic_download_counts": rows, "request": shown})

    def _run(self, work: Callable[[dict[str, Any]], None], document: dict[str, Any]) -> None:
        self._threads.append(threading.Thread(target=work, args=(document,), daemon=True))
        self._threads[-1].start()


def _choose_local_retention(request: dict[str, Any]) -> dict[str, str]:
    """Return what recovered topics keep locally."""
    if "retention_ms" in request:
        return {"retention.local.target.ms": str(request["retention_ms"])}
    return {"retention.local.target.bytes": str(request.get("retention_bytes", _TEMPORARY_BYTES))}
