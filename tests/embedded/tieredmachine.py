"""A state machine that drives a tiered topic against a list in memory, with a death at any write of either store.

The list holds every record that was acknowledged, in order. What is readable is always a stretch of it, byte for byte,
and the model says where that stretch may begin: only what is older than the topic keeps, what a disabling gives up or
what a lost disk took may be missing. No manifest ever names an object that is not there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from reconciler.embedded.catalog.tiering import TieringState, tiering_of
from reconciler.embedded.checking.check import check_cluster
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.keys import index_key
from reconciler.embedded.partition.pages import all_entries
from reconciler.embedded.remote.manifest import read_manifest
from reconciler.embedded.remote.tier import remote_partition
from reconciler.errors import RetryableError, UserError
from reconciler.records.log import OffsetRange
from tests.embedded.mortal import DAY_MS, Fuse, MortalStore
from tests.embedded.samples import NOW, ids, rows_of
from tests.embedded.watched import DiedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.objectstore.base import ObjectStore
    from tests.embedded.mortal import Fault

TOPIC = "orders"
PARTITIONS = 2
KEPT_MS = 3 * DAY_MS
ALL = OffsetRange(0, 1 << 40)
SEGMENT_BYTES = "4500"

partition = st.integers(0, PARTITIONS - 1)
deaths = st.one_of(
    st.none(),
    st.tuples(st.integers(0, 12), st.sampled_from(["dies before", "dies after"])),
)
JOBS = ("roll", "upload", "retain", "merge", "finish", "sweep")


class TieredMachine(RuleBasedStateMachine):
    """One topic of two partitions, its local store and its object storage."""

    def __init__(self, store: Callable[[], ObjectStore], storage: Callable[[], ObjectStore]) -> None:
        super().__init__()
        self.make_store, self.storage = store, storage()
        self.now_ms = NOW
        self.new_id = ids()
        self.serial = 0
        self.log: list[list[tuple[int, int, bytes]]] = [[] for _ in range(PARTITIONS)]
        """By partition: (offset, time, value) of every record that was acknowledged."""
        self.starts = [0] * PARTITIONS
        """Below it nothing may be readable ever again."""
        self.is_keeping = True
        """Whether only age may take anything from the log's front."""
        self._begin(self.make_store())
        self.cluster.create_topic(
            TOPIC,
            partitions=PARTITIONS,
            configs={
                "segment.bytes": SEGMENT_BYTES,
                "retention.ms": str(KEPT_MS),
                "retention.local.target.bytes": "1",
                "retention.local.strict": "true",
                "remote.write": "true",
                "remote.read": "true",
            },
        )

    def _begin(self, store: ObjectStore) -> None:
        self.store = store
        self.cluster = EmbeddedCluster.create(store, now_ms=self._now, new_id=self.new_id, storage=self.storage)
        self.cluster.alter_cluster(
            {
                "cloud_storage_enabled": "true",
                "cloud_storage_spillover_manifest_size": "1024",
                "cloud_storage_segment_size_target": "20000",
            }
        )

    def _now(self) -> int:
        return self.now_ms

    # -- doing

    @rule(partition=partition, count=st.integers(1, 3))
    def append(self, partition: int, count: int) -> None:
        """Append parts; two of them are a segment."""
        for _ in range(count):
            values = [self._value(), self._value()]
            with self.cluster.producer() as producer:
                for value in values:
                    producer.send(TOPIC, value, partition=partition, timestamp_ms=self.now_ms)
            end = self.cluster.log(TOPIC).bounds()[partition].end
            self.log[partition] += [(end - len(values) + at, self.now_ms, value) for at, value in enumerate(values)]

    @rule(partition=partition, commits=st.booleans())
    def transact(self, partition: int, commits: bool) -> None:  # noqa: FBT001 - hypothesis names its arguments
        """What is aborted leaves a gap, in either tier."""
        producer = self.cluster.producer("checkout")
        producer.init_transactions()
        producer.begin()
        value = self._value()
        producer.send(TOPIC, value, partition=partition, timestamp_ms=self.now_ms)
        producer.flush()
        if commits:
            producer.commit()
            end = self.cluster.log(TOPIC).bounds()[partition].end
            self.log[partition].append((end - 1, self.now_ms, value))
        else:
            producer.abort()

    @rule(hours=st.sampled_from([1, 20, 50]))
    def time_passes(self, hours: int) -> None:
        self.now_ms += hours * 3_600_000

    @rule(job=st.sampled_from(JOBS), death=deaths)
    def tend(self, job: str, death: Fault | None) -> None:
        """Do one job, maybe die in it; whoever comes next goes on."""
        self._mortally(lambda cluster: self._do(cluster, job), death, ahead_ms=2 * DAY_MS if job == "sweep" else 0)

    @rule(death=deaths)
    def tend_wholly(self, death: Fault | None) -> None:
        """Do what one pass of upkeep does."""

        def all_of_it(cluster: EmbeddedCluster) -> None:
            for job in ("finish", "roll", "upload", "retain", "merge"):
                self._do(cluster, job)

        self._mortally(all_of_it, death)

    # -- switching

    @rule(key=st.sampled_from(["remote.write", "remote.read"]), on=st.booleans(), death=deaths)
    def switch(self, key: str, on: bool, death: Fault | None) -> None:  # noqa: FBT001 - as above
        """Switch one of both; where that makes both off, it is a disabling that retains."""
        self._alter({key: str(on).lower()}, death)

    @rule(policy=st.sampled_from(["retain", "delete"]), death=deaths)
    def disable(self, policy: str, death: Fault | None) -> None:
        """Switch both off together."""
        if self._state() is TieringState.ENABLED and policy == "delete":
            self.is_keeping = False
        off = {"remote.write": "false", "remote.read": "false", "remote.log.disable.policy": policy}
        self._alter(off, death)

    @rule(death=deaths)
    def enable(self, death: Fault | None) -> None:
        self._alter({"remote.write": "true", "remote.read": "true"}, death)

    @precondition(lambda self: self._state() is TieringState.ENABLED)
    @rule(death=deaths)
    def lose_the_disk(self, death: Fault | None) -> None:
        """Everything local is gone; the topic is made anew from object storage, up to what was uploaded."""
        before = self.tiering()
        for number in range(PARTITIONS):
            manifest = read_manifest(self.storage, remote_partition(before.location, number))
            end = 0 if manifest is None else manifest.end
            self.log[number] = [row for row in self.log[number] if row[0] < end]
            # Where retention died between head and manifest, what the head had let go comes back with the manifest.
            self.starts[number] = 0 if manifest is None else manifest.start
        self._begin(self.make_store())
        configs = {"remote.write": "true", "remote.read": "true"}
        location = str(before.location)
        with suppress(UserError):  # Nothing was ever uploaded; that this is why is seen below.
            self._mortally(lambda cluster: cluster.recover_topic(TOPIC, location, configs=configs), death)
        self.cluster.finish_recoveries()
        if TOPIC not in self.cluster.topics():
            self._recover_or_make(location, configs)

    def _recover_or_make(self, location: str, configs: dict[str, str]) -> None:
        try:
            self.cluster.recover_topic(TOPIC, location, configs=configs)
        except UserError:
            assert all(not rows for rows in self.log)
            self.cluster.create_topic(TOPIC, partitions=PARTITIONS, configs={"segment.bytes": SEGMENT_BYTES, **configs})

    # -- looking

    def _look(self) -> None:
        """See that what is readable is what the model says, and nothing else."""
        cluster = EmbeddedCluster.open(self.store, now_ms=self._now, new_id=self.new_id, storage=self.storage)
        tiering, log = self.tiering(), cluster.log(TOPIC)
        for number, bounds in sorted(log.bounds().items()):
            assert bounds.start <= bounds.local_start <= bounds.end
            assert bounds.start >= self.starts[number]
            if tiering.serves and self.is_keeping:
                lost = [row for row in self.log[number] if self.starts[number] <= row[0] < bounds.start]
                assert all(row[1] < self.now_ms - KEPT_MS for row in lost)
            if tiering.serves:
                self.starts[number] = bounds.start
            found = [(row["offset"], row["timestamp_ms"], row["value"]) for row in rows_of(log.read(number, ALL))]
            assert found == [row for row in self.log[number] if row[0] >= bounds.start]
            self._look_at_manifest(number)

    def _look_at_manifest(self, number: int) -> None:
        manifest = read_manifest(self.storage, remote_partition(self.tiering().location, number))
        if manifest is None:
            return
        there = {listed.key for listed in self.storage.list("topics/")}
        for entry in all_entries(self.storage, manifest):
            assert {entry.key, index_key(entry.key)} <= there

    def _state(self) -> TieringState:
        return self.tiering().state

    def tiering(self) -> Any:
        """Return what holds for the topic now."""
        found = tiering_of(self.cluster.catalog.read(), TOPIC, self.cluster.cluster_id)
        assert found is not None
        return found

    # -- the rest

    def _value(self) -> bytes:
        self.serial += 1
        return b"v%05d" % self.serial

    def _alter(self, configs: dict[str, str], death: Fault | None) -> None:
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

    def _mortally(self, do: Callable[[EmbeddedCluster], object], death: Fault | None, *, ahead_ms: int = 0) -> None:
        fuse, stores = Fuse(), []
        for inner in (self.store, self.storage):
            store = MortalStore(inner)
            store.fuse, store.before, store.after = fuse, fuse.before, fuse.after
            store.ahead_ms = ahead_ms
            stores.append(store)
        cluster = EmbeddedCluster.open(stores[0], now_ms=self._now, new_id=self.new_id, storage=stores[1])
        fuse.arm(None if death is None else _fault(death))
        try:
            do(cluster)
        except (DiedError, RetryableError):
            assert death is not None
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
        found = check_cluster(self.store, deep=True)
        assert found.errors == 0, found.findings


def _fault(death: Any) -> Fault:
    from tests.embedded.mortal import Fault  # noqa: PLC0415 - only here as a value

    return Fault(*death)
