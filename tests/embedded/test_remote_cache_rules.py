"""The rules of the cache as tables: how segments are cut, how much may lie there, and what goes first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.embedded.tiered.cache import stored_bytes_in
from reconciler.embedded.tiered.cache_files import (
    Hydrated,
    Rule,
    Span,
    Usage,
    check_directory,
    chunks_of,
    limits_of,
    touched,
)
from reconciler.errors import UserError

MIB = 1 << 20
DISK = 1000 * MIB


# -- chunks


@pytest.mark.parametrize(
    ("borders", "size", "expected"),
    [
        ([90], 100, [0]),
        ([40, 90], 100, [0]),
        ([40, 90, 140], 150, [0, 90]),
        ([60, 120, 180], 190, [0, 60, 120]),
        ([250], 260, [0, 100, 200]),
        ([30, 250, 280], 290, [0, 30, 130, 230]),
        ([100, 200], 210, [0, 100, 200]),
    ],
    ids=[
        "one chunk",
        "row groups that fit into one",
        "as many as fit",
        "one each",
        "a row group larger than a chunk is cut",
        "what is left of it takes the next along",
        "row groups of exactly a chunk, and the footer",
    ],
)
def test_chunks_begin_at_row_groups_as_far_as_they_fit(borders: list[int], size: int, expected: list[int]) -> None:
    assert [chunk.start for chunk in chunks_of(borders, size, 100)] == expected


@given(st.lists(st.integers(1, 400), min_size=1, max_size=20), st.integers(1, 60), st.integers(10, 300))
def test_chunks_lie_side_by_side_cover_a_segment_and_none_is_too_large(
    groups: list[int], footer: int, limit: int
) -> None:
    borders = [sum(groups[: count + 1]) for count in range(len(groups))]
    size = borders[-1] + footer
    chunks = chunks_of(borders, size, limit)
    assert [chunk.start for chunk in chunks] == [0, *(chunk.stop for chunk in chunks[:-1])]
    assert chunks[-1].stop == size
    assert all(0 < chunk.length <= limit for chunk in chunks)
    for start, stop in zip([0, *borders], borders, strict=False):
        if stop - start <= limit:
            assert len(touched(chunks, Span(start, stop))) == 1


@given(st.integers(1, 500), st.integers(1, 100), st.integers(0, 499), st.integers(0, 100))
def test_the_chunks_touched_are_those_that_hold_a_byte_of_it(size: int, limit: int, start: int, length: int) -> None:
    chunks = chunks_of([], size, limit)
    wanted = Span(start, min(start + length, size))
    expected = [chunk for chunk in chunks if chunk.start < wanted.stop and wanted.start < chunk.stop]
    assert list(touched(chunks, wanted)) == (expected if wanted.length > 0 else [])


# -- limits


@pytest.mark.fact("F-R-044")
@pytest.mark.parametrize(
    ("properties", "most_mib"),
    [
        ({}, 160),
        ({"cloud_storage_cache_size": str(50 * MIB)}, 50),
        ({"cloud_storage_cache_size": str(500 * MIB)}, 160),
        ({"cloud_storage_cache_size": str(500 * MIB), "cloud_storage_cache_size_percent": "0"}, 500),
        ({"cloud_storage_cache_size": str(5000 * MIB), "cloud_storage_cache_size_percent": "100"}, 800),
        ({"cloud_storage_cache_size_percent": "50", "disk_reservation_percent": "40"}, 300),
        ({"cloud_storage_cache_size_percent": "100", "disk_reservation_percent": "0"}, 1000),
    ],
)
def test_of_bytes_and_percent_of_what_the_disk_leaves_the_smaller_holds(
    properties: dict[str, str], most_mib: int
) -> None:
    assert limits_of(properties, DISK).most == Usage(most_mib * MIB, 100_000)


def test_a_cache_without_any_limit_of_size_is_refused() -> None:
    with pytest.raises(UserError, match="cache_size and cloud_storage_cache_size_percent are both 0"):
        limits_of({"cloud_storage_cache_size_percent": "0"}, DISK)


@pytest.mark.fact("F-R-045")
@pytest.mark.fact("F-R-047")
@pytest.mark.parametrize(
    ("by_size", "by_objects", "used", "target"),
    [
        (None, None, (100, 10), None),
        (None, None, (101, 10), (80, 10)),
        (None, None, (100, 11), (100, 8)),
        (None, None, (150, 15), (80, 8)),
        ("80", None, (80, 10), None),
        ("80", None, (81, 10), (64, 10)),
        ("80", None, (81, 11), (64, 8)),
        (None, "50", (100, 5), None),
        (None, "50", (100, 6), (100, 4)),
        ("50", "50", (51, 6), (40, 4)),
    ],
)
def test_each_dimension_is_trimmed_from_its_own_threshold_to_80_percent_of_it(
    by_size: str | None, by_objects: str | None, used: tuple[int, int], target: tuple[int, int] | None
) -> None:
    given = {
        "cloud_storage_cache_size": "100",
        "cloud_storage_cache_max_objects": "10",
        "cloud_storage_cache_trim_threshold_percent_size": by_size,
        "cloud_storage_cache_trim_threshold_percent_objects": by_objects,
    }
    limits = limits_of({name: value for name, value in given.items() if value is not None}, DISK)
    assert limits.target(Usage(*used)) == (None if target is None else Usage(*target))


# -- strategies


def hydrated(*starts: int, shared: tuple[int, ...] = (), needed: dict[int, int] | None = None) -> list[Hydrated]:
    """Return chunks, the later ones used later."""
    counts = needed or {}
    return [Hydrated(start, 1000 + start, start in shared, counts.get(start, 0)) for start in starts]


@pytest.mark.fact("F-R-048")
@pytest.mark.fact("F-R-049")
@pytest.mark.fact("F-R-050")
@pytest.mark.fact("F-R-051")
@pytest.mark.parametrize(
    ("strategy", "chunks", "shared", "needed", "evicted"),
    [
        ("eager", 10, (), {}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("eager", 10, (2, 5), {}, [0, 1, 3, 4, 6, 7]),
        ("eager", 10, tuple(range(8)), {}, []),
        ("capped", 10, (), {}, [0]),
        ("capped", 8, (), {}, [0, 1, 2]),
        ("capped", 8, (0, 1, 2), {}, [3, 4, 5]),
        ("capped", 8, tuple(range(7)), {}, [7]),
        ("capped", 20, (), {}, []),
        ("predictive", 8, (), {}, [0, 1, 2]),
        ("predictive", 8, (), {0: 2, 1: 1, 2: 1, 3: 3}, [4, 5, 6]),
        ("predictive", 8, (), {4: 1, 5: 1, 6: 2, 7: 1, 0: 3, 1: 3, 2: 3, 3: 3}, [4, 5, 7]),
        ("predictive", 8, (4, 5), {4: 0, 5: 0}, [0, 1, 2]),
        ("predictive", 20, (), {}, []),
    ],
)
def test_strategies_choose_among_chunks_that_nobody_shares(
    strategy: str, chunks: int, shared: tuple[int, ...], needed: dict[int, int], evicted: list[int]
) -> None:
    rule = Rule.of({"cloud_storage_chunk_eviction_strategy": strategy})
    found = rule.evicted(hydrated(*range(8), shared=shared, needed=needed), chunks)
    assert [chunk.start for chunk in found] == evicted


@pytest.mark.fact("F-R-052")
@pytest.mark.parametrize(("chunks", "most"), [(1, 1), (4, 4), (5, 3), (10, 7), (100, 70)])
def test_segments_of_few_chunks_may_be_there_whole(chunks: int, most: int) -> None:
    assert Rule.of({}).most(chunks) == most


def test_at_least_one_chunk_of_a_segment_may_stay() -> None:
    assert Rule.of({"cloud_storage_hydrated_chunks_per_segment_ratio": "0"}).most(9) == 1


# -- places


@pytest.mark.fact("F-R-053")
@pytest.mark.parametrize("declared", ["cache", "./cache", "~/cache", "../cache"])
def test_a_directory_that_is_no_full_path_is_refused(declared: str) -> None:
    with pytest.raises(UserError, match="which is no full path") as raised:
        check_directory(declared)
    assert "/var/cache/reconciler" in raised.value.hint


@pytest.mark.parametrize(
    ("path", "size"),
    [("/c/topics/u/1/00000/0-9-4711-3-v1-abcdef12", 4711), ("/c/topics/u/1/00000/anything", 0)],
)
def test_the_size_of_a_segment_stands_in_its_name(path: str, size: int) -> None:
    assert stored_bytes_in(path) == size
