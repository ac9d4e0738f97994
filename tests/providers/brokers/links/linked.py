"""Two names of one cluster, a link between them whose mirrors have a prefix, and what a test does with them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import monotonic, time_ns
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from reconciler.planning.actions import Create, Delete, Transition
from reconciler.providers.brokers.links.link_site import LinkSite
from reconciler.providers.brokers.links.links import KafkaLinks, open_sink
from reconciler.providers.brokers.provider import BrokersProvider
from reconciler.providers.protocol import CompletedAction, Edge, FailedAction, Outcome, Provider, Scope
from reconciler.providers.registry import open_provider
from reconciler.records.log import ObservedSource, OffsetRange
from reconciler.resources.address import Address, address_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import Inventory
from reconciler.resources.mirror_link import MirrorLink
from reconciler.resources.mirrors import ObservedMirror
from tests.contracts.redpanda import SECRETS, declared_on_redpanda
from tests.servers.kafka import Kafka
from tests.servers.redpanda.server import Redpanda

PREFIX = "copy-"
NOW_MS = time_ns() // 1_000_000
"""Of now: brokers expire by it what mirrors bring."""
EAST, WEST = "east", "west"
BROKERS = [
    pytest.param("kafka_broker"),
    pytest.param("redpanda_server", marks=[pytest.mark.thorough, pytest.mark.xdist_group("redpanda")]),
]
"""Fixtures of the clusters that jobs mirror between."""
OPENED: list[BrokersProvider] = []
"""What is to be closed after a test."""


def provider_of(broker: Kafka | Redpanda, name: str, clock: Any = None) -> BrokersProvider:
    """Return a provider as a process of its own has it."""
    if isinstance(broker, Redpanda):
        declared = declared_on_redpanda(name, broker)
    else:
        spec = {"provider": "kafka", "kafka": {"bootstrapServers": broker.bootstrap().split(",")}}
        declared = Cluster.model_validate({"kind": "Cluster", "metadata": {"name": name}, "spec": spec})
    ticks = clock or count(NOW_MS)
    edge = Edge(Path.cwd(), SECRETS, lambda: secrets.token_hex(16), lambda: next(ticks))
    provider = open_provider(declared, edge)
    assert isinstance(provider, BrokersProvider)
    OPENED.append(provider)
    return provider


@dataclass
class Linked:
    """A source topic on `west`, and a link of `east` that mirrors it."""

    broker: Kafka | Redpanda
    topic: str
    link: str
    east: BrokersProvider
    west: BrokersProvider
    declared: dict[str, Any] = field(default_factory=dict)
    source: Provider | None = None
    """Where its source is, if that is not on this broker."""

    @classmethod
    def of(
        cls, broker: Kafka | Redpanda, prefix: str, partitions: int = 2, *, make: bool = True, **declared: Any
    ) -> Linked:
        here = cls(broker, f"{prefix}-orders", f"link-{prefix}", provider_of(broker, EAST), provider_of(broker, WEST))
        here.declared = declared
        if make:
            here.make_topic(here.topic, partitions)
        here.done(Create(address=here.resource.address, after=here.resource))
        return here

    @property
    def resource(self) -> MirrorLink:
        spec = {"source": WEST, "prefix": PREFIX, **self.declared}
        metadata = {"name": self.link, "cluster": EAST}
        return MirrorLink.model_validate({"kind": "MirrorLink", "metadata": metadata, "spec": spec})

    @property
    def link_id(self) -> str:
        """The id of the link; other tests have links on the same broker."""
        return next(each.id for each in self.links.list_links() if each.name == self.link)

    @property
    def mirror(self) -> str:
        return PREFIX + self.topic

    @property
    def address(self) -> Address:
        return address_of("mirror", EAST, self.mirror)

    @property
    def links(self) -> KafkaLinks:
        return self.east.links

    @property
    def site(self) -> LinkSite:
        return self.links.site

    @property
    def seen(self) -> ObservedMirror:
        return self.links.read_mirror(self.mirror)

    def other(self) -> Linked:
        return Linked(
            self.broker,
            self.topic,
            self.link,
            provider_of(self.broker, EAST),
            provider_of(self.broker, WEST),
            self.declared,
        )

    def make_topic(self, name: str, partitions: int = 2, configs: Mapping[str, str] | None = None) -> None:
        made = self.west._client.admin.create_topics(
            {name: {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs or {})}}
        )
        assert made
        self.wait(lambda: name in self.site.read_topics())

    def wait(self, until: Callable[[], bool]) -> None:
        """Look until something is true: brokers lag behind their controller."""
        deadline = monotonic() + 30
        while not until():
            assert monotonic() < deadline

    def make_mirror(self) -> ObservedMirror:
        self.done(self.creation())
        return self.seen

    def creation(self) -> Create:
        source = (self.source or self.west).read_source_topic(address_of("topic", WEST, self.topic))
        declared = {**self.declared, "mirrorTopics": [{"source": self.topic}]}
        spec = {"source": WEST, "prefix": PREFIX, **declared}
        metadata = {"name": self.link, "cluster": EAST}
        link = MirrorLink.model_validate({"kind": "MirrorLink", "metadata": metadata, "spec": spec})
        parameters = {
            "partitions": source.partitions,
            "configs": dict(source.configs),
            "incarnation": source.incarnation,
        }
        (mirror,) = link.mirrors()
        return Create(address=mirror.address, after=mirror, parameters=parameters)

    def transition(self, verb: str) -> Transition:
        return Transition(
            address=self.address, machine="mirror", verb=verb, from_state="", to_state="", after=self.creation().after
        )

    def deletion(self) -> Delete:
        after = self.creation().after
        return Delete(address=self.address, before=after)

    def apply(self, *actions: Any) -> Sequence[Outcome]:
        return list(self.east.apply(actions))

    def done(self, *actions: Any) -> None:
        for outcome in self.apply(*actions):
            if isinstance(outcome, FailedAction):
                raise outcome.error
            assert isinstance(outcome, CompletedAction)

    def observe(self, *patterns: str) -> Inventory:
        return self.east.observe(Scope(patterns))

    def produce(self, values: Sequence[bytes], partition: int = 0, *, topic: str | None = None) -> None:
        """Write records in one transaction: its marker takes an offset."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap(), "transactional.id": secrets.token_hex(8)})
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic or self.topic, value=value, key=value, partition=partition)
        producer.commit_transaction(30)

    def copier(self) -> Copier:
        """Return a copier that has looked at the mirror, and has not begun."""
        return Copier(self)

    def copy(self) -> None:
        copier = self.copier()
        for partition in range(self.seen.partitions):
            copier.copy(partition)

    def values(self, topic: str, partition: int = 0, start: int = 0) -> list[bytes]:
        """Return the committed values of a partition from an offset on, as a stranger reads them."""
        settings = {"bootstrap.servers": self.broker.bootstrap(), "group.id": "stranger", "enable.partition.eof": True}
        how = {"isolation.level": "read_committed", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, **how})
        consumer.assign([TopicPartition(topic, partition, start)])
        found: list[bytes] = []
        while (message := consumer.poll(30)) is not None and message.error() is None:
            found.append(message.value())
        consumer.close()
        return found


