"""Several runners of one link at once, while its source is written to: no record twice, none missing."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import pytest

from reconciler.embedded.catalog.mirror_tables import MirrorShape
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import RetryableError
from reconciler.jobs.copy import mirror
from reconciler.jobs.verify import verify
from reconciler.objectstore.directory import DirectoryStore
from reconciler.resources.mirrors import LinkEntry
from tests.embedded.links.linked import ORDERS, mirrored
from tests.embedded.samples import ids, read
from tests.engines import here
from tests.operations.stage import once

PARTITIONS = 3
APPENDS = 30


def opened(folder: Path, name: str) -> EmbeddedCluster:
    return EmbeddedCluster.create(DirectoryStore(folder / name), now_ms=lambda: 1_700_000_000_000, new_id=ids())


def linked_in(folder: Path) -> None:
    west, east = opened(folder, "west"), opened(folder, "east")
    west.create_namespace("shop")
    east.create_namespace("shop")
    west.create_topic(ORDERS, partitions=PARTITIONS)
    east.create_link("dr", LinkEntry("link-1", "west", {"source": "west"}))
    east.create_mirror(ORDERS, MirrorShape(link="dr", source=ORDERS), west.source_topic(ORDERS))


def run(folder: Path) -> int:
    """Copy again and again, until the producer has said that it is done, and once more; return the records copied."""
    west, east = opened(folder, "west"), opened(folder, "east")
    copied, is_last = 0, False
    while not is_last:
        is_last = (folder / "done").exists()
        with suppress(RetryableError):  # The other was always faster: it has copied it.
            copied += mirror(here(), west.log(ORDERS), east.sink(ORDERS)).records
    return copied


def produce(west: EmbeddedCluster, folder: Path) -> None:
    for number in range(APPENDS):
        with west.producer() as producer:
            for partition in range(PARTITIONS):
                for value in range(3):
                    producer.send(ORDERS, f"{number}-{value}", partition=partition)
    (folder / "done").touch()


def check(folder: Path, copied: list[int]) -> None:
    ours, theirs = opened(folder, "west").log(ORDERS), opened(folder, "east").log(ORDERS)
    for partition in range(PARTITIONS):
        assert [row["offset"] for row in read(theirs, partition)] == list(range(3 * APPENDS))
    assert verify(here(), ours, theirs, deep=True).is_equal
    assert sum(copied) == 3 * APPENDS * PARTITIONS


@pytest.mark.thorough
def test_threads_copy_each_record_once(tmp_path: Path) -> None:
    linked_in(tmp_path)
    with ThreadPoolExecutor(3) as threads:
        runners = [threads.submit(run, tmp_path) for _ in range(2)]
        produce(opened(tmp_path, "west"), tmp_path)
        check(tmp_path, [runner.result() for runner in runners])


@pytest.mark.soak
def test_processes_copy_each_record_once(tmp_path: Path) -> None:
    linked_in(tmp_path)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        runners = [processes.submit(run, tmp_path) for _ in range(2)]
        produce(opened(tmp_path, "west"), tmp_path)
        check(tmp_path, [runner.result() for runner in runners])


def test_rounds_side_by_side_copy_each_record_once() -> None:
    linked = mirrored(partitions=4)
    for _ in range(5):
        for partition in range(4):
            linked.produce("west", "x", "y", partition=partition)
        with ThreadPoolExecutor(3) as threads:
            found = list(threads.map(lambda _: once(linked), range(3)))
        assert [one.error for each in found for one in each.values()] == [None] * 3
    for partition in range(4):
        assert linked.read("east", partition=partition) == linked.read("west", partition=partition)
