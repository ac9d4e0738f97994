"""Replication factors on three brokers, by the commands: moved, limited, killed in the middle, taken back."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from confluent_kafka import Producer

from reconciler.providers.kafka import admin_requests
from tests.cli.conftest import environment
from tests.cli.kafka.conftest import Desk
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.soak

SLOW: Final = 128 * 1024
"""Bytes a second: what a partition of the test holds takes a quarter of a minute."""
SLOWLY: Final = f"""
import sys
from reconciler.cli.main import main
from reconciler.providers.kafka import admin_requests as replicas
replicas.RATE = {SLOW}
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
    name = desk.topic("orders", partitions=2)
    desk.apply()
    producer = Producer({"bootstrap.servers": desk.kafka.bootstrap(), "message.max.bytes": 1_000_000})
    for number in range(6):
        producer.produce(name, VALUE, partition=number % 2)
        assert producer.flush(30) == 0
    return desk


def placed(desk: Desk, name: str = "orders") -> list[tuple[set[str], set[str]]]:
    """Return the replicas of each partition, and those in sync, as Kafka's own tool describes them."""
    said = desk.kafka.topics("--describe", "--topic", f"{desk.prefix}.{name}")
    found = re.findall(r"Replicas: (\S+)\s+Isr: (\S+)", said)
    return [(set(all_.split(",")), set(in_sync.split(","))) for all_, in_sync in found]


def factor(desk: Desk, wanted: int) -> None:
    desk.topic("orders", partitions=2, replicationFactor=wanted)


def moving(desk: Desk) -> bool:
    return bool(desk.admin.list_partition_reassignments())


def until(why: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not is_so():
        assert time.monotonic() < deadline, why


def killed(desk: Desk) -> None:
    """Apply slowly, in a process of its own that is killed while replicas move."""
    applying = subprocess.Popen([sys.executable, "-c", SLOWLY], env=environment(), stdout=subprocess.DEVNULL)
    until("nothing moves", lambda: moving(desk) or applying.poll() is not None)
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


def test_what_was_killed_goes_on_by_itself_and_run_lifts_its_limits(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_requests, "RATE", SLOW)
    factor(desk, 3)
    killed(desk)
    assert limits(desk) == (LIMITS, RATES)
    assert desk.typed("run", "--once", "--only", "sweep").code == 0
    assert limits(desk) == (LIMITS, RATES) or not moving(desk)  # What moves still is limited.
    until("it does not end", lambda: not moving(desk))
    assert [len(in_sync) for _, in_sync in placed(desk)] == [3, 3]
    desk.apply()
    desk.settled()
    assert desk.typed("run", "--once", "--only", "sweep").code == 0
    assert limits(desk) == (set(), set())


def test_what_was_begun_is_taken_back_by_the_old_number(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_requests, "RATE", SLOW)
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
    monkeypatch.setattr(admin_requests, "RATE", SLOW)
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
        until("it counts as alive", lambda: desk.plan().code == 1)
        said = desk.plan()
        assert "replication factor 3 is more than 2: 2 brokers are alive" in said.out + said.err
    finally:
        desk.kafka.restart(2)
