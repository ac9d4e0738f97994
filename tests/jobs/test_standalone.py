"""Copies on a real standalone cluster: a master and two workers, each a process of its own."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle

from reconciler.embedded.catalog.mirror_tables import MirrorShape
from reconciler.embedded.catalog.tiering_state import tiering_of
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.keys import index_key
from reconciler.embedded.maintenance import chores
from reconciler.embedded.segments.pages import all_entries
from reconciler.embedded.segments.parts import read_part
from reconciler.embedded.tiered.manifest import read_manifest
from reconciler.embedded.tiered.remote_tier import remote_partition
from reconciler.jobs.stage import spread
from reconciler.jobs.verify import verify
from reconciler.objectstore.directory import DirectoryStore
from reconciler.records.log import OffsetRange
from reconciler.resources.mirrors import LinkEntry
from tests.embedded.maintenance.tiny_segments import DAY, LateStore
from tests.embedded.samples import NOW, ids, read, rows_of
from tests.engines import here, on
from tests.jobs import doubles
from tests.jobs.doubles import TOPIC, Deadly, DeadlyStorage, Lingering, Signalling, append, fill, in_spark, tiered_west
from tests.jobs.standalone import standalone

if TYPE_CHECKING:
    from subprocess import Popen

    import pyarrow as pa

    from reconciler.jobs.session import RunningSpark
    from reconciler.objectstore.base import ObjectStore

pytestmark = [pytest.mark.spark, pytest.mark.soak]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSpark]:
    cloudpickle.register_pickle_by_value(doubles)
    with standalone(tmp_path_factory.mktemp("standalone")) as running:
        yield running.spark


@pytest.fixture
def topics(west: EmbeddedCluster, east: EmbeddedCluster) -> None:
    for one in (west, east):
        one.create_topic(TOPIC, partitions=4)
    append(west, partitions=4, count=200, parts=3)


def test_executors_run_the_package_that_was_sent(cluster: RunningSpark) -> None:
    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow  # noqa: ICN001, PLC0415 - where the executor has it
        import reconciler.jobs.mirror  # noqa: PLC0415 - as above

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"file": [reconciler.jobs.copy.__file__], "pid": [os.getppid()]})

    rows = cluster.session.range(0, 8, 1, 8).mapInArrow(where, "file string, pid long").collect()
    assert all("reconciler.zip" in row.file for row in rows)
    assert len({row.pid for row in rows}) == 2


@pytest.mark.usefixtures("topics")
def test_a_copy_is_done_by_all_executors(cluster: RunningSpark, west: EmbeddedCluster, east: EmbeddedCluster) -> None:
    assert in_spark(cluster.session, west.log(TOPIC), east.sink(TOPIC)).records == 2400
    assert verify(on(cluster.session), west.log(TOPIC), east.log(TOPIC), deep=True).is_equal


@pytest.mark.usefixtures("topics")
def test_a_task_that_is_killed_is_done_again_and_nothing_is_there_twice(
    cluster: RunningSpark, west: EmbeddedCluster, east: EmbeddedCluster, tmp_path: Path
) -> None:
    copied = in_spark(cluster.session, west.log(TOPIC), Deadly(east.sink(TOPIC), tmp_path / "died"))
    assert (tmp_path / "died").exists()
    assert copied.records == 2400
    for partition in range(4):
        assert [row["offset"] for row in read(east.log(TOPIC), partition)] == list(range(600))
    assert verify(here(), west.log(TOPIC), east.log(TOPIC), deep=True).is_equal


@pytest.mark.fact("F-R-033")
def test_an_upload_whose_task_is_killed_is_done_again_and_each_record_is_there_once(
    cluster: RunningSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chores, "_LITTLE", -1)
    storage = DirectoryStore(tmp_path / "storage")
    deadly = DeadlyStorage(storage, tmp_path / "died", os.getpid())
    tiered = tiered_west(tmp_path / "west", deadly, partitions=8, parts=9, now_ms=NOW)
    tiered.upkeep().roll()
    before = [read(tiered.log(TOPIC), partition) for partition in range(8)]
    done = tiered.upkeep().upload(partial(spread, cluster.session))
    assert (tmp_path / "died").exists()
    assert (done.partitions, done.failed) == (8, 0)
    catalog = tiered.catalog.read()
    tiering = tiering_of(catalog, TOPIC, tiered.cluster_id)
    assert tiering is not None
    for partition in range(8):
        manifest = read_manifest(storage, remote_partition(tiering.location, partition))
        assert manifest is not None
        found = [
            row
            for entry in all_entries(storage, manifest)
            for row in rows_of(read_part(storage, entry, partition, OffsetRange(0, 1 << 40)))
        ]
        assert found == before[partition][: manifest.end]
        assert manifest.end > 10
    assert tiered.upkeep().upload(partial(spread, cluster.session)).partitions == 0


@pytest.mark.fact("F-C-001")
def test_a_copy_one_of_whose_workers_is_killed_ends_and_nothing_is_there_twice(
    west: EmbeddedCluster, east: EmbeddedCluster, tmp_path: Path
) -> None:
    east.create_link("dr", LinkEntry("link-1", "west", {"source": "west"}))
    fill(west, partitions=8, count=200, parts=3)
    east.create_mirror(TOPIC, MirrorShape(link="dr", source=TOPIC), west.source_topic(TOPIC))
    said, over = tmp_path / "said", threading.Event()
    with standalone(tmp_path / "spark") as running:
        killer = threading.Thread(target=kill_when, args=(said, running.workers[0], over))
        killer.start()
        sink = Lingering(east.sink(TOPIC), said, tmp_path / "killed")
        copied = in_spark(running.spark.session, west.log(TOPIC), sink)
        over.set()
        killer.join()
        assert running.workers[0].wait(30) != 0
        assert copied.records == 4800
        assert in_spark(running.spark.session, west.log(TOPIC), east.sink(TOPIC)).offsets == 0
    for partition in range(8):
        assert [row["offset"] for row in read(east.log(TOPIC), partition)] == list(range(600))
    assert verify(here(), west.log(TOPIC), east.log(TOPIC), deep=True).is_equal


def kill_when(said: Path, worker: subprocess.Popen[str], over: threading.Event) -> None:
    """Kill a worker once its tasks are at work, and say so to those that wait for it."""
    while not said.exists() and not over.wait(0.01):
        pass
    worker.kill()
    worker.wait()
    said.with_name("killed").touch()


# Upkeep of a tiered topic on a real standalone cluster, one of whose workers is killed in the middle.


PARTITIONS = 16


def kill_worker_when(said: Path, worker: Popen[str], over: threading.Event) -> None:
    """Kill a worker, and with it its executor, as soon as an executor has said that it is at work."""
    while not said.exists() and not over.wait(0.01):
        pass
    worker.kill()


@pytest.mark.fact("F-R-033")
def test_upload_retention_and_merge_converge_although_a_worker_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chores, "_LITTLE", -1)
    cloudpickle.register_pickle_by_value(doubles)
    storage, said, over = DirectoryStore(tmp_path / "storage"), tmp_path / "said", threading.Event()
    signalling = Signalling(storage, said, os.getpid())
    tiered = tiered_west(tmp_path / "west", signalling, partitions=PARTITIONS, parts=9, now_ms=NOW)
    tiered.alter_cluster({"cloud_storage_segment_size_target": "20000", "cloud_storage_segment_size_min": "1"})
    tiered.upkeep().roll()
    before = [read(tiered.log(TOPIC), partition) for partition in range(PARTITIONS)]
    with standalone(tmp_path / "spark") as running:
        on_spark = partial(spread, running.spark.session)
        killer = threading.Thread(target=kill_worker_when, args=(said, running.workers[0], over))
        killer.start()
        done = tiered.upkeep().upload(on_spark)
        over.set()
        killer.join()
        assert said.exists()
        assert running.workers[0].wait(30) != 0
        assert (done.partitions, done.errors) == (PARTITIONS, [])
        merged = tiered.upkeep().merge(on_spark)
        assert (merged.partitions, merged.errors) == (PARTITIONS, [])
        tiered.alter_topic(TOPIC, {"retention.local.strict": "true", "retention.local.target.bytes": "1"})
        assert tiered.upkeep().retain().errors == []
        assert tiered.upkeep().upload(on_spark).partitions == 0
        assert tiered.upkeep().merge(on_spark).partitions == 0
    heads = [tiered.log(TOPIC).head(partition) for partition in range(PARTITIONS)]
    assert all(head is not None and head.local_start > 10 for head in heads)
    assert [read(tiered.log(TOPIC), partition) for partition in range(PARTITIONS)] == before
    assert check_cluster(tiered.store, deep=True, storage=storage).findings == []
    sweep(tmp_path, storage)
    assert {key for key in _keys(storage) if key.endswith((".parquet", ".index"))} == named(tiered, storage)


def sweep(folder: Path, storage: ObjectStore) -> None:
    """Delete what is unnamed, as whoever comes a day later."""
    late: tuple[Any, Any] = LateStore(DirectoryStore(folder / "west"), DAY + 60_000), LateStore(storage, DAY + 60_000)
    EmbeddedCluster.open(late[0], now_ms=lambda: NOW, new_id=ids(), storage=late[1]).sweep()


def named(cluster: EmbeddedCluster, storage: ObjectStore) -> set[str]:
    """Return what manifests name."""
    tiering = tiering_of(cluster.catalog.read(), TOPIC, cluster.cluster_id)
    assert tiering is not None
    found: set[str] = set()
    for partition in range(PARTITIONS):
        manifest = read_manifest(storage, remote_partition(tiering.location, partition))
        assert manifest is not None
        found |= {key for entry in all_entries(storage, manifest) for key in (entry.key, index_key(entry.key))}
    return found


def _keys(storage: ObjectStore) -> set[str]:
    return {listed.key for listed in storage.list("topics/")}
