"""Copies of whole batches between brokers: what is packed stays as it is, and what cannot stay so is copied too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest
from confluent_kafka import Producer

from reconciler.errors import RetryableError
from reconciler.providers.brokers.records import copy_sink
from reconciler.providers.brokers.records.copy_sink import CopyLimits, CopyMethod, CopyTarget, open_writer
from reconciler.providers.brokers.records.record_batches import LeaderConnection, fetch_batches, parse_heads
from reconciler.providers.brokers.records.whole_batches import select_whole_batches
from reconciler.records.log import OffsetRange, TopicLog
from tests.jobs.kafka.copies import Place, assert_copied, copied, produce
from tests.servers.rawrecords import NOW, ODD, Raw, read_raw, write_raw

pytestmark = pytest.mark.thorough

WHOLE = CopyLimits(whole=1)
EACH = 300
"""Records of a batch: fewer than 100 are not worth a request of their own."""


def plain(count: int, start: int = 0) -> list[Raw]:
    return [Raw(NOW + n, b"k%d" % n, b"value %d" % n, ((b"h", b"%d" % n),)) for n in range(start, start + count)]


def fill(place: Place, topic: str, records: Sequence[Raw], *, each: int = EACH) -> None:
    for start in range(0, len(records), each):
        write_raw(place.kafka, topic, records[start : start + each])


def batches_at(place: Place, topic: str) -> list[bytes]:
    """Return the records of each batch of a topic as they are packed, of whichever producer."""
    leader = LeaderConnection(place.settings, "east", topic, 0)
    at, batches = 0, []
    while heads := list(parse_heads(found := fetch_batches(leader, at, "read_committed"))):
        batches += [found.batches[head.content_begin : head.end] for head in heads if head.is_readable]
        at = heads[-1].through  # An answer ends with its segment, and markers of now begin another.
    return batches


def test_batches_stay_as_their_first_producer_packed_them(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    records = [*plain(EACH), *ODD, *plain(2 * EACH, EACH)]
    fill(place, source, records)
    copy = copied(place.open_log(source), place.sink(target, limits=WHOLE))
    assert (copy.records, copy.is_whole) == (len(records), True)
    assert read_raw(place.kafka, target) == records
    assert batches_at(place, target) == batches_at(place, source)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_stay_compressed_as_they_are(place: Place, codec: str) -> None:
    source, target = place.create("orders"), place.create("copy")
    producer = Producer({**place.settings, "linger.ms": 50, "compression.type": codec})
    for number in range(2 * EACH):
        producer.produce(source, f"value {number}" * 10, f"k{number}", partition=0, headers={"n": str(number)})
    assert producer.flush(30) == 0
    assert copied(place.open_log(source), place.sink(target, limits=WHOLE)).records == 2 * EACH
    assert assert_copied(place, source, target) == 2 * EACH
    assert batches_at(place, target) == batches_at(place, source)


@pytest.mark.parametrize("start", [1, EACH - 1, EACH])
def test_a_copy_goes_on_in_the_middle_of_a_batch(place: Place, start: int) -> None:
    source, target = place.create("orders"), place.create("copy")
    fill(place, source, plain(4 * EACH))
    assert copied(place.open_log(source), place.sink(target, limits=WHOLE), until={0: start}).records == start
    assert copied(place.open_log(source), place.sink(target, limits=WHOLE)).records == 4 * EACH - start
    assert assert_copied(place, source, target) == 4 * EACH


def test_transactions_are_copied_whole_and_what_they_gave_up_is_not(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    fill(place, source, plain(2 * EACH))
    produce(place, source, 9 * EACH, each=EACH)
    fill(place, source, plain(2 * EACH, 2 * EACH))
    copy = copied(place.open_log(source), place.sink(target, limits=WHOLE))
    assert (copy.records, copy.is_whole) == (10 * EACH, True)
    assert assert_copied(place, source, target) == 10 * EACH
    assert batches_at(place, target) == batches_at(place, source)


@pytest.mark.parametrize("limits", [WHOLE, CopyLimits(whole=1, seconds=0)], ids=["few-commits", "many-commits"])
def test_what_does_not_count_is_copied_past_and_opens_no_other_way(
    place: Place, limits: CopyLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = place.create("orders"), place.create("copy")
    produce(place, source, 9 * EACH, each=EACH)  # the last of them is given up
    ways: list[CopyMethod] = []

    def noted(target: CopyTarget, partition: int, way: CopyMethod) -> Any:
        ways.append(way)
        return open_writer(target, partition, way)

    monkeypatch.setattr(copy_sink, "open_writer", noted)
    assert copied(place.open_log(source), place.sink(target, limits=limits)).records == 6 * EACH
    assert ways == [CopyMethod.WHOLE]
    assert assert_copied(place, source, target) == 6 * EACH
    assert copied(place.open_log(source), place.sink(target, limits=limits)).records == 0


@dataclass
class Removing:
    """A log of which the next batches are removed when the first whole one was had, and which then has no other."""

    log: Any
    place: Place
    through: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    def read_whole_batches(self, partition: int, offsets: OffsetRange) -> Iterator[Any]:
        yield next(self.log.read_whole_batches(partition, offsets))
        self.place.truncate(self.log.topic, self.through)


@pytest.mark.parametrize("through", [2 * EACH + 5, 4 * EACH], ids=["in-the-middle", "all"])
def test_what_is_removed_between_two_ways_of_copying_is_missed_aloud(place: Place, through: int) -> None:
    source, target = place.create("orders"), place.create("copy")
    fill(place, source, plain(4 * EACH))
    with pytest.raises(RetryableError, match=f"offsets 300 to {through - 1:,} were removed while they were copied"):
        copied(cast("TopicLog", Removing(place.open_log(source), place, through)), place.sink(target, limits=WHOLE))
    assert copied(place.open_log(source), place.sink(target, limits=WHOLE)).records == 4 * EACH - through
    assert len(read_raw(place.kafka, target)) == 5 * EACH - through


@pytest.mark.fact("F-K-084")
def test_a_quota_that_is_used_up_slows_a_copy_down_and_loses_nothing(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    fill(place, source, [Raw(NOW, b"k%d" % n, b"v" * 10_000) for n in range(1_200)], each=50)
    with place.kafka.limited(consumer_byte_rate=1_000_000):  # so one answer of some MiB uses up the next ten seconds
        assert copied(place.open_log(source), place.sink(target, limits=WHOLE)).records == 1_200
    assert assert_copied(place, source, target) == 1_200


def test_times_of_the_broker_are_copied_as_times_of_records(place: Place) -> None:
    source = place.create("orders", message_timestamp_type="LogAppendTime")
    target = place.create("copy")
    fill(place, source, plain(2 * EACH))
    copied(place.open_log(source), place.sink(target, limits=WHOLE))
    assert [each.time for each in read_raw(place.kafka, target)] == [
        each.time for each in read_raw(place.kafka, source)
    ]


@pytest.mark.parametrize("configs", [{"compression_type": "gzip"}, {"max_message_bytes": "4000"}], ids=str)
def test_a_topic_that_keeps_no_such_batch_gets_the_records(place: Place, configs: dict[str, str]) -> None:
    source, target = place.create("orders"), place.create("copy", **configs)
    fill(place, source, plain(2 * EACH))
    assert (
        copied(place.open_log(source), place.sink(target, limits=WHOLE, producer_settings={"batch.size": 2000})).records
        == 2 * EACH
    )
    assert assert_copied(place, source, target) == 2 * EACH


def test_many_small_batches_are_copied_record_by_record(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    fill(place, source, plain(60), each=3)
    copied(place.open_log(source), place.sink(target, limits=WHOLE))
    assert assert_copied(place, source, target) == 60
    assert len(batches_at(place, target)) < len(batches_at(place, source))


def test_what_was_removed_below_the_start_of_the_source_is_left_out(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    fill(place, source, plain(3 * EACH))
    place.truncate(source, EACH + 1)
    assert copied(place.open_log(source), place.sink(target, limits=WHOLE)).records == 2 * EACH - 1
    assert assert_copied(place, source, target) == 2 * EACH - 1


def test_producers_of_ever_more_batches_are_followed_round_after_round(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    producer = Producer({**place.settings, "linger.ms": 50})
    for round_number in range(3):
        for number in range(2 * EACH):
            producer.produce(source, f"{round_number} {number}", partition=0)
        assert producer.flush(30) == 0
        assert copied(place.open_log(source), place.sink(target, limits=WHOLE)).records == 2 * EACH
    assert assert_copied(place, source, target) == 6 * EACH
    answer = fetch_batches(LeaderConnection(place.settings, "east", source, 0), 0)
    assert select_whole_batches(answer, OffsetRange(0, 6 * EACH))
