"""Which brokers get replicas, and which keep theirs; three real brokers see the same in `make soak`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.errors import RetryableError
from reconciler.providers.kafka.admin_requests import Moving, factor_of, reassigning, target, under_way
from reconciler.providers.kafka.client import KafkaClient
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


@pytest.mark.parametrize(
    "shown",
    [replace(seen(), error=29), seen((1, 2))],
    ids=["that may not be described", "that has grown since"],
)
def test_a_topic_whose_moving_partition_does_not_show_is_as_it_shows(shown: TopicSeen) -> None:
    assert under_way({"orders": shown}, {("orders", 1): Moving((3,), (1,))}) == {"orders": shown}


class Controller(KafkaClient):
    """A connection whose controller answers so what moves."""

    def __init__(self, code: int) -> None:
        super().__init__("west", dict)
        self.code = code

    def send(self, *_: Any, **__: Any) -> Any:
        topics = [] if self.code else [SimpleNamespace(name="orders", partitions=[_PARTITION])]
        return SimpleNamespace(error_code=self.code, error_message=None, topics=topics)


_PARTITION = SimpleNamespace(partition_index=0, adding_replicas=[2], removing_replicas=[])


def test_nothing_is_taken_to_move_where_that_may_not_be_seen() -> None:
    assert reassigning(Controller(31)) == {}
    assert reassigning(Controller(0)) == {("orders", 0): Moving((2,), ())}


@pytest.mark.parametrize("code", [7, 41])
def test_a_controller_that_cannot_say_what_moves_is_not_taken_to_say_that_nothing_does(code: int) -> None:
    with pytest.raises(RetryableError, match="reassignments"):
        reassigning(Controller(code))


def test_a_topic_with_fewer_replicas_here_than_there_has_the_fewer() -> None:
    assert factor_of(seen((1, 2, 3), (1,), (1, 2))) == 1