class Copier:
    """One copier: it has looked at both sides when it is made."""

    def __init__(self, linked: Linked) -> None:
        self.log = linked.west.open_log(address_of("topic", WEST, linked.topic))
        settings = linked.site.ledger.settings
        sink = open_sink(linked.site, settings, linked.mirror)
        self.reached = sink.read_positions()
        self.bounds = self.log.read_bounds()
        self.sink = sink.follow_source(ObservedSource(self.log.topic_id, self.bounds))

    def copy(self, partition: int = 0) -> int:
        """Copy what a partition lacks, and return how many records that was."""
        offsets = OffsetRange(self.reached[partition].end, self.bounds[partition].stable)
        return sum(copied.records for copied in self.sink.copy_range(partition, self.log, offsets))


def commit(broker: Kafka | Redpanda, group: str, topic: str, offset: int, metadata: str = "") -> None:
    """Commit where a group goes on; the first group of a broker waits until its coordinator is there."""
    deadline = monotonic() + 30
    consumer = Consumer({"bootstrap.servers": broker.bootstrap(), "group.id": group})
    while True:
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, offset, metadata)], asynchronous=False)
        except KafkaException as refused:
            if refused.args[0].code() != KafkaError.NOT_COORDINATOR or monotonic() > deadline:
                raise
        else:
            break
    consumer.close()
