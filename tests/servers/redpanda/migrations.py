"""Mounts and unmounts: their states, what they refuse, and the work of each state."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from tests.servers.emulation.faults import Faults
from tests.servers.emulation.logs import StoppedError, create_topic, delete_topics, list_partitions, read_bounds
from tests.servers.emulation.wire import BrokerConnection
from tests.servers.redpanda.bucket import Bucket, Location
from tests.servers.redpanda.cluster import load_table
from tests.servers.redpanda.kafka_api import MIGRATIONS, RedpandaFront
from tests.servers.redpanda.topics import READ, REPLICATION, RESTORED_BY_24_3, WRITE, TopicStore

_TABLE: Final = load_table("migrations.yaml")
_STATES: Final[dict[str, dict[str, Any]]] = _TABLE["states"]
_TICK_SECONDS: Final = 0.02
NAMESPACE: Final = "kafka"


class RefusedError(Exception):
    """A request that is answered with an error of the table."""

    def __init__(self, name: str, detail: str = "") -> None:
        self.row = _TABLE["errors"][name]
        super().__init__(f"{self.row['message']}: {detail}" if detail else self.row["message"])


@dataclass
class Migration:
    """One mount or unmount; `places` are the locations that it claimed or wrote, by topic name on this cluster."""

    id: int
    kind: str
    topics: list[dict[str, Any]]
    groups: list[str]
    advances: bool
    state: str = "planned"
    created: int = field(default_factory=lambda: int(time.time() * 1000))
    completed: int | None = None
    polls: int = 0
    places: dict[str, Location] = field(default_factory=dict)
    claimed: set[Location] = field(default_factory=set)
    restored: set[str] = field(default_factory=set)
    is_stuck: bool = False

    @property
    def names(self) -> list[str]:
        """Names of the topics on this cluster."""
        if self.kind == "outbound":
            return [topic["topic"] for topic in self.topics]
        return [(topic.get("alias") or topic["source_topic_reference"])["topic"].split("/")[0] for topic in self.topics]


class Migrations:
    """All migrations of a cluster, moved by one thread."""

    def __init__(
        self, broker_port: int, bucket: Bucket, topics: TopicStore, front: RedpandaFront, faults: Faults
    ) -> None:
        self._broker_port = broker_port
        self._bucket, self._topics, self._front, self._faults = bucket, topics, front, faults
        self._cluster = topics.cluster
        self._all: dict[int, Migration] = {}
        self._lock = threading.RLock()
        self._next_id = 1
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.log: list[str] = []
        """What a broker would write to its log: why a migration does not move on."""

    @property
    def can_migrate(self) -> bool:
        return self._cluster.is_licensed and self._cluster.is_tiered

    @property
    def is_old(self) -> bool:
        return self._cluster.version < (25, 1)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ends.set()
        self._thread.join(30)

    def read(self, number: int | None = None) -> list[dict[str, Any]]:
        """Return the documents of all migrations or of one; a read counts as a poll."""
        if not self.is_old and not self.can_migrate:
            raise RefusedError("feature")
        chosen = list(self._all.values()) if number is None else [self._find(number)]
        documents = [self._describe(each) for each in chosen]
        for migration in chosen:
            migration.polls += 1
            if self._faults.pace == "polls" and migration.polls % self._faults.polls_per_step == 0:
                self.advance(migration.id)
        return documents

    def create(self, kind: str, topics: list[dict[str, Any]], groups: list[str], *, advances: bool) -> int:
        """Start a migration and return its id."""
        if not self.can_migrate:
            raise RefusedError("feature")
        if not topics and not groups:
            raise RefusedError("empty")
        with self._lock, BrokerConnection(self._broker_port) as broker:
            migration = Migration(self._next_id, kind, topics, groups, advances)
            active = [each for each in self._all.values() if self._refused_by(each)]
            held = {name for each in active for name in each.names}
            for topic, name in zip(topics, migration.names, strict=True):
                self._check_topic(broker, kind, topic, name, is_held=name in held)
            if not self.is_old and {group for each in active for group in each.groups} & set(groups):
                raise RefusedError("migrating")
            self._next_id += 1
            self._all[migration.id] = migration
            self._publish()
        return migration.id

    def act(self, number: int, action: str) -> None:
        with self._lock:
            if action not in {"prepare", "execute", "finish", "cancel"}:
                raise RefusedError("action", action)
            migration = self._find(number)
            target = _STATES[migration.state].get(action)
            if target is None:
                raise RefusedError("transition")
            migration.state = target
            self._publish()

    def delete(self, number: int) -> None:
        with self._lock:
            if not _STATES[self._find(number).state].get("deletable"):
                raise RefusedError("transition")
            del self._all[number]
            self._publish()

    def advance(self, number: int | None = None, steps: int = 1) -> None:
        """Move one migration, or all of them, on by a number of states."""
        with BrokerConnection(self._broker_port) as broker:
            for migration in [each for each in list(self._all.values()) if number in {None, each.id}] * steps:
                try:
                    with self._lock:
                        self._step(broker, migration)
                except (AssertionError, TimeoutError) as error:  # tried again, as Redpanda does
                    self._note(f"migration {migration.id} is tried again: {error}")

    def forget(self) -> None:
        """Forget all migrations and detached topics, as no Redpanda does: the test that left them has ended."""
        with self._lock:
            self._all.clear()
            for place in self._bucket.list_mountable():
                self._bucket.claim(place)
                self._bucket.remove(place)
            self._publish()

    def list_mountable(self) -> dict[str, Any]:
        rows = [(str(place), place.topic) for place in self._bucket.list_mountable()]
        return {"topics": [{"topic_location": place, "topic": topic, "ns": NAMESPACE} for place, topic in rows]}

    def _check_topic(
        self, broker: BrokerConnection, kind: str, topic: dict[str, Any], name: str, *, is_held: bool
    ) -> None:
        references = [topic] if kind == "outbound" else [topic["source_topic_reference"], topic.get("alias") or {}]
        if any(reference.get("ns", NAMESPACE) != NAMESPACE for reference in references):
            raise RefusedError("not_eligible")
        exists = bool(list_partitions(broker, name))
        if is_held:
            raise RefusedError("migrating")
        if kind == "inbound" and exists:
            self.log.append(f"cannot mount {name}: a topic of that name exists")
            raise RefusedError("exists")
        if kind == "outbound" and not exists:
            raise RefusedError("missing_topic")
        if kind == "outbound" and not self._topics.is_written(name):
            raise RefusedError("not_eligible")

    def _find(self, number: int) -> Migration:
        if number not in self._all:
            raise RefusedError("unknown")
        return self._all[number]

    def _refused_by(self, migration: Migration) -> frozenset[str]:
        return frozenset(_TABLE["refused"][migration.kind].get(migration.state, ()))

    def _publish(self) -> None:
        """Tell the Kafka API what is refused from now on."""
        held = {name: self._refused_by(each) for each in self._all.values() for name in each.names}
        self._front.held[MIGRATIONS] = held

    def _run(self) -> None:
        while not self._ends.wait(_TICK_SECONDS):
            if self._faults.pace == "steady" and self._all:
                with suppress(OSError):  # the broker is gone
                    self.advance()

    def _step(self, broker: BrokerConnection, migration: Migration) -> None:
        row = _STATES[migration.state] if migration.id in self._all else {}
        if "next" in row:
            if not self._work(broker, migration):
                return
            migration.state = row["next"]
        elif migration.advances and "auto" in row:
            migration.state = row[row["auto"]]
        elif migration.advances and row.get("vanishes"):
            del self._all[migration.id]
        if migration.state in {"finished", "cancelled"}:
            migration.completed = migration.completed or int(time.time() * 1000)
        self._publish()

    def _work(self, broker: BrokerConnection, migration: Migration) -> bool:
        """Do the work of a state; return whether it is done."""
        work = getattr(self, f"_{migration.kind}_{migration.state}", None)
        return work is None or bool(work(broker, migration))

    # Unmounts

    def _outbound_executing(self, broker: BrokerConnection, migration: Migration) -> bool:
        for name in migration.names:
            migration.places[name] = Location(*self._topics.locate(name))
            self._store(broker, name, migration.places[name])
            if not self.is_old:
                self._bucket.release(migration.places[name])
        return True

    def _outbound_cut_over(self, broker: BrokerConnection, migration: Migration) -> bool:
        for name, place in migration.places.items():
            if read_bounds(broker, name) not in ({}, self._bucket.read_topic(place)["bounds"]):
                self._store(broker, name, place)  # A record was on its way when writes ended.
        delete_topics(broker, list(migration.places))
        for name, place in migration.places.items():
            self._topics.forget(name)
            self._bucket.release(place)
        return True

    def _outbound_canceling(self, _: BrokerConnection, migration: Migration) -> bool:
        for place in migration.places.values():
            self._bucket.claim(place)
            self._bucket.remove(place)
        return True

    def _store(self, broker: BrokerConnection, name: str, place: Location) -> None:
        self._bucket.store(broker, name, place, self._topics.kept.get(name, {}))

    # Mounts

    def _inbound_preparing(self, broker: BrokerConnection, migration: Migration) -> bool:
        mountable = self._bucket.list_mountable()
        for topic, name in zip(migration.topics, migration.names, strict=True):
            reference = topic["source_topic_reference"]["topic"]
            found = [each for each in mountable if f"{each}/".startswith(f"{reference}/")]
            if len(found) != 1:
                self._note(f"mount {migration.id}: {len(found)} mountable topics for {reference}")
                return False
            migration.places[name] = found[0]
        for name, place in migration.places.items() if self.is_old else ():
            if not list_partitions(broker, name):
                create_topic(broker, name, len(self._bucket.read_topic(place)["bounds"]))
                migration.restored.add(name)
        return True

    def _inbound_executing(self, _: BrokerConnection, migration: Migration) -> bool:
        for place in migration.places.values():
            if place not in migration.claimed and not self._bucket.claim(place):
                self._note(f"mount {migration.id}: {place} is mounted elsewhere")
                return False
            migration.claimed.add(place)
        return True

    def _inbound_cut_over(self, broker: BrokerConnection, migration: Migration) -> bool:
        for name, place in migration.places.items():
            if migration.is_stuck:
                return False
            configs, settings = self._restored(place)
            self._drop(broker, [name])
            try:
                self._bucket.restore(broker, name, place, configs)
            except StoppedError as error:
                self._note(f"mount {migration.id} of {place} stops, this server writes no such gap: {error}")
                migration.is_stuck = True
                return False
            self._topics.kept[name], self._topics.origins[name] = settings, tuple(place)
        return True

    def _inbound_canceling(self, broker: BrokerConnection, migration: Migration) -> bool:
        self._drop(broker, list(migration.restored))
        for place in migration.claimed:
            self._bucket.release(place)
        return True

    def _restored(self, place: Location) -> tuple[dict[str, str], dict[str, str]]:
        """Return the configs that a mount restores: at the broker, and here."""
        document = self._bucket.read_topic(place)
        configs, settings = document["configs"], document["settings"]
        if not self.is_old:
            return configs, settings
        forced = {WRITE: "true", READ: "true", REPLICATION: settings.get(REPLICATION, "1")}
        kept = {name: value for name, value in settings.items() if name in RESTORED_BY_24_3}
        return {name: value for name, value in configs.items() if name in RESTORED_BY_24_3}, {**kept, **forced}

    def _drop(self, broker: BrokerConnection, names: list[str]) -> None:
        """Delete topics at the broker and wait until they are gone."""
        names = [name for name in names if list_partitions(broker, name)]
        if names:
            delete_topics(broker, names)
        while any(list_partitions(broker, name) for name in names):
            time.sleep(_TICK_SECONDS)

    def _note(self, text: str) -> None:
        if text not in self.log:
            self.log.append(text)

    def _describe(self, migration: Migration) -> dict[str, Any]:
        inner = {"migration_type": migration.kind, "topics": list(self._describe_topics(migration))}
        inner |= {"consumer_groups": migration.groups, "auto_advance": migration.advances}
        ended = {"completed_timestamp": migration.completed} if migration.completed else {}
        times = {"created_timestamp": migration.created, **ended}
        return {"id": migration.id, "state": migration.state, "migration": inner, **times}

    def _describe_topics(self, migration: Migration) -> Iterator[dict[str, Any]]:
        for topic, name in zip(migration.topics, migration.names, strict=True):
            if migration.kind == "inbound":
                yield {key: {"ns": NAMESPACE, **reference} for key, reference in topic.items()}
            else:
                place = (
                    {}
                    if self.is_old or name not in migration.places
                    else {"remote_location": str(migration.places[name])}
                )
                yield {"ns": NAMESPACE, **topic, **place}
