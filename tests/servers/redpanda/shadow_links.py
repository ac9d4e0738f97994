"""Shadow links: the service of the Admin API, and the thread that copies a source cluster.

Tasks run every fraction of a second, whatever their intervals say. Records come from decided transactions and keep
their offsets; markers and aborted records leave gaps. A topic with a gap that cannot be written becomes FAULTED.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Final

from tests.servers.emulation.faults import LINK, Faults
from tests.servers.emulation.logs import (
    StoppedError,
    create_topic,
    delete_before,
    set_configs,
)
from tests.servers.emulation.reader import EARLIEST, LATEST, ClusterReader, Partition, SourceLog
from tests.servers.emulation.wire import BrokerConnection
from tests.servers.redpanda.kafka_api import LINKS, RedpandaFront
from tests.servers.redpanda.link_options import (
    TABLE,
    ConnectError,
    Options,
    change_options,
    check_options,
    format_now,
    is_selected,
    list_properties,
    read_milliseconds,
    read_options,
    show_options,
    to_acl_filter,
    to_camel,
)
from tests.servers.redpanda.topics import DELETE_RETENTION, REPLICATION, TopicStore

_TICK_SECONDS: Final = 0.2
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_FINISHED: Final = ("FAILED_OVER", "PROMOTED")
"""States of topics that clients may write to and change."""
_REMOVABLE: Final = (*_FINISHED, "FAULTED")
TOPIC_TASK, GROUP_TASK, SECURITY_TASK = TABLE["tasks"]


@dataclass
class ShadowTopic:
    """A topic of a link; `starts` are the offsets that its partitions begin at."""

    name: str
    source_id: str
    id: str = ""
    state: str = "ACTIVE"
    is_new: bool = True
    due: float = 0.0
    """When a failover that was started ends."""
    fails: bool = False
    configs: dict[str, str] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    information: dict[int, Options] = field(default_factory=dict)

    def describe(self) -> Options:
        status = {"state": f"SHADOW_TOPIC_STATE_{self.state}", "partitionInformation": [*self.information.values()]}
        ids = {"topicId": self.id} | ({"sourceTopicId": self.source_id} if self.source_id else {})
        return {"name": self.name, "sourceTopicName": self.name, **ids, "status": status}


@dataclass
class Task:
    """A task of a link: its state and the reason."""

    state: str = "NOT_RUNNING"
    reason: str = ""


@dataclass
class ShadowLink:
    """The link of a cluster."""

    name: str
    options: Options
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    topics: dict[str, ShadowTopic] = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=lambda: {name: Task() for name in TABLE["tasks"]})
    commits: dict[str, dict[Partition, int]] = field(default_factory=dict)
    rules: list[Options] = field(default_factory=list)

    def is_paused(self, task: str) -> bool:
        return bool(self.options[TABLE["tasks"][task]]["paused"])

    def list_topics(self, *states: str) -> list[ShadowTopic]:
        return [topic for _, topic in sorted(self.topics.items()) if topic.state in states]

    def describe(self) -> Options:
        tasks = [
            {"name": name, "state": f"TASK_STATE_{task.state}", "reason": task.reason, "brokerId": 1, "shard": 0}
            for name, task in self.tasks.items()
        ]
        status = {
            "state": "SHADOW_LINK_STATE_ACTIVE",
            "taskStatuses": tasks,
            "shadowTopics": [topic.describe() for _, topic in sorted(self.topics.items())],
            "syncedShadowTopicProperties": list_properties(self.options),
        }
        options = show_options(self.options, f"shadow-link-{self.name}-{self.uid}")
        return {"name": self.name, "uid": self.uid, "configurations": options, "status": status}


class ShadowLinks:
    """The link of a cluster, if it has one, and its thread."""

    def __init__(self, broker_port: int, topics: TopicStore, front: RedpandaFront, faults: Faults) -> None:
        self._broker_port = broker_port
        self._topics, self._front, self._faults = topics, front, faults
        self._cluster = topics.cluster
        self._links: dict[str, ShadowLink] = {}
        self._source: tuple[Options, ClusterReader] | None = None
        self._lock = threading.RLock()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.log: list[str] = []
        """Why topics are not copied."""

    @property
    def is_offered(self) -> bool:
        return self._cluster.version >= (25, 3)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ends.set()
        self._thread.join(30)

    def forget(self) -> None:
        """Forget the link: the test that left it has ended."""
        with self._lock:
            self._links.clear()
            self._publish()

    def call(self, method: str, document: Any) -> Options:
        """Answer a method of the service."""
        if not isinstance(document, dict):
            raise ConnectError("invalid_argument", "invalid request input")
        if not self._cluster.get("enable_shadow_linking"):
            raise ConnectError("failed_precondition", "Cluster link feature is disabled")
        with self._lock:
            answer: Options = getattr(self, f"_{method}")(to_camel(document))
            self._publish()
        return answer

    # The methods of the service, each with the fields of its request.

    def _CreateShadowLink(self, request: Options) -> Options:  # noqa: N802 - the method's name
        shadow_link = request.get("shadowLink") or {}
        name = str(shadow_link.get("name", ""))
        options = read_options(shadow_link.get("configurations") or {}, self._cluster.version)
        check_options(options)
        if name in self._links:
            raise ConnectError("already_exists", f"Shadow link with name {name} already exists")
        if not self._cluster.is_licensed:
            raise ConnectError("failed_precondition", "A valid license is required to create a shadow link")
        if not _NAME.fullmatch(name):
            raise ConnectError("invalid_argument", f"Invalid shadow link name: {name!r}")
        if self._links:
            raise ConnectError("resource_exhausted", "The limit of 1 shadow link is reached")
        try:
            with self._connect(options["clientOptions"]):
                pass
        except OSError as error:
            raise ConnectError("failed_precondition", f"Source cluster is unreachable: {error}") from error
        if request.get("validateOnly"):
            return {}
        self._links[name] = ShadowLink(name, options)
        return {"shadowLink": self._links[name].describe()}

    def _GetShadowLink(self, request: Options) -> Options:  # noqa: N802
        return {"shadowLink": self._find(request.get("name")).describe()}

    def _ListShadowLinks(self, _: Options) -> Options:  # noqa: N802
        return {"shadowLinks": [link.describe() for link in self._links.values()]}

    def _UpdateShadowLink(self, request: Options) -> Options:  # noqa: N802
        shadow_link = request.get("shadowLink") or {}
        link, version = self._find(shadow_link.get("name")), self._cluster.version
        new = read_options(shadow_link.get("configurations") or {}, version)
        options = change_options(link.options, new, request.get("updateMask") or "", version)
        check_options(options)
        link.options = options
        return {"shadowLink": link.describe()}

    def _DeleteShadowLink(self, request: Options) -> Options:  # noqa: N802
        link = self._find(request.get("name"))
        active = [topic for topic in link.topics.values() if topic.state not in _REMOVABLE]
        if active and not request.get("force"):
            raise ConnectError("failed_precondition", f"Shadow link {link.name} has {len(active)} active shadow topics")
        del self._links[link.name]
        return {}

    def _FailOver(self, request: Options) -> Options:  # noqa: N802
        link, name = self._find(request.get("name")), request.get("shadowTopicName") or ""
        topics = [self._find_topic(link, name)] if name else link.list_topics("ACTIVE")
        for topic in topics:
            if topic.state != "ACTIVE":
                raise ConnectError("invalid_argument", f"Shadow topic {name} is {topic.state} and cannot fail over")
            fault = self._faults.take(LINK, f"failover/{topic.name}/")
            topic.fails = fault is not None and fault.kind == "fails"
            topic.due = time.monotonic() + (fault.seconds if fault and not topic.fails else 0)
            topic.state = "FAILING_OVER"
        return {"shadowLink": link.describe()}

    def _GetShadowTopic(self, request: Options) -> Options:  # noqa: N802
        link = self._find(request.get("shadowLinkName"))
        return {"shadowTopic": self._find_topic(link, request.get("name")).describe()}

    def _ListShadowTopics(self, request: Options) -> Options:  # noqa: N802
        link = self._find(request.get("shadowLinkName"))
        return {"shadowTopics": [topic.describe() for _, topic in sorted(link.topics.items())]}

    def _find(self, name: Any) -> ShadowLink:
        if name not in self._links:
            raise ConnectError("not_found", f"Shadow link {name} does not exist")
        return self._links[name]

    def _find_topic(self, link: ShadowLink, name: Any) -> ShadowTopic:
        if name not in link.topics:
            raise ConnectError("not_found", f"Shadow topic {name} not found on link {link.name}")
        return link.topics[name]

    def _publish(self) -> None:
        """Tell the Kafka API what it refuses from now on; new topics are not read before their first records are in."""
        self._front.held[LINKS] = {
            topic.name: frozenset({"change", "produce", *(["fetch"] if topic.is_new else ())})
            for link in self._links.values()
            for topic in link.topics.values()
            if topic.state not in _FINISHED
        }

    # The thread

    def _run(self) -> None:
        while not self._ends.wait(_TICK_SECONDS):
            for link in list(self._links.values()):
                try:
                    self._end_failovers(link)
                    self._synchronize(link)
                except (OSError, AssertionError, TimeoutError, KeyError) as error:  # tried again, as Redpanda does
                    self._note(f"link {link.name} is tried again: {error!r}")
        self._disconnect()

    def _end_failovers(self, link: ShadowLink) -> None:
        with self._lock:
            due = [topic for topic in link.list_topics("FAILING_OVER") if topic.due <= time.monotonic()]
            for topic in due[: self._cluster.get("shadow_link_failover_batch_size")]:
                topic.state = "FAULTED" if topic.fails else "FAILED_OVER"
                topic.is_new = False
            self._publish()

    def _synchronize(self, link: ShadowLink) -> None:
        """Run the tasks of a link once, and copy records."""
        try:
            source = self._open_source(link)
            self._run_task(link, TOPIC_TASK, self._synchronize_topics, source)
            self._copy_records(link, source)
            self._run_task(link, GROUP_TASK, self._synchronize_groups, source)
            self._run_task(link, SECURITY_TASK, self._synchronize_rules, source)
        except OSError as error:
            self._disconnect()
            for name, task in link.tasks.items():
                state = "PAUSED" if link.is_paused(name) else "LINK_UNAVAILABLE"
                task.state, task.reason = state, f"Failed to update metadata: {error}"

    def _run_task(self, link: ShadowLink, name: str, work: Any, source: ClusterReader) -> None:
        task = link.tasks[name]
        if link.is_paused(name):
            task.state, task.reason = "PAUSED", "Task is paused"
            return
        fault = self._faults.take(LINK, name)
        if fault is None:
            with BrokerConnection(self._broker_port) as broker:
                work(link, source, broker)
        state = ("ACTIVE", f"{name} completed") if fault is None else ("FAULTED", fault.message)
        task.state, task.reason = state

    def _open_source(self, link: ShadowLink) -> ClusterReader:
        options = link.options["clientOptions"]
        if self._faults.take(LINK, "source"):
            raise ConnectionError("injected: the source does not answer")
        if self._source is None or self._source[0] is not options:
            self._disconnect()
            self._source = options, self._connect(options)
        else:
            self._source[1].refresh()
        return self._source[1]

    def _connect(self, options: Options) -> ClusterReader:
        source = ClusterReader(options)
        if options["sourceClusterId"] not in {"", source.cluster_id}:
            source.close()
            raise ConnectionError(f"the id of the source cluster is {source.cluster_id}")
        return source

    def _disconnect(self) -> None:
        if self._source is not None:
            self._source[1].close()
        self._source = None

    def _is_copied(self, link: ShadowLink, topic: ShadowTopic) -> bool:
        """Whether a topic may still be written by the link; to be asked under the lock."""
        return self._links.get(link.name) is link and topic.state == "ACTIVE"

    # Topics

    def _synchronize_topics(self, link: ShadowLink, source: ClusterReader, broker: BrokerConnection) -> None:
        with self._read_own() as own:
            for topic in [topic for topic in link.topics.values() if topic.name not in own.topics]:
                with self._lock:
                    del link.topics[topic.name]  # A client deleted it.
            filters = link.options["topicMetadataSyncOptions"]["autoCreateShadowTopicFilters"]
            for name, row in sorted(source.topics.items()):
                if name in link.topics or row.is_internal or not is_selected(name, filters):
                    continue
                if name in own.topics:
                    self._note(f"link {link.name}: topic {name} exists and is not shadowed")
                    continue
                self._create(link, source, broker, name)
            self._compare(link, source, own, broker)

    def _create(self, link: ShadowLink, source: ClusterReader, broker: BrokerConnection, name: str) -> None:
        row = source.topics[name]
        starts = self._read_starts(link, source, [(name, number) for number in row.leaders])
        topic = ShadowTopic(name, row.id, starts={number: offset for (_, number), offset in starts.items()})
        factor = row.replicas if REPLICATION in list_properties(link.options) else 0
        if self._topics.check_replication(factor):
            factor = int(self._cluster.get("default_topic_replications"))
        with self._lock:
            if self._links.get(link.name) is not link:
                return
            create_topic(broker, name, len(row.leaders))
            self._topics.kept[name] = {**self._topics.initial({}), REPLICATION: str(factor)}
            link.topics[name] = topic
            self._publish()

    def _read_starts(
        self, link: ShadowLink, source: ClusterReader, partitions: list[Partition]
    ) -> dict[Partition, int]:
        options = link.options["topicMetadataSyncOptions"]
        ends = source.list_offsets(partitions, LATEST)
        if "startAtLatest" in options:
            return ends
        if "startAtTimestamp" not in options:
            return {}
        offsets = source.list_offsets(partitions, read_milliseconds(options["startAtTimestamp"]))
        return {key: offset if offset >= 0 else ends[key] for key, offset in offsets.items()}

    def _compare(self, link: ShadowLink, source: ClusterReader, own: ClusterReader, broker: BrokerConnection) -> None:
        """Bring partitions and configs of shadow topics to those of the source."""
        shadowed = [topic for topic in link.list_topics("ACTIVE") if topic.name in source.topics]
        names, configs = list_properties(link.options), source.read_configs([topic.name for topic in shadowed])
        for topic in shadowed:
            row, known = source.topics[topic.name], own.topics.get(topic.name)
            with self._lock:
                topic.id = known.id if known else topic.id
                is_other = topic.source_id != row.id or (known and len(known.leaders) > len(row.leaders))
                if is_other and topic.state == "ACTIVE":
                    topic.state = "FAULTED"
                    self._note(f"link {link.name}: topic {topic.name} was created again at the source")
                if not self._is_copied(link, topic):
                    continue
                if known and len(known.leaders) < len(row.leaders):
                    rows = [{"name": topic.name, "count": len(row.leaders), "assignments": None}]
                    broker.ask("CreatePartitions", 1, topics=rows, timeout_ms=30_000, validate_only=False)
                wanted = {name: value for name, value in configs.get(topic.name, {}).items() if name in names}
                if wanted != topic.configs and not topic.is_new:
                    self._configure(broker, topic.name, wanted)
                topic.configs = wanted

    def _configure(self, broker: BrokerConnection, name: str, configs: dict[str, str]) -> None:
        changes = {key: value for key, value in configs.items() if key in self._topics.broker_keys}
        if changes.get(DELETE_RETENTION) == "-1":
            del changes[DELETE_RETENTION]
        set_configs(broker, name, {"max.message.bytes": None, **changes})
        self._topics.change(name, configs)

    def _read_own(self) -> ClusterReader:
        return ClusterReader({"bootstrapServers": [f"127.0.0.1:{self._broker_port}"]})

    # Records

    def _copy_records(self, link: ShadowLink, source: ClusterReader) -> None:
        with self._read_own() as own, BrokerConnection(self._broker_port) as broker:
            topics = [topic for topic in link.list_topics("ACTIVE") if topic.name in own.topics]
            topics = [topic for topic in topics if topic.name in source.topics]
            shadowed = [(topic.name, number) for topic in topics for number in own.topics[topic.name].leaders]
            shadowed = [key for key in shadowed if key[1] in source.topics[key[0]].leaders]
            starts, ends = source.list_offsets(shadowed, EARLIEST), source.list_offsets(shadowed, LATEST)
            stable, own_ends = source.list_offsets(shadowed, LATEST, stable=True), own.list_offsets(shadowed, LATEST)
            own_starts = own.list_offsets(shadowed, EARLIEST)
            for topic in topics:
                for number in sorted(own.topics[topic.name].leaders):
                    key = topic.name, number
                    if any(key not in offsets for offsets in (starts, ends, stable, own_starts, own_ends)):
                        continue
                    start = max(starts[key], topic.starts.get(number, 0))
                    log = SourceLog(topic.name, number, start, stable[key])
                    position = self._copy(link, source, broker, log, own_ends[key])
                    with self._lock:
                        if self._is_copied(link, topic) and own_starts[key] < min(start, position):
                            delete_before(broker, topic.name, number, min(start, position))
                        topic.information[number] = _describe_partition(number, stable[key], ends[key], position)
                with self._lock:
                    if topic.is_new and topic.information and self._is_copied(link, topic):
                        self._configure(broker, topic.name, topic.configs)
                        topic.is_new = False
                        self._publish()

    def _copy(
        self, link: ShadowLink, source: ClusterReader, broker: BrokerConnection, log: SourceLog, position: int
    ) -> int:
        """Copy records from the end of the shadow partition, `position`; return its new end."""
        topic = link.topics[log.topic]
        try:
            return source.copy(log, broker, log.topic, position, self._lock, lambda: self._is_copied(link, topic))
        except StoppedError as error:
            with self._lock:
                topic.state = "FAULTED" if self._is_copied(link, topic) else topic.state
            self._note(f"link {link.name}, this server writes no such gap: {error}")
            return position

    # Groups and access rules

    def _synchronize_groups(self, link: ShadowLink, source: ClusterReader, broker: BrokerConnection) -> None:
        """Commit the offsets of the source's groups for shadow topics, up to the end of each partition."""
        active = {topic.name: topic for topic in link.list_topics("ACTIVE")}
        for group in source.list_groups():
            if not is_selected(group, link.options["consumerOffsetSyncOptions"]["groupFilters"]):
                continue
            commits = {
                (name, number): min(offset, int(active[name].information[number]["highWatermark"]))
                for (name, number), offset in source.read_commits(group).items()
                if name in active and number in active[name].information
            }
            rows = [(name, number, offset) for (name, number), offset in commits.items()]
            if rows and commits != link.commits.get(group) and broker.commit(group, rows):
                link.commits[group] = commits

    def _synchronize_rules(self, link: ShadowLink, source: ClusterReader, broker: BrokerConnection) -> None:
        filters = [to_acl_filter(row) for row in link.options["securitySyncOptions"]["aclFilters"]]
        rules = [rule for fields in filters for rule in source.read_acls(fields) if rule not in link.rules]
        if rules:
            answer = broker.ask("CreateAcls", 1, creations=rules)
            link.rules += [rule for rule, row in zip(rules, answer.results, strict=True) if not row.error_code]

    def _note(self, text: str) -> None:
        if text not in self.log:
            self.log.append(text)


def _describe_partition(number: int, stable: int, end: int, own_end: int) -> Options:
    offsets = {"sourceLastStableOffset": stable, "sourceHighWatermark": end, "highWatermark": own_end}
    texts = {name: str(offset) for name, offset in {"partitionId": number, **offsets}.items()}
    return {**texts, "sourceLastUpdatedTimestamp": format_now()}
