"""A list in memory beside a tiered topic: what is readable is always a stretch of it, byte for byte.

The list holds every record that was acknowledged, in order, and the model says where the stretch may begin: only what
is older than the topic keeps, what a disabling gives up or what a lost disk took may be missing. No manifest ever names
an object that is not there; in the end nothing lies there that none names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reconciler.embedded.catalog.tiering_state import tiering_of
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.keys import index_key, location_prefix
from reconciler.embedded.segments.pages import all_entries
from reconciler.embedded.tiered.manifest import objects_of, read_manifest
from reconciler.embedded.tiered.remote_tier import remote_partition
from reconciler.errors import RetryableError, UserError
from reconciler.lifecycles.tiered import TieringState
from reconciler.records.log import OffsetRange
from tests.embedded.mortal import DAY_MS, Fuse, MortalStore
from tests.embedded.samples import NOW, ids, rows_of
from tests.embedded.watched import DiedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from reconciler.embedded.catalog.tiering_state import Tiering
    from reconciler.embedded.clients.topic_log import EmbeddedLog
    from reconciler.embedded.clients.transactional_producer import TransactionalProducer
    from reconciler.embedded.segments.head import Head
    from reconciler.embedded.tiered.manifest import RemotePartition
    from reconciler.objectstore.base import ObjectStore
    from reconciler.records.log import Bounds
    from tests.embedded.mortal import Fault

TOPIC = "orders"
PARTITIONS = 2
KEPT_MS = 3 * DAY_MS
ALL = OffsetRange(0, 1 << 40)
JOBS = ("roll", "upload", "retain", "merge", "finish", "sweep")
BOTH = {"remote.write": "true", "remote.read": "true"}
CONFIGS = {
    "segment.bytes": "4500",
    "retention.ms": str(KEPT_MS),
    "retention.local.target.bytes": "1",
    "retention.local.strict": "true",
    **BOTH,
}


Row = tuple[int, int, bytes]
"""Offset, time and value."""


class Open(NamedTuple):
    """A transaction that is neither committed nor aborted, and its one record."""

    producer: TransactionalProducer
    partition: int
    row: Row


class TieredModel:
    """One topic of two partitions, its local store, its object storage, and what must hold for them."""

    def __init__(self, store: Callable[[], ObjectStore], storage: Callable[[], ObjectStore]) -> None:
        self.make_store, self.storage = store, storage()
        self.now_ms = NOW
        self.new_id = ids()
        self.serial = 0
        self.log: list[list[Row]] = [[] for _ in range(PARTITIONS)]
        """By partition: (offset, time, value) of every record that was acknowledged."""
        self.starts = [0] * PARTITIONS
        """Below it nothing may be readable ever again."""
        self.is_keeping = True
        """Whether only age may take anything from the log's front."""
        self.open: Open | None = None
        self.ended: dict[int, int] = {}
        """By partition: where object storage ends since tiering is off."""
        self.deaths = 0
        """How many processes have died."""
        self._begin(self.make_store())
        self.cluster.create_topic(
            TOPIC,
            partitions=PARTITIONS,
            configs=CONFIGS,
        )

    def _begin(self, store: ObjectStore) -> None:
        self.store = store
        self.cluster = EmbeddedCluster.create(store, now_ms=self._now, new_id=self.new_id, storage=self.storage)
        self.cluster.alter_cluster(
            {
                "cloud_storage_enabled": "true",
                "cloud_storage_spillover_manifest_size": "1024",
                "cloud_storage_segment_size_target": "10000",
            }
        )

    def _now(self) -> int:
        return self.now_ms

    def _recover_or_make(self, location: str) -> None:
        try:
            self.cluster.recover_topic(TOPIC, location, configs=CONFIGS)
        except UserError:
            assert all(not rows for rows in self.log)
            self.cluster.create_topic(TOPIC, partitions=PARTITIONS, configs=CONFIGS)

    # -- looking

    def _look(self) -> None:
        """See that what is readable is what the model says, and nothing else."""
        cluster = EmbeddedCluster.open(self.store, now_ms=self._now, new_id=self.new_id, storage=self.storage)
        tiering, log = self.tiering(), cluster.log(TOPIC)
        for number in range(PARTITIONS):
            bounds, found = self._found(log, number)
            assert bounds.start <= bounds.local_start <= bounds.end
            assert bounds.start >= self.starts[number]
            if tiering.serves and self.is_keeping:
                lost = [row for row in self.log[number] if self.starts[number] <= row[0] < bounds.start]
                assert all(row[1] < self.now_ms - KEPT_MS for row in lost)
            if tiering.serves:
                self.starts[number] = bounds.start
            stable = self.open.row[0] if self.open is not None and self.open.partition == number else bounds.end
            assert found == [row for row in self.log[number] if bounds.start <= row[0] < stable]
            self._look_at_manifest(number, log.head(number), tiering)

    def _found(self, log: EmbeddedLog, number: int) -> tuple[Bounds, list[Row]]:
        """Return a partition's bounds and all that is read; threads of whoever is overtaken may be at work in it."""
        bounds = log.bounds()[number]
        while True:
            found = [(row["offset"], row["timestamp_ms"], row["value"]) for row in rows_of(log.read(number, ALL))]
            before, bounds = bounds, log.bounds()[number]
            if before == bounds:
                return bounds, found

    def _look_at_manifest(self, number: int, head: Head | None, tiering: Tiering) -> None:
        manifest = read_manifest(self.storage, remote_partition(tiering.location, number))
        if manifest is None:
            return
        assert head is None or head.uploaded_to <= max(manifest.end, head.start)
        if tiering.state is not TieringState.DISABLED:
            self.ended.clear()
        else:
            # Nobody uploads any more.
            assert manifest.end <= self.ended.setdefault(number, manifest.end)
        there = {listed.key for listed in self.storage.list("topics/")}
        is_there = all({entry.key, index_key(entry.key)} <= there for entry in all_entries(self.storage, manifest))
        assert is_there or manifest != read_manifest(self.storage, remote_partition(tiering.location, number))

    def _state(self) -> TieringState:
        return self.tiering().state

    def tiering(self) -> Tiering:
        """Return what holds for the topic now."""
        found = tiering_of(self.cluster.catalog.read(), TOPIC, self.cluster.cluster_id)
        assert found is not None
        return found

    # -- the rest

    def _value(self) -> bytes:
        self.serial += 1
        return b"v%05d" % self.serial

    def _alter(self, configs: Mapping[str, str], death: Fault | None) -> None:
        state = self._state()
        try:
            self._mortally(lambda cluster: cluster.alter_topic(TOPIC, configs), death)
        except UserError:
            assert state is TieringState.DISABLING

    def _do(self, cluster: EmbeddedCluster, job: str) -> None:
        match job:
            case "finish":
                cluster.finish_disablings()
            case "sweep":
                cluster.sweep()
            case _:
                assert getattr(cluster.upkeep(), job)().errors == []

    def _mortally(
        self,
        do: Callable[[EmbeddedCluster], object],
        death: Fault | None,
        *,
        ahead_ms: int = 0,
        before: Callable[[str], None] = lambda _what: None,
    ) -> None:
        """Do something in a process of its own that may die, and look at what is left; `before` is called at writes."""
        fuse, stores = Fuse(), []

        def write(what: str, key: str) -> None:
            before(what)
            fuse.before(what, key)

        for inner in (self.store, self.storage):
            store = MortalStore(inner)
            store.fuse, store.before, store.after = fuse, write, fuse.after
            store.ahead_ms = ahead_ms
            stores.append(store)
        cluster = EmbeddedCluster.open(stores[0], now_ms=self._now, new_id=self.new_id, storage=stores[1])
        fuse.arm(death)
        try:
            do(cluster)
        except (DiedError, RetryableError):
            assert death is not None
            self.deaths += 1
        finally:
            self._look_if_there()

    def _look_if_there(self) -> None:
        topic = self.cluster.topics().get(TOPIC)
        if topic is not None and topic.recovering is None and topic.tiering is not None:
            self._look()

    def teardown(self) -> None:
        """Finish everything: then nothing is left over in either store, and every object is consistent."""
        for _ in range(2):
            self._mortally(lambda cluster: [self._do(cluster, job) for job in JOBS], None, ahead_ms=2 * DAY_MS)
        assert self._state() is not TieringState.DISABLING
        found = check_cluster(self.store, deep=True, storage=self.storage)
        assert found.errors == 0, found.findings
        location = self.tiering().location
        there = {listed.key for listed in self.storage.list(location_prefix(location.cluster_id, location.revision))}
        named = {key for number in range(PARTITIONS) for key in self._named(remote_partition(location, number))}
        assert {key for key in there if key.endswith((".parquet", ".index")) or "/pages/" in key} == named

    def _named(self, place: RemotePartition) -> Iterator[str]:
        manifest = read_manifest(self.storage, place)
        if manifest is not None:
            assert not manifest.garbage
            yield from (page.key for page in manifest.pages)
            yield from objects_of(all_entries(self.storage, manifest))
