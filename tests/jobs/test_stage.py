"""What a copy has to move, and how it is dealt out. No Spark."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.embedded.maintenance.chores import Chore, ChoreTask
from reconciler.embedded.segments.head import Partition
from reconciler.errors import IncompleteError, MissingSparkError, RetryableError, UserError
from reconciler.jobs.flows import (
    MIB,
    PIECE_BYTES,
    Budget,
    Piece,
    deal_to_tasks,
    find_missing_ranges,
    iter_pieces,
    iter_rounds,
    join_pieces,
)
from reconciler.jobs.ordered import verify_renumbered
from reconciler.jobs.progress import JobProgress
from reconciler.jobs.stage import Engine, Tasks, run_rounds_in_spark
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import Bounds, Extent, OffsetRange, Spans
from tests.embedded.maintenance.tiny_segments import (
    TOPIC,
    TWO_PARTS,
    append,
    append_parts,
    digest_in,
    head_of,
    held,
    with_topic,
)
from tests.embedded.samples import NOW, cluster_in
from tests.engines import here, on
from tests.jobs.doubles import tiered_west

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reconciler.embedded.cluster import EmbeddedCluster


EMPTY = Bounds(0, 0, 0, 0)


def extents(sizes: list[tuple[int, int, int]], start: int) -> list[Extent]:
    """(gap before, offsets, stored bytes) of each, one after the other."""
    found, at = [], start
    for gap, length, stored in sizes:
        found.append(Extent(OffsetRange(at + gap, at + gap + length), length, stored))
        at += gap + length
    return found


stretches = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 100), st.integers(0, 3 * PIECE_BYTES)), max_size=20)
some_pieces = st.lists(
    st.builds(
        lambda partition, stored: Piece(partition, OffsetRange(0, 1), 1, stored),
        st.integers(0, 5),
        st.integers(0, 600 * MIB),
    ),
    min_size=1,
    max_size=60,
)


def test_only_partitions_that_lack_something_are_copied_up_to_what_is_stable() -> None:
    bounds = {0: Bounds(0, 0, 10, 12), 1: Bounds(3, 3, 5, 5), 2: EMPTY}
    assert find_missing_ranges(bounds, {0: 4, 1: 5, 2: 0}) == {0: OffsetRange(4, 10)}


def test_what_the_source_no_longer_has_is_a_gap_at_the_beginning() -> None:
    assert find_missing_ranges({0: Bounds(7, 7, 9, 9)}, {0: 0}) == {0: OffsetRange(0, 9)}


def test_a_sink_that_goes_on_where_its_source_ends_is_no_copy_of_it() -> None:
    with pytest.raises(UserError, match="partition 0 ends at 11, its source at 10"):
        find_missing_ranges({0: Bounds(0, 0, 10, 10)}, {0: 11})


def test_a_sink_that_is_within_an_open_transaction_of_its_source_lacks_nothing() -> None:
    assert find_missing_ranges({0: Bounds(0, 0, 10, 14)}, {0: 12}) == {}


def test_a_partition_the_sink_does_not_have_is_refused() -> None:
    with pytest.raises(UserError, match="partition 1 is on the source only"):
        find_missing_ranges({0: EMPTY, 1: EMPTY}, {0: 0})


@given(stretches, st.integers(0, 10), st.integers(0, 5))
def test_pieces_cover_every_offset_once_and_cut_no_extent(
    sizes: list[tuple[int, int, int]], start: int, tail: int
) -> None:
    stored = extents(sizes, start)
    stop = (stored[-1].offsets.stop if stored else start) + tail
    pieces = list(iter_pieces(0, OffsetRange(start, stop), stored))
    assert [pieces[0].offsets.start, pieces[-1].offsets.stop] == [start, stop]
    assert all(one.offsets.stop == other.offsets.start for one, other in itertools.pairwise(pieces))
    assert sum(piece.records for piece in pieces) == sum(extent.records for extent in stored)
    for extent in stored:
        assert any(piece.offsets.contains(extent.offsets) for piece in pieces)


@given(stretches)
def test_a_piece_is_larger_than_its_limit_only_when_one_object_is(sizes: list[tuple[int, int, int]]) -> None:
    largest = max((stored for _, _, stored in sizes), default=0)
    for piece in iter_pieces(0, OffsetRange(0, 10_000), extents(sizes, 0)):
        assert piece.stored_bytes <= max(PIECE_BYTES, largest)


@given(some_pieces, st.integers(1, 64))
def test_every_piece_is_in_one_round_and_in_one_task(pieces: list[Piece], cores: int) -> None:
    budget = Budget(cores)
    taken = []
    for one_round in iter_rounds(pieces, budget):
        tasks = deal_to_tasks(one_round, cores)
        assert all(tasks)
        taken += [piece for task in tasks for piece in task]
    assert taken == pieces


@given(some_pieces, st.integers(1, 64))
def test_a_round_keeps_to_its_budget_unless_one_piece_is_larger(pieces: list[Piece], cores: int) -> None:
    budget = Budget(cores)
    for one_round in iter_rounds(pieces, budget):
        assert len(one_round) == 1 or sum(piece.cost for piece in one_round) <= budget.cost


def test_ten_thousand_tiny_partitions_are_a_few_tasks_a_core() -> None:
    pieces = [Piece(number, OffsetRange(0, 1), 1, 100) for number in range(10_000)]
    assert len(deal_to_tasks(pieces, 2)) <= 8


def test_work_that_is_too_little_to_share_is_one_task() -> None:
    assert len(deal_to_tasks([Piece(number, OffsetRange(0, 1), 1, 100) for number in range(4)], 8)) == 1


def test_logs_without_a_record_do_not_differ() -> None:
    cluster = cluster_in(MemoryStore())
    with_topic(cluster)
    log = cluster.log(TOPIC)
    assert verify_renumbered(here(), log, log, {}).is_equal


def test_neighbours_of_one_partition_are_joined_and_others_are_not() -> None:
    cuts = [(0, 0, 5), (0, 5, 9), (1, 9, 10), (1, 11, 12), (0, 12, 13)]
    found = join_pieces(Piece(partition, OffsetRange(start, stop), 1, 2) for partition, start, stop in cuts)
    assert list(found) == [
        Piece(0, OffsetRange(0, 9), 2, 4),
        Piece(1, OffsetRange(9, 10), 1, 2),
        Piece(1, OffsetRange(11, 12), 1, 2),
        Piece(0, OffsetRange(12, 13), 1, 2),
    ]
    assert list(join_pieces([])) == []


def test_a_budget_learns_from_how_long_a_round_took() -> None:
    budget = Budget(2)
    taken = [Piece(0, OffsetRange(0, 1), 1, 96 * MIB)]
    budget.adapt(taken, seconds=100.0, cores=2)
    assert budget.cost == 10 * MIB
    budget.adapt(taken, seconds=0.01, cores=2)
    assert budget.cost == 2 * 1024 * MIB


def test_nothing_is_said_of_the_time_left_before_a_rate_is_known() -> None:
    progress = JobProgress(records=0, records_total=9, bytes=0, bytes_total=100, seconds=0.0)
    assert progress.seconds_left is None


def test_no_time_is_left_where_every_record_is_there_whatever_was_thought_of_their_bytes() -> None:
    progress = JobProgress(records=270, records_total=270, bytes=25, bytes_total=100, seconds=1.0)
    assert progress.seconds_left == 0


def test_the_time_left_follows_the_bytes() -> None:
    progress = JobProgress(records=5, records_total=9, bytes=25, bytes_total=100, seconds=10.0)
    assert progress.seconds_left == 30.0


# Upkeep on executors: many partitions in one stage. Needs Java.


PARTITIONS = 40


@pytest.fixture
def much(west: EmbeddedCluster) -> EmbeddedCluster:
    """A topic of many partitions."""
    with_topic(west, partitions=PARTITIONS, segment_bytes=TWO_PARTS, min_cleanable_dirty_ratio="0")
    for partition in range(PARTITIONS):
        append_parts(west, 3, partition=partition)
    return west


@pytest.mark.thorough
@pytest.mark.spark
def test_all_partitions_are_rolled_by_one_stage(much: EmbeddedCluster, spark: SparkSession) -> None:
    before = {partition: (held(much, partition), digest_in(much, partition)) for partition in range(PARTITIONS)}
    begun: list[int] = []

    def counted(work: object, do: object) -> object:
        for found in run_rounds_in_spark(on(spark), work, do):  # type: ignore[type-var]  # chores and their task
            begun.append(len(found))
            yield found

    done = much.upkeep().roll(counted)  # type: ignore[arg-type]  # a spread
    assert (done.partitions, done.records, done.failed) == (PARTITIONS, 4 * PARTITIONS, 0)
    assert begun == [PARTITIONS]
    assert {p: (held(much, p), digest_in(much, p)) for p in range(PARTITIONS)} == before
    assert all(head_of(much, partition).entries[0].is_segment for partition in range(PARTITIONS))


@pytest.mark.spark
def test_keys_are_compacted_on_executors(much: EmbeddedCluster, spark: SparkSession) -> None:
    much.alter_topic(TOPIC, {"cleanup.policy": "compact"})
    append(much, ("a0", "new"), ("b0", None), partition=7)
    append(much, ("z", "1"), partition=7)
    append(much, ("z", "2"), partition=7)
    append(much, ("z", "3"), partition=7)
    done = much.upkeep().compact(partial(run_rounds_in_spark, on(spark)))
    assert done.failed == 0
    assert done.records == 3
    assert [row["key"] for row in held(much, 7)][:6] == [b"a1", b"b1", b"a2", b"b2", b"a0", b"b0"]


@pytest.mark.thorough
@pytest.mark.spark
def test_segments_are_uploaded_and_merged_on_executors(spark: SparkSession, tmp_path: Path) -> None:
    storage = DirectoryStore(tmp_path / "storage")
    cluster = tiered_west(tmp_path / "west", storage, partitions=PARTITIONS, parts=9, now_ms=NOW)
    before = {partition: held(cluster, partition) for partition in range(PARTITIONS)}
    done = cluster.upkeep().upload(partial(run_rounds_in_spark, on(spark)))
    assert (done.partitions, done.failed) == (PARTITIONS, 0)
    assert all(head_of(cluster, partition).uploaded_to > 10 for partition in range(PARTITIONS))
    uploaded = len(list(storage.list("topics/")))
    sizes = {"cloud_storage_segment_size_target": str(1 << 20), "cloud_storage_segment_size_min": "1"}
    cluster.alter_cluster(sizes)
    merged = cluster.upkeep().merge(partial(run_rounds_in_spark, on(spark)))
    assert (merged.partitions, merged.failed) == (PARTITIONS, 0)
    assert len(list(storage.list("topics/"))) < uploaded
    assert {partition: held(cluster, partition) for partition in range(PARTITIONS)} == before


@pytest.mark.spark
def test_an_executor_that_does_not_see_the_cluster_ends_it(spark: SparkSession) -> None:
    cluster = cluster_in(MemoryStore("only here"))
    with_topic(cluster)
    task = ChoreTask(cluster.store, cluster.catalog, cluster.cluster_id, "roll", 0)
    chore = Chore(Partition(TOPIC, cluster.topic(TOPIC).id, 0), 1)
    # A memory store is there in this process only.
    with pytest.raises(UserError, match="is not visible to the executor on"):
        list(run_rounds_in_spark(on(spark), [chore], task))


@pytest.mark.spark
def test_what_is_stopped_begins_no_round(spark: SparkSession) -> None:
    with pytest.raises(IncompleteError, match="stopped"):
        list(run_rounds_in_spark(on(spark, is_stopped=lambda: True), [Chore(Partition(TOPIC, "x", 0), 1)], list))


class Cancelled:
    """A log whose reader ends as one does that Spark cancels."""

    def check_shared(self) -> None:
        """See that every machine has it."""

    def list_extents(self, _partition: int, offsets: OffsetRange) -> list[Extent]:
        return [Extent(offsets, 1, 1)]

    def read(self, _partition: int, _offsets: OffsetRange) -> list[object]:
        raise OSError("killed")


@pytest.mark.spark
@pytest.mark.parametrize(("is_stopped", "kind"), [(True, IncompleteError), (False, RetryableError)])
def test_a_comparison_that_is_stopped_in_spark_is_not_one_that_failed(
    spark: SparkSession, kind: type[Exception], *, is_stopped: bool
) -> None:
    log: Any = Cancelled()
    spans = {0: Spans(OffsetRange(0, 1), OffsetRange(0, 1))}
    with pytest.raises(kind, match="comparing records"):
        verify_renumbered(on(spark, is_stopped=lambda: is_stopped), log, log, spans)


def no_java() -> Any:
    raise MissingSparkError("Data jobs run on Spark, and PySpark is not installed", hint="Install it: pip install it.")


@pytest.mark.parametrize(
    ("below", "message"),
    [
        (64 << 10, "96 KiB must be read, and jobs of 64 KiB or more run on Spark (spec.spark.inProcessBelow). "),
        (0, "Data jobs run on Spark, and PySpark is not installed"),
    ],
)
def test_work_that_is_larger_than_expected_says_what_to_install(below: int, message: str) -> None:
    tasks = Tasks(Engine(no_java, below=below))
    with tasks.choose_engine(0, "nothing yet") if below else nullcontext():
        assert tasks.is_in_process
    with pytest.raises(MissingSparkError) as refused, tasks.choose_engine(96 << 10, "more than that"):
        pytest.fail("it ran without Spark")
    assert refused.value.message.startswith(message)
    assert refused.value.hint == "Install it: pip install it."
