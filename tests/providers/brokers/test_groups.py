"""Groups of a real broker: those that change between two looks, and those of each type that it knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer

from reconciler.errors import UserError
from reconciler.providers.brokers import groups as module
from reconciler.providers.brokers.client import KafkaClient
from reconciler.providers.brokers.groups import GroupDescription, KafkaGroups
from reconciler.providers.brokers.translate import build_naming
from reconciler.resources.groups import ToEarliest
from reconciler.runtime.retry import Backoff, Tries
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import make_topic

pytestmark = pytest.mark.thorough


@pytest.fixture
def groups(kafka_broker: Kafka) -> Iterator[KafkaGroups]:
    client = KafkaClient("west", lambda: {"bootstrap_servers": [kafka_broker.bootstrap()]})
    yield KafkaGroups(client, build_naming(".", ()))
    client.close()


def test_a_group_that_has_gone_since_it_was_seen_is_gone(
    groups: KafkaGroups, kafka_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "read_group_states", lambda _client: {kafka_prefix: GroupDescription("Empty")})
    assert not groups.delete(kafka_prefix)


@pytest.fixture
def shared(kafka_broker: Kafka, kafka_prefix: str) -> str:
    """Return a share group that has read 5 of 30 records of the topic of the same name."""
    make_topic(kafka_broker, kafka_prefix, partitions=1)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap()})
    for number in range(30):
        producer.produce(kafka_prefix, str(number).encode())
    assert producer.flush(30) == 0
    here = ("--bootstrap-server", kafka_broker.bootstrap())
    earliest = ("--entity-type", "groups", "--entity-name", kafka_prefix)
    kafka_broker.tool(
        "kafka.admin.ConfigCommand", *here, "--alter", *earliest, "--add-config", "share.auto.offset.reset=earliest"
    )
    names = ("--topic", kafka_prefix, "--group", kafka_prefix, "--max-messages", "5", "--timeout-ms", "60000")
    kafka_broker.tool("org.apache.kafka.tools.consumer.ConsoleShareConsumer", *here, *names)
    return kafka_prefix


def test_a_share_group_is_seen_with_what_it_has_not_read_and_its_offsets_are_not_set(
    groups: KafkaGroups, shared: str
) -> None:
    seen = groups.describe(shared)
    assert (seen.type, seen.is_reading, seen.lag) == ("share", False, 25)
    assert (groups.find_topic_readers() or {})[shared] == (shared,)
    assert groups.list_for_topic(shared) == [seen]
    for change in (
        lambda: groups.plan_reset(shared, ToEarliest()),
        lambda: groups.commit(shared, {(shared, 0): 1}),
        lambda: groups.delete(shared, shared),
    ):
        with pytest.raises(UserError, match=f"group {shared}"):
            change()
    assert groups.describe(shared) == seen
    assert groups.delete(shared)
    assert shared not in groups.list_names()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_reads_and_never_committed_is_a_reader(
    groups: KafkaGroups, kafka_broker: Kafka, kafka_prefix: str, protocol: str
) -> None:
    make_topic(kafka_broker, kafka_prefix, partitions=1)
    settings = {"bootstrap.servers": kafka_broker.bootstrap(), "group.id": kafka_prefix, "group.protocol": protocol}
    with closing(Consumer({**settings, "enable.auto.commit": False})) as member:
        member.subscribe([kafka_prefix])
        looks = Tries(Backoff(first_s=0.05, longest_s=0.5), within_s=60)
        while not member.assignment():
            assert not looks.has_ended, "it has not joined"
            member.poll(0.1)
        assert (groups.find_topic_readers() or {})[kafka_prefix] == (kafka_prefix,)
    assert kafka_prefix not in (groups.find_topic_readers() or {})


@pytest.mark.parametrize(
    ("state", "has_members"),
    [("Stable", True), ("NotReady", True), ("OfALaterVersion", True), ("Empty", False), ("Dead", False), ("", False)],
)
def test_a_group_in_a_state_that_is_not_known_may_have_members(state: str, *, has_members: bool) -> None:
    assert GroupDescription(state).has_members is has_members


def test_who_reads_cannot_be_told_where_a_group_of_an_unknown_type_has_members_and_no_offsets(
    groups: KafkaGroups, kafka_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert groups.find_topic_readers() is not None
    monkeypatch.setattr(
        module, "read_group_states", lambda _client: {kafka_prefix: GroupDescription("Stable", "relay")}
    )
    assert groups.find_topic_readers() is None
