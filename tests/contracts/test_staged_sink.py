"""What every sink that stages and publishes must do, and logs that keep what was staged as it was."""

from __future__ import annotations

import itertools
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.records.hashes import compute_digest
from reconciler.records.log import Digest, OffsetRange, StagedSink, TopicLog
from tests.embedded.samples import NOW, cluster_in, numbered, read
from tests.servers.stores import ON_SERVERS_THOROUGHLY, fresh_store

if TYPE_CHECKING:
    import pyarrow as pa

    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore

TOPIC = "orders"


@pytest.fixture(params=ON_SERVERS_THOROUGHLY)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return fresh_store(request, tmp_path / "west")


@pytest.fixture
def cluster(store: ObjectStore) -> EmbeddedCluster:
    cluster = cluster_in(store)
    cluster.create_topic(TOPIC, partitions=3)
    return cluster


@pytest.fixture
def log(cluster: EmbeddedCluster) -> TopicLog:
    return cluster.log(TOPIC)


@pytest.fixture
def sink(cluster: EmbeddedCluster) -> StagedSink:
    return cluster.sink(TOPIC)


def fill(sink: StagedSink, *counts: int, partition: int = 0) -> None:
    """Append to a partition, one part for each count."""
    for count in counts:
        start = sink.read_ends()[partition]
        at = OffsetRange(start, start + count)
        sink.publish([sink.stage(partition, [numbered(start, count, partition=partition)], at=at)])


def digest(log: TopicLog, offsets: OffsetRange, partition: int = 0) -> Digest:
    return sum(log.read_digests(partition, offsets), Digest())


# -- what was staged as a log has it


def test_extents_cover_what_is_stored_and_no_more(log: TopicLog, sink: StagedSink) -> None:
    fill(sink, 4, 1, 5)
    extents = list(log.list_extents(0, OffsetRange(0, 10)))
    assert [extent.offsets for extent in extents] == [OffsetRange(0, 4), OffsetRange(4, 5), OffsetRange(5, 10)]
    assert [extent.records for extent in extents] == [4, 1, 5]
    assert all(extent.stored_bytes > 0 for extent in extents)
    cut = list(log.list_extents(0, OffsetRange(2, 7)))
    assert [extent.offsets for extent in cut] == [OffsetRange(2, 4), OffsetRange(4, 5), OffsetRange(5, 7)]


def test_a_gap_is_passed_by_all_that_is_said_of_a_log(log: TopicLog, sink: StagedSink) -> None:
    sink.publish([sink.stage(0, [numbered(0, 3)], at=OffsetRange(0, 8))])
    fill(sink, 4)
    sink.publish([sink.stage(0, [], at=OffsetRange(12, 14))])
    rows = numbered(0, 3).to_pylist() + numbered(8, 4).to_pylist()
    assert (log.read_bounds()[0].stable, log.read_bounds()[0].end) == (14, 14)
    for start, stop in itertools.combinations(range(15), 2):
        offsets = OffsetRange(start, stop)
        within = [row for row in rows if start <= row["offset"] < stop]
        assert read(log, 0, start, stop) == within
        assert sum(extent.records for extent in log.list_extents(0, offsets)) == len(within)
        assert digest(log, offsets) == sum((compute_digest(batch, base=0) for batch in log.read(0, offsets)), Digest())
    assert log.find_offset_at(0, NOW + 3) == 8
    assert log.find_offset_at(0, NOW + 12) is None


# -- staging and publishing


def test_what_is_staged_is_not_readable_before_it_is_published(log: TopicLog, sink: StagedSink) -> None:
    staged = sink.stage(0, [numbered(0, 3)], at=OffsetRange(0, 3))
    assert (staged.records, staged.partition, staged.at) == (3, 0, OffsetRange(0, 3))
    assert staged.stored_bytes > 0
    assert staged.digest == compute_digest(numbered(0, 3), base=0)
    assert read(log) == []
    assert sink.read_ends() == {0: 0, 1: 0, 2: 0}
    assert sink.publish([staged]) == {0: OffsetRange(0, 3)}
    assert read(log) == numbered(0, 3).to_pylist()


