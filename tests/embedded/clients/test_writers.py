"""Many writers at once on one partition: every acknowledged record is there once, at the offset that was said."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import LostRaceError, RetryableError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.open import open_store
from reconciler.records.log import OffsetRange
from tests.contracts.lossy import LossyStore
from tests.embedded.samples import cluster_in, contents, ids, values

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore, Version
    from reconciler.objectstore.settings import StoreSettings
    from tests.servers.weed import S3Server


Said = dict[int, bytes]


def append_some(cluster: EmbeddedCluster, writer: int, appends: int) -> Said:
    """Append batches of three, again where others were faster too often; return what was acknowledged, by offset."""
    said: Said = {}
    producer = cluster.producer()
    for number in range(appends):
        mine = [f"{writer}-{number}-{row}" for row in range(3)]
        offsets = None
        while offsets is None:
            try:
                producer.append("orders", values(*mine))
                offsets = producer.flush()["orders"][0]
            except LostRaceError:
                continue
        said.update(zip(range(offsets.start, offsets.stop), [value.encode() for value in mine], strict=True))
    return said


def check(cluster: EmbeddedCluster, said: list[Said], appends: int) -> None:
    merged: Said = {}
    for one in said:
        assert not merged.keys() & one.keys()
        merged |= one
    assert contents(cluster.log("orders")) == sorted(merged.items())
    assert sorted(merged) == list(range(3 * appends * len(said)))


def test_threads_on_one_partition(store: ObjectStore) -> None:
    cluster = cluster_in(store)
    cluster.create_topic("orders")
    with ThreadPoolExecutor(4) as threads:
        said = list(threads.map(lambda writer: append_some(cluster, writer, 8), range(4)))
    check(cluster, said, 8)


def run_writer(root: Path, writer: int) -> Said:
    return append_some(cluster_in(DirectoryStore(root)), writer, 12)


@pytest.mark.thorough
def test_processes_on_one_partition(tmp_path: Path) -> None:
    cluster = cluster_in(DirectoryStore(tmp_path))
    cluster.create_topic("orders")
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as processes:
        said = list(processes.map(run_writer, [tmp_path] * 3, range(3)))
    check(cluster, said, 12)


def test_a_lost_answer_built_upon_by_another_writes_nothing_twice() -> None:
    inner = MemoryStore()
    other = cluster_in(inner)
    other.create_topic("orders")
    theirs = []

    def intrude() -> None:
        theirs.append(append_some(other, 2, 1))

    lossy = LossyStore(inner)
    mine = cluster_in(lossy)
    for number in range(3):
        lossy.meanwhile = intrude
        producer = mine.producer()
        producer.append("orders", values(f"mine-{number}"))
        offsets = producer.flush()["orders"][0]
        assert contents(other.log("orders"))[offsets.start] == (offsets.start, f"mine-{number}".encode())
    found = [value for _, value in contents(other.log("orders"))]
    assert len(found) == len(set(found)) + 2 * 3 == 12


def test_an_answer_that_never_comes_is_said_and_the_records_may_be_there() -> None:
    inner = MemoryStore()
    cluster_in(inner).create_topic("orders")
    producer = cluster_in(LossyStore(inner, retries=False)).producer(delivery_timeout_ms=0)
    producer.append("orders", values("a"))
    with pytest.raises(RetryableError, match="no answer from the store; it may have been written or not"):
        producer.flush()
    assert contents(cluster_in(inner).log("orders")) == [(0, b"a")]


def test_a_producer_without_an_answer_looks_for_its_records_before_it_tries_again() -> None:
    inner = MemoryStore()
    cluster_in(inner).create_topic("orders")
    producer = cluster_in(LossyStore(inner, retries=False)).producer()
    for offset, value in enumerate("abc"):
        producer.append("orders", values(value))
        assert producer.flush() == {"orders": {0: OffsetRange(offset, offset + 1)}}
    assert contents(cluster_in(inner).log("orders")) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_a_race_lost_and_then_no_answer_still_tells_the_right_offsets() -> None:
    inner = MemoryStore()
    other = cluster_in(inner)
    other.create_topic("orders")
    store = Moody(inner)
    producer = cluster_in(store).producer()
    producer.append("orders", values("a"))
    assert producer.flush() == {"orders": {0: OffsetRange(0, 1)}}
    append_some(other, 2, 1)
    store.is_silent = True
    producer.append("orders", values("b"))
    assert producer.flush() == {"orders": {0: OffsetRange(4, 5)}}
    assert contents(other.log("orders"))[4] == (4, b"b")


class Moody(LossyStore):
    """Gives no answer to the next swap that lands, when it is told to be silent."""

    is_silent = False

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        version = self.inner.swap(key, body, expected=expected)
        if self.is_silent:
            self.is_silent = False
            raise RetryableError("no answer from the store", hint="Run it again.")
        return version


# Processes that append to one partition of a real S3 server, some of them killed: nothing said is lost or doubled.


TOPIC = "orders"
ROWS = 3
PATIENCE_SECONDS = 300


def write(settings: StoreSettings, writer: int, appends: int, said: Connection) -> None:
    """Append batches and say of each, once it is acknowledged, where it lies. Runs in a process of its own."""
    cluster = EmbeddedCluster.open(open_store(settings), now_ms=lambda: time.time_ns() // 1_000_000, new_id=ids())
    producer = cluster.producer()
    for number in range(appends):
        producer.append(TOPIC, values(*(name_of(writer, number, row) for row in range(ROWS))))
        offsets = producer.flush()[TOPIC][0]
        said.send((number, offsets.start))
    said.close()


def name_of(writer: int, number: int, row: int) -> str:
    return f"{writer}-{number}-{row}"


@dataclass
class Writer:
    """One process, and what it has said so far: number of the batch → its first offset."""

    process: Any
    ear: Connection
    said: dict[int, int] = field(default_factory=dict)
    is_killed: bool = False


def start(settings: StoreSettings, writers: int, appends: int) -> list[Writer]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.embedded.test_writers_on_s3", "botocore.session", "pyarrow.parquet"])
    started = []
    for writer in range(writers):
        ear, mouth = context.Pipe(duplex=False)
        process = context.Process(target=write, args=(settings, writer, appends, mouth))
        process.start()
        mouth.close()
        started.append(Writer(process, ear))
    return started


def run(writers: Sequence[Writer], doomed: int, *, after: int) -> None:
    """Listen until all have ended; kill each of the first `doomed` once it has said `after` things."""
    speaking = {one.ear: one for one in writers}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while speaking:
        for ear in wait(list(speaking), timeout=1):
            assert isinstance(ear, Connection)
            one = speaking[ear]
            try:
                number, start = ear.recv()
            except EOFError:
                del speaking[ear]
                continue
            one.said[number] = start
            if len(one.said) == after and one in writers[:doomed]:
                one.process.kill()  # somewhere in its next append
                one.is_killed = True
        assert time.monotonic() < deadline, f"{len(speaking)} writers do not end"
    for one in writers:
        one.process.join()
        assert one.process.exitcode == (-9 if one.is_killed else 0)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("writers", "doomed", "appends"),
    [(8, 2, 4), pytest.param(40, 12, 10, marks=pytest.mark.soak)],
)
def test_processes_on_one_partition_lose_nothing_and_write_nothing_twice(
    writers: int, doomed: int, appends: int, s3_server: S3Server
) -> None:
    settings = s3_server.settings("writers")
    cluster = cluster_in(open_store(settings))
    cluster.create_topic(TOPIC)
    started = start(settings, writers, appends)
    run(started, doomed, after=appends // 2)

    found = contents(cluster.log(TOPIC))
    assert [offset for offset, _ in found] == list(range(len(found)))
    read = {value.decode(): offset for offset, value in found}
    assert len(read) == len(found)
    for writer, one in enumerate(started):
        assert one.is_killed or len(one.said) == appends
        for number, first in one.said.items():
            assert [read[name_of(writer, number, row)] for row in range(ROWS)] == list(range(first, first + ROWS))
    # A batch that was not acknowledged is there whole, or not at all.
    batches = {name.rpartition("-")[0] for name in read}
    assert len(read) == ROWS * len(batches)
