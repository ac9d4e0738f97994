"""Whoever dies, hangs, or comes second: nothing of a copy is lost, and nothing is there twice."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from reconciler.errors import LostRaceError, RetryableError
from reconciler.jobs.copy import copy_flows
from reconciler.jobs.flows import Flow
from reconciler.providers.brokers.ledger import TOPIC as LEDGER
from reconciler.providers.brokers.records.copy_sink import CopyLimits, CopySink
from reconciler.records.log import OffsetRange, TopicLog
from tests.engines import here
from tests.jobs.kafka.copies import Place, assert_copied, copied, produce
from tests.servers.rawrecords import NOW, ODD, Raw, leader_of, read_raw, write_raw

if TYPE_CHECKING:
    from tests.servers.kafka import Kafka

pytestmark = pytest.mark.soak  # minutes: brokers are started, killed and asked by whole commands


SMALL = CopyLimits(records=40)
WHOLE = CopyLimits(records=40, whole=1)
RECORDS = 1200


@dataclass
class Slow:
    """A log whose client's objects come a few at a time, so that a copy can be caught anywhere."""

    log: Any
    seconds: float = 0.002
    is_held: Callable[[int], None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    def read_messages(self, partition: int, offsets: OffsetRange) -> Iterator[Any]:
        for found in self.log.read_messages(partition, offsets):
            for at in range(0, len(found), 20):
                if self.is_held is not None:
                    self.is_held(found[at].offset())
                time.sleep(self.seconds)
                yield found[at : at + 20]

    def read_whole_batches(self, partition: int, offsets: OffsetRange) -> Iterator[Any]:
        for found in self.log.read_whole_batches(partition, offsets):
            time.sleep(self.seconds)
            yield found


@dataclass
class Found:
    """A broker that another process has started."""

    address: str

    def bootstrap(self) -> str:
        return self.address


def copy_until_killed(address: str, source: str, target: str, limits: CopyLimits = SMALL) -> None:
    place = Place(cast("Kafka", Found(address)), "")
    copied(Slow(place.open_log(source)), place.sink(target, limits=limits))


@pytest.mark.fact("F-K-090")
def test_a_copier_that_is_killed_again_and_again_copies_every_record_once(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    produce(place, source, RECORDS)
    sink = place.sink(target)
    spawning = multiprocessing.get_context("spawn")
    for killed in range(4):
        process = spawning.Process(target=copy_until_killed, args=(place.kafka.bootstrap(), source, target))
        process.start()
        wait_for_more(sink)
        time.sleep(0.003 * killed)  # each time somewhere else in its transaction
        process.kill()
        process.join()
    assert sink.read_positions()[0].end > 0
    copied(place.open_log(source), place.sink(target, limits=SMALL))
    assert assert_copied(place, source, target) == RECORDS


@pytest.mark.fact("F-K-090")
def test_a_copier_of_whole_batches_that_is_killed_again_and_again_copies_every_record_once(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    for start in range(0, 40 * 120, 120):
        produce(place, source, 120, start=start)
    sink = place.sink(target)
    spawning = multiprocessing.get_context("spawn")
    for killed in range(5):
        arguments = (place.kafka.bootstrap(), source, target, WHOLE)
        process = spawning.Process(target=copy_until_killed, args=arguments)
        process.start()
        wait_for_more(sink)
        time.sleep(0.005 * killed)  # each time somewhere else in its transaction
        process.kill()
        process.join()
    assert 0 < sink.read_positions()[0].end < 40 * 120
    copied(place.open_log(source), place.sink(target, limits=WHOLE))
    assert assert_copied(place, source, target) == 40 * 120


@pytest.mark.parametrize("limits", [SMALL, WHOLE], ids=["one-by-one", "whole-batches"])
def test_of_copiers_in_both_ways_the_later_wins_and_every_record_is_there_once(
    place: Place, limits: CopyLimits
) -> None:
    source, target = place.create("orders"), place.create("copy")
    for start in range(0, 20 * 120, 120):
        produce(place, source, 120, start=start)

    def copy(limits: CopyLimits) -> None:
        for _ in range(100):
            try:
                copied(Slow(place.open_log(source)), place.sink(target, limits=limits))
            except RetryableError:  # the other took over
                continue
            return
        pytest.fail("it never gets through")

    with ThreadPoolExecutor(2) as threads:
        for each in [threads.submit(copy, one) for one in (WHOLE, limits)]:
            each.result(300)
    assert assert_copied(place, source, target) == 20 * 120


@pytest.mark.fact("F-K-090")
def test_a_copier_that_is_killed_while_the_way_of_writing_changes_copies_every_record_once(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    records: list[Raw] = []
    for start in range(0, 3 * RECORDS, 60):
        some = [Raw(NOW + n, b"%d" % n, b"v" * 50) for n in range(start, start + 60)]
        records += some if 20 < start // 60 < 50 else [*some, *ODD]
    for start in range(0, len(records), 100):
        write_raw(place.kafka, source, records[start : start + 100])
    sink = place.sink(target)
    spawning = multiprocessing.get_context("spawn")
    for killed in range(6):
        process = spawning.Process(target=copy_until_killed, args=(place.kafka.bootstrap(), source, target))
        process.start()
        wait_for_more(sink)
        time.sleep(0.02 * killed)  # each time somewhere else
        process.kill()
        process.join()
    assert 0 < sink.read_positions()[0].end < len(records)
    copied(place.open_log(source), place.sink(target, limits=SMALL))
    assert read_raw(place.kafka, target) == records


def test_of_two_copiers_of_odd_records_the_later_wins_whichever_way_each_writes(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    records = [each for n in range(12) for each in (*(Raw(NOW, b"k", b"%d" % n) for n in range(n, n + 300)), *ODD)]
    for start in range(0, len(records), 100):
        write_raw(place.kafka, source, records[start : start + 100])

    def copy() -> None:
        for _ in range(100):
            try:
                copied(Slow(place.open_log(source)), place.sink(target, limits=SMALL))
            except RetryableError:  # the other took over
                continue
            return
        pytest.fail("it never gets through")

    with ThreadPoolExecutor(3) as threads:
        for each in [threads.submit(copy) for _ in range(3)]:
            each.result(300)
    assert read_raw(place.kafka, target) == records


def test_of_two_copiers_at_once_the_later_wins_and_the_earlier_leaves_the_partition(place: Place) -> None:
    source, target = place.create("orders", 2), place.create("copy", 2)
    produce(place, source, RECORDS, partitions=2)
    is_there, goes_on = threading.Event(), threading.Event()

    def hold(offset: int) -> None:
        if offset >= RECORDS // 2:
            is_there.set()
            goes_on.wait(60)

    earlier = Slow(place.open_log(source), 0, hold)
    with ThreadPoolExecutor(1) as threads:
        flow = Flow(earlier, place.sink(target, limits=SMALL), only={0})
        first = threads.submit(copy_flows, [flow], here())
        assert is_there.wait(60)
        copied(place.open_log(source), place.sink(target, limits=SMALL), until={0: RECORDS * 3 // 4})
        goes_on.set()
        (outcome,) = first.result(60)
    assert isinstance(outcome.error, LostRaceError)
    assert "Nothing is lost" in (outcome.error.hint or "")
    assert outcome.copy.records < RECORDS // 2 + 40
    copied(place.open_log(source), place.sink(target, limits=SMALL))
    assert assert_copied(place, source, target) == 2 * RECORDS


def test_what_others_finished_in_time_is_no_failure(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    produce(place, source, 200)
    others = iter([lambda: copied(place.open_log(source), place.sink(target))])

    def overtake(_: int) -> None:
        for do in others:
            do()

    copy = copied(Slow(place.open_log(source), 0, overtake), place.sink(target, limits=SMALL))
    assert copy.is_whole
    assert assert_copied(place, source, target) == 200


@pytest.mark.parametrize("what", ["kill", "pause"])
def test_a_broker_that_goes_and_comes_back_in_the_middle_costs_no_record(
    start_kafka: Callable[..., Kafka], kafka_prefix: str, what: str
) -> None:
    kafka = start_kafka()
    place = Place(kafka, kafka_prefix)
    source, target = place.create("orders"), place.create("copy")
    produce(place, source, RECORDS)
    is_there = threading.Event()

    def arrive(offset: int) -> None:
        if offset >= RECORDS // 2:
            is_there.set()

    log = Slow(place.open_log(source), 0.01, arrive)
    with ThreadPoolExecutor(1) as threads:
        copying = threads.submit(copy_again, log, lambda: place.sink(target, limits=SMALL))
        assert is_there.wait(120)
        getattr(kafka, what)()
        time.sleep(2)  # the outage: requests under way fail, or hang
        kafka.restart() if what == "kill" else kafka.resume()
        copying.result(240)
    assert assert_copied(place, source, target) == RECORDS


@pytest.mark.parametrize("what", ["kill", "pause"])
def test_a_leader_that_is_lost_while_odd_records_are_copied_costs_none(
    start_kafka: Callable[..., Kafka], kafka_prefix: str, what: str
) -> None:
    kafka = start_kafka(brokers=3)
    place, records = Place(kafka, kafka_prefix), ODD * 80
    for name in (source := f"{kafka_prefix}.orders", target := f"{kafka_prefix}.copy", LEDGER):
        kafka.topics("--create", "--topic", name, "--replication-factor", "3", "--config", "retention.ms=-1")
    for start in range(0, len(records), 100):
        write_raw(kafka, source, records[start : start + 100])
    is_there, goes_on = threading.Event(), threading.Event()

    def hold(offset: int) -> None:
        if offset >= len(records) // 2 and not is_there.is_set():
            is_there.set()
            goes_on.wait(60)

    with ThreadPoolExecutor(1) as threads:
        log = Slow(place.open_log(source), 0.01, hold)
        copying = threads.submit(copy_again, log, lambda: place.sink(target, limits=SMALL))
        assert is_there.wait(120)
        leader = next(at for at, each in enumerate(kafka.brokers) if each.node.id == leader_of(kafka, target))
        getattr(kafka, what)(leader)
        goes_on.set()
        copying.result(240)
        kafka.restart(leader) if what == "kill" else kafka.resume(leader)
    assert read_raw(kafka, target) == records


def copy_again(log: TopicLog, sink: Callable[[], CopySink]) -> None:
    """Copy as `run` does: what may be tried again is, the next time."""
    until = time.monotonic() + 200
    while True:
        try:
            copied(log, sink())
        except RetryableError:
            assert time.monotonic() < until
        else:
            return


def wait_for_more(sink: CopySink) -> None:
    seen, until = sink.read_positions()[0].end, time.monotonic() + 60
    while sink.read_positions()[0].end == seen:
        assert time.monotonic() < until
