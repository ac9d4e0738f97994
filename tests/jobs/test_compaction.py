"""Partitions with too many keys for memory are compacted by Spark in one pass, to what several passes here make."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from reconciler.embedded.maintenance import compaction as in_memory
from reconciler.embedded.segments.parts import read_part
from reconciler.jobs.compaction import add_file_rows, find_newest, group_by_file, run_in_spark
from reconciler.objectstore.directory import DirectoryStore
from reconciler.records.log import OffsetRange
from tests.embedded.maintenance.tiny_segments import (
    ALL,
    DAY,
    TOPIC,
    append,
    clocked,
    head_of,
    held,
    parts_in,
    with_topic,
)
from tests.embedded.samples import rows_of
from tests.embedded.tiered.tiered_cluster import BOTH, Tiered
from tests.engines import on
from tests.jobs.doubles import LostTask, MishapWrites

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reconciler.embedded.cluster import EmbeddedCluster

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

EAGER = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0", "segment_bytes": "20000"}
TOMBSTONES_MS = 20_000


@pytest.fixture
def few_keys() -> Iterator[None]:
    """Memory for ten keys."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(in_memory, "MAX_LEARNED_KEYS", 10)
        patched.setattr(in_memory, "_BUFFERED_ROWS", 4)
        yield


def feed(cluster: EmbeddedCluster, *, seed: int, parts: int = 60) -> None:
    """Append records of forty keys, some without a value, some to keys that never come again."""
    chosen = np.random.default_rng(seed)
    for number in range(parts):
        rows: list[tuple[str | None, str | None]] = [
            (f"k{chosen.integers(40)}", None if chosen.random() < 0.2 else f"{number}-{row}") for row in range(4)
        ]
        append(cluster, *rows, (f"once {seed} {number}", "x"))
    # What fits into no segment with others closes the one before it, wherever that began.
    append(cluster, ("z", chosen.bytes(60_000).hex()))
    append(cluster, ("z", "closes it too"))


def compacted_here(cluster: EmbeddedCluster) -> int:
    """Compact as long as there is something to do, and return how many passes it took."""
    passes = 0
    while True:
        before = head_of(cluster)
        assert not cluster.upkeep().compact().failed
        if head_of(cluster) == before:
            return passes
        passes += 1


def compacted_in_spark(cluster: EmbeddedCluster, spark: SparkSession) -> None:
    engine = on(spark)
    done = cluster.upkeep().compact(partial(run_in_spark, engine))
    assert (done.partitions, done.failed) == (1, 0)
    assert engine.used.spark_tasks > 0


def twins(tmp_path: Path) -> tuple[Tiered, Tiered]:
    """Return two tiered clusters of the same records, most of them in object storage alone."""
    found = []
    for name in ("one", "two"):
        it = Tiered(DirectoryStore(tmp_path / name), DirectoryStore(tmp_path / f"{name}-objects"))
        it.switch_on()
        tiers = {key.replace(".", "_"): value for key, value in BOTH.items()}
        tight = {"retention_local_target_bytes": "1", "retention_local_strict": "true"}
        with_topic(it.cluster, **EAGER, **tiers, **tight, delete_retention_ms=str(TOMBSTONES_MS))
        feed(it.cluster, seed=1, parts=20)
        it.upload()
        assert not it.cluster.upkeep().retain().failed
        feed(it.cluster, seed=2, parts=20)
        it.upload()
        found.append(it)
    return found[0], found[1]


def remote_rows(it: Tiered) -> list[dict[str, Any]]:
    return [row for entry in it.segments() for row in rows_of(read_part(it.storage, entry, 0, ALL))]


def test_the_newest_offset_of_each_key_is_found(spark: SparkSession) -> None:
    rows = [(5, 1, 1), (9, 1, 1), (7, 1, 2), (8, 2, 1), (-1, 2, 1)]
    keys = spark.createDataFrame(rows, "offset bigint, high bigint, low bigint")
    assert sorted(row.offset for row in find_newest(keys).collect()) == [7, 8, 9]


def test_an_offset_stays_in_every_file_that_has_it_and_no_file_is_left_out(spark: SparkSession) -> None:
    survivors = spark.createDataFrame([(7,), (9,), (2,), (8,)], "offset bigint")
    ranges = [OffsetRange(0, 9), OffsetRange(8, 12), OffsetRange(12, 20)]
    found: dict[int, list[int]] = {}
    for row in add_file_rows(group_by_file(survivors, ranges), 3).collect():
        found.setdefault(row.file, []).extend(np.frombuffer(row.offsets, np.int64).tolist())
    assert {file: sorted(offsets) for file, offsets in found.items()} == {0: [2, 7, 8], 1: [8, 9], 2: []}


@pytest.mark.usefixtures("few_keys")
def test_one_pass_in_spark_leaves_what_many_passes_here_leave(spark: SparkSession, tmp_path: Path) -> None:
    (one, clock), (two, its_clock) = (clocked(DirectoryStore(tmp_path / name)) for name in ("one", "two"))
    for cluster in (one, two):
        with_topic(cluster, segment_bytes="20000")
        append(cluster, (None, "of a time"), ("k1", "when keys"), (None, "were not asked for"))
        cluster.alter_topic(TOPIC, {key.replace("_", "."): value for key, value in EAGER.items()})
        for number in range(2):  # a segment each, of which nothing stays
            append(cluster, ("k1", np.random.default_rng(number).bytes(60_000).hex()))
        feed(cluster, seed=3)
    before = held(one)
    assert compacted_here(one) > 5
    compacted_in_spark(two, spark)
    assert held(two) == held(one)
    last = {row["key"]: row["offset"] for row in before if row["offset"] < head_of(two).compacted_to}
    kept = [row["offset"] for row in held(two) if row["key"] is not None and row["offset"] < head_of(two).compacted_to]
    assert kept == sorted(offset for key, offset in last.items() if key is not None)
    assert head_of(two).compacted_to == head_of(one).compacted_to
    for cluster in (one, two):
        feed(cluster, seed=4, parts=20)
    compacted_here(one)
    compacted_in_spark(two, spark)
    assert held(two) == held(one)
    for moved in (clock, its_clock):
        moved.now_ms += 2 * DAY
    compacted_here(one)
    assert not two.upkeep().compact(partial(run_in_spark, on(spark))).failed
    assert held(two) == held(one)
    assert all(row["value"] is not None for row in held(two) if row["offset"] < head_of(two).compacted_to)


