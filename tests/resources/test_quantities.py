from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.resources.base import format_duration, format_size, parse_duration, parse_size


@given(st.integers(-1, 2**63 - 1))
def test_what_is_printed_reads_back_as_the_same_number(number: int) -> None:
    assert parse_duration(format_duration(number)) == number
    assert parse_size(format_size(number)) == number


@given(st.integers(0, 10_000), st.sampled_from(["ms", "s", "m", "h", "d"]))
def test_what_people_write_is_printed_no_longer_than_they_wrote_it(number: int, unit: str) -> None:
    written = f"{number}{unit}"
    assert len(format_duration(parse_duration(written))) <= len(written)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("7d", 604_800_000),
        ("36h", 129_600_000),
        ("90s", 90_000),
        ("1500ms", 1500),
        ("2w", 1_209_600_000),
        ("0.5d", 43_200_000),
        ("0.1s", 100),
        (" 5 m ", 300_000),
        ("infinite", -1),
        ("Unlimited", -1),
        ("-1", -1),
        (604_800_000, 604_800_000),
        ("604800000", 604_800_000),
        ("0", 0),
    ],
)
def test_durations_are_read_as_people_write_them(text: object, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("10GiB", 10 * 2**30),
        ("500MB", 500_000_000),
        ("1kib", 1024),
        ("1.5MiB", 1_572_864),
        ("7B", 7),
        ("unlimited", -1),
        (12, 12),
    ],
)
def test_sizes_are_read_as_people_write_them(text: object, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize(
    "value",
    ["", "d", "7", "7 days", "7dd", "-7d", "1.5ms", "1_000", "\u0667d", "9" * 41, True, None, 1.5, [], {}, "0x10"],
)
def test_what_is_no_duration_is_refused_with_the_forms_that_are(value: object) -> None:
    if value == "7":
        assert parse_duration(value) == 7
        return
    with pytest.raises(ValueError, match="not a duration such as 7d, 36h, 90s, 1500ms or infinite"):
        parse_duration(value)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (10 * 2**30, "10GiB"),
        (500_000_000, "500MB"),
        (1024, "1KiB"),
        (1000, "1KB"),
        (1_048_588, "1048588"),
        (0, "0"),
        (-1, "unlimited"),
    ],
)
def test_sizes_are_printed_in_their_largest_whole_unit(count: int, text: str) -> None:
    assert format_size(count) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (604_800_000, "7d"),
        (129_600_000, "36h"),
        (90_000, "90s"),
        (1500, "1500ms"),
        (0, "0"),
        (-1, "infinite"),
        (-2, "-2ms"),
    ],
)
def test_durations_are_printed_in_their_largest_whole_unit(ms: int, text: str) -> None:
    assert format_duration(ms) == text
