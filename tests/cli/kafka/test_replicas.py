"""Replication factors on three brokers, by the commands: moved, limited, killed in the middle, taken back."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from confluent_kafka import Producer
from kafka import TopicPartition

from reconciler.providers.brokers import admin_requests
from tests.cli.conftest import environment
from tests.cli.kafka.conftest import Desk
from tests.servers.kafka import Kafka
from tests.waiting import until

pytestmark = pytest.mark.soak

SLOW: Final = 128 * 1024
"""Bytes a second: what a partition of the test holds takes a quarter of a minute."""
HARDLY: Final = 1024
"""Bytes a second: nothing comes while a test lasts."""
SLOWLY: Final = """
import sys
from reconciler.cli.main import main
from reconciler.providers.brokers import admin_requests as replicas
replicas.THROTTLE_RATE = {}
sys.exit(main(["apply", "--yes"]))
"""
VALUE: Final = bytes(700 * 1024)
LIMITS: Final = {admin_requests.LEADERS, admin_requests.FOLLOWERS}
RATES: Final = {"leader.replication.throttled.rate", "follower.replication.throttled.rate"}


@pytest.fixture(scope="module")
def kafka_of_three() -> Iterator[Kafka]:
    """Three brokers, two of them in one rack."""
    with Kafka.start(brokers=3, racks=("a", "a", "b")) as kafka:
        yield kafka


@pytest.fixture
def desk(at_desk: Callable[[Kafka], Desk], kafka_of_three: Kafka) -> Desk:
    """A topic with records, each partition on one broker."""
    desk = at_desk(kafka_of_three)
    desk.topic("orders", partitions=2)
    desk.apply()
    fill(desk, 6)
    return desk


def fill(desk: Desk, count: int) -> None:
    """Write records, each of them a batch of its own: under a low limit one comes in about ten seconds."""
    producer = Producer({"bootstrap.servers": desk.kafka.bootstrap(), "message.max.bytes": 1_000_000})
    for number in range(count):
        producer.produce(f"{desk.prefix}.orders", VALUE, partition=number % 2)
        assert producer.flush(30) == 0


def placed(desk: Desk, name: str = "orders") -> list[tuple[set[str], set[str]]]:
    """Return the replicas of each partition, and those in sync, as Kafka's own tool describes them."""
    said = desk.kafka.topics("--describe", "--topic", f"{desk.prefix}.{name}")
    found = re.findall(r"Replicas: (\S+)\s+Isr: (\S+)", said)
    return [(set(all_.split(",")), set(in_sync.split(","))) for all_, in_sync in found]


def factor(desk: Desk, wanted: int) -> None:
    desk.topic("orders", partitions=2, replicationFactor=wanted)


def moving(desk: Desk) -> bool:
    return bool(desk.admin.list_partition_reassignments())


def alive(desk: Desk) -> int:
    return sum(not broker.get("is_fenced") for broker in desk.admin.describe_cluster()["brokers"])


def place(desk: Desk, *brokers: int) -> None:
    topic = f"{desk.prefix}.orders"
    desk.admin.alter_partition_reassignments(
        {TopicPartition(topic, number): [broker] for number, broker in enumerate(brokers)}
    )
    wanted = [({str(broker)}, {str(broker)}) for broker in brokers]
    until(lambda: not moving(desk) and placed(desk) == wanted, "partitions do not move", 90)


def killed(desk: Desk, rate: int = SLOW) -> None:
    """Apply slowly, in a process of its own that is killed while replicas move."""
    code = SLOWLY.format(rate)
    applying = subprocess.Popen([sys.executable, "-c", code], env=environment(), stdout=subprocess.DEVNULL)
    until(lambda: moving(desk) or applying.poll() is not None, "nothing moves", 90)
    applying.send_signal(signal.SIGKILL)
    assert applying.wait() == -signal.SIGKILL
    assert desk.typed("state", "unlock", "--yes").code == 0


