"""A pass with nothing to do costs one listing of the heads and a handful of requests, however many partitions."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from reconciler.embedded.maintenance.chores import Chore, ChoreTask, FailedChore
from reconciler.embedded.maintenance.survey import Survey
from reconciler.embedded.tiered.remote_tier import RequestSlots, get_request_slots, limit_connections
from reconciler.embedded.tiered.upload import (
    BacklogController,
    compute_backlog_error,
    compute_connections,
    read_free_bytes,
)
from reconciler.jobs.flows import Budget, deal_to_tasks, iter_rounds
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.providers.embedded.maintenance import list_maintenance_jobs
from reconciler.providers.protocol import MaintenancePorts
from tests.embedded.maintenance.tiny_segments import (
    DAY,
    TOPIC,
    TWO_PARTS,
    append_parts,
    clocked,
    head_of,
    held,
    with_topic,
)
from tests.embedded.stores import WatchedStore
from tests.embedded.tiered.tiered_cluster import BOTH, Tiered, tiered

if TYPE_CHECKING:
    from reconciler.embedded.tiered.object_rewrites import PartitionRewrite
    from reconciler.objectstore.base import ObjectStore, StoredObject, Version


def written(partitions: int) -> tuple[Tiered, WatchedStore, WatchedStore]:
    """Return a tiered topic of so many partitions, a record in each, and what is asked of both tiers."""
    store, storage = WatchedStore(MemoryStore()), WatchedStore(MemoryStore())
    tier = Tiered(store, storage)
    tier.switch_on()
    configs = {key.replace(".", "_"): value for key, value in BOTH.items()}
    with_topic(tier.cluster, partitions=partitions, segment_bytes=TWO_PARTS, cleanup_policy="compact,delete", **configs)
    with tier.cluster.producer() as producer:
        keys = pa.array([b"k"] * partitions, pa.binary())
        numbers = pa.array(range(partitions), pa.int32())
        producer.append(TOPIC, pa.RecordBatch.from_pydict({"key": keys, "value": keys, "partition": numbers}))
    return tier, store, storage


def all_jobs(tier: Tiered) -> None:
    means = MaintenancePorts(
        lambda work, do: iter([do(work)]), lambda _address: True, lambda: False, is_requested=False
    )
    for do in list_maintenance_jobs("west", tier.opened(), means).values():
        assert do().failed == 0


def asked(*stores: WatchedStore) -> Counter[str]:
    return Counter(what for store in stores for what, _ in store.calls)


@pytest.mark.parametrize("partitions", [3, 150, pytest.param(10_000, marks=pytest.mark.soak)])
def test_from_the_second_round_on_nothing_to_do_is_one_listing_and_a_few_requests(partitions: int) -> None:
    tier, store, storage = written(partitions)
    all_jobs(tier)
    store.calls.clear()
    storage.calls.clear()
    all_jobs(tier)
    assert Counter(key for what, key in store.calls if what == "list" and key.startswith("heads/")) == {"heads/": 1}
    found = asked(store, storage)
    assert found["put"] + found["swap"] + found["delete"] + found["copy_from"] == 0
    assert found["get"] < 50
    assert found["list"] <= 3
    assert sum(found.values()) < 55


def test_what_a_job_of_the_pass_has_changed_is_due_for_those_that_follow() -> None:
    tier, store, _ = written(2)
    append_parts(tier.cluster, 8, partition=1)
    store.calls.clear()
    upkeep = tier.opened().upkeep()
    assert upkeep.roll().partitions == 1
    assert upkeep.upload().partitions == 1
    assert upkeep.compact().partitions == 1
    assert store.count("list", "heads/") == 1
    assert tier.manifest(1).end == head_of(tier.cluster, 1).compacted_to > 10
    again = tier.opened().upkeep()
    assert again.upload().partitions == 1
    assert store.count("list", "heads/") == 2


def test_a_job_that_is_done_once_more_lists_anew() -> None:
    tier, store, _ = written(1)
    upkeep = tier.opened().upkeep()
    store.calls.clear()
    assert upkeep.upload().partitions == 0
    append_parts(tier.cluster, 8)
    assert upkeep.upload().partitions == 1
    assert store.count("list", "heads/") == 2


# How much of the connections uploads get: by the backlog, within limits, and never all where readers wait.


FREE = 1000


@pytest.mark.fact("F-R-034")
@pytest.mark.parametrize(
    ("backlog", "before", "properties", "shares"),
    [
        (0, 0, {}, 100),
        (1, 0, {}, 100),
        (50, 0, {}, 100),
        (51, 0, {}, 102),
        (250, 0, {}, 500),
        (499, 0, {}, 998),
        (500, 0, {}, 1000),
        (5000, 0, {}, 1000),
        (100, 0, {"p_coeff": "-1"}, 100),
        (100, 0, {"p_coeff": "-5"}, 500),
        (100, 0, {"p_coeff": "5"}, 100),
        (100, 100, {"d_coeff": "1"}, 200),
        (100, 50, {"d_coeff": "1"}, 300),
        (100, 150, {"d_coeff": "1"}, 100),
        (400, 0, {"max_shares": "600"}, 600),
        (0, 0, {"min_shares": "300"}, 300),
    ],
)
def test_shares_follow_the_backlog(backlog: int, before: int, properties: Mapping[str, str], shares: int) -> None:
    controller = BacklogController.of(
        {f"cloud_storage_upload_ctrl_{name}": value for name, value in properties.items()}
    )
    assert (
        controller.compute_shares(compute_backlog_error(backlog, FREE), compute_backlog_error(before, FREE)) == shares
    )


@pytest.mark.fact("F-R-034")
def test_a_share_is_at_least_one_connection_and_at_most_all() -> None:
    assert [compute_connections(shares, 20) for shares in (0, 49, 100, 500, 1000, 2000)] == [1, 1, 2, 10, 20, 20]


def test_space_is_that_of_the_disk_or_of_a_large_one(tmp_path: Path) -> None:
    assert 0 < read_free_bytes(DirectoryStore(tmp_path)) < 1 << 60
    assert read_free_bytes(MemoryStore()) == 1 << 40


@pytest.mark.fact("F-R-034")
def test_the_share_is_set_anew_once_an_interval_and_told() -> None:
    tier = tiered()
    tier.switch_on(upload_ctrl_p_coeff="-100000000")
    tier.fill(9)
    levels = tier.upload().levels
    assert levels["upload_backlog_controller_backlog_size"] > 0
    assert levels["upload_backlog_controller_error"] < 0
    assert 100 < levels["upload_backlog_controller_shares"] < 1000
    noted = Survey.load(tier.store, tier.cluster.cluster_id, "upload").notes["controller"]
    tier.fill(40)
    tier.clock.now_ms += 59_999
    assert tier.upload().levels == levels
    tier.clock.now_ms += 1
    tier.fill(40)
    later = tier.upload().levels
    assert later["upload_backlog_controller_shares"] > levels["upload_backlog_controller_shares"]
    tier.clock.now_ms += 60_000
    assert tier.upload().levels["upload_backlog_controller_shares"] == 100
    assert Survey.load(tier.store, tier.cluster.cluster_id, "upload").notes["controller"] != noted


def test_the_partition_with_most_to_upload_comes_first() -> None:
    tier = tiered(partitions=3)
    for partition, parts in ((0, 3), (1, 9), (2, 5)):
        tier.fill(parts, partition=partition)
    tier.cluster.upkeep().roll()
    first: list[str] = []

    def seen(_what: str, key: str) -> None:
        if key.endswith(".parquet"):
            first.append(key.split("/")[3])

    tier.opened(storage=WatchedStore(tier.storage, before=seen)).upkeep().upload(
        lambda chores, task: (list(task([chore])) for chore in chores)
    )
    assert list(dict.fromkeys(first)) == ["00001", "00002", "00000"]


@pytest.mark.fact("F-R-056")
def test_uploads_and_downloads_of_a_process_never_use_more_connections_than_there_are() -> None:
    inner = MemoryStore()
    busy: list[int] = []
    most = [0]
    lock = threading.Lock()

    def begin(_what: str, _key: str) -> None:
        with lock:
            busy.append(1)
            most[0] = max(most[0], len(busy))

    def end(_what: str, _key: str) -> None:
        with lock:
            busy.pop()

    watched = WatchedStore(inner, before=begin, after=end)
    stores = [limit_connections(watched, 3), limit_connections(limit_connections(watched, 3), 3)]

    def use(number: int) -> None:
        stores[number % 2].put(f"key{number}", b"x")
        assert stores[number % 2].get(f"key{number}") is not None

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(use, range(400)))
    assert 1 <= most[0] <= 3
    assert get_request_slots(inner.url, 3) is stores[0].connections is stores[1].connections


@pytest.mark.fact("F-R-056")
def test_an_upload_and_reads_beside_it_share_the_connections_of_the_cluster() -> None:
    storage = BusyStore()
    tier = Tiered(MemoryStore(), storage)
    tier.switch_on(max_connections="2")
    configs = {key.replace(".", "_"): value for key, value in BOTH.items()}
    strict = {"retention_local_strict": "true", "retention_local_target_ms": "1000", "retention_ms": "-1"}
    with_topic(tier.cluster, partitions=4, segment_bytes=TWO_PARTS, **configs, **strict)
    tier.fill(9)
    whole = held(tier.cluster)
    tier.upload()
    tier.clock.now_ms += DAY
    tier.cluster.upkeep().retain()
    assert head_of(tier.cluster).local_start > 0  # What is read here lies in object storage alone.
    for partition in (1, 2, 3):
        tier.fill(9, partition=partition)
    tier.cluster.upkeep().roll()
    storage.most, storage.meets = 0, threading.Barrier(2)

    with ThreadPoolExecutor(4) as threads:
        uploaded = threads.submit(tier.opened().upkeep().upload)
        reads = [threads.submit(held, tier.opened()) for _ in range(3)]
        assert all(each.result() == whole for each in reads)
        assert uploaded.result().failed == 0
    assert {len(tier.segments(partition)) for partition in (1, 2, 3)} == {4}
    assert storage.has_met, "an upload and a download were under way at once"
    assert storage.most == 2


class BusyStore(WatchedStore):
    """Counts the requests under way; the first upload of a segment and the first read of one wait for each other."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.most = self._busy = 0
        self.meets: threading.Barrier | None = None
        self.has_met = False
        self._seen: set[bool] = set()
        self._lock = threading.Lock()

    def get(self, key: str) -> StoredObject | None:
        with self._under_way(key, is_upload=False):
            return super().get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        with self._under_way(key, is_upload=False):
            return super().get_range(key, start, length)

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        with self._under_way(key, is_upload=True):
            super().put(key, body, kms_key_id=kms_key_id)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        with self._under_way(key, is_upload=True):
            return super().swap(key, body, expected=expected)

    def copy_from(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        with self._under_way(key, is_upload=True):
            super().copy_from(key, source, source_key, kms_key_id=kms_key_id)

    @contextmanager
    def _under_way(self, key: str, *, is_upload: bool) -> Iterator[None]:
        with self._lock:
            self._busy += 1
            self.most = max(self.most, self._busy)
            is_first = self.meets is not None and key.endswith(".parquet") and is_upload not in self._seen
            if is_first:
                self._seen.add(is_upload)
        try:
            if is_first and self.meets is not None:
                self.meets.wait(20)
                self.has_met = True
            yield
        finally:
            with self._lock:
                self._busy -= 1


@pytest.mark.fact("F-R-056")
def test_where_downloads_wait_uploads_keep_to_their_share_and_else_take_all() -> None:
    connections = RequestSlots(3)
    connections.share = 1
    with connections.hold_for_upload(), connections.hold_for_upload(), connections.hold_for_upload():
        pass
    began, release, read = threading.Event(), threading.Event(), threading.Event()

    def download() -> None:
        began.set()
        with connections.hold_for_download():
            read.set()
            release.wait(10)

    with connections.hold_for_upload(), connections.hold_for_upload():
        with connections.hold_for_upload():
            reader = threading.Thread(target=download)
            reader.start()
            assert began.wait(10)
            assert not read.is_set()
        assert read.wait(10)
        release.set()
        reader.join(10)


def test_a_tier_is_the_same_whoever_opens_it() -> None:
    tier = Tiered()
    tier.switch_on(max_connections="7")
    tier.cluster.catalog.read()
    remote, other = tier.cluster.remote, tier.opened()
    other.catalog.read()
    assert remote is not None
    assert other.remote is not None
    assert remote.connections is other.remote.connections
    assert remote.connections.limit == 7


# Two thousand partitions: one stage of work, few requests, and nothing to do the second time.


MANY_PARTITIONS = 2_000


@pytest.mark.soak
def test_two_thousand_partitions_are_one_stage_and_few_requests() -> None:
    store = WatchedStore(MemoryStore())
    cluster, _ = clocked(store)
    with_topic(cluster, partitions=MANY_PARTITIONS, segment_bytes="2000")
    partitions = pa.array(range(MANY_PARTITIONS), pa.int32())
    for number in range(2):
        with cluster.producer() as producer:
            values = pa.array([b"%d" % number] * MANY_PARTITIONS, pa.binary())
            producer.append(TOPIC, pa.RecordBatch.from_pydict({"value": values, "partition": partitions}))
    before = held(cluster, 1_234)
    stages: list[int] = []

    def spread(chores: Sequence[Chore], task: ChoreTask) -> Iterator[list[PartitionRewrite | FailedChore]]:
        """Do as the executors of two cores would."""
        for taken in iter_rounds(chores, Budget(2)):
            tasks = deal_to_tasks(taken, 2)
            stages.append(len(tasks))
            yield [one for chores_of_task in tasks for one in task(chores_of_task)]

    store.calls.clear()
    done = cluster.upkeep().roll(spread)
    assert (done.partitions, done.failed) == (MANY_PARTITIONS, 0)
    assert len(stages) == 1
    assert 2 < stages[0] < 40
    assert store.count("list") == 1
    assert store.count("swap") == MANY_PARTITIONS
    # Each head is read to decide, to do, and to publish.
    assert store.count("get", "heads/") == 3 * MANY_PARTITIONS
    assert store.count("get", "catalog/") < 2 * stages[0]
    assert held(cluster, 1_234) == before

    cluster.upkeep().roll(spread)
    store.calls.clear()
    assert cluster.upkeep().roll(spread).partitions == 0
    assert len(store.calls) == 3
    assert len(stages) == 1
