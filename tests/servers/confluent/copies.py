"""The thread of a cluster that copies what its links mirror: records, topic configs, groups and access rules.

Tasks run every fraction of a second, whatever their intervals say. Records come from decided transactions and keep
their offsets; markers and aborted records leave gaps. A mirror with a gap that cannot be written, as compaction leaves
them, becomes FAILED with ILLEGAL_STATE.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from tests.servers.confluent.access import read_filter
from tests.servers.confluent.api import ApiError, Document
from tests.servers.confluent.links import AUTO_CREATE, MODE, PAUSED, PREFIX, Link
from tests.servers.confluent.mirrors import MIRROR, Mirror, selects
from tests.servers.emulation.logs import (
    OPEN,
    Batch,
    StoppedError,
    create_topic,
    delete_before,
    delete_topics,
    list_partitions,
    read_bounds,
    read_configs,
    read_log,
    set_configs,
    write_log,
)
from tests.servers.emulation.reader import EARLIEST, LATEST, ClusterReader, SourceLog
from tests.servers.emulation.wire import BrokerConnection

if TYPE_CHECKING:
    from tests.servers.confluent.server import Confluent

LINK: Final = "LINK"
"""The method of faults of links. Their path is `LINK/source` (`lost`: the source does not answer, or with `code`: the
link fails), `LINK/fetch` (`held`: no records are copied), or `LINK/TASK` (`fails`, with `code` and `message`); each
look of the thread uses them once."""
_TICK_SECONDS: Final = 0.1
_CONFIGS_SHARE: Final = 5
"""Comparing configs takes at most one part in so many of the thread's time."""
_FOLLOWED: Final = ("ACTIVE", "PENDING_SYNCHRONIZE", "PENDING_STOPPED")
_NEVER: Final = ("confluent-audit-log-events", "_confluent", "__confluent", "_schemas", "__consumer", "__transaction")


