"""Instruments of mirrors on Kafka: in offsets of their source, whatever numbers they have themselves."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from reconciler.resources.address import address_of
from reconciler.resources.measures import TopicVitals
from tests.providers.brokers.links.linked import EAST, WEST, Linked
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.thorough


@pytest.fixture
def linked(kafka_broker: Kafka, kafka_prefix: str) -> Linked:
    """Return a mirror whose source has a transaction marker after every two records."""
    made = Linked.of(kafka_broker, kafka_prefix, partitions=2)
    for number in range(3):
        made.produce([f"{number}-{each}".encode() for each in range(2)])
    made.make_mirror()
    return made


def both(linked: Linked) -> tuple[TopicVitals, TopicVitals]:
    """Return what each side says; both clusters are one broker by two names."""
    mirror = next(each for each in linked.east.read_vitals().measured if each.address == linked.address)
    source = address_of("topic", WEST, linked.topic)
    return mirror, next(each for each in linked.west.read_vitals().measured if each.address == source)


def test_a_mirror_is_behind_by_what_was_not_copied_though_it_is_numbered_anew(linked: Linked) -> None:
    mirror, source = both(linked)
    assert mirror.source == source.address == address_of("topic", WEST, linked.topic)
    assert mirror.address == address_of("mirror", EAST, linked.mirror)
    assert (mirror.count_lag(source), mirror.compute_lag_ms(source)) == (9, None)
    linked.copy()
    mirror, source = both(linked)
    assert mirror.end != source.end, "its own numbers are others"
    assert (mirror.count_lag(source), mirror.compute_lag_ms(source)) == (0, 0)


def test_a_mirror_is_late_by_the_times_of_records_not_by_those_of_their_copies(linked: Linked) -> None:
    linked.copy()
    newest = both(linked)[1].partition_vitals[0].newest_ms
    assert newest is not None
    producer = Producer({"bootstrap.servers": linked.broker.bootstrap()})
    for later_ms in (60_000, 90_500, 30_000):
        producer.produce(linked.topic, b"later", partition=0, timestamp=newest + later_ms)
    assert producer.flush(30) == 0
    mirror, source = both(linked)
    assert mirror.count_lag(source) == 3
    behind_ms = mirror.compute_lag_ms(source)
    assert behind_ms is not None
    # The end of a transaction counts as a record of the source: it was written a little after the records.
    assert 90_500 <= behind_ms < 120_000
    linked.copy()
    assert both(linked)[0].compute_lag_ms(both(linked)[1]) == 0
    producer.produce(linked.topic, b"another", partition=0, timestamp=newest + 95_500)
    assert producer.flush(30) == 0
    mirror, source = both(linked)
    assert (mirror.count_lag(source), mirror.compute_lag_ms(source)) == (1, 5_000)


def test_the_newest_record_of_a_topic_that_was_a_mirror_is_its_own(linked: Linked) -> None:
    linked.copy()
    address = address_of("topic", EAST, linked.mirror)
    copied_ms = linked.east.measure_topics([address])[address].newest_ms
    assert copied_ms is not None
    linked.links.request_verb(linked.mirror, "failover")
    producer = Producer({"bootstrap.servers": linked.broker.bootstrap()})
    producer.produce(linked.mirror, b"its own", partition=0, timestamp=copied_ms + 3_600_000)
    assert producer.flush(30) == 0
    assert linked.east.measure_topics([address])[address].newest_ms == copied_ms + 3_600_000
