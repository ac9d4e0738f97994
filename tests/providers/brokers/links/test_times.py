"""Mirrors take every time that their sources took: what brokers take by themselves differs from version to version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from reconciler.providers.brokers.admin import configure_topic
from reconciler.resources.address import address_of
from reconciler.resources.mirror_link import MirrorTopic
from tests.providers.brokers.links.linked import NOW_MS, WEST, Linked
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.thorough

BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
DIFFERENCE = "message.timestamp.difference.max.ms"
ANY = dict.fromkeys((BEFORE, AFTER), "9223372036854775807")
TIMES = (1, 1_000, NOW_MS, 2_051_222_400_000, 253_402_300_799_000)


def configs_of(linked: Linked) -> Mapping[str, str]:
    """Return what the mirror is told of its source's, and of what its users declared."""
    seen = linked.observe()[linked.address].resource
    assert isinstance(seen, MirrorTopic)
    return seen.configs


def fill(linked: Linked) -> None:
    writer = Producer({"bootstrap.servers": linked.broker.bootstrap()})
    for time in TIMES:
        writer.produce(linked.topic, str(time), partition=0, timestamp=time)
    assert writer.flush(30) == 0


def follow(linked: Linked) -> None:
    source = linked.west.read_source_topic(address_of("topic", WEST, linked.topic))
    assert linked.links.syncs.update_mirrors({linked.mirror: source}) == {}


def test_a_mirror_takes_every_time_its_source_took_and_shows_no_config_for_that(
    kafka_broker: Kafka, kafka_prefix: str
) -> None:
    linked = Linked.of(kafka_broker, kafka_prefix, make=False)
    linked.make_topic(linked.topic, 1, ANY)
    fill(linked)
    linked.make_mirror()
    linked.copy()
    assert linked.links.read_positions(linked.mirror)[0].end == len(TIMES)
    assert configs_of(linked) == {}


def test_the_older_config_of_a_source_refuses_its_mirror_nothing(kafka_39: Kafka, kafka_prefix: str) -> None:
    linked = Linked.of(kafka_39, kafka_prefix, make=False)
    linked.make_topic(linked.topic, 1)
    fill(linked)
    configure_topic(linked.west._client, linked.topic, {DIFFERENCE: "3600000"})
    linked.make_mirror()
    linked.copy()
    assert linked.links.read_positions(linked.mirror)[0].end == len(TIMES)
    assert configs_of(linked) == {}


def test_a_mirror_that_was_made_before_takes_every_time_from_the_next_look_on(
    kafka_broker: Kafka, kafka_prefix: str
) -> None:
    linked = Linked.of(kafka_broker, kafka_prefix, make=False)
    linked.make_topic(linked.topic, 1, ANY)
    linked.make_mirror()
    configure_topic(linked.east._client, linked.mirror, {BEFORE: None, AFTER: None})
    fill(linked)
    follow(linked)
    linked.copy()
    assert linked.links.read_positions(linked.mirror)[0].end == len(TIMES)


@pytest.mark.parametrize("declared", ["3600000", "9223372036854775807"])
def test_what_is_declared_on_a_mirror_stays_and_is_shown(kafka_broker: Kafka, kafka_prefix: str, declared: str) -> None:
    linked = Linked.of(kafka_broker, kafka_prefix)
    creation = linked.creation()
    assert isinstance(creation.after, MirrorTopic)
    after = creation.after.model_copy(update={"configs": {AFTER: declared}})
    linked.done(replace(creation, after=after))
    follow(linked)
    assert configs_of(linked) == {AFTER: declared}