def limits(desk: Desk) -> tuple[set[str], set[str]]:
    """Return what limits moves of the topic, and of the brokers."""
    return set(desk.own_now(f"{desk.prefix}.orders")) & LIMITS, set(desk.own_now(None)) & RATES


def test_replicas_become_more_and_fewer_and_no_limit_stays(desk: Desk) -> None:
    factor(desk, 3)
    said = desk.plan()
    assert "replication" in said.out
    assert "disruptive" in said.out
    for wanted in (3, 2, 1, 2):
        factor(desk, wanted)
        desk.apply()
        assert [len(every) for every, in_sync in placed(desk) if every == in_sync] == [wanted, wanted]
        assert limits(desk) == (set(), set())
        desk.settled()


def test_a_second_replica_comes_to_another_rack(desk: Desk) -> None:
    factor(desk, 2)
    desk.apply()
    assert all("3" in every for every, _ in placed(desk))


def test_rates_that_somebody_set_are_theirs(desk: Desk) -> None:
    theirs = dict.fromkeys(sorted(RATES), "10485760")
    desk.by_hand(None, theirs)
    try:
        factor(desk, 3)
        desk.apply()
        assert {key: desk.own_now(None).get(key) for key in theirs} == theirs
        assert limits(desk)[0] == set()
    finally:
        desk.by_hand(None, dict.fromkeys(theirs))


def test_limits_that_an_operator_set_stay(desk: Desk) -> None:
    theirs = {admin_requests.LEADERS: "*", admin_requests.FOLLOWERS: "0:9"}
    rates = dict.fromkeys(sorted(RATES), "52428800")
    desk.by_hand(f"{desk.prefix}.orders", theirs)
    desk.by_hand(None, rates)
    try:
        for wanted in (3, 1):
            factor(desk, wanted)
            desk.apply()
            assert desk.typed("run", "--once", "--only", "sweep").code == 0
            assert {key: desk.own_now(f"{desk.prefix}.orders").get(key) for key in theirs} == theirs
            assert {key: desk.own_now(None).get(key) for key in rates} == rates
            desk.settled()
    finally:
        desk.by_hand(None, dict.fromkeys(rates))


def test_a_wait_that_comes_to_nothing_has_an_end_and_says_what_for_and_the_way_back_is_open(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_requests, "THROTTLE_RATE", 1)
    monkeypatch.setattr(admin_requests, "_BETWEEN_LINES_S", 1)
    monkeypatch.setattr(admin_requests, "_STALLED_S", 4)
    place(desk, 1, 2)
    before = placed(desk)
    factor(desk, 2)
    stuck = desk.typed("apply", "--yes")
    said = stuck.out + stuck.err
    assert stuck.code not in {0, None}
    assert "waiting for replicas for" in said
    assert f"nothing moved for 4 s: replicas of 2 partitions move to brokers 3, such as {desk.prefix}.orders-0" in said
    assert moving(desk)
    plan = desk.plan()
    assert "replicas of it still move" in plan.out + plan.err
    factor(desk, 1)
    desk.apply()
    assert not moving(desk)
    assert placed(desk) == before
    assert limits(desk) == (set(), set())
    desk.settled()


@pytest.mark.parametrize("resumed", [(), ("--resume",)], ids=["planned again", "resumed"])
def test_what_still_moves_has_not_happened(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, resumed: tuple[str, ...]
) -> None:
    monkeypatch.setattr(admin_requests, "THROTTLE_RATE", HARDLY)
    fill(desk, 60)
    factor(desk, 3)
    killed(desk, HARDLY)
    monkeypatch.setattr(admin_requests, "throttle_moves", lambda *_: desk.by_hand(None, dict.fromkeys(RATES)))
    said = desk.typed("apply", "--yes", *resumed)
    assert said.code == 0, said.out + said.err
    assert "had happened, and is recorded now" not in said.out + said.err
    if resumed:
        assert "had happened in part, and was completed" in said.out + said.err
        assert not moving(desk)
    else:
        assert "is in progress: the brokers still move replicas" in said.out + said.err
        factor(desk, 1)
        desk.apply()
    desk.settled()