class Copies:
    """The thread of a cluster."""

    def __init__(self, server: Confluent) -> None:
        self.server = server
        self.log: list[str] = []
        """Why the thread tried again."""
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._configs_due = 0.0

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ends.set()
        self._thread.join(30)

    def open(self, link: Link, names: Iterable[str] | None = None) -> ClusterReader:
        """Connect to the source of a link, if no fault forbids it."""
        fault = self.server.faults.take(LINK, f"{link.name}/source")
        if fault is not None:
            raise ConnectionError(f"{fault.code} {fault.message}" if fault.code else "the source does not answer")
        return self.server.links.open(link, names)

    def _run(self) -> None:
        while not self._ends.wait(_TICK_SECONDS):
            with self.server.network.lock:
                self.server.links.remove_deleted()
            for link in list(self.server.links.rows.values()):
                try:
                    self._follow(link)
                except (OSError, AssertionError, TimeoutError, KeyError, ApiError) as error:
                    self._note(f"link {link.name} is tried again: {error!r}")

    def _follow(self, link: Link) -> None:
        if link.is_on(PAUSED) or link.deleted is not None:
            self._set_state(link, "PAUSED" if link.is_on(PAUSED) else link.state)
            return
        mirrors, is_open = [*link.mirrors.values()], link.is_on(AUTO_CREATE)
        try:
            with self.open(link, None if is_open else [mirror.source for mirror in mirrors]) as source:
                self._set_state(link, "ACTIVE")
                if link.get(MODE) != "SOURCE":
                    self._synchronize(link, source, mirrors)
        except OSError as error:
            code = str(error).split(" ", 1)[0] if str(error).split(" ", 1)[0].endswith("_ERROR") else ""
            code = "AUTHENTICATION_ERROR" if "login failed" in str(error) else code
            state = "FAILED" if code else "UNAVAILABLE"
            self._set_state(link, state, code or "BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR", str(error))

    def _set_state(self, link: Link, state: str, error: str = "NO_ERROR", message: str | None = None) -> None:
        link.state, link.error, link.message = state, error, message

    def _synchronize(self, link: Link, source: ClusterReader, mirrors: list[Mirror]) -> None:
        """Run the tasks of a link once; `mirrors`: those that it had when its source was read."""
        names = None if link.is_on(AUTO_CREATE) else [mirror.name for mirror in mirrors]
        with self.server.read_own(names) as own, self.server.connect() as broker:
            with self.server.network.lock:
                for mirror in mirrors:
                    is_kept = mirror.is_new or mirror.name in own.topics
                    if link.mirrors.get(mirror.name) is mirror and not is_kept:
                        self.server.mirrors.drop(mirror.name)  # A client deleted it.
            self._run_task(link, "AutoCreateMirror", lambda: self._create_mirrors(link, source, own))
            followed = [mirror for mirror in mirrors if self._is_followed(link, mirror, source)]
            followed = [mirror for mirror in followed if mirror.name in own.topics]
            self._run_task(link, "TopicConfigsSync", lambda: self._copy_configs(link, source, own, broker, followed))
            self._copy_records(link, source, own, broker, followed)
            self._run_task(link, "ConsumerOffsetSync", lambda: self._copy_groups(link, source, own, broker))
            self._run_task(link, "AclSync", lambda: self._copy_rules(link, source, broker))
            for mirror in [*link.mirrors.values()]:
                with self.server.network.lock:
                    self._advance(link, mirror)

    def _run_task(self, link: Link, name: str, work: Any) -> None:
        fault = self.server.faults.take(LINK, f"{link.name}/{name}")
        link.task_errors.pop(name, None)
        if fault is not None:
            link.task_errors[name] = (fault.code or "INTERNAL_ERROR", fault.message)
            return
        work()

    def _may_write(self, link: Link, mirror: Mirror) -> bool:
        """Whether the link may still write a topic; to be asked under the lock."""
        return link.mirrors.get(mirror.name) is mirror and mirror.state in _FOLLOWED

    def _is_followed(self, link: Link, mirror: Mirror, source: ClusterReader) -> bool:
        """Whether a mirror is copied, after a look at its source topic."""
        with self.server.network.lock:
            if not self._may_write(link, mirror):
                return False
            row = source.topics.get(mirror.source)
            if row is None:
                mirror.error, mirror.missing = "SOURCE_TOPIC_MAY_BE_DELETED", mirror.missing or time.monotonic()
                if time.monotonic() - mirror.missing >= self.server.retry_seconds:
                    mirror.move("FAILED")
                return False
            mirror.source_id = mirror.source_id or row.id
            if mirror.source_id != row.id:
                mirror.error = "SOURCE_TOPIC_ID_CHANGED"
                mirror.move("FAILED")
                return False
            mirror.error, mirror.missing = "NO_ERROR", None
            return True

    # Topics and records

    def _create_mirrors(self, link: Link, source: ClusterReader, own: ClusterReader) -> None:
        prefix = link.get(PREFIX)
        if not link.is_on(AUTO_CREATE):
            return
        other = self.server.network.servers.get(link.remote)
        chained = other.front.read_only if other and prefix else set[str]()
        with self.server.network.lock:
            for name in sorted(source.topics):
                is_new = prefix + name not in own.topics and prefix + name not in link.mirrors
                is_open = not name.startswith(_NEVER) and name not in chained
                if is_new and is_open and selects(name, link.read_filters(AUTO_CREATE)):
                    self.server.mirrors.create(link, source, name, {})

    def _copy_configs(
        self, link: Link, source: ClusterReader, own: ClusterReader, broker: BrokerConnection, mirrors: list[Mirror]
    ) -> None:
        started = time.monotonic()
        if started < self._configs_due and not any(not mirror.configs for mirror in mirrors):
            return
        names = link.list_synced(is_cloud=self.server.is_cloud)
        configs = source.read_configs([mirror.source for mirror in mirrors])
        for mirror in mirrors:
            wanted = {name: value for name, value in configs.get(mirror.source, {}).items() if name in names}
            count = len(source.topics[mirror.source].leaders)
            with self.server.network.lock:
                if not self._may_write(link, mirror):
                    continue
                if count > len(own.topics[mirror.name].leaders):
                    rows = [{"name": mirror.name, "count": count, "assignments": None}]
                    broker.ask("CreatePartitions", 1, topics=rows, timeout_ms=30_000, validate_only=False)
                if wanted != mirror.configs and not mirror.is_new:
                    self._configure(broker, mirror, wanted)
                mirror.configs = wanted
        self._configs_due = time.monotonic() + _CONFIGS_SHARE * (time.monotonic() - started)

    def _configure(self, broker: BrokerConnection, mirror: Mirror, configs: dict[str, str]) -> None:
        self.server.topics.copy_configs(broker, mirror.name, {**dict.fromkeys(OPEN), **configs, **mirror.given})

    def _copy_records(
        self, link: Link, source: ClusterReader, own: ClusterReader, broker: BrokerConnection, mirrors: list[Mirror]
    ) -> None:
        started, is_held = time.time(), self.server.faults.take(LINK, f"{link.name}/fetch") is not None
        pairs = [
            (mirror, number)
            for mirror in mirrors
            for number in sorted(own.topics[mirror.name].leaders)
            if number in source.topics[mirror.source].leaders
        ]
        theirs, ours = ([(getattr(mirror, part), number) for mirror, number in pairs] for part in ("source", "name"))
        starts, ends = source.list_offsets(theirs, EARLIEST), source.list_offsets(theirs, LATEST)
        stable = source.list_offsets(theirs, LATEST, stable=True)
        own_starts, own_ends = own.list_offsets(ours, EARLIEST), own.list_offsets(ours, LATEST)
        for mirror, number in pairs:
            key, own_key = (mirror.source, number), (mirror.name, number)
            if any(key not in offsets for offsets in (starts, ends, stable)) or own_key not in own_ends:
                continue
            start, position = max(starts[key], mirror.starts.get(number, 0)), own_ends[own_key]
            if not is_held:
                position = self._copy(link, source, broker, mirror, SourceLog(*key, start, stable[key]), position)
                with self.server.network.lock:
                    if self._may_write(link, mirror) and own_starts.get(own_key, 0) < min(start, position):
                        delete_before(broker, mirror.name, number, min(start, position))
            fetched = position - 1 if position > start else -1
            mirror.lags[number] = (max(0, ends[key] - max(position, start)), fetched)
            mirror.looked = started
        for mirror in mirrors if not is_held else ():
            with self.server.network.lock:
                if mirror.is_new and self._may_write(link, mirror) and mirror.configs:
                    self._configure(broker, mirror, mirror.configs)
                    mirror.is_new = False

    def _copy(
        self,
        link: Link,
        source: ClusterReader,
        broker: BrokerConnection,
        mirror: Mirror,
        log: SourceLog,
        position: int,
    ) -> int:
        lock = self.server.network.lock
        try:
            return source.copy(log, broker, mirror.name, position, lock, lambda: self._may_write(link, mirror))
        except StoppedError as error:
            self._note(f"link {link.name}, this server writes no such gap: {error}")
            mirror.error = "ILLEGAL_STATE"
            mirror.move("FAILED")
            return position

    # Groups and access rules

    def _copy_groups(self, link: Link, source: ClusterReader, own: ClusterReader, broker: BrokerConnection) -> None:
        """Commit the offsets of the source's groups for mirrors, up to the end of each partition."""
        feature = "consumer.offset.sync.enable"
        if not link.is_on(feature):
            return
        names = {mirror.source: mirror.name for mirror in link.mirrors.values() if mirror.state in _FOLLOWED}
        prefix = link.get(PREFIX) if link.is_on("consumer.group.prefix.enable") else ""
        for group in source.list_groups():
            if not selects(group, link.read_filters(feature)):
                continue
            commits = {
                (names[topic], number): offset
                for (topic, number), offset in source.read_commits(group).items()
                if names.get(topic) in own.topics
            }
            ends = own.list_offsets(commits, LATEST)
            rows = [(*key, min(offset, ends[key])) for key, offset in commits.items() if key in ends]
            if rows and not broker.commit(prefix + group, rows):
                message = f"Consumer group {prefix + group} is in use at the destination"
                link.task_errors["ConsumerOffsetSync"] = ("CONSUMER_GROUP_IN_USE_ERROR", message)

    def _copy_rules(self, link: Link, source: ClusterReader, broker: BrokerConnection) -> None:
        feature = "acl.sync.enable"
        if not link.is_on(feature):
            return
        for row in link.read_filters(feature):
            place, access = row.get("resourceFilter") or {}, row.get("accessFilter") or {}
            query = {"resource_type": place.get("resourceType"), "pattern_type": place.get("patternType")}
            query |= {"operation": access.get("operation"), "permission": access.get("permissionType")}
            query = {name: str(value or "ANY").upper() for name, value in query.items()}
            other: Document = {"resource_name": place.get("name"), "principal": access.get("principal")}
            fields = read_filter({**query, **other, "host": access.get("host")})
            own = self.server.access.read_rules(fields)
            if rules := [rule for rule in source.read_acls(fields) if rule not in own]:
                broker.ask("CreateAcls", 1, creations=rules)

    # States

    def _advance(self, link: Link, mirror: Mirror) -> None:
        """Bring a mirror to its next state, if it is due; to be called under the lock."""
        if link.mirrors.get(mirror.name) is not mirror or not mirror.state.startswith("PENDING_"):
            return
        fault = self.server.faults.take(MIRROR, f"{mirror.name}/{mirror.state}/")
        mirror.errors = []
        if fault is not None:
            mirror.errors = [{"error_code": fault.code or "INTERNAL_ERROR", "error_message": fault.message}]
        is_due = fault is None and time.time() - mirror.since >= self.server.step_seconds
        is_level = mirror.lag == 0 and not mirror.is_new and mirror.looked >= mirror.since
        if not is_due or mirror.state == "PENDING_MIRROR":
            return
        if mirror.state == "PENDING_SETUP_FOR_RESTORE":
            mirror.move("PENDING_RESTORE")
        elif mirror.state == "PENDING_RESTORE":
            self._truncate(mirror)
            mirror.move("ACTIVE")
        elif is_level and mirror.state == "PENDING_SYNCHRONIZE":
            mirror.move("PENDING_STOPPED")
        elif is_level:
            self._finish(link, mirror)

    def _finish(self, link: Link, mirror: Mirror) -> None:
        """Stop a mirror; if its roles are reversed, its source becomes the mirror."""
        state, peer = mirror.reversal, self.server.links.find_peer(link)
        self.server.mirrors.stop(mirror)
        record = peer[1].mirrors.get(mirror.source) if peer and state else None
        if peer and record is not None and record.state == "PENDING_MIRROR":
            record.source_id = str(self.server.topics.find(mirror.name).topic_id)
            record.lags = {number: (0, end - 1) for number, end in mirror.ends.items()}
            record.move(state)
            peer[0].mirrors.publish()

    def _truncate(self, mirror: Mirror) -> None:
        """Create a topic again with the records before its cuts, and give groups their offsets back."""
        with self.server.read_own([mirror.name]) as own, self.server.connect() as broker:
            commits = {group: own.read_commits(group) for group in own.list_groups()}
            bounds, configs = read_bounds(broker, mirror.name), read_configs(broker, mirror.name)
            contents = {
                number: read_log(broker, mirror.name, number, start, mirror.cuts[number])
                for number, (start, _) in bounds.items()
            }
            delete_topics(broker, [mirror.name])
            while list_partitions(broker, mirror.name):
                pass  # The controller answers before the broker forgets the topic.
            create_topic(broker, mirror.name, len(bounds))
            for number, (start, _) in bounds.items():
                end = mirror.cuts[number]
                batches = [batch for batch in Batch.split(contents[number]) if batch.base < end]
                write_log(broker, mirror.name, number, batches, min(start, end), end)
            set_configs(broker, mirror.name, {**dict.fromkeys(OPEN), **configs})
            for group, offsets in commits.items():
                rows = [
                    (name, number, min(offset, mirror.cuts[number]))
                    for (name, number), offset in offsets.items()
                    if name == mirror.name
                ]
                if rows:
                    broker.commit(group, rows)

    def _note(self, text: str) -> None:
        if text not in self.log:
            self.log.append(text)
