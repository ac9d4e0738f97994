"""Which brokers get replicas, and which keep theirs; three real brokers see the same in `make soak`."""

from __future__ import annotations

from collections import Counter

import pytest

from reconciler.providers.kafka.admin_requests import Moving, factor_of, target, under_way
from reconciler.providers.kafka.translate import TopicSeen

RACKS = {1: "a", 2: "a", 3: "b", 4: "b"}
BARE = dict.fromkeys(RACKS)


def seen(*replicas: tuple[int, ...]) -> TopicSeen:
    return TopicSeen("orders", "id", is_internal=False, replicas=replicas)


@pytest.mark.parametrize(
    ("has", "factor", "racks", "loads", "wanted"),
    [
        ((1,), 2, RACKS, {}, [1, 3]),
        ((1,), 3, RACKS, {}, [1, 3, 2]),
        ((3,), 2, RACKS, {1: 5}, [3, 2]),
        ((1,), 2, BARE, {2: 1}, [1, 3]),
        ((2, 1, 3), 2, RACKS, {}, [2, 1]),
        ((2, 1), 2, RACKS, {}, [2, 1]),
    ],
    ids=["another rack", "every rack first", "the emptier", "no racks", "the leader stays", "nothing to do"],
)
def test_replicas_go_to_other_racks_and_to_who_has_fewest(
    has: tuple[int, ...], factor: int, racks: dict[int, str | None], loads: dict[int, int], wanted: list[int]
) -> None:
    assert target(has, factor, None, Counter(loads), racks) == wanted


def test_what_is_under_way_is_taken_back_or_goes_on() -> None:
    moving = Moving(adding=(2, 3), removing=())
    assert target((1, 2, 3), 1, moving, Counter(), RACKS) is None
    assert target((1, 2, 3), 3, moving, Counter(), RACKS) == [1, 2, 3]
    assert target((1, 2, 3), 2, moving, Counter(), RACKS) == [1, 2]


def test_a_topic_has_the_replicas_it_is_going_to_have() -> None:
    moving = {("orders", 1): Moving(adding=(), removing=(3,)), ("gone", 0): Moving((1,), ())}
    found = under_way({"orders": seen((1, 2), (1, 2, 3))}, moving)
    assert found["orders"].replicas == ((1, 2), (1, 2))
    assert list(found) == ["orders"]


def test_a_topic_with_fewer_replicas_here_than_there_has_the_fewer() -> None:
    assert factor_of(seen((1, 2, 3), (1,), (1, 2))) == 1
