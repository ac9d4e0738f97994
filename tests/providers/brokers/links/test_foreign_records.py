"""Records in a mirror that its link did not copy: found by the offset map, wherever they lie, and no others."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Message, Producer

from reconciler.providers.brokers.ledger import PROGRESS, build_writer_id, progress_key
from reconciler.providers.brokers.offsets import LATEST, read_offsets
from reconciler.providers.brokers.records.record_log import KafkaLog
from reconciler.records.log import OffsetRange
from reconciler.resources.mirrors import ForeignRecords
from tests.providers.brokers.links.linked import Linked
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.thorough


@pytest.fixture
def linked(kafka_broker: Kafka, kafka_prefix: str) -> Linked:
    linked = Linked.of(kafka_broker, kafka_prefix)
    linked.make_mirror()
    return linked


def write(
    linked: Linked, count: int, *, partition: int = 0, is_transaction: bool = False, aborts: bool = False
) -> None:
    """Write to the mirror as a stranger does."""
    settings = {"bootstrap.servers": linked.broker.bootstrap()}
    producer = Producer({**settings, **({"transactional.id": secrets.token_hex(8)} if is_transaction else {})})
    if is_transaction:
        producer.init_transactions(30)
        producer.begin_transaction()
    for number in range(count):
        producer.produce(linked.mirror, value=f"stranger-{number}", partition=partition)
    if is_transaction:
        producer.flush(30)
        _ = producer.abort_transaction(30) if aborts else producer.commit_transaction(30)
    assert producer.flush(30) == 0


def foreign(linked: Linked) -> list[ForeignRecords]:
    return list(linked.links.find_foreign_records([linked.mirror]).get(linked.mirror, ()))


def test_what_a_link_copied_is_nobody_elses(linked: Linked) -> None:
    assert foreign(linked) == []
    for values in ([b"a", b"b"], [b"c"], [b"d", b"e"]):
        linked.produce(values)
        linked.produce(values, partition=1)
        linked.copy()
        assert foreign(linked) == []


def test_records_before_between_and_after_are_told_with_their_offsets(linked: Linked) -> None:
    write(linked, 2)
    assert foreign(linked) == [ForeignRecords(0, 0, 2, 2)]
    linked.produce([b"a", b"b"])
    linked.copy()  # 2, 3, and a marker at 4
    write(linked, 1)
    linked.produce([b"c"])
    linked.copy()  # 6, and a marker at 7
    write(linked, 3, is_transaction=True)
    write(linked, 1, partition=1)
    assert foreign(linked) == [
        ForeignRecords(0, 0, 2, 2),
        ForeignRecords(0, 5, 6, 1),
        ForeignRecords(0, 8, 11, 3),
        ForeignRecords(1, 0, 1, 1),
    ]


class Interrupted(KafkaLog):
    """A source of which a copier reads one record, and then a stranger writes to the mirror."""

    linked: Linked

    def read_messages(self, partition: int, offsets: OffsetRange) -> Iterator[Sequence[Message]]:
        first, *rest = [message for lot in super().read_messages(partition, offsets) for message in lot]
        yield [first]
        place = (self.linked.mirror, 0)
        self.linked.wait(lambda: read_offsets(self.linked.site.client, [place], LATEST)[place] == 1)
        write(self.linked, 1)
        yield rest


def test_a_record_within_a_transaction_of_the_link_is_found_where_a_marker_might_be(linked: Linked) -> None:
    linked.produce([b"%d" % number for number in range(4)])
    copier = linked.copier()
    log = copier.log
    assert isinstance(log, KafkaLog)
    Interrupted.linked = linked
    copier.log = Interrupted(log.topic, log.settings, log.admin, log.cluster, log.isolation, log.id)
    assert copier.copy() == 4
    assert foreign(linked) == [ForeignRecords(0, 1, 2, 1)]
    assert linked.values(linked.mirror) == [b"0", b"stranger-0", b"1", b"2", b"3"]


def test_what_nobody_can_read_is_no_record(linked: Linked) -> None:
    linked.produce([b"a"])
    linked.copy()
    write(linked, 2, is_transaction=True, aborts=True)
    assert foreign(linked) == []
    linked.produce([b"b"])
    linked.copy()
    assert foreign(linked) == []


def test_without_a_count_of_transactions_gaps_that_are_too_long_are_looked_at(linked: Linked) -> None:
    linked.produce([b"a"])
    linked.copy()
    key = progress_key(linked.mirror, 0)

    def as_before(entries):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return {key: {name: value for name, value in entries[key].items() if name != "commits"}}

    linked.site.ledger.change(build_writer_id(linked.link), as_before, PROGRESS)
    assert foreign(linked) == []
    write(linked, 2)
    linked.produce([b"b"])
    linked.other().copy()
    assert foreign(linked) == [ForeignRecords(0, 2, 4, 2)]


def test_of_a_topic_that_mirrors_nothing_any_more_everybody_may_write_records(linked: Linked) -> None:
    write(linked, 2)
    linked.done(linked.transition("failover"))
    assert foreign(linked) == []


def test_what_follows_the_last_record_that_the_source_deleted_stays(linked: Linked) -> None:
    linked.produce([b"a", b"b"])
    linked.copy()
    write(linked, 2)
    linked.produce([b"c"])
    linked.copy()
    third = 3  # behind a, b and the marker of their transaction
    linked.links.delete_below_starts(linked.mirror, {0: third})
    assert linked.values(linked.mirror) == [b"stranger-0", b"stranger-1", b"c"]
    assert [each.records for each in foreign(linked)] == [2]