@pytest.mark.usefixtures("few_keys")
def test_both_tiers_are_compacted_in_one_pass(spark: SparkSession, tmp_path: Path) -> None:
    one, two = twins(tmp_path)
    assert head_of(one.cluster).local_start > 0
    assert compacted_here(one.cluster) > 2
    compacted_in_spark(two.cluster, spark)
    assert held(two.cluster) == held(one.cluster)
    assert head_of(two.cluster).compacted_to == head_of(one.cluster).compacted_to
    values = [{row["key"]: row["value"] for row in remote_rows(it)} for it in (one, two)]
    assert values[0] == values[1]


def test_a_partition_whose_keys_fit_is_compacted_by_one_task(spark: SparkSession, tmp_path: Path) -> None:
    one, two = (clocked(DirectoryStore(tmp_path / name))[0] for name in ("one", "two"))
    for cluster in (one, two):
        with_topic(cluster, **EAGER)
        feed(cluster, seed=5, parts=5)
    assert compacted_here(one) == 1
    engine = on(spark)
    assert not two.upkeep().compact(partial(run_in_spark, engine)).failed
    assert engine.used.spark_tasks == 1
    assert held(two) == held(one)


@pytest.mark.usefixtures("few_keys")
def test_what_was_aborted_or_is_open_supersedes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    one, two = (clocked(DirectoryStore(tmp_path / name))[0] for name in ("one", "two"))
    for cluster in (one, two):
        with_topic(cluster, **EAGER)
        feed(cluster, seed=7, parts=10)
        with cluster.producer("t") as producer:
            producer.init_transactions()
            for end in ("abort", "commit", ""):
                producer.begin()
                for key in range(40):
                    producer.send(TOPIC, end, key=f"k{key}", partition=0)
                producer.flush()
                feed(cluster, seed=8, parts=5)
                if end:
                    getattr(producer, end)()
            compacted_here(cluster) if cluster is one else compacted_in_spark(cluster, spark)
    assert held(two) == held(one)
    assert head_of(two).compacted_to == head_of(one).compacted_to


@pytest.mark.usefixtures("few_keys")
@pytest.mark.parametrize("trouble", ["missing", "damaged"])
def test_a_part_that_cannot_be_read_leaves_everything_as_it_was(
    spark: SparkSession, tmp_path: Path, trouble: str
) -> None:
    store = DirectoryStore(tmp_path / "one")
    cluster, _ = clocked(store)
    with_topic(cluster, **EAGER)
    feed(cluster, seed=6, parts=20)
    part = tmp_path / "one" / head_of(cluster).entries[3].key
    if trouble == "missing":
        part.unlink()
    else:
        part.write_bytes(bytes(len(part.read_bytes())))
    before, parts = head_of(cluster), parts_in(store)
    done = cluster.upkeep().compact(partial(run_in_spark, on(spark)))
    assert done.failed == 1
    assert part.name in str(done.errors)
    assert "Traceback" not in str(done.errors)
    assert head_of(cluster) == before
    assert parts_in(store) == parts


@pytest.mark.usefixtures("few_keys")
def test_a_pass_one_of_whose_tasks_was_killed_is_done_by_the_next_run(spark: SparkSession, tmp_path: Path) -> None:
    mishap = LostTask(tmp_path)
    watched: Any = MishapWrites(DirectoryStore(tmp_path / "one"), mishap)
    cluster, _ = clocked(watched)
    with_topic(cluster, **EAGER)
    feed(cluster, seed=9, parts=20)
    before, records = head_of(cluster), held(cluster)
    done = cluster.upkeep().compact(partial(run_in_spark, on(spark)))  # the tests' Spark tries nothing again
    assert mishap.is_over.exists()
    assert done.failed == 1
    assert (head_of(cluster), held(cluster)) == (before, records)
    compacted_in_spark(cluster, spark)
    last = {row["key"]: row["offset"] for row in records if row["offset"] < head_of(cluster).compacted_to}
    below = [row["offset"] for row in held(cluster) if row["offset"] < head_of(cluster).compacted_to]
    assert below == sorted(last.values())


@pytest.mark.usefixtures("few_keys")
def test_upkeep_that_is_stopped_begins_no_other_pass(spark: SparkSession, tmp_path: Path) -> None:
    cluster, _ = clocked(DirectoryStore(tmp_path / "one"))
    with_topic(cluster, partitions=2, **EAGER)
    for partition in range(2):
        for number in range(12):
            append(cluster, *[(f"k{number}-{row}", "x") for row in range(4)], partition=partition)
        append(cluster, ("z", "x" * 60_000), partition=partition)
        append(cluster, ("z", "closes it"), partition=partition)
        append(cluster, ("z", "closes it too"), partition=partition)
    asked = iter([False, True])
    done = cluster.upkeep().compact(partial(run_in_spark, on(spark, is_stopped=lambda: next(asked, True))))
    assert done.partitions == 1
    assert "maintenance was stopped" in str(done.errors)
    assert sorted(head_of(cluster, partition).compacted_to > 0 for partition in range(2)) == [False, True]
