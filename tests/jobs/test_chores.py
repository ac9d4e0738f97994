"""Upkeep on executors: many partitions in one stage. Needs Java."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.maintenance import chores
from reconciler.embedded.maintenance.chores import Chore, ChoreTask
from reconciler.embedded.segments.head import Partition
from reconciler.errors import IncompleteError, UserError
from reconciler.jobs.stage import spread
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.samples import NOW, cluster_in
from tests.embedded.upkeeping import TOPIC, TWO_PARTS, append, append_parts, digest_in, head_of, held, with_topic
from tests.jobs.doubles import tiered_west

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from reconciler.embedded.cluster import EmbeddedCluster

pytestmark = pytest.mark.spark

PARTITIONS = 40


@pytest.fixture
def much(west: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> EmbeddedCluster:
    """A topic of many partitions; what there is to do counts as much."""
    monkeypatch.setattr(chores, "_LITTLE", -1)
    with_topic(west, partitions=PARTITIONS, segment_bytes=TWO_PARTS, min_cleanable_dirty_ratio="0")
    for partition in range(PARTITIONS):
        append_parts(west, 3, partition=partition)
    return west


def test_all_partitions_are_rolled_by_one_stage(much: EmbeddedCluster, spark: SparkSession) -> None:
    before = {partition: (held(much, partition), digest_in(much, partition)) for partition in range(PARTITIONS)}
    begun: list[int] = []

    def counted(work: object, do: object) -> object:
        for found in spread(spark, work, do):  # type: ignore[type-var]  # chores and their task
            begun.append(len(found))
            yield found

    done = much.upkeep().roll(counted)  # type: ignore[arg-type]  # a spread
    assert (done.partitions, done.records, done.failed) == (PARTITIONS, 4 * PARTITIONS, 0)
    assert begun == [PARTITIONS]
    assert {p: (held(much, p), digest_in(much, p)) for p in range(PARTITIONS)} == before
    assert all(head_of(much, partition).entries[0].is_segment for partition in range(PARTITIONS))


def test_keys_are_compacted_on_executors(much: EmbeddedCluster, spark: SparkSession) -> None:
    much.alter_topic(TOPIC, {"cleanup.policy": "compact"})
    append(much, ("a0", "new"), ("b0", None), partition=7)
    append(much, ("z", "1"), partition=7)
    append(much, ("z", "2"), partition=7)
    append(much, ("z", "3"), partition=7)
    done = much.upkeep().compact(partial(spread, spark))
    assert done.failed == 0
    assert done.records == 3
    assert [row["key"] for row in held(much, 7)][:6] == [b"a1", b"b1", b"a2", b"b2", b"a0", b"b0"]


def test_segments_are_uploaded_and_merged_on_executors(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chores, "_LITTLE", -1)
    storage = DirectoryStore(tmp_path / "storage")
    cluster = tiered_west(tmp_path / "west", storage, partitions=PARTITIONS, parts=9, now_ms=NOW)
    before = {partition: held(cluster, partition) for partition in range(PARTITIONS)}
    done = cluster.upkeep().upload(partial(spread, spark))
    assert (done.partitions, done.failed) == (PARTITIONS, 0)
    assert all(head_of(cluster, partition).uploaded_to > 10 for partition in range(PARTITIONS))
    uploaded = len(list(storage.list("topics/")))
    sizes = {"cloud_storage_segment_size_target": str(1 << 20), "cloud_storage_segment_size_min": "1"}
    cluster.alter_cluster(sizes)
    merged = cluster.upkeep().merge(partial(spread, spark))
    assert (merged.partitions, merged.failed) == (PARTITIONS, 0)
    assert len(list(storage.list("topics/"))) < uploaded
    assert {partition: held(cluster, partition) for partition in range(PARTITIONS)} == before


def test_an_executor_that_does_not_see_the_cluster_ends_it(spark: SparkSession) -> None:
    cluster = cluster_in(MemoryStore("only here"))
    with_topic(cluster)
    task = ChoreTask(cluster.store, cluster.catalog, cluster.cluster_id, "roll", 0)
    chore = Chore(Partition(TOPIC, cluster.topic(TOPIC).id, 0), 1)
    # A memory store is there in this process only.
    with pytest.raises(UserError, match="not shared with this executor"):
        list(spread(spark, [chore], task))


def test_what_is_stopped_begins_no_round(spark: SparkSession) -> None:
    with pytest.raises(IncompleteError, match="stopped"):
        list(spread(spark, [Chore(Partition(TOPIC, "x", 0), 1)], list, is_stopped=lambda: True))
