"""Segments as tables: which parts belong together, and which of the runs are closed."""

from __future__ import annotations

import pytest

from reconciler.archives.entries import Entry
from reconciler.embedded.segments.retention import CleanupPolicy, Segment, SegmentLimits, iter_expired, iter_segments
from reconciler.embedded.tiered.object_rewrites import iter_segments_to_roll
from reconciler.records.log import Digest

LIMITS = SegmentLimits(bytes=100, ms=1_000)


def part(base: int, *, size: int = 40, at: int = 0, epoch: int = 0, is_segment: bool = False) -> Entry:
    """Return a part of ten records, all of one time."""
    return Entry(base, base + 9, at, at, size, epoch, f"k{base}", Digest(10, base, base), is_segment=is_segment)


def bases(segments: list[Segment]) -> list[list[int]]:
    return [[entry.base for entry in segment.entries] for segment in segments]


@pytest.mark.parametrize(
    ("why", "parts", "expected"),
    [
        ("nothing was written", [], []),
        ("what fits is one segment, and open", [part(0), part(10)], [[0, 10]]),
        ("a third part would be too large", [part(0), part(10), part(20)], [[0, 10], [20]]),
        ("exactly the limit still fits", [part(0, size=60), part(10, size=40), part(20)], [[0, 10], [20]]),
        ("one part larger than the limit stands alone", [part(0, size=500), part(10)], [[0], [10]]),
        ("a record a segment.ms later still fits", [part(0), part(10, at=1_000)], [[0, 10]]),
        ("a record later than that does not", [part(0), part(10, at=1_001)], [[0], [10]]),
        ("older records do not close it", [part(0, at=5_000), part(10, at=0)], [[0, 10]]),
        ("a new epoch begins a segment", [part(0), part(10, epoch=1), part(20, epoch=1)], [[0], [10, 20]]),
        ("one file takes no others in", [part(0, is_segment=True), part(10), part(20)], [[0], [10, 20]]),
        ("nor does it join others", [part(0), part(10, is_segment=True), part(20)], [[0], [10], [20]]),
        ("gaps of offsets are no border", [part(0), part(50)], [[0, 50]]),
    ],
)
def test_where_segments_begin(why: str, parts: list[Entry], expected: list[list[int]]) -> None:
    found = list(iter_segments(parts, LIMITS))
    assert bases(found) == expected, why
    assert [segment.is_closed for segment in found] == [True] * (len(found) - 1) + [False] * bool(found)


def test_a_closed_segment_stays_what_it_is_while_the_log_grows_and_its_beginning_goes() -> None:
    parts = [part(10 * number, size=30 + 7 * (number % 5), at=150 * number) for number in range(60)]
    whole = list(iter_segments(parts, LIMITS))
    for count in range(1, 60):
        grown = list(iter_segments(parts[:count], LIMITS))
        assert grown[:-1] == whole[: len(grown) - 1]
    for number, segment in enumerate(whole):
        rest = [entry for entry in parts if entry.base >= segment.base]
        assert list(iter_segments(rest, LIMITS)) == whole[number:]


def test_making_one_file_of_a_segment_moves_no_border() -> None:
    parts = [part(10 * number) for number in range(9)]
    before = list(iter_segments(parts, LIMITS))
    middle = before[1]
    one = Entry(middle.base, middle.last, 0, 0, 77, 0, "one", Digest(20), is_segment=True)
    after = list(iter_segments([*before[0].entries, one, *parts[4:]], LIMITS))
    assert [(segment.base, segment.last) for segment in after] == [(segment.base, segment.last) for segment in before]
    assert [segment.is_one_file for segment in after] == [False, True, False, False, False]


def test_a_segment_sums_up_its_parts() -> None:
    (segment,) = iter_segments([part(0, at=7), part(20, size=13, at=3)], LIMITS)
    assert (segment.base, segment.last, segment.epoch) == (0, 29, 0)
    assert (segment.bytes, segment.records, segment.min_ts, segment.max_ts) == (53, 20, 3, 7)


def policy(**changes: object) -> CleanupPolicy:
    usual: dict[str, object] = {
        "deletes": True, "compacts": False, "retention_ms": -1, "retention_bytes": -1, "min_dirty_ratio": 0.5,
        "min_lag_ms": 0, "max_lag_ms": 1 << 62, "tombstones_ms": 0,
    }  # fmt: skip
    return CleanupPolicy(LIMITS, **{**usual, **changes})  # type: ignore[arg-type]  # fields by name


# Five closed segments of 80 bytes, at 0, 100, … 400 ms, and an open one of 40.
LOG = [part(20 * number + 10 * half, at=100 * number) for number in range(5) for half in (0, 1)] + [part(100, at=500)]


@pytest.mark.parametrize(
    ("why", "changes", "stable", "expected"),
    [
        ("nothing is limited", {}, 200, 0),
        ("compact alone deletes nothing", {"deletes": False, "compacts": True, "retention_ms": 0}, 200, 0),
        ("older than retention.ms", {"retention_ms": 750}, 200, 3),
        ("as old as retention.ms stays", {"retention_ms": 800}, 200, 2),
        ("the open segment never expires", {"retention_ms": 0}, 200, 5),
        ("above retention.bytes", {"retention_bytes": 200}, 200, 3),
        ("exactly retention.bytes stays", {"retention_bytes": 280}, 200, 2),
        ("no room at all still leaves the open one", {"retention_bytes": 0}, 200, 5),
        ("whichever removes more: time", {"retention_ms": 650, "retention_bytes": 300}, 200, 4),
        ("whichever removes more: bytes", {"retention_ms": 950, "retention_bytes": 50}, 200, 5),
        ("nothing at or above the stable offset", {"retention_ms": 0}, 59, 2),
        ("a segment that ends below it goes", {"retention_ms": 0}, 60, 3),
    ],
)
def test_which_segments_expire(why: str, changes: dict[str, object], stable: int, expected: int) -> None:
    segments = list(iter_segments(LOG, LIMITS))
    found = list(iter_expired(segments, policy(**changes), stored_bytes=440, stable=stable, now_ms=1_000))
    assert found == segments[:expected], why


def test_an_old_segment_behind_a_young_one_waits_for_it() -> None:
    parts = [part(0, at=900, size=90), part(10, at=0, size=90), part(20)]
    found = iter_expired(
        iter_segments(parts, LIMITS), policy(retention_ms=500), stored_bytes=220, stable=99, now_ms=1_000
    )
    assert list(found) == []


def test_what_is_rolled_is_closed_below_the_stable_offset_and_not_one_file_yet() -> None:
    parts = [part(0, is_segment=True), *[part(10 * number) for number in range(1, 8)]]
    segments = list(iter_segments(parts, LIMITS))
    assert bases(list(iter_segments_to_roll(segments, stable=200))) == [[10, 20], [30, 40], [50, 60]]
    assert bases(list(iter_segments_to_roll(segments, stable=49))) == [[10, 20]]
    assert bases(list(iter_segments_to_roll(segments, stable=50))) == [[10, 20], [30, 40]]
