"""Which brokers get replicas, and which keep theirs; three real brokers see the same in `make soak`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.errors import RetryableError
from reconciler.providers.kafka.admin_requests import (
    FOLLOWERS,
    LEADERS,
    Moving,
    _start,
    factor_of,
    reassigning,
    target,
    throttle,
    under_way,
    unthrottle,
)
from reconciler.providers.kafka.client import KafkaClient
from reconciler.providers.kafka.translate import TopicSeen, own_values
from reconciler.runtime.retry import Backoff, Tries
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import make_topic

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


class Moves(KafkaClient):
    """A connection whose controller moves replicas, and keeps how many partitions each request was about."""

    def __init__(self) -> None:
        super().__init__("west", dict)
        self.moved: list[int] = []

    def send(self, request: Any, **_: Any) -> Any:
        self.moved.append(sum(len(topic.partitions) for topic in request.topics))
        return SimpleNamespace(error_code=44 if self.moved[-1] > 10_000 else 0, error_message=None, responses=[])


def test_more_partitions_than_a_controller_takes_at_once_move_in_several_requests() -> None:
    client = Moves()
    _start(client, [], {(f"t{number % 30}", number // 30): [1, 2] for number in range(25_000)})
    assert sum(client.moved) == 25_000
    assert max(client.moved) <= 10_000


@pytest.mark.thorough
def test_a_topic_of_so_many_partitions_that_no_config_can_list_them_is_limited_as_a_whole(
    kafka_broker: Kafka, kafka_prefix: str
) -> None:
    client = KafkaClient("west", lambda: {"bootstrap_servers": [kafka_broker.bootstrap()]})
    make_topic(kafka_broker, kafka_prefix, partitions=1)
    many = replace(seen(*[(1,)] * 6_000), name=kafka_prefix)
    throttle(client, {(kafka_prefix, number): [1, 2] for number in range(6_000)}, {kafka_prefix: many})
    wait_until_shows(client, kafka_prefix, {LEADERS: "*", FOLLOWERS: "*"})
    unthrottle(client, [kafka_prefix])


def wait_until_shows(client: KafkaClient, name: str, wanted: dict[str, str]) -> None:
    looks = Tries(Backoff(first_s=0.05, longest_s=0.5), within_s=20)
    while not dict(own_values(dict(client.configs([name]))[name])).items() >= wanted.items():
        assert not looks.is_over
        looks.wait()


def test_a_topic_with_fewer_replicas_here_than_there_has_the_fewer() -> None:
    assert factor_of(seen((1, 2, 3), (1,), (1, 2))) == 1
