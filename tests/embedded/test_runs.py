"""Which neighbours in object storage become one object, as a table."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.embedded.maintenance.roll import MergeLimits, merge_limits, runs_to_merge
from reconciler.embedded.segments.entries import Entry
from reconciler.records.log import Digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MIB = 1 << 20
LIMITS = MergeLimits(high=100, low=50)


def entry(base: int, last: int, size: int, *, epoch: int = 0) -> Entry:
    return Entry(base, last, 0, 0, size, epoch, f"{base}-{last}", Digest(last - base + 1, 0, 0), is_segment=True)


def row(*sizes: int) -> list[Entry]:
    """Return neighbours of these sizes, ten records each."""
    return [entry(10 * number, 10 * number + 9, size) for number, size in enumerate(sizes)]


def merged(entries: Iterable[Entry], limits: MergeLimits = LIMITS) -> list[list[int]]:
    """Return the sizes of what is merged, run by run."""
    return [[each.bytes for each in run] for run in runs_to_merge(entries, limits)]


@pytest.mark.parametrize(
    ("why", "sizes", "runs"),
    [
        ("nothing is there", [], []),
        ("one alone has no neighbour", [10], []),
        ("a run above the minimum is merged, also at the end", [20, 20, 20], [[20, 20, 20]]),
        ("a run grows to the maximum and not beyond", [40, 40, 40, 40, 40], [[40, 40], [40, 40]]),
        ("exactly the maximum is allowed", [50, 50, 10], [[50, 50]]),
        ("a small one that overflows with its neighbour is skipped", [30, 80, 30, 80], []),
        ("what is as large as the maximum is left alone and parts runs", [10, 10, 100, 10, 10], [[10, 10]]),
        ("what is larger than the maximum too", [10, 10, 5000, 30, 30], [[10, 10], [30, 30]]),
        ("what was merged at the end is not written again with every small one", [60, 10], []),
        ("until the next does not fit", [60, 10, 20, 20], [[60, 10, 20]]),
    ],
)
def test_runs_are_merged_where_it_is_worth_it(why: str, sizes: Sequence[int], runs: Sequence[Sequence[int]]) -> None:
    assert merged(row(*sizes)) == [list(run) for run in runs], why


@pytest.mark.fact("F-R-061")
def test_a_run_up_to_the_minimum_before_a_large_segment_is_merged() -> None:
    assert merged(row(10, 15, 90)) == [[10, 15]]


@pytest.mark.fact("F-R-062")
def test_a_run_up_to_the_minimum_at_the_end_waits_for_more() -> None:
    assert merged(row(10, 15, 25)) == []
    assert merged(row(10, 15, 26)) == [[10, 15, 26]]


@pytest.mark.fact("F-R-063")
def test_no_run_crosses_an_epoch_or_a_gap() -> None:
    there = row(20, 20, 20, 20)
    assert merged(there) == [[20, 20, 20, 20]]
    other_epoch = [*there[:2], *(replace(each, epoch=1) for each in there[2:])]
    assert merged(other_epoch) == [[20, 20]]
    gap = [*there[:2], entry(21, 29, 20), there[3]]
    assert merged(gap) == [[20, 20]]


@pytest.mark.fact("F-R-066")
def test_fifty_of_ten_mebibytes_become_one_of_five_hundred() -> None:
    limits = merge_limits({"cloud_storage_segment_size_target": str(500 * MIB)}, 128 * MIB)
    assert [len(run) for run in merged(row(*[10 * MIB] * 50), limits)] == [50]
    assert [len(run) for run in merged(row(*[10 * MIB] * 51), limits)] == [50]


@pytest.mark.fact("F-R-064")
@pytest.mark.parametrize(
    ("properties", "high", "low"),
    [
        ({}, 1000, 500),
        ({"cloud_storage_segment_size_target": "3000"}, 3000, 1500),
        ({"cloud_storage_segment_size_min": "100"}, 1000, 100),
        ({"cloud_storage_segment_size_min": "1000"}, 1000, 800),
        ({"cloud_storage_segment_size_target": "500", "cloud_storage_segment_size_min": "2000"}, 500, 400),
    ],
)
def test_limits_come_from_the_cluster_else_from_the_topics_segments(
    properties: dict[str, str], high: int, low: int
) -> None:
    assert merge_limits(properties, 1000) == MergeLimits(high, low)


sizes = st.lists(st.integers(1, 130), max_size=40)


@given(sizes=sizes, cuts=st.sets(st.integers(0, 40)))
def test_runs_are_small_contiguous_and_never_found_twice(sizes: list[int], cuts: set[int]) -> None:
    there = [replace(each, epoch=sum(cut <= at for cut in cuts)) for at, each in enumerate(row(*sizes))]
    while runs := list(runs_to_merge(there, LIMITS)):
        for run in runs:
            assert len(run) > 1
            assert sum(each.bytes for each in run) <= LIMITS.high
            assert len({each.epoch for each in run}) == 1
            assert all(after.base == before.last + 1 for before, after in itertools.pairwise(run))
        by_first = {run[0].base: run for run in runs}
        gone = {each.base for run in runs for each in run} - set(by_first)
        there = [
            replace(each, last=by_first[each.base][-1].last, bytes=sum(one.bytes for one in by_first[each.base]))
            if each.base in by_first
            else each
            for each in there
            if each.base not in gone
        ]
        assert not list(runs_to_merge(there, LIMITS))


@given(st.integers(2, 200))
def test_whatever_comes_one_by_one_is_written_less_than_three_times(count: int) -> None:
    there: list[Entry] = []
    written = 0
    for number in range(count):
        there.append(entry(10 * number, 10 * number + 9, 10))
        for run in list(runs_to_merge(there, LIMITS)):
            at = there.index(run[0])
            size = sum(each.bytes for each in run)
            there[at : at + len(run)] = [replace(run[0], last=run[-1].last, bytes=size)]
            written += size
    assert written <= 2 * 10 * count
    assert len(there) <= count // 10 + 6
