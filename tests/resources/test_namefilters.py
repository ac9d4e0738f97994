from __future__ import annotations

from itertools import permutations

import pytest

from reconciler.resources.mirror_link import (
    NameFilter,
    filters_include,
    is_auto_created,
    is_never_auto_created,
    is_never_mirrored,
)


def filters(*texts: str) -> list[NameFilter]:
    """Return filters written as `+name` or `-name`; a name that ends in `…` is a prefix."""
    return [
        NameFilter(
            name=text[1:].removesuffix("…"),
            pattern_type="prefixed" if text.endswith("…") else "literal",
            filter_type="include" if text[0] == "+" else "exclude",
        )
        for text in texts
    ]


@pytest.mark.fact("F-C-022")
@pytest.mark.parametrize(
    ("written", "taken", "left"),
    [
        ([], [], ["foo"]),
        (["+foo"], ["foo"], ["football", "shop:foo"]),
        (["+foo…"], ["foo", "football", "foo.fighters"], ["fo", "shop:foo"]),
        (["+*"], ["foo", "shop:eu:orders", "*"], []),
        (["+*…"], ["*a"], ["foo"]),
        (["+foo…", "-foo.bar…"], ["foo.fighters"], ["foo.bar", "foo.bar.fighters"]),
        (["+*", "-secret…", "+secret.but.wanted"], ["orders"], ["secret", "secret.but.wanted"]),
        (["-foo"], [], ["foo", "bar"]),
        (["+foo", "-*"], [], ["foo"]),
        (["+shop:eu:…"], ["shop:eu:orders"], ["shop:us:orders", "shop:eu"]),
    ],
)
def test_exclude_wins_whatever_the_order_and_what_is_unmatched_is_left(
    written: list[str], taken: list[str], left: list[str]
) -> None:
    for ordered in permutations(filters(*written)):
        assert [name for name in [*taken, *left] if filters_include(ordered, name)] == taken


@pytest.mark.fact("F-C-024")
@pytest.mark.parametrize(
    ("name", "never_mirrored", "never_made"),
    [
        ("__consumer_offsets", True, True),
        ("__confluent.support", True, True),
        ("_confluent-metrics", True, True),
        ("_redpanda.audit_log", True, True),
        ("shop:_confluent-metrics", True, True),
        ("shop:__consumer_timestamps", True, True),
        ("confluent-audit-log-events", True, True),
        ("_schemas", False, True),
        ("shop:_schemas", False, True),
        ("_orders", False, False),
        ("__payments", False, False),
        ("orders.heartbeats", False, False),
        ("mm2-configs.a.internal", False, False),
        ("orders__", False, False),
    ],
)
def test_internal_topics_are_never_mirrored_and_schemas_only_by_hand(
    name: str, *, never_mirrored: bool, never_made: bool
) -> None:
    assert (is_never_mirrored(name), is_never_auto_created(name)) == (never_mirrored, never_made)


@pytest.mark.fact("F-C-024")
@pytest.mark.parametrize(
    "name",
    [
        "heartbeats",
        "device.heartbeats",
        "shop:heartbeats",
        "a.checkpoints.internal",
        "mm2-status.a.internal",
        "__canary",
    ],
)
@pytest.mark.parametrize(
    ("written", "is_made"),
    [
        (["+*"], False),
        (["+*", "+{}"], True),
        (["+{}"], True),
        (["+*", "+{}…"], True),
        (["+{}", "-{}"], False),
        (["+*", "-{}", "+orders"], False),
    ],
    ids=str,
)
def test_the_filter_of_all_names_leaves_out_those_of_tools_which_a_nearer_filter_takes(
    name: str, written: list[str], *, is_made: bool
) -> None:
    assert is_auto_created(filters(*(each.format(name) for each in written)), name) is is_made


@pytest.mark.parametrize(
    "name", ["heartbeats.daily", "myheartbeats", "mm2", "checkpoints", "orders.internal", "_heartbeat", "a.mm2-b"]
)
def test_a_name_that_only_resembles_those_of_tools_is_taken_by_all_names(name: str) -> None:
    assert is_auto_created(filters("+*"), name)
