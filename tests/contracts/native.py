"""A platform that mirrors and mounts by itself, in memory: it exists for the contracts, which it runs without any job.

Topics, configs, access rules, groups, records and mounts are those of an embedded cluster in memory: its brokers. Links
and the states of mirrors are its own and behave as those of Confluent. It copies whenever it is looked at, as brokers
do all the time, and changes the role of a mirror when it is asked to: `links.by_jobs` is `None`.

It stands in for the platform `confluent`: `native_platform` registers it, `declared_as_native` declares one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from reconciler.errors import NotAuthorizedError, ReconcilerError, RetryableError, UserError
from reconciler.lifecycles import MIRROR, MirrorStatus
from reconciler.planning.actions import Change, ControlAction, Create, Delete, Transition, Update
from reconciler.providers.embedded.provider import CAPABILITIES, EmbeddedProvider
from reconciler.providers.models import (
    apply_declared_changes,
    read_planned_source,
    to_declared_link,
    to_declared_mirror,
    to_link_entry,
    to_observed_link,
)
from reconciler.providers.protocol import CompletedAction, Edge, FailedAction, Outcome, Scope, build_scope_filter
from reconciler.providers.registry import PLATFORMS
from reconciler.records.log import OffsetRange
from reconciler.records.schema import INPUT_SCHEMA
from reconciler.resources.address import Address, address_of, full_name_of, split_name
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import LiveMirror, MirrorSupport, Observed, read_resource
from reconciler.resources.measures import NO_CUTS, Cuts, Measures
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mirrors import (
    FAILOVER,
    PROMOTE,
    LinkEntry,
    MirrorEntry,
    ObservedLink,
    ObservedMirror,
    Position,
    compute_link_status,
    compute_mirror_status,
)
from reconciler.resources.topic import Topic
from reconciler.runtime.retry import skip_check

if TYPE_CHECKING:
    import pytest

    from reconciler.records.log import TopicLog, TopicProducer
    from reconciler.resources.inventory import Capabilities, ClusterIdentity, Inventory

_M = MirrorStatus


@dataclass
class Book:
    """What a cluster keeps of its links and mirrors, by name, and what was asked of it."""

    links: dict[str, LinkEntry] = field(default_factory=dict)
    mirrors: dict[str, MirrorEntry] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """The verbs that came in, in order."""
    is_down: bool = False


BOOKS: dict[str, Book] = {}
"""Every cluster by its id: it goes on when nothing of this process has it open."""
NETWORK: dict[str, NativeProvider] = {}
"""Every cluster by the name that links give it."""


def native_platform(monkeypatch: pytest.MonkeyPatch, *, is_bare: bool = False) -> None:
    """Let clusters declared as `confluent` be of this platform, `is_bare`: without any part that may be absent."""
    monkeypatch.setitem(PLATFORMS, "confluent", BareProvider if is_bare else NativeProvider)


def declared_as_native(cluster_id: str) -> dict[str, Any]:
    """Return the spec of a cluster of this platform."""
    secrets = {"apiKey": "${env:KEY}", "apiSecret": "${env:SECRET}"}
    connection = {"restEndpoint": f"https://{cluster_id}.example.com", "clusterId": cluster_id, **secrets}
    return {"provider": "confluent", "confluent": connection}


class NativeProvider:
    """One cluster. What is not about links is answered by its brokers."""

    def __init__(self, declared: Cluster, edge: Edge) -> None:
        connection, storage = declared.spec.confluent, declared.spec.object_storage
        assert connection is not None
        self.name, self.edge = declared.metadata.name, edge
        self._declared = declared
        self.book = BOOKS.setdefault(connection.cluster_id, Book())
        inside = {"embedded": {"root": f"memory://{connection.cluster_id}"}}
        if storage is not None:
            inside["objectStorage"] = storage
        brokers = Cluster.model_validate({"metadata": {"name": self.name}, "spec": inside})
        self.brokers = EmbeddedProvider.open(brokers, replace(edge, is_reader=False))  # They copy whoever looks.
        if self.brokers.identify() is None:
            self._do(Create(address=brokers.address, after=brokers))
        NETWORK[self.name] = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.brokers, name)

    @property
    def capabilities(self) -> Capabilities:
        """The limits of this platform: it mirrors by itself, and swaps no roles."""
        return replace(
            CAPABILITIES,
            platform="confluent",
            mirrors=MirrorSupport(roles=frozenset({"mirroring", "paused", "promoted", "failed-over"})),
            recovery=False,
            read_replicas=False,
            creates_cluster=False,
            cluster_properties=False,
            batch=20,
        )

    @property
    def archives(self) -> None:
        """It makes no topics from object storage."""

    @property
    def links(self) -> NativeLinks:
        return NativeLinks(self)

    def identify(self) -> ClusterIdentity | None:
        if self.book.is_down:
            raise RetryableError(f"cluster {self.name} does not answer", hint="Try again.")
        found = self.brokers.identify()
        return None if found is None else replace(found, provider="confluent")

    def observe(self, scope: Scope) -> Inventory:
        identity = self.identify()
        self.replicate()
        seen = dict(self.brokers.observe(Scope(recorded=scope.recorded)))
        spec = self._declared.spec.model_copy(update={"cluster_id": identity.cluster_id if identity else None})
        here = self._declared.address
        seen[here] = replace(seen[here], resource=self._declared.model_copy(update={"spec": spec}))
        for name, entry in self.book.links.items():
            link = Observed(to_declared_link(name, self.name, entry), entry.id, state=compute_link_status(entry))
            seen[address_of("link", self.name, name)] = link
        for name, mirror in self.book.mirrors.items():
            found = self._observed(name, mirror, seen)
            seen[found.resource.address] = found
        wanted = build_scope_filter(scope)
        return {address: found for address, found in seen.items() if wanted is None or wanted(address)}

    def _observed(self, name: str, mirror: MirrorEntry, seen: dict[Address, Observed]) -> Observed:
        at = address_of("topic", self.name, name)
        topic = seen[at] if mirror.is_stopped else seen.pop(at)
        assert isinstance(topic.resource, Topic)
        link = self.book.links[mirror.link_id]
        spec = topic.resource.spec
        return Observed(
            to_declared_mirror(self.name, name, mirror, (mirror.link_id, link), spec.configs, spec.partitions or 0),
            topic.incarnation,
            state=compute_mirror_status(mirror, link),
            mirror=LiveMirror.from_entry(mirror, None if mirror.is_stopped else topic.resource),
        )

    def measure_topics(self, addresses: Sequence[Address], cuts: Cuts = NO_CUTS) -> Measures:
        self.replicate()
        found = self.brokers.measure_topics(addresses, cuts)
        return {
            at: replace(one, positions=self.as_copied(full_name_of(at), one.positions)) for at, one in found.items()
        }

    def open_log(self, topic: Address, **how: Any) -> TopicLog:
        """Return the records of a topic or mirror."""
        self.replicate()
        return self.brokers.open_log(topic, **how)

    def open_producer(self, topic: Address) -> TopicProducer:
        """Return where records go in, unless only a link writes there."""
        mirror = self.book.mirrors.get(full_name_of(topic))
        if mirror is not None and not mirror.is_stopped:
            raise UserError(f"{topic} is a mirror", hint="Write to its source.")
        return self.brokers.open_producer(topic)

    def apply(
        self, actions: Sequence[ControlAction], *, may_go_on: Callable[[], None] = skip_check
    ) -> Iterator[Outcome]:
        """Do a batch and yield one outcome each: of a mirror once its state is seen."""
        assert len(actions) <= self.capabilities.batch
        self.identify()
        for action in actions:
            match action:
                case Create(after=MirrorLink() | MirrorTopic()) | Update(after=MirrorLink() | MirrorTopic()):
                    yield self._attempt(action, may_go_on)
                case Delete(before=MirrorLink() | MirrorTopic()) | Transition(after=MirrorTopic()):
                    yield self._attempt(action, may_go_on)
                case _:
                    yield from self.brokers.apply([action], may_go_on=may_go_on)

    def _attempt(self, action: ControlAction, may_go_on: Callable[[], None]) -> Outcome:
        may_go_on()
        try:
            return CompletedAction(action.id, self._change(action))
        except ReconcilerError as error:
            return FailedAction(action.id, error)

    def _change(self, action: ControlAction) -> str | None:
        """Do what an action says of a link or a mirror, and return the incarnation."""
        name, book = full_name_of(action.address), self.book
        match action:
            case Create(after=MirrorLink() as link):
                if name not in book.links:
                    book.links[name] = to_link_entry(link, self.edge.new_id())
                return book.links[name].id
            case Update(after=MirrorLink()):
                entry = book.links[name]
                book.links[name] = replace(entry, declared=apply_declared_changes(entry.declared, action.changes))
                return entry.id
            case Delete(before=MirrorLink()):
                live = [
                    each for each, mirror in book.mirrors.items() if mirror.link_id == name and not mirror.is_stopped
                ]
                if live:
                    raise UserError(f"link {name} has mirrors: {', '.join(live)}", hint="Promote or delete them first.")
                book.links.pop(name, None)
                book.mirrors = {each: mirror for each, mirror in book.mirrors.items() if mirror.link_id != name}
                return None
            case Create(after=MirrorTopic() as mirror):
                return self._create(mirror, action.parameters)
            case Update(after=MirrorTopic()):
                return self._alter(name, action.changes)
            case Delete(before=MirrorTopic()):
                topic = self._topic(name)
                if topic is not None:
                    self._do(Delete(address=topic.address, before=topic, incarnation=action.incarnation))
                book.mirrors.pop(name, None)
                return None
            case Transition():
                return self.ask(name, action.verb).topic_id
            case _:
                raise NotImplementedError(action)

    def _create(self, mirror: MirrorTopic, parameters: Mapping[str, Any]) -> str | None:
        known = self.book.mirrors.get(mirror.name)
        if known is not None and (known.link_id, known.source) != (mirror.link, mirror.source):
            raise UserError(f"mirror {mirror.name} exists and differs", hint="Choose another name.")
        if known is None:
            if mirror.link not in self.book.links:
                raise UserError(f"there is no link {mirror.link}", hint="Create it first.")
            taken = read_planned_source(mirror.address, parameters)
            configs, (namespace, short) = {**taken.configs, **mirror.configs}, split_name(mirror.name)
            metadata = {"name": short, "namespace": namespace, "cluster": self.name}
            spec = {"partitions": taken.partitions, "configs": configs}
            topic = read_resource({"kind": "Topic", "metadata": metadata, "spec": spec})
            self._do(Create(address=topic.address, after=topic))
            entry = MirrorEntry(mirror.link, mirror.source, taken.incarnation, since_ms=self.edge.now_ms())
            self.book.mirrors[mirror.name] = entry
        return self._incarnation(mirror.name)

    def _alter(self, name: str, changes: Sequence[Change]) -> str | None:
        topic = self._topic(name)
        assert topic is not None
        self._do(Update(address=topic.address, before=topic, after=topic, changes=tuple(changes)))
        return self._incarnation(name)

    def ask(self, name: str, verb: str) -> ObservedMirror:
        """Do a verb of the table, and return the mirror once its state is seen."""
        self.replicate()
        self.book.asked.append(f"{verb} {name}")
        mirror = self.book.mirrors[name]
        if not (mirror.is_stopped and mirror.stopped_by == verb):
            state = MIRROR.apply_verb(compute_mirror_status(mirror, self.book.links[mirror.link_id]), verb)
            stops = {"stopped_by": verb} if verb in {PROMOTE, FAILOVER} else {}
            self._put(name, mirror, state, **stops)
        self.replicate()
        return self.links.read_mirror(name)

    # What brokers do all the time.

    def replicate(self) -> None:
        """Copy what sources have, and end promotions of mirrors that have all of it."""
        for name, mirror in list(self.book.mirrors.items()):
            source, state = self._source(mirror), MirrorStatus(mirror.state)
            if state not in {_M.ACTIVE, _M.SOURCE_UNAVAILABLE, _M.PENDING_STOPPED}:
                continue
            if source is not None:
                self._copy(name, mirror.source, source)
                self._put(name, mirror, _M.STOPPED if state is _M.PENDING_STOPPED else _M.ACTIVE, first_copy_done=True)
            elif state is _M.ACTIVE:
                self._put(name, mirror, _M.SOURCE_UNAVAILABLE)

    def _copy(self, name: str, source_name: str, source: NativeProvider) -> None:
        at = address_of("topic", self.name, name)
        above = source.open_log(address_of("topic", source.name, source_name))
        bounds, ends = above.read_bounds(), self.brokers.open_log(at).read_bounds()
        if len(bounds) > len(ends):
            self._alter(name, [Change("partitions", len(ends), len(bounds))])
        producer = self.brokers.open_producer(at)
        for partition, bound in bounds.items():
            end = ends[partition].end if partition in ends else 0
            for batch in above.read(partition, OffsetRange(end, bound.stable)):
                producer.append(batch.select(INPUT_SCHEMA.names).cast(INPUT_SCHEMA))
        producer.flush()

    def _put(self, name: str, mirror: MirrorEntry, state: MirrorStatus, **more: Any) -> None:
        since = mirror.since_ms if mirror.state == state else self.edge.now_ms()
        self.book.mirrors[name] = replace(mirror, state=state.value, since_ms=since, **more)

    def as_copied(self, name: str, positions: Mapping[int, Position]) -> Mapping[int, Position]:
        """Return where a topic stands: of a mirror, all of it was copied."""
        mirror = self.book.mirrors.get(name)
        source = None if mirror is None else self._source(mirror)
        if mirror is None or mirror.is_stopped or source is None:
            return positions
        above = source.brokers.links.read_positions(mirror.source)
        known = {"source_topic_id": mirror.source_topic_id}
        return {
            number: replace(at, source_epochs=above[number].epochs, fetched=at.end, **known)
            for number, at in positions.items()
        }

    def _source(self, mirror: MirrorEntry) -> NativeProvider | None:
        """Return where a mirror copies from; `None`: that cluster does not answer."""
        source = NETWORK.get(self.book.links[mirror.link_id].source_cluster)
        return None if source is None or source.book.is_down else source

    # Its brokers.

    def _do(self, action: ControlAction) -> None:
        for outcome in self.brokers.apply([action]):
            if isinstance(outcome, FailedAction):
                raise outcome.error

    def _topic(self, name: str) -> Topic | None:
        at = address_of("topic", self.name, name)
        seen = self.brokers.observe(Scope((at,))).get(at)
        return None if seen is None or not isinstance(seen.resource, Topic) else seen.resource

    def _incarnation(self, name: str) -> str | None:
        at = address_of("topic", self.name, name)
        return self.brokers.observe(Scope((at,)))[at].incarnation


class BareProvider(NativeProvider):
    """A cluster that has topics, configs and records, and no part that may be absent."""

    archives = groups = links = maintenance = migrations = None

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, mirrors=MirrorSupport(), mountings=False)


@dataclass(frozen=True)
class NativeLinks:
    """The links of one cluster."""

    of: NativeProvider

    @property
    def job_steps(self) -> None:
        """Its mirrors are copied by itself."""

    def list_links(self) -> Sequence[ObservedLink]:
        return [to_observed_link(name, self.of.name, entry) for name, entry in sorted(self.of.book.links.items())]

    def list_mirrors(
        self, link: str | None = None, *, name: str | None = None, source: str | None = None
    ) -> Sequence[ObservedMirror]:
        self.of.replicate()
        seen = [self._seen(each) for each in sorted(self.of.book.mirrors)]
        wanted = {"link": link, "name": name, "source": source}
        return [one for one in seen if all(value in {None, getattr(one, key)} for key, value in wanted.items())]

    def list_lost_mirrors(self, link: str) -> Sequence[str]:  # noqa: ARG002 - a mirror ends with its topic
        return ()

    def find_hidden_mirrors(self, shown: Collection[str], link: str | None = None) -> Mapping[str, NotAuthorizedError]:  # noqa: ARG002 - all are shown
        return {}

    def read_mirror(self, full_name: str) -> ObservedMirror:
        if full_name not in self.of.book.mirrors:
            raise UserError(f"there is no mirror {full_name}", hint="See them with: reconciler mirror list")
        return self._seen(full_name)

    def read_positions(self, full_name: str) -> Mapping[int, Position]:
        """Return where its partitions stand; what is there was copied, while it is a mirror."""
        return self.read_positions_of_topics([full_name])[full_name]

    def read_positions_of_topics(self, full_names: Collection[str]) -> Mapping[str, Mapping[int, Position]]:
        """Return where the partitions of many stand."""
        stands = self.of.brokers.links.read_positions_of_topics(full_names)
        return {name: self.of.as_copied(name, positions) for name, positions in stands.items()}

    def _seen(self, name: str) -> ObservedMirror:
        mirror, topic = self.of.book.mirrors[name], self.of._topic(name)
        link = self.of.book.links[mirror.link_id]
        assert topic is not None
        return ObservedMirror(
            cluster=self.of.name,
            name=name,
            topic_id=self.of._incarnation(name) or "",
            link=mirror.link_id,
            source_cluster=link.source_cluster,
            source=mirror.source,
            status=compute_mirror_status(mirror, link),
            partitions=topic.spec.partitions or 0,
            since_ms=mirror.since_ms,
            source_topic_id=mirror.source_topic_id,
            stopped_by=mirror.stopped_by,
            first_copy_done=mirror.first_copy_done,
        )
