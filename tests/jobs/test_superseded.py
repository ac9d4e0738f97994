"""Logs of which one was compacted: what only one has is explained, or it is a difference. Needs no Java."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.errors import UserError
from reconciler.jobs.ordered import verify_renumbered
from reconciler.jobs.verify import compare_logs
from reconciler.operations.steps.mount_jobs import check_copy_equal
from reconciler.records.log import OffsetRange, Spans
from reconciler.records.offset_map import OffsetMap
from tests.embedded.maintenance.tiny_segments import DAY, TOPIC, Clock, append, clocked, head_of, held, with_topic
from tests.embedded.samples import numbered
from tests.engines import here

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.jobs.comparison import PartitionComparison

COMPACTED = {"cleanup_policy": "compact", "segment_bytes": "4500", "min_cleanable_dirty_ratio": "0"}


@pytest.fixture
def both() -> tuple[EmbeddedCluster, EmbeddedCluster, Clock]:
    """A compacted topic, and a mirror of it on another cluster; one clock."""
    west, clock = clocked()
    east, _ = clocked(clock=clock)
    for cluster in (west, east):
        with_topic(cluster, **COMPACTED)
    write(west, 30)
    copy(west, east)
    return west, east, clock


def write(cluster: EmbeddedCluster, parts: int) -> None:
    for number in range(parts):
        append(cluster, (f"k{number % 4}", str(number)), ("same", None if number % 5 == 0 else str(number)))


def copy(west: EmbeddedCluster, east: EmbeddedCluster) -> dict[int, int]:
    """Bring the mirror to the end, and return where it ended before."""
    sink, source = east.sink(TOPIC), west.log(TOPIC)
    ends = dict(sink.read_ends())
    sink.publish([sink.stage_copy(0, source, OffsetRange(ends[0], source.read_bounds()[0].stable))])
    return ends


def compared(west: EmbeddedCluster, east: EmbeddedCluster, *, deep: bool = False) -> PartitionComparison:
    (found,) = compare_logs(here(), west.log(TOPIC), east.log(TOPIC), deep=deep).partitions
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("compacted", ["west", "east", "both"])
def test_what_compaction_took_from_one_side_is_no_difference(
    both: tuple[EmbeddedCluster, EmbeddedCluster, Clock], compacted: str, *, deep: bool
) -> None:
    west, east, _ = both
    if compacted in {"west", "both"}:
        west.upkeep().compact()
    write(west, 6)
    copy(west, east)
    if compacted in {"east", "both"}:
        east.upkeep().compact()
    found = compared(west, east, deep=deep)
    assert found.is_equal, found
    assert found.superseded == abs(len(held(west)) - len(held(east)))
    assert (found.superseded > 0) == (compacted != "both" or len(held(west)) != len(held(east)))


def test_a_mirror_that_is_behind_a_compacted_source_differs_in_its_end_alone(
    both: tuple[EmbeddedCluster, EmbeddedCluster, Clock],
) -> None:
    west, east, _ = both
    write(west, 30)
    west.upkeep().compact()
    found = compared(west, east)
    assert found.differences == ("end",)
    # Of the mirror's records the source superseded all, beyond the mirror's end.
    assert found.superseded == 60


def test_a_tombstone_that_is_over_on_one_side_is_no_difference(
    both: tuple[EmbeddedCluster, EmbeddedCluster, Clock],
) -> None:
    west, east, clock = both
    append(west, ("gone", "1"))
    append(west, ("gone", None))
    write(west, 4)
    copy(west, east)
    west.upkeep().compact()
    clock.now_ms += 2 * DAY
    west.upkeep().compact()
    assert b"gone" not in {row["key"] for row in held(west)}
    found = compared(west, east)
    assert found.is_equal
    assert found.superseded >= 2


def test_a_record_whose_tombstone_was_never_copied_is_a_difference(
    both: tuple[EmbeddedCluster, EmbeddedCluster, Clock],
) -> None:
    west, east, clock = both
    append(west, ("gone", "1"))
    copy(west, east)
    append(west, ("gone", None))
    write(west, 4)
    west.upkeep().compact()
    assert compared(west, east).differences == ("end",)
    clock.now_ms += 2 * DAY
    west.upkeep().compact()
    copy(west, east)
    found = compared(west, east)
    assert found.differences == ("records", "digest")
    assert found.first_difference == 60


def test_a_record_that_is_not_superseded_is_missed(both: tuple[EmbeddedCluster, EmbeddedCluster, Clock]) -> None:
    west, east, _ = both
    append(west, ("only", "here"))
    sink, end = east.sink(TOPIC), head_of(east).end
    sink.publish([sink.stage(0, [], at=OffsetRange(end, end + 1))])
    assert compared(west, east).first_difference == end
    write(west, 10)
    copy(west, east)
    east.upkeep().compact()
    found = compared(west, east)
    assert found.differences == ("records", "digest")
    assert found.first_difference == end


def test_what_both_have_must_be_the_same(both: tuple[EmbeddedCluster, EmbeddedCluster, Clock]) -> None:
    west, east, _ = both
    append(west, ("x", "one"))
    append(east, ("x", "two"))
    west.upkeep().compact()
    found = compared(west, east)
    assert found.differences == ("records", "digest")
    assert found.first_difference == 60


def test_logs_begin_to_differ_at_a_record_that_only_one_has_before_one_that_differs(
    both: tuple[EmbeddedCluster, EmbeddedCluster, Clock],
) -> None:
    west, east, _ = both
    append(west, ("only", "here"), ("x", "one"))
    sink = east.sink(TOPIC)
    sink.publish([sink.stage(0, [], at=OffsetRange(60, 61))])
    append(east, ("x", "two"))
    west.upkeep().compact()
    assert compared(west, east).first_difference == 60


def test_a_copy_whose_map_knows_no_record_is_not_equal(both: tuple[EmbeddedCluster, EmbeddedCluster, Clock]) -> None:
    west, east, _ = both
    west.upkeep().compact()
    end = head_of(west).end
    spans = Spans(OffsetRange(0, 0), OffsetRange(0, end), OffsetMap((), end))
    (found,) = verify_renumbered(here(), east.log(TOPIC), west.log(TOPIC), {0: spans}).partitions
    assert (found.is_equal, found.first_difference) == (False, 0)


def test_what_lies_above_the_compacted_part_must_be_on_both_sides(
    both: tuple[EmbeddedCluster, EmbeddedCluster, Clock],
) -> None:
    west, east, _ = both
    west.upkeep().compact()
    to = head_of(west).compacted_to
    sink = west.sink(TOPIC)
    end = head_of(west).end
    sink.publish([sink.stage(0, [], at=OffsetRange(end, end + 5))])
    theirs = east.sink(TOPIC)
    theirs.publish([theirs.stage(0, [numbered(60, 5)], at=OffsetRange(60, 65))])
    assert to <= end == 60
    assert compared(west, east).first_difference == 60


def test_after_a_copy_only_what_was_copied_is_compared(both: tuple[EmbeddedCluster, EmbeddedCluster, Clock]) -> None:
    west, east, clock = both
    append(west, ("gone", "1"))
    copy(west, east)
    append(west, ("gone", None))
    write(west, 4)
    west.upkeep().compact()
    clock.now_ms += 2 * DAY
    west.upkeep().compact()
    copy(west, east)
    write(west, 4)
    since = copy(west, east)
    check_copy_equal("mirror:x", west.log(TOPIC), east.log(TOPIC), here(), since=since)
    with pytest.raises(UserError, match="differs from its source in partitions 0"):
        check_copy_equal("mirror:x", west.log(TOPIC), east.log(TOPIC), here())


def test_a_mirror_keeps_the_gaps_of_a_compacted_source() -> None:
    west, clock = clocked()
    with_topic(west, **COMPACTED)
    write(west, 30)
    west.upkeep().compact()
    east, _ = clocked(clock=clock)
    with_topic(east, **COMPACTED)
    copy(west, east)
    assert held(east) == held(west)
    assert len(held(east)) < 20
    assert compared(west, east).superseded == 0
    assert [entry.horizon_ms for entry in head_of(east).entries] == [
        entry.horizon_ms for entry in head_of(west).entries
    ]
