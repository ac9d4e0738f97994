"""Upkeep of a tiered topic on a real standalone cluster, one of whose workers is killed in the middle."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle

from reconciler.embedded.catalog.tiering_state import tiering_of
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.keys import index_key
from reconciler.embedded.maintenance import chores
from reconciler.embedded.segments.pages import all_entries
from reconciler.embedded.tiered.manifest import read_manifest
from reconciler.embedded.tiered.remote_tier import remote_partition
from reconciler.jobs.stage import spread
from reconciler.objectstore.directory import DirectoryStore
from tests.embedded.samples import NOW, ids, read
from tests.embedded.upkeeping import DAY, LateStore
from tests.jobs import doubles
from tests.jobs.doubles import TOPIC, Signalling, tiered_west
from tests.jobs.standalone import standalone

if TYPE_CHECKING:
    from subprocess import Popen

    from reconciler.objectstore.base import ObjectStore

pytestmark = [pytest.mark.spark, pytest.mark.soak]

PARTITIONS = 16


def kill_when(said: Path, worker: Popen[str], over: threading.Event) -> None:
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
        killer = threading.Thread(target=kill_when, args=(said, running.workers[0], over))
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
