"""What is deleted at a source is deleted from its mirror, whichever platform keeps them; nothing else ever is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pytest
from kafka import KafkaAdminClient
from kafka.structs import TopicPartition as Place

from reconciler.embedded.segments.head import Partition, swap_head
from reconciler.operations.mirrors.mirror_rounds import MirrorOutcome, MirrorRounds
from reconciler.operations.steps.mirror_copy import Copier
from reconciler.resources.mirror_link import ALWAYS_SYNCED
from tests.embedded.links.linked import ORDERS, mirrored
from tests.embedded.links.linked import Linked as EmbeddedLinked
from tests.engines import here
from tests.operations.stage import rounds
from tests.providers.brokers.links.linked import EAST, OPENED, WEST, Linked
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import forget_links
from tests.servers.redpanda.server import Redpanda

FIRST = [f"0-{number}" for number in range(10)]
"""What the source has, and the mirror, at the beginning."""
OWN_RETENTION = {"topicConfigSync": {"include": [*ALWAYS_SYNCED, "retention.ms"]}}
"""The mirror keeps a `retention.bytes` of its own."""


class Pair(Protocol):
    """A topic on `west` and its mirror on `east`, one partition each."""

    def produce(self, *values: str) -> None:
        """Write to the source, in one transaction where the platform has them."""

    def delete(self, count: int) -> None:
        """Delete the first records that were ever written to the source, as DeleteRecords and retention do."""

    def copy(self) -> None:
        """Copy, and be killed before anything is deleted."""

    def once(self) -> MirrorOutcome:
        """Do a round in a process of its own."""

    def values(self) -> list[str]:
        """Read the mirror as a stranger does."""

    def fail_over(self) -> None:
        """End the mirroring."""


@dataclass
class OfEmbedded:
    """Both on embedded clusters."""

    linked: EmbeddedLinked

    def produce(self, *values: str) -> None:
        self.linked.produce("west", *values)

    def delete(self, count: int) -> None:
        west = self.linked.west
        swap_head(
            west.store,
            Partition(ORDERS, west.topic(ORDERS).id, 0),
            lambda head: replace(head, start=count, local_start=max(count, head.local_start)),
        )

    def copy(self) -> None:
        self.linked.catch_up("east")

    def once(self) -> MirrorOutcome:
        (found,) = rounds(self.linked).run_round(["east"]).synced
        return found

    def values(self) -> list[str]:
        return [value for _, value in self.linked.read("east")]

    def fail_over(self) -> None:
        self.linked.east.linking.start_operation(ORDERS, "failover")


@dataclass
class OfBrokers:
    """Both on Kafka or Redpanda: the mirror has other offsets than its source."""

    linked: Linked
    at: list[int]
    """The source's offset of every record."""

    def produce(self, *values: str) -> None:
        self.linked.produce([value.encode() for value in values])
        end = self.at[-1] + 2 if self.at else 0  # A marker ends each transaction.
        self.at += range(end, end + len(values))

    def delete(self, count: int) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.linked.broker.bootstrap().split(","))
        offset = self.at[count] if count < len(self.at) else self.at[-1] + 1
        admin.delete_records({Place(self.linked.topic, 0): offset})
        admin.close()

    def copy(self) -> None:
        self.linked.copy()

    def once(self) -> MirrorOutcome:
        other = self.linked.other()
        copier = Copier({EAST: other.east, WEST: other.west}, here())
        done = MirrorRounds(copier, other.site.now_ms).run_round([EAST], lambda address: address == other.address)
        (found,) = done.synced
        return found

    def values(self) -> list[str]:
        return [value.decode() for value in self.linked.values(self.linked.mirror)]

    def fail_over(self) -> None:
        self.linked.done(self.linked.transition("failover"))


Make = Callable[..., Pair]


ON_REDPANDA = pytest.param("redpanda_server", marks=[pytest.mark.thorough, pytest.mark.xdist_group("redpanda")])


@pytest.fixture(params=["embedded", pytest.param("kafka_broker", marks=pytest.mark.thorough), ON_REDPANDA])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    if request.param == "embedded":
        yield lambda **spec: OfEmbedded(mirrored(**spec))
        return
    broker: Kafka | Redpanda = request.getfixturevalue(request.param)

    def on_brokers(**spec: Any) -> Pair:
        pair = OfBrokers(Linked.of(broker, request.getfixturevalue("kafka_prefix"), 1, **spec), [])
        pair.linked.make_mirror()
        pair.produce(*FIRST[:4])
        pair.produce(*FIRST[4:])
        pair.copy()
        return pair

    yield on_brokers
    while OPENED:
        OPENED.pop()._client.close()
    forget_links(broker)


@pytest.mark.fact("F-C-054")
@pytest.mark.parametrize("count", [1, 4, 7, 10])
def test_what_is_deleted_at_the_source_is_deleted_from_the_mirror_in_the_next_round(make: Make, count: int) -> None:
    pair = make()
    pair.once()
    pair.delete(count)
    assert pair.once().error is None
    assert pair.values() == FIRST[count:]
    assert pair.once().error is None
    assert pair.values() == FIRST[count:]


@pytest.mark.fact("F-C-054")
def test_what_was_deleted_before_it_was_copied_takes_nothing_else_along(make: Make) -> None:
    pair = make()
    pair.produce("late-0", "late-1", "late-2")
    pair.delete(12)
    assert pair.once().error is None
    assert pair.values() == ["late-2"]
    pair.produce("next")
    assert pair.once().records == 1
    assert pair.values() == ["late-2", "next"]


@pytest.mark.fact("F-C-054")
def test_a_process_that_died_before_it_deleted_anything_is_made_up_for_by_the_next(make: Make) -> None:
    pair = make()
    pair.once()
    pair.produce("late")
    pair.delete(6)
    pair.copy()
    assert pair.values() == [*FIRST, "late"]
    assert pair.once().error is None
    assert pair.values() == [*FIRST[6:], "late"]


@pytest.mark.fact("F-C-055")
def test_a_mirror_with_retention_of_its_own_deletes_nothing_because_of_its_source(make: Make) -> None:
    pair = make(**OWN_RETENTION)
    pair.delete(6)
    assert pair.once().error is None
    assert pair.values() == FIRST


@pytest.mark.fact("F-C-055")
def test_nothing_is_deleted_once_mirroring_is_over(make: Make) -> None:
    pair = make()
    pair.once()
    pair.fail_over()
    pair.delete(6)
    with pytest.raises(ValueError, match="not enough values"):
        pair.once()
    assert pair.values() == FIRST