def test_a_range_goes_in_only_at_the_end_of_the_log(log: TopicLog, sink: StagedSink) -> None:
    fill(sink, 3)
    for start in (0, 1, 2, 4, 9):
        staged = sink.stage(0, [numbered(start, 2)], at=OffsetRange(start, start + 2))
        assert sink.publish([staged]) == {}
    assert read(log) == numbered(0, 3).to_pylist()


def test_ranges_of_one_round_are_put_in_order(log: TopicLog, sink: StagedSink) -> None:
    ranges = [OffsetRange(4, 6), OffsetRange(0, 3), OffsetRange(3, 4), OffsetRange(8, 9)]
    staged = [sink.stage(0, [numbered(at.start, at.length)], at=at) for at in ranges]
    staged.append(sink.stage(2, [numbered(0, 1, partition=2)], at=OffsetRange(0, 1)))
    assert sink.publish(staged) == {0: OffsetRange(0, 6), 2: OffsetRange(0, 1)}
    assert read(log) == numbered(0, 6).to_pylist()


def test_the_end_is_where_the_range_ends_also_after_a_gap(log: TopicLog, sink: StagedSink) -> None:
    sink.publish([sink.stage(0, [numbered(2, 3)], at=OffsetRange(0, 9))])
    sink.publish([sink.stage(0, [], at=OffsetRange(9, 12))])
    fill(sink, 1)
    assert [row["offset"] for row in read(log)] == [2, 3, 4, 12]
    assert sink.read_ends()[0] == 13
    assert digest(log, OffsetRange(0, 13)) == compute_digest(numbered(2, 3), base=0) + compute_digest(
        numbered(12, 1), base=0
    )


def test_records_outside_the_range_are_left_out(log: TopicLog, sink: StagedSink) -> None:
    staged = sink.stage(0, [numbered(0, 3), numbered(3, 3)], at=OffsetRange(0, 4))
    sink.publish([staged])
    assert read(log) == numbered(0, 4).to_pylist()
    assert staged.records == 4


def test_without_a_place_records_are_numbered_when_they_are_published(log: TopicLog, sink: StagedSink) -> None:
    fill(sink, 2)
    one = sink.stage(0, [numbered(70, 2), numbered(90, 1)], at=None)
    other = sink.stage(0, [numbered(50, 2)], at=None)
    assert sink.publish([one, other]) == {0: OffsetRange(2, 7)}
    assert [(row["offset"], row["value"]) for row in read(log, 0, 2)] == [
        (2, b""),
        (3, b"v71"),
        (4, b""),
        (5, b""),
        (6, b"v51"),
    ]


@pytest.mark.parametrize("at", [OffsetRange(0, 3), None])
def test_publishing_twice_does_it_once_and_says_so_both_times(
    log: TopicLog, sink: StagedSink, at: OffsetRange | None
) -> None:
    staged = sink.stage(0, [numbered(0, 3)], at=at)
    assert sink.publish([staged]) == {0: OffsetRange(0, 3)}
    fill(sink, 2)
    assert sink.publish([staged]) == {0: OffsetRange(0, 3)}
    assert len(read(log)) == 5


def test_of_two_that_stage_the_same_range_one_wins(log: TopicLog, sink: StagedSink) -> None:
    rounds = [OffsetRange(start, start + 2) for start in range(0, 40, 2)]

    def copy(_runner: int) -> int:
        gained = 0
        for at in rounds:
            staged = sink.stage(0, [numbered(at.start, at.length)], at=at)
            gained += sum(offsets.length for offsets in sink.publish([staged]).values())
        return gained

    with ThreadPoolExecutor(2) as runners:
        gained = list(runners.map(copy, range(2)))
    assert sum(gained) == 40
    assert read(log) == numbered(0, 40).to_pylist()


