"""Numbers and values as people read them."""

from __future__ import annotations

import pytest

from reconciler.cli.text.amounts import format_change, format_field_change, format_field_value, format_quota_usage
from reconciler.operations.clusters.namespaces import QuotaUsage
from reconciler.planning.actions import Change
from reconciler.runtime.text import format_bytes, format_elapsed, format_estimate, format_rough_count, pluralize


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1 MiB"),
        (1024**2 - 400, "1 MiB"),
        (int(41.2 * 2**30), "41.2 GiB"),
        (2**60, "1024 PiB"),
    ],
)
def test_sizes_have_at_most_one_decimal(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(999_999, "999,999"), (4_100_000, "4.1 M"), (336_776, "336,776"), (10**9 - 1, "1 G"), (10**9, "1 G")],
)
def test_large_counts_are_rounded(count: int, text: str) -> None:
    assert format_rough_count(count) == text


def test_a_quota_is_shown_with_what_is_used_of_it_as_far_as_that_is_known() -> None:
    used = (QuotaUsage("topics", 9, 0), QuotaUsage("bytes", 2**40, 3 * 2**29), QuotaUsage("bytes", 1500, None))
    assert format_quota_usage(used) == "topics 0 of 9, bytes 1.5 GiB of 1TiB, bytes ? of 1500"
    assert format_quota_usage(()) == ""


def test_one_is_singular() -> None:
    assert pluralize(1, "topic") == "1 topic"
    assert pluralize(1284, "topic") == "1,284 topics"
    assert pluralize(2, "resource unfinished", "resources unfinished") == "2 resources unfinished"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "about 1 s"),
        (59, "about 59 s"),
        (59.6, "about 1 min"),
        (3_599, "about 1 h"),
        (120, "about 2 min"),
        (5400, "about 1.5 h"),
        (400_000, "about 5 days"),
    ],
)
def test_times_to_come_are_rough(seconds: float, text: str) -> None:
    assert format_estimate(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.1, "1.1 s"),
        (0.04, "0 s"),
        (59.96, "1 min 0 s"),
        (725, "12 min 5 s"),
        (3599.9, "59 min 59 s"),
        (7260, "2 h 1 min"),
    ],
)
def test_times_passed_are_said_as_they_were(seconds: float, text: str) -> None:
    assert format_elapsed(seconds) == text


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("configs.retention.ms", "604800000", "7d"),
        ("configs.retention.ms", "-1", "infinite"),
        ("configs.local.retention.ms", "-2", "total"),
        ("configs.flush.messages", "9223372036854775807", "infinite"),
        ("configs.max.message.bytes", "4194304", "4MiB"),
        ("configs.cleanup.policy", "compact", "compact"),
        ("configs.unknown", "", "''"),
        ("configs.retention.ms", None, "unset"),
        ("partitions", 12, "12"),
        ("protect", True, "true"),
        ("source", "", "''"),
        ("acls", ({"b": 1, "a": (2,)},), '[{"a": [2], "b": 1}]'),
    ],
)
def test_values_have_their_unit_and_read_back(path: str, value: object, text: str) -> None:
    assert format_field_value(path, value) == text


@pytest.mark.parametrize(
    ("path", "before", "after", "text"),
    [
        ("configs.retention.ms", "604800000", "129600000", "7d → 36h"),
        ("configs.retention.ms", "86400000", "87400000", "86400s → 87400s"),
        ("configs.max.message.bytes", "2000000", "2000100", "2000000 → 2000100"),
        ("configs.max.message.bytes", "2000100", "1048576", "2000100 → 1048576"),
        ("configs.retention.ms", "-1", "87400000", "infinite → 87400s"),
        ("configs.retention.ms", None, "87400000", "unset → 87400s"),
        ("configs.cleanup.policy", "delete", "compact", "delete → compact"),
        ("configs.of.another.tool", "000000", "5", "000000 → 5"),
    ],
)
def test_two_values_have_one_unit_where_one_of_them_needs_a_long_number(
    path: str, before: str | None, after: str, text: str
) -> None:
    assert format_field_change(path, before, after) == text


def test_an_access_rule_that_changed_is_told_by_itself() -> None:
    path = "acls.allow User:a on groups named pay-*"
    assert format_change(Change(path, None, ("read", "write"))) == "+acl allow User:a on groups named pay-*: read,write"
    assert format_change(Change(path, ("read",), None)) == "-acl allow User:a on groups named pay-*: read"
    assert format_change(Change(path, ("read",), ("all",))) == "acl allow User:a on groups named pay-*: read → all"
    assert format_field_value(path, None) == "unset"


def test_a_list_that_changed_shows_what_left_and_what_came() -> None:
    change = Change("acls", ({"principal": "User:a"}, {"principal": "User:b"}), ({"principal": "User:b"},))
    assert format_change(change) == 'acls -{"principal": "User:a"}'
    assert format_change(Change("acls", (), ("x",))) == 'acls +"x"'
    assert format_change(Change("acls", ("a", "b"), ("b", "a"))) == "acls in another order"
