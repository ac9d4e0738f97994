"""Which brokers get replicas, and which keep theirs; three real brokers see the same in `make soak`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.errors import RetryableError
from reconciler.providers.brokers.admin_requests import (
    FOLLOWERS,
    LEADERS,
    THROTTLE_MARK,
    Reassignment,
    Replicas,
    _add_throttled,
    _start_moves,
    alter_configs,
    apply_reassignments,
    choose_brokers,
    count_replicas,
    read_reassignments,
    remove_throttles,
    throttle_moves,
)
from reconciler.providers.brokers.client import KafkaClient
from reconciler.providers.brokers.translate import TOPIC, TopicMetadata, select_own_configs
from reconciler.runtime.retry import Backoff, Tries
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import make_topic

RACKS = {1: "a", 2: "a", 3: "b", 4: "b"}
BARE = dict.fromkeys(RACKS)


def seen(*replicas: tuple[int, ...]) -> TopicMetadata:
    return TopicMetadata("orders", "id", is_internal=False, replicas=replicas)


@pytest.mark.parametrize(
    ("has", "factor", "racks", "loads", "wanted"),
    [
        ((1,), 2, RACKS, {}, [1, 3]),
        ((1,), 3, RACKS, {}, [1, 3, 2]),
        ((3,), 2, RACKS, {1: 5}, [3, 2]),
        ((1,), 2, BARE, {2: 1}, [1, 3]),
        ((2, 1, 3), 1, RACKS, {}, [2]),
        ((2, 1), 2, RACKS, {}, [2, 1]),
    ],
    ids=["another rack", "every rack first", "the emptier", "no racks", "the leader stays", "nothing to do"],
)
def test_replicas_go_to_other_racks_and_to_who_has_fewest(
    has: tuple[int, ...], factor: int, racks: dict[int, str | None], loads: dict[int, int], wanted: list[int]
) -> None:
    assert choose_brokers(Replicas(has, has), factor, Counter(loads), racks) == wanted


@pytest.mark.parametrize(
    ("has", "in_sync", "factor", "dead", "wanted"),
    [
        ((1, 2), (2,), 1, {1}, [2]),
        ((1, 2, 3), (3, 2), 2, {1}, [2, 3]),
        ((3, 1, 2), (1, 2), 2, {3}, [1, 2]),
        ((1, 2, 3), (1, 2, 3), 2, set(), [1, 3]),
        ((2, 1, 3), (1, 2, 3), 2, set(), [2, 3]),
        ((1, 2, 3), (2, 3), 1, set(), [2]),
        ((1, 2, 4), (4,), 2, {1}, [2, 4]),
        ((1, 2), (2,), 3, {1}, [1, 2, 3]),
        ((1, 2), (2,), 2, {1}, [1, 2]),
        ((1, 2), (), 1, {1, 2}, [1]),
    ],
    ids=[
        "the one in sync",
        "those in sync, in their order",
        "in sync before racks",
        "a rack each",
        "the preferred leader of each rack",
        "in sync before the preferred leader",
        "of others who is alive",
        "all of them, and one more",
        "all of them",
        "the preferred leader of none in sync",
    ],
)
def test_of_fewer_replicas_those_in_sync_stay_then_racks_are_kept_then_leaders(
    has: tuple[int, ...], in_sync: tuple[int, ...], factor: int, dead: set[int], wanted: list[int]
) -> None:
    alive = {broker: rack for broker, rack in RACKS.items() if broker not in dead}
    assert choose_brokers(Replicas(has, in_sync), factor, Counter(), alive) == wanted


def test_what_is_under_way_is_taken_back_or_goes_on() -> None:
    held = Replicas((1, 2, 3), (1,), Reassignment(adding=(2, 3), removing=()))
    assert choose_brokers(held, 1, Counter(), RACKS) is None
    assert choose_brokers(held, 3, Counter(), RACKS) == [1, 2, 3]
    assert choose_brokers(held, 2, Counter(), RACKS) == [1, 3]


def test_a_broker_that_died_before_its_replica_came_is_replaced() -> None:
    held = Replicas((1, 3), (1,), Reassignment(adding=(3,), removing=()))
    alive = {broker: rack for broker, rack in RACKS.items() if broker != 3}
    assert choose_brokers(held, 2, Counter(), alive) == [1, 4]
    assert choose_brokers(held, 1, Counter(), alive) is None


def test_a_move_that_would_leave_a_dead_replica_alone_is_turned_round() -> None:
    held = Replicas((1, 2), (2,), Reassignment(adding=(), removing=(2,)))
    alive = {2: "a", 3: "b"}
    assert choose_brokers(held, 1, Counter(), alive) == [2]
    assert choose_brokers(held, 2, Counter(), alive) is None


@pytest.mark.parametrize(
    ("held", "factor", "will_have_replicas"),
    [
        (Replicas((1, 2), (1,)), 2, True),
        (Replicas((1, 2), (1,)), 1, False),
        (Replicas((4, 1, 2), (1, 2), Reassignment((4,), (1,))), 2, True),
        (Replicas((9, 1, 2), (1, 2), Reassignment((9,), (1,))), 2, False),
        (Replicas((1, 9), (1,), Reassignment((), (1,))), 1, False),
        (Replicas((1, 2), (1,), Reassignment((2,), ())), 2, True),
    ],
    ids=["there", "too many", "moved by an operator", "to a dead broker", "to a dead replica", "coming"],
)
def test_a_partition_that_gets_its_replicas_by_itself_is_left_alone(
    held: Replicas, factor: int, *, will_have_replicas: bool
) -> None:
    assert held.will_have_replicas(factor, RACKS) is will_have_replicas


@pytest.mark.parametrize(
    ("theirs", "limited"),
    [
        (None, f"{THROTTLE_MARK},0:1"),
        ("", f"{THROTTLE_MARK},0:1"),
        ("3:1,3:2", f"3:1,3:2,{THROTTLE_MARK},0:1"),
        (f"3:1,{THROTTLE_MARK},0:2", f"3:1,{THROTTLE_MARK},0:2,0:1"),
        ("*", None),
        (",".join(["1000:1001"] * 3_276), None),
    ],
    ids=["none", "empty", "an operator's", "ours, of a killed run", "all of them", "a full one"],
)
def test_limits_are_added_behind_a_mark_to_those_of_an_operator(theirs: str | None, limited: str | None) -> None:
    assert _add_throttled(theirs, ["0:1"]) == limited


def test_a_topic_has_the_replicas_it_is_going_to_have() -> None:
    moving = {("orders", 1): Reassignment(adding=(), removing=(3,)), ("gone", 0): Reassignment((1,), ())}
    found = apply_reassignments({"orders": seen((1, 2), (1, 2, 3))}, moving)
    assert found["orders"].replicas == ((1, 2), (1, 2))
    assert found["orders"].is_moving
    assert list(found) == ["orders"]


@pytest.mark.parametrize(
    "shown", [replace(seen(), error=29), seen((1, 2))], ids=["that may not be described", "that has grown since"]
)
def test_a_topic_whose_moving_partition_does_not_show_is_as_it_shows(shown: TopicMetadata) -> None:
    assert apply_reassignments({"orders": shown}, {("orders", 1): Reassignment((3,), (1,))}) == {"orders": shown}


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
    assert read_reassignments(Controller(31)) == {}
    assert read_reassignments(Controller(0)) == {("orders", 0): Reassignment((2,), ())}


@pytest.mark.parametrize("code", [7, 41])
def test_a_controller_that_cannot_say_what_moves_is_not_taken_to_say_that_nothing_does(code: int) -> None:
    with pytest.raises(RetryableError, match="reassignments"):
        read_reassignments(Controller(code))


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
    _start_moves(client, [], {(f"t{number % 30}", number // 30): [1, 2] for number in range(25_000)})
    assert sum(client.moved) == 25_000
    assert max(client.moved) <= 10_000


@pytest.mark.thorough
@pytest.mark.parametrize("theirs", [{}, {LEADERS: "7:1", FOLLOWERS: "*"}, {FOLLOWERS: "7:2,8:2"}], ids=str)
def test_limits_of_a_move_are_removed_after_it_and_those_of_an_operator_stay(
    kafka_broker: Kafka, kafka_prefix: str, theirs: dict[str, str]
) -> None:
    client = KafkaClient("west", lambda: {"bootstrap_servers": [kafka_broker.bootstrap()]})
    make_topic(kafka_broker, kafka_prefix, partitions=1)
    if theirs:
        alter_configs(client, [(TOPIC, kafka_prefix, theirs)], doing="limiting", what=kafka_prefix)
    many = replace(seen(*[(1,)] * 200), name=kafka_prefix)
    throttle_moves(client, {(kafka_prefix, number): [1, 2] for number in range(200)}, {kafka_prefix: many})
    ours = {LEADERS: [THROTTLE_MARK, *(f"{number}:1" for number in range(200))]}
    ours[FOLLOWERS] = [THROTTLE_MARK, *(f"{number}:2" for number in range(200))]
    limited = {
        key: "*" if theirs.get(key) == "*" else ",".join([*filter(None, [theirs.get(key)]), *entries])
        for key, entries in ours.items()
    }
    wait_until_shows(client, kafka_prefix, limited)
    assert remove_throttles(client, [kafka_prefix]) == 1
    wait_until_shows(client, kafka_prefix, theirs)
    assert remove_throttles(client, [kafka_prefix]) == 0


def wait_until_shows(client: KafkaClient, name: str, wanted: dict[str, str]) -> None:
    looks = Tries(Backoff(first_s=0.05, longest_s=0.5), within_s=20)
    while dict(select_own_configs(dict(client.read_configs([name], (LEADERS, FOLLOWERS)))[name])) != wanted:
        assert not looks.has_ended
        looks.wait()


def test_a_topic_with_fewer_replicas_here_than_there_has_the_fewer() -> None:
    assert count_replicas(seen((1, 2, 3), (1,), (1, 2))) == 1
