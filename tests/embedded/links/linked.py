"""Clusters in memory with links between them, each call from a process of its own, and a copier without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.manifest import read_manifest
from reconciler.archives.pages import iter_all_entries
from reconciler.embedded.catalog.mirror_tables import MirrorShape, alter_link
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.check.damage import CheckFinding, Kind
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.restore_cut import truncate_topic
from reconciler.embedded.segments.head import Partition
from reconciler.embedded.segments.retention import iter_live_entries, iter_segments, read_cleanup_policy
from reconciler.embedded.tiered.remote_retention import evict_segments
from reconciler.jobs.flows import find_missing_ranges
from reconciler.lifecycles import LinkStatus, MirrorStatus
from reconciler.objectstore.memory import MemoryStore
from reconciler.operations.steps.transitions import TransitionDriver
from reconciler.providers.embedded.provider import EmbeddedProvider
from reconciler.providers.models import to_link_entry
from reconciler.providers.protocol import Edge
from reconciler.providers.protocol_links import Links
from reconciler.records.log import ObservedSource, OffsetRange
from reconciler.resources.address import address_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirror_link import MirrorLink
from reconciler.resources.mirrors import (
    RESTORE,
    LinkEntry,
    ObservedMirror,
    Operation,
    Peer,
    Position,
    Trouble,
    TruncatedPartition,
)
from tests.embedded.maintenance.tiny_segments import (
    DAY,
    TOPIC,
    Clock,
    LateStore,
    append_parts,
    copied,
    head_of,
    held,
    parts_in,
)
from tests.embedded.samples import ids, numbered
from tests.embedded.tiered.tiered_cluster import Tiered, tiered

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore


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
        return self.cluster("west")

    @property
    def east(self) -> EmbeddedCluster:
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
        asked = {"source": there, "mode": "bidirectional", **spec}
        declared = MirrorLink.model_validate({"metadata": {"name": name, "cluster": here}, "spec": asked})
        self.cluster(here).create_link(name, to_link_entry(declared, self.new_id()))

    def mirror(
        self, destination: str, source: str, full_name: str = ORDERS, link: str = LINK, *, name: str | None = None
    ) -> None:
        """Make a mirror of a topic of another cluster; nothing is copied yet."""
        of = self.cluster(source).source_topic(full_name)
        self.cluster(destination).create_mirror(name or full_name, MirrorShape(link=link, source=full_name), of)

    def driver(self) -> TransitionDriver:
        """Return what drives transitions, with clusters opened anew."""
        providers = {name: self.provider(name) for name in self.stores}
        return TransitionDriver(providers, self.copy, self.sync, self.new_id)

    def sync(self, mirror: ObservedMirror) -> None:
        """Bring partitions and configs of a mirror to its source's."""
        source = self.cluster(mirror.source_cluster).source_topic(mirror.source)
        self.cluster(mirror.cluster).update_mirror(mirror.name, source)

    def copy(self, mirror: ObservedMirror, ends: Mapping[int, int] | None = None) -> None:
        """Bring the records of a mirror to these ends, or to its source's."""
        self.sync(mirror)
        source = self.cluster(mirror.source_cluster).log(mirror.source)
        bounds = source.read_bounds()
        sink = self.cluster(mirror.cluster).sink(mirror.name).follow_source(ObservedSource(source.topic_id, bounds))
        for partition, offsets in find_missing_ranges(bounds, sink.read_ends(), ends).items():
            sink.publish([sink.stage_copy(partition, source, offsets)])
        sink.mark_complete()

    def catch_up(self, cluster: str, full_name: str = ORDERS) -> None:
        """Bring the records of a mirror to its source's end."""
        self.copy(self.seen(cluster, full_name))

    def seen(self, cluster: str, full_name: str = ORDERS) -> ObservedMirror:
        """Return a mirror as its cluster has it."""
        return self.provider(cluster).links.read_mirror(full_name)

    def status(self, cluster: str, full_name: str = ORDERS) -> str:
        return self.seen(cluster, full_name).status.value

    def positions(self, cluster: str, full_name: str = ORDERS) -> Mapping[int, Position]:
        return self.provider(cluster).links.read_positions(full_name)

    def produce(self, cluster: str, *values: str, full_name: str = ORDERS, partition: int = 0) -> None:
        with self.cluster(cluster).producer() as producer:
            for value in values:
                producer.send(full_name, value, partition=partition)

    def read(self, cluster: str, full_name: str = ORDERS, partition: int = 0) -> list[tuple[int, str]]:
        """Return (offset, value) of every record that can be read."""
        found = self.cluster(cluster).consume(full_name)
        return [(one.offset, (one.value or b"").decode()) for one in found if one.partition == partition]


