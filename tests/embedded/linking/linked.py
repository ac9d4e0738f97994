"""Clusters in memory with links between them, each call from a process of its own, and a copier without Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.embedded.catalog.mirror_tables import MirrorShape
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.jobs.flows import missing
from reconciler.objectstore.memory import MemoryStore
from reconciler.operations.steps.transitions import Driver
from reconciler.providers.embedded.provider import EmbeddedProvider
from reconciler.providers.models import link_entry
from reconciler.providers.protocol import Edge
from reconciler.records.log import SourceSeen
from reconciler.resources.address import address_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirror_link import MirrorLink
from tests.embedded.samples import ids
from tests.embedded.upkeeping import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.mirrors import MirrorSeen, Position

LINK = "dr"
ORDERS = "shop:orders"


@dataclass
class Linked:
    """`west`, `east` and whoever else is named; all of them have the namespace `shop`."""

    clock: Clock = field(default_factory=Clock)
    stores: dict[str, ObjectStore] = field(default_factory=dict)
    new_id: Callable[[], str] = field(default_factory=ids)

    @property
    def west(self) -> EmbeddedCluster:
        """Where topics are made first."""
        return self.cluster("west")

    @property
    def east(self) -> EmbeddedCluster:
        """Where they are mirrored to."""
        return self.cluster("east")

    def cluster(self, name: str) -> EmbeddedCluster:
        """Open a cluster anew, as another process would."""
        is_new = name not in self.stores
        store = self.stores.setdefault(name, MemoryStore())
        opened = EmbeddedCluster.create(store, now_ms=self.clock, new_id=self.new_id)
        if is_new:
            opened.create_namespace("shop")
        return opened

    def provider(self, name: str) -> EmbeddedProvider:
        """Open a cluster as commands do."""
        if name not in self.stores:
            self.cluster(name)
        spec = {"embedded": {"root": f"memory://{name}"}}
        declared = Cluster.model_validate({"metadata": {"name": name}, "spec": spec})
        return EmbeddedProvider(declared, self.stores[name], Edge(Path(), {}, self.new_id, self.clock))

    def link(self, destination: str, source: str, name: str = LINK, **spec: Any) -> None:
        """Make a link; a bidirectional one on both clusters."""
        for here, there in [(destination, source), (source, destination)]:
            self.half(here, there, name, **spec)
            if spec.get("mode", "bidirectional") != "bidirectional":
                return

    def half(self, here: str, there: str, name: str = LINK, **spec: Any) -> None:
        """Make a link on one cluster."""
        asked = {"source": there, "mode": "bidirectional", **spec}
        declared = MirrorLink.model_validate({"metadata": {"name": name, "cluster": here}, "spec": asked})
        self.cluster(here).create_link(name, link_entry(declared, self.new_id()))

    def mirror(
        self, destination: str, source: str, full_name: str = ORDERS, link: str = LINK, *, name: str | None = None
    ) -> None:
        """Make a mirror of a topic of another cluster; nothing is copied yet."""
        of = self.cluster(source).source_topic(full_name)
        self.cluster(destination).create_mirror(name or full_name, MirrorShape(link=link, source=full_name), of)

    def driver(self) -> Driver:
        """Return what drives transitions, with clusters opened anew."""
        providers = {name: self.provider(name) for name in self.stores}
        return Driver(providers, self.copy, self.sync, self.new_id)

    def sync(self, mirror: MirrorSeen) -> None:
        """Bring partitions and configs of a mirror to its source's."""
        source = self.cluster(mirror.source_cluster).source_topic(mirror.source)
        self.cluster(mirror.cluster).follow_source(mirror.name, source)

    def copy(self, mirror: MirrorSeen, ends: Mapping[int, int] | None = None) -> None:
        """Bring the records of a mirror to these ends, or to its source's."""
        self.sync(mirror)
        source = self.cluster(mirror.source_cluster).log(mirror.source)
        bounds = source.bounds()
        sink = self.cluster(mirror.cluster).sink(mirror.name).following(SourceSeen(source.topic_id, bounds))
        for partition, offsets in missing(bounds, sink.ends(), ends).items():
            sink.publish([sink.stage_copy(partition, source, offsets)])
        sink.complete()

    def catch_up(self, cluster: str, full_name: str = ORDERS) -> None:
        """Bring the records of a mirror to its source's end."""
        self.copy(self.seen(cluster, full_name))

    def seen(self, cluster: str, full_name: str = ORDERS) -> MirrorSeen:
        """Return a mirror as its cluster has it."""
        return self.provider(cluster).links.mirror(full_name)

    def status(self, cluster: str, full_name: str = ORDERS) -> str:
        """Return the state shown of a mirror."""
        return self.seen(cluster, full_name).status.value

    def positions(self, cluster: str, full_name: str = ORDERS) -> Mapping[int, Position]:
        """Return where its partitions stand."""
        return self.provider(cluster).links.positions(full_name)

    def produce(self, cluster: str, *values: str, full_name: str = ORDERS, partition: int = 0) -> None:
        """Append records."""
        with self.cluster(cluster).producer() as producer:
            for value in values:
                producer.send(full_name, value, partition=partition)

    def read(self, cluster: str, full_name: str = ORDERS, partition: int = 0) -> list[tuple[int, str]]:
        """Return (offset, value) of every record that can be read."""
        found = self.cluster(cluster).consume(full_name)
        return [(one.offset, (one.value or b"").decode()) for one in found if one.partition == partition]


def topic_at(cluster: str, full_name: str = ORDERS) -> str:
    """Return the address of a topic."""
    return address_of("topic", cluster, full_name)


def mirrored(partitions: int = 1, **spec: Any) -> Linked:
    """Return `west` with a topic of ten records a partition, and `east` with its mirror, caught up."""
    linked = Linked()
    linked.west.create_topic(ORDERS, partitions=partitions)
    for partition in range(partitions):
        linked.produce("west", *(f"{partition}-{number}" for number in range(10)), partition=partition)
    linked.link("east", "west", **spec)
    linked.mirror("east", "west")
    linked.catch_up("east")
    return linked
