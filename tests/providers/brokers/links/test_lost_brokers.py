"""What goes on while a broker is gone that alone had a topic."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from reconciler.errors import ReconcilerError, RetryableError
from reconciler.operations.mirrors.mirror_rounds import MirrorRounds
from reconciler.operations.steps.mirror_copy import Copier
from reconciler.resources.address import address_of
from tests.engines import here
from tests.providers.brokers.links.linked import EAST, NOW_MS, WEST, Linked
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.thorough

LONELY = "lonely"


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    """Return two brokers of three, and a topic that is on the third alone."""
    with Kafka.start(brokers=3) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap()})
        admin.create_topics([NewTopic(LONELY, 1, replica_assignment=[[3]])])[LONELY].result(30)
        kafka.kill(2)
        yield kafka


@pytest.fixture
def linked(kafka: Kafka, kafka_prefix: str) -> Linked:
    made = Linked.of(kafka, kafka_prefix, partitions=1, make=False)
    made.wait(lambda: not made.site.read_topics()[LONELY].is_led)
    made.make_topic(made.topic, 1)
    made.make_mirror()
    return made


def test_a_topic_without_a_leader_stops_no_mirror_of_others(linked: Linked) -> None:
    linked.produce([b"a"])
    rounds = MirrorRounds(Copier({EAST: linked.east, WEST: linked.west}, here()), lambda: NOW_MS)
    (synced,) = rounds.run_round([EAST], lambda address: address == linked.address).synced
    assert (synced.records, synced.error) == (1, None)


def test_a_topic_without_a_leader_is_not_measured_and_others_are(linked: Linked) -> None:
    linked.produce([b"a"])
    lonely, other = (address_of("topic", WEST, name) for name in (LONELY, linked.topic))
    assert set(linked.west.measure_topics([lonely, other])) == {other}


def test_of_a_topic_without_a_leader_it_is_told_at_once_that_nobody_knows_its_records(linked: Linked) -> None:
    began = monotonic()
    with pytest.raises(RetryableError, match=f"{LONELY} has a partition without a leader"):
        linked.links.find_foreign_records([linked.mirror, LONELY])
    assert monotonic() - began < 15


def test_a_mirror_without_a_leader_leaves_the_records_of_others_in_the_rest_known(linked: Linked) -> None:
    linked.produce([b"a"])
    linked.copy()
    producer = Producer({"bootstrap.servers": linked.broker.bootstrap()})
    producer.produce(linked.mirror, b"stranger")
    assert producer.flush(30) == 0
    unknown: dict[str, ReconcilerError] = {}
    found = linked.links.find_foreign_records([linked.mirror, LONELY], on_unknown=unknown.__setitem__)
    assert [each.records for each in found[linked.mirror]] == [1]
    assert list(unknown) == [LONELY]