def topic_at(cluster: str, full_name: str = ORDERS) -> str:
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


# Mirrors in each of their states, brought there as they come there in life.


_M = MirrorStatus
OPERATION: Final = "operation-1"
GONE: Final = Trouble("SOURCE_TOPIC_MAY_BE_DELETED", "its source is gone")
AWAY: Final = Trouble("TIMEOUT_ERROR", "it does not answer")


@dataclass(frozen=True)
class Placed:
    """Two clusters, and the one whose topic is in the state that was asked for."""

    linked: Linked
    cluster: str = "east"

    @property
    def links(self) -> Links:
        return self.linked.provider(self.cluster).links

    @property
    def status(self) -> str:
        return self.linked.status(self.cluster)


def east_of(linked: Linked) -> Links:
    return linked.provider("east").links


def pause_link(linked: Linked, *, paused: bool) -> None:
    """Pause a link as an update of its manifest does, or let it go on."""
    declared = linked.east.catalog.read().links[LINK].declared
    linked.east.catalog.commit(lambda draft: alter_link(draft, LINK, {**declared, "paused": paused}))


def _active(_: Linked) -> Placed:
    return Placed(_)


def _paused(linked: Linked) -> Placed:
    east_of(linked).request_verb(ORDERS, "pause")
    return Placed(linked)


def _link_paused(linked: Linked) -> Placed:
    pause_link(linked, paused=True)
    return Placed(linked)


def _unavailable(linked: Linked) -> Placed:
    east_of(linked).record_link_trouble(LINK, LinkStatus.UNAVAILABLE, AWAY)
    return Placed(linked)


def _link_failed(linked: Linked) -> Placed:
    east_of(linked).record_link_trouble(LINK, LinkStatus.FAILED, Trouble("AUTHENTICATION_ERROR", "who are you"))
    return Placed(linked)


def _failed(linked: Linked) -> Placed:
    east_of(linked).record_trouble(ORDERS, GONE, fails=True)
    return Placed(linked)


def _pending_stopped(linked: Linked) -> Placed:
    east_of(linked).request_verb(ORDERS, "promote", operation=OPERATION)
    return Placed(linked)


def _pending_synchronize(linked: Linked) -> Placed:
    east_of(linked).request_verb(ORDERS, "reverse-and-start", operation=OPERATION)
    return Placed(linked)


def _pending_mirror(linked: Linked) -> Placed:
    _pending_synchronize(linked)
    there = linked.provider("west").links
    there.convert_to_mirror(ORDERS, linked.seen("east"), Operation(OPERATION, "reverse-and-start"))
    return Placed(linked, "west")


def _stopped(linked: Linked) -> Placed:
    east_of(linked).request_verb(ORDERS, "failover")
    return Placed(linked)


def _setting_up(linked: Linked) -> Placed:
    _stopped(linked)
    there = linked.provider("west").links
    there.convert_to_mirror(ORDERS, linked.seen("east"), Operation(OPERATION, "truncate-and-restore"))
    return Placed(linked, "west")


def _restoring(linked: Linked) -> Placed:
    placed = _setting_up(linked)
    placed.links.record_end_offsets(ORDERS, operation=OPERATION, ends={0: 10})
    placed.links.advance_state(ORDERS, _M.PENDING_RESTORE, operation=OPERATION)
    return placed


WAYS: Final[dict[MirrorStatus, Callable[[Linked], Placed]]] = {
    _M.ACTIVE: _active,
    _M.PAUSED: _paused,
    _M.LINK_PAUSED: _link_paused,
    _M.PENDING_SYNCHRONIZE: _pending_synchronize,
    _M.PENDING_MIRROR: _pending_mirror,
    _M.PENDING_SETUP_FOR_RESTORE: _setting_up,
    _M.PENDING_RESTORE: _restoring,
    _M.PENDING_STOPPED: _pending_stopped,
    _M.STOPPED: _stopped,
    _M.SOURCE_UNAVAILABLE: _unavailable,
    _M.LINK_FAILED: _link_failed,
    _M.FAILED: _failed,
}
"""How a mirror comes into each state it can have as a record."""


