"""Processes that append to one partition of a real S3 server, some of them killed: nothing said is lost or doubled."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.open import open_store
from tests.embedded.samples import cluster_in, contents, ids, values

if TYPE_CHECKING:
    from reconciler.objectstore.settings import StoreSettings
    from tests.servers.weed import S3Server

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