def test_a_sink_and_what_it_staged_travel(log: TopicLog, sink: StagedSink) -> None:
    travelled: StagedSink = pickle.loads(pickle.dumps(sink))  # noqa: S301 - our own pickle
    travelled.check_shared()
    staged = pickle.loads(pickle.dumps(travelled.stage(0, [numbered(0, 3)], at=OffsetRange(0, 3))))  # noqa: S301
    sink.publish([staged])
    assert read(log) == numbered(0, 3).to_pylist()


def test_a_partition_the_topic_does_not_have_is_refused(sink: StagedSink) -> None:
    staged = sink.stage(7, [numbered(0, 1, partition=7)], at=OffsetRange(0, 1))
    with pytest.raises(UserError, match="has 3 partitions, none numbered 7"):
        sink.publish([staged])


def test_an_empty_topic_may_be_completed(sink: StagedSink, log: TopicLog) -> None:
    sink.mark_complete()
    sink.mark_complete()
    assert read(log) == []


# -- copying


@pytest.fixture
def copy(tmp_path: Path) -> EmbeddedCluster:
    cluster = cluster_in(DirectoryStore(tmp_path / "east"), now_ms=NOW + 5)
    cluster.create_topic(TOPIC, partitions=3)
    return cluster


def test_every_range_of_a_copy_is_equal_to_its_source(log: TopicLog, sink: StagedSink, copy: EmbeddedCluster) -> None:
    fill(sink, 4, 1, 5)
    into = copy.sink(TOPIC)
    cuts = [0, 2, 5, 9, 10]
    for start, stop in itertools.pairwise(cuts):
        into.publish([into.stage_copy(0, log, OffsetRange(start, stop))])
    assert read(copy.log(TOPIC)) == read(log)
    for start, stop in itertools.combinations(range(11), 2):
        offsets = OffsetRange(start, stop)
        assert digest(copy.log(TOPIC), offsets) == digest(log, offsets)


def test_a_copy_keeps_gaps(log: TopicLog, sink: StagedSink, copy: EmbeddedCluster) -> None:
    sink.publish([sink.stage(0, [numbered(2, 3)], at=OffsetRange(0, 9))])
    into = copy.sink(TOPIC)
    assert into.publish([into.stage_copy(0, log, OffsetRange(0, 9))]) == {0: OffsetRange(0, 9)}
    assert read(copy.log(TOPIC)) == numbered(2, 3).to_pylist()
    assert into.read_ends()[0] == 9


def test_a_copy_of_what_cannot_be_seen_is_refused_not_published_as_a_gap(
    log: TopicLog, sink: StagedSink, copy: EmbeddedCluster
) -> None:
    fill(sink, 2)
    into = copy.sink(TOPIC)
    for partition, stop in ((0, 3), (1, 2)):
        with pytest.raises(UserError, match="ends before offset"):
            into.stage_copy(partition, log, OffsetRange(0, stop))


def test_any_log_can_be_copied(sink: StagedSink, log: TopicLog) -> None:
    class Fixed:
        """A log of another platform: only `read` is asked of it."""

        def read(self, partition: int, offsets: OffsetRange) -> list[pa.RecordBatch]:
            return [numbered(offsets.start, offsets.length, partition=partition)]

    staged = sink.stage_copy(0, Fixed(), OffsetRange(0, 5))  # type: ignore[arg-type]  # the rest is not used
    sink.publish([staged])
    assert read(log) == numbered(0, 5).to_pylist()


def test_what_a_staged_range_says_of_itself_is_what_is_read(log: TopicLog, sink: StagedSink) -> None:
    staged = sink.stage(0, [numbered(0, 3), numbered(3, 4)], at=OffsetRange(0, 7))
    sink.publish([replace(staged, records=99)])
    assert digest(log, OffsetRange(0, 7)) == staged.digest
    assert sum(extent.stored_bytes for extent in log.list_extents(0, OffsetRange(0, 7))) == staged.stored_bytes