def to_declared_mirror(state: MirrorStatus) -> Placed:
    """Return two clusters with a mirror of ten records in a state, its source or itself."""
    return WAYS[state](mirrored())


# A topic whose mirror elsewhere was stopped: it is cut where the two parted, and mirrors that one then.


CUT_ID = "operation-1"


def joined(it: Tiered, operation: str = CUT_ID) -> None:
    """Seal the topic to a link half: nobody appends to it any more."""
    if "dr" not in it.cluster.catalog.read().links:
        it.cluster.create_link("dr", LinkEntry("link-1", "east", {"mode": "bidirectional"}))
    it.cluster.linking.mirror_own_mirror(TOPIC, Peer("dr", TOPIC, "their-id"), Operation(operation, RESTORE))


def truncate(
    cluster: EmbeddedCluster, cuts: Mapping[int, int], operation: str = CUT_ID
) -> Mapping[int, TruncatedPartition]:
    return truncate_topic(cluster, TOPIC, cuts, operation)


def cut(it: Tiered, at: int, *, partition: int = 0, operation: str = CUT_ID) -> TruncatedPartition:
    """Cut one, as a process of its own."""
    return truncate(it.opened(), {partition: at}, operation)[partition]


def mirror_more(it: Tiered, count: int, *, partition: int = 0) -> None:
    sink = it.opened().sink(TOPIC)
    at = OffsetRange(end := sink.read_ends()[partition], end + count)
    assert sink.publish([sink.stage(partition, [numbered(end, count, partition=partition)], at=at)]) == {partition: at}


def let_go(it: Tiered, segments: int) -> None:
    """Let the oldest segments leave the local tier, as retention does where its targets say so."""
    policy = read_cleanup_policy(it.cluster.catalog.read(), TOPIC, it.cluster.cluster_id)
    found = list(iter_segments(iter_live_entries(it.store, head_of(it.cluster)), policy.limits))[:segments]
    assert evict_segments(it.store, Partition(TOPIC, it.cluster.topics()[TOPIC].id, 0), found) is not None


def archived(parts: int = 14, *, evicted: int = 3, pages: bool = False) -> Tiered:
    """Return a topic of segments of four records: all closed ones uploaded, the oldest remote alone."""
    it = tiered()
    if pages:
        it.switch_on(spillover_manifest_size="1024")
    append_parts(it.cluster, parts)
    it.upload()
    if evicted:
        let_go(it, evicted)
    return it


def rows(it: Tiered, partition: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return offset, key and value of what is read."""
    return [(row["offset"], row["key"], row["value"]) for row in held(it.opened(), partition)]


def both_copied(it: Tiered) -> Tiered:
    """Return the same cluster over copies of its stores."""
    return Tiered(copied(it.store), copied(it.storage), it.clock)


def faults(it: Tiered, *, deep: bool = True) -> list[CheckFinding]:
    """Return what a check finds, but that a restore is in progress."""
    is_tiered = it.cluster.catalog.read().topics[TOPIC].tiering is not None
    report = check_cluster(it.store, deep=deep, storage=it.storage if is_tiered else None)
    return [finding for finding in report.findings if finding.kind is not Kind.TRANSITION_UNDER_WAY]


def is_sound(it: Tiered, partition: int = 0) -> None:
    """See that everything named is there, and that nothing else is left a day later."""
    head = head_of(it.opened(), partition)
    assert head.start <= head.local_start <= head.end
    assert head.uploaded_to <= head.end >= head.compacted_to
    parts = {entry.key for entry in iter_all_entries(it.store, head)}
    assert {entry.key for entry in iter_all_entries(it.store, head) if entry.last >= head.start} <= parts_in(it.store)
    late: tuple[Any, Any] = LateStore(it.store, DAY + 60_000), LateStore(it.storage, DAY + 60_000)
    it.opened(*late).sweep()
    assert parts_in(it.store) <= parts
    is_tiered = it.cluster.catalog.read().topics[TOPIC].tiering is not None
    manifest = read_manifest(it.storage, it.remote(partition)) if is_tiered else None
    if manifest is not None:
        assert manifest.end <= head.end
        assert manifest.end >= head.uploaded_to
        named = {entry.key for entry in it.segments(partition)}
        assert {key for key in it.objects() if key.endswith(".parquet")} == named
