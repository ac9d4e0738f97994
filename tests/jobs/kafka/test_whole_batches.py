"""Copies of whole batches between brokers: what is packed stays as it is, and what cannot stay so is copied too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from reconciler.providers.kafka.records.copy_sink import Limits
from reconciler.providers.kafka.records.record_batches import Leader, fetched, heads_in
from reconciler.providers.kafka.records.whole_batches import whole_in
from reconciler.records.log import OffsetRange
from tests.jobs.kafka.copies import Place, assert_copied, copied, produce
from tests.servers.rawrecords import NOW, ODD, Raw, read_raw, write_raw

if TYPE_CHECKING:
    from collections.abc import Sequence


pytestmark = pytest.mark.thorough

WHOLE = Limits(whole=1)
EACH = 300
"""Records of a batch: fewer than 100 are not worth a request of their own."""


def plain(count: int, start: int = 0) -> list[Raw]:
    return [Raw(NOW + n, b"k%d" % n, b"value %d" % n, ((b"h", b"%d" % n),)) for n in range(start, start + count)]


def fill(place: Place, topic: str, records: Sequence[Raw], *, each: int = EACH) -> None:
    for start in range(0, len(records), each):
        write_raw(place.kafka, topic, records[start : start + each])


def batches_at(place: Place, topic: str) -> list[bytes]:
    """Return the records of each batch of a topic as they are packed, of whichever producer."""
    leader = Leader(place.settings, "east", topic, 0)
    found = fetched(leader, 0, "read_committed")
    return [found.batches[head.content_begin : head.end] for head in heads_in(found) if head.counts]


def test_batches_stay_as_their_first_producer_packed_them(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    records = [*plain(EACH), *ODD, *plain(2 * EACH, EACH)]
    fill(place, source, records)
    copy = copied(place.log(source), place.sink(target, limits=WHOLE))
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
    assert copied(place.log(source), place.sink(target, limits=WHOLE)).records == 2 * EACH
    assert assert_copied(place, source, target) == 2 * EACH
    assert batches_at(place, target) == batches_at(place, source)


@pytest.mark.parametrize("start", [1, EACH - 1, EACH])
def test_a_copy_goes_on_in_the_middle_of_a_batch(place: Place, start: int) -> None:
    source, target = place.create("orders"), place.create("copy")
    fill(place, source, plain(4 * EACH))
    assert copied(place.log(source), place.sink(target, limits=WHOLE), until={0: start}).records == start
    assert copied(place.log(source), place.sink(target, limits=WHOLE)).records == 4 * EACH - start
    assert assert_copied(place, source, target) == 4 * EACH


def test_transactions_are_copied_whole_and_what_they_gave_up_is_not(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    fill(place, source, plain(2 * EACH))
    produce(place, source, 9 * EACH, each=EACH)
    fill(place, source, plain(2 * EACH, 2 * EACH))
    copy = copied(place.log(source), place.sink(target, limits=WHOLE))
    assert (copy.records, copy.is_whole) == (10 * EACH, True)
    assert assert_copied(place, source, target) == 10 * EACH
    assert batches_at(place, target) == batches_at(place, source)


def test_times_of_the_broker_are_copied_as_times_of_records(place: Place) -> None:
    source = place.create("orders", message_timestamp_type="LogAppendTime")
    target = place.create("copy")
    fill(place, source, plain(2 * EACH))
    copied(place.log(source), place.sink(target, limits=WHOLE))
    assert [each.time for each in read_raw(place.kafka, target)] == [
        each.time for each in read_raw(place.kafka, source)
    ]


@pytest.mark.parametrize("configs", [{"compression_type": "gzip"}, {"max_message_bytes": "4000"}], ids=str)
def test_a_topic_that_keeps_no_such_batch_gets_the_records(place: Place, configs: dict[str, str]) -> None:
    source, target = place.create("orders"), place.create("copy", **configs)
    fill(place, source, plain(2 * EACH))
    assert copied(place.log(source), place.sink(target, limits=WHOLE, writing={"batch.size": 2000})).records == 2 * EACH
    assert assert_copied(place, source, target) == 2 * EACH


def test_many_small_batches_are_copied_record_by_record(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    fill(place, source, plain(60), each=3)
    copied(place.log(source), place.sink(target, limits=WHOLE))
    assert assert_copied(place, source, target) == 60
    assert len(batches_at(place, target)) < len(batches_at(place, source))


def test_what_was_removed_below_the_start_of_the_source_is_left_out(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    fill(place, source, plain(3 * EACH))
    gone = TopicPartition(source, 0, EACH + 1)
    admin = AdminClient(place.settings)  # Its requests end with it.
    admin.delete_records([gone])[gone].result(30)
    assert copied(place.log(source), place.sink(target, limits=WHOLE)).records == 2 * EACH - 1
    assert assert_copied(place, source, target) == 2 * EACH - 1


def test_producers_of_ever_more_batches_are_followed_round_after_round(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    producer = Producer({**place.settings, "linger.ms": 50})
    for round_number in range(3):
        for number in range(2 * EACH):
            producer.produce(source, f"{round_number} {number}", partition=0)
        assert producer.flush(30) == 0
        assert copied(place.log(source), place.sink(target, limits=WHOLE)).records == 2 * EACH
    assert assert_copied(place, source, target) == 6 * EACH
    assert whole_in(fetched(Leader(place.settings, "east", source, 0), 0), OffsetRange(0, 6 * EACH))
