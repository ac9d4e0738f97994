"""Mirrors while a broker is gone that alone has a topic which has nothing to do with them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from reconciler.operations.mirrors.mirror_rounds import Rounds
from reconciler.operations.steps.mirror_copy import Copier
from tests.engines import here
from tests.providers.kafka.links.linked import EAST, NOW_MS, WEST, Linked
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.thorough


def test_a_topic_without_a_leader_stops_no_mirror_of_others(
    start_kafka: Callable[..., Kafka], kafka_prefix: str
) -> None:
    kafka = start_kafka(brokers=3)
    linked = Linked.of(kafka, kafka_prefix, partitions=1)
    linked.make_mirror()
    rounds = Rounds(Copier({EAST: linked.east, WEST: linked.west}, here()), lambda: NOW_MS)
    seen = linked.site.seen()
    used = {seen[name].leaders[0] for name in (linked.topic, linked.mirror)}
    lost = min({1, 2, 3} - used)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap()})
    admin.create_topics([NewTopic("lonely", 1, replica_assignment=[[lost]])])["lonely"].result(30)
    linked.wait(lambda: "lonely" in linked.site.seen())
    kafka.kill(lost - 1)
    linked.wait(lambda: not linked.site.seen()["lonely"].is_led)
    linked.produce([b"a"])
    (synced,) = rounds.once([EAST], lambda address: address == linked.address).synced
    assert (synced.records, synced.error) == (1, None)