@pytest.mark.parametrize("wanted", [2, 1])
def test_fewer_replicas_while_a_broker_is_dead_are_those_in_sync(desk: Desk, wanted: int) -> None:
    factor(desk, 3)
    desk.apply()
    name = f"{desk.prefix}.orders"
    preferred = int(re.findall(r"Replicas: (\d+)", desk.kafka.topics("--describe", "--topic", name))[0])
    desk.kafka.stop(preferred - 1)
    try:
        until(lambda: all(str(preferred) not in in_sync for _, in_sync in placed(desk)), "it counts as in sync", 90)
        factor(desk, wanted)
        desk.apply()
        assert all(every == in_sync and len(every) == wanted for every, in_sync in placed(desk))
        assert all(str(preferred) not in every for every, _ in placed(desk))
        desk.settled()
    finally:
        desk.kafka.restart(preferred - 1)
    factor(desk, 3)
    until(lambda: desk.typed("apply", "--yes").code == 0, "the broker does not come back", 90)
    assert [len(in_sync) for _, in_sync in placed(desk)] == [3, 3]


def test_a_broker_that_dies_while_it_gets_replicas_is_replaced(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_requests, "THROTTLE_RATE", HARDLY)
    place(desk, 1, 2)
    fill(desk, 60)
    factor(desk, 2)
    killed(desk, HARDLY)
    monkeypatch.setattr(admin_requests, "throttle_moves", lambda *_: desk.by_hand(None, dict.fromkeys(RATES)))
    desk.kafka.stop(2)
    try:
        until(lambda: alive(desk) == 2, "it counts as alive", 90)
        said = desk.typed("apply", "--yes", "--resume")
        assert said.code == 0, said.out + said.err
        assert [in_sync for _, in_sync in placed(desk)] == [{"1", "2"}, {"1", "2"}]
        desk.settled()
    finally:
        desk.kafka.restart(2)


def test_what_was_killed_goes_on_by_itself_and_run_lifts_its_limits(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_requests, "THROTTLE_RATE", SLOW)
    factor(desk, 3)
    killed(desk)
    assert limits(desk) == (LIMITS, RATES)
    assert desk.typed("run", "--once", "--only", "sweep").code == 0
    assert limits(desk) == (LIMITS, RATES) or not moving(desk)  # What moves still is limited.
    until(lambda: not moving(desk), "it does not end", 90)
    assert [len(in_sync) for _, in_sync in placed(desk)] == [3, 3]
    desk.apply()
    desk.settled()
    assert desk.typed("run", "--once", "--only", "sweep").code == 0
    assert limits(desk) == (set(), set())


def test_what_was_begun_is_taken_back_by_the_old_number(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_requests, "THROTTLE_RATE", SLOW)
    before = placed(desk)
    factor(desk, 3)
    killed(desk)
    factor(desk, 1)
    desk.apply()
    assert not moving(desk)
    assert placed(desk) == before
    assert limits(desk) == (set(), set())
    desk.settled()


def test_fewer_were_begun_and_other_numbers_are_asked_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_requests, "THROTTLE_RATE", SLOW)
    factor(desk, 3)
    killed(desk)
    factor(desk, 2)
    desk.apply()
    assert [len(in_sync) for _, in_sync in placed(desk)] == [2, 2]
    assert limits(desk) == (set(), set())
    desk.settled()


def test_a_broker_that_is_down_lowers_what_can_be_had(desk: Desk) -> None:
    desk.kafka.stop(2)
    try:
        factor(desk, 3)
        until(lambda: desk.plan().code == 1, "it counts as alive", 90)
        said = desk.plan()
        assert "replication factor 3 is more than 2: 2 brokers are alive" in said.out + said.err
    finally:
        desk.kafka.restart(2)
