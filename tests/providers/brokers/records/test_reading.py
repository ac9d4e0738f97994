"""Reading real topics: to exactly the end of a range, whatever lies there, and errors that say what is wrong."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from reconciler.errors import RetryableError, UserError
from reconciler.providers.brokers.records import record_batches, record_log
from reconciler.providers.brokers.records.record_batches import fetch_batches
from reconciler.records.log import OffsetRange
from tests.embedded.samples import contents, read
from tests.providers.brokers.records.writing import transact, write
from tests.servers.kafkatopics import kafka_log, make_topic
from tests.waiting import until

if TYPE_CHECKING:
    from tests.servers.kafka import Kafka

pytestmark = pytest.mark.thorough


@pytest.fixture(params=["kafka_broker", pytest.param("kafka_39", marks=pytest.mark.soak)])
def kafka(request: pytest.FixtureRequest) -> Kafka:
    found: Kafka = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["messages", "batches"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read every range one way, and the other: of large ones the batches are unpacked here."""
    monkeypatch.setattr(record_log, "_UNPACKED", {"messages": 1 << 62, "batches": 1}[request.param])


@pytest.fixture
def topic(kafka: Kafka, kafka_prefix: str) -> str:
    make_topic(kafka, kafka_prefix, partitions=1)
    return kafka_prefix


@pytest.mark.fact("F-K-090")
def test_what_was_aborted_is_not_there_and_markers_are_passed(kafka: Kafka, topic: str) -> None:
    transact(kafka, topic, ["a0", "a1"])
    transact(kafka, topic, ["b0", "b1", "b2"], ends="abort")
    write(kafka, topic, ["c0"])
    transact(kafka, topic, ["d0"])
    log = kafka_log(kafka, topic)
    there = [(0, b"a0"), (1, b"a1"), (7, b"c0"), (8, b"d0")]
    assert (log.read_bounds()[0].stable, log.read_bounds()[0].end) == (10, 10)
    for start, stop in itertools.combinations(range(11), 2):
        within = [one for one in there if start <= one[0] < stop]
        assert [(row["offset"], row["value"]) for row in read(log, 0, start, stop)] == within


def test_an_open_transaction_is_read_only_by_who_asks_for_it(kafka: Kafka, topic: str) -> None:
    write(kafka, topic, ["a0"])
    opened = transact(kafka, topic, ["b0", "b1"], ends="open")
    committed, everything = kafka_log(kafka, topic), kafka_log(kafka, topic, "read_uncommitted")
    assert (committed.read_bounds()[0].stable, committed.read_bounds()[0].end) == (1, 3)
    assert contents(committed) == [(0, b"a0")]
    assert contents(everything) == [(0, b"a0"), (1, b"b0"), (2, b"b1")]
    opened.commit_transaction(30)
    until(
        lambda: committed.read_bounds()[0].stable > 1, "the transaction stays open"
    )  # a commit is answered before its markers are written
    assert contents(committed) == [(0, b"a0"), (1, b"b0"), (2, b"b1")]


def test_gaps_of_compaction_are_passed(kafka: Kafka, kafka_prefix: str) -> None:
    compacting = {
        "cleanup_policy": "compact",
        "min_cleanable_dirty_ratio": "0.01",
        "segment_ms": "100",
        "max_compaction_lag_ms": "100",
    }
    make_topic(kafka, kafka_prefix, partitions=1, **compacting)
    log = kafka_log(kafka, kafka_prefix)
    deadline = time.monotonic() + 60
    written = 0
    while not written or read(log)[0]["offset"] == 0:  # the newest segment is never compacted: each round rolls it
        write(kafka, kafka_prefix, ["a0", "b0", "a1"])
        written += 3
        assert time.monotonic() < deadline, "the cleaner does not run"
    offsets = [row["offset"] for row in read(log)]
    assert offsets == sorted(set(offsets))
    assert len(offsets) < written == log.read_bounds()[0].end
    assert offsets[-1] == written - 1
    for stop in range(0, written + 2, 7):  # compaction goes on meanwhile
        assert {row["offset"] for row in read(log, 0, 0, stop)} <= {offset for offset in offsets if offset < stop}


def test_the_time_of_appending_is_told_as_such(kafka: Kafka, kafka_prefix: str) -> None:
    make_topic(kafka, kafka_prefix, partitions=1, message_timestamp_type="LogAppendTime")
    write(kafka, kafka_prefix, ["a"])
    (row,) = read(kafka_log(kafka, kafka_prefix))
    assert row["timestamp_type"] == 1
    assert abs(row["timestamp_ms"] / 1000 - time.time()) < 600


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_read(kafka: Kafka, topic: str, codec: str) -> None:
    values = [f"{number} {'x' * 500}" for number in range(3_000)]
    write(kafka, topic, values, compression_type=codec)
    rows = read(kafka_log(kafka, topic))
    assert [row["value"].decode() for row in rows] == values
    assert [row["offset"] for row in rows] == list(range(3_000))


def test_large_records_are_read(kafka: Kafka, kafka_prefix: str) -> None:
    make_topic(kafka, kafka_prefix, partitions=1, max_message_bytes=str(12 << 20))
    values = ["small", "x" * (10 << 20), "small", "y" * (9 << 20)]
    write(kafka, kafka_prefix, values, message_max_bytes=12 << 20)
    assert [len(row["value"]) for row in read(kafka_log(kafka, kafka_prefix))] == [len(value) for value in values]


def test_a_range_that_begins_before_the_log_yields_what_is_left(kafka: Kafka, topic: str) -> None:
    write(kafka, topic, ["a", "b", "c", "d"])
    truncate(kafka, topic, 2)
    log = kafka_log(kafka, topic)
    assert log.read_bounds()[0].start == 2
    assert contents(log) == [(2, b"c"), (3, b"d")]
    assert [row["offset"] for row in read(log, 0, 0, 3)] == [2]
    assert read(log, 0, 0, 2) == []


@pytest.mark.parametrize("read_by", ["read_messages", "read"])
def test_records_that_go_while_they_are_read_are_missed_aloud(kafka: Kafka, topic: str, read_by: str) -> None:
    write(kafka, topic, [f"{number} {'x' * 100_000}" for number in range(1_500)])
    log = kafka_log(kafka, topic)
    reading = getattr(log, read_by)(0, OffsetRange(0, 1_500))
    next(reading)
    truncate(kafka, topic, 1_499)
    with pytest.raises(RetryableError, match="were removed while they were read"):
        list(reading)


@pytest.mark.fact("F-K-084")
def test_a_quota_that_is_used_up_slows_reading_down_and_loses_nothing(kafka: Kafka, topic: str) -> None:
    write(kafka, topic, [f"{number} {'x' * 10_000}" for number in range(1_200)])
    with kafka.limited(consumer_byte_rate=1_000_000):  # so one answer of some MiB uses up the next ten seconds
        assert [offset for offset, _ in contents(kafka_log(kafka, topic))] == list(range(1_200))


def test_a_topic_or_partition_that_is_not_there_is_said_to_be_missing(
    kafka: Kafka, topic: str, kafka_prefix: str
) -> None:
    missing: list[tuple[Callable[[], Any], str]] = [
        (kafka_log(kafka, f"{kafka_prefix}.none").read_bounds, f"{kafka_prefix}.none"),
        (lambda: read(kafka_log(kafka, f"{kafka_prefix}.none")), f"{kafka_prefix}.none, partition 0"),
        (lambda: read(kafka_log(kafka, topic), 7), f"{topic}, partition 7"),
    ]
    for look, what in missing:
        with pytest.raises(UserError, match=r"topic or partition does not exist|Unknown topic or partition") as caught:
            look()
        assert what in str(caught.value)


def test_a_topic_that_went_while_its_batches_were_read_is_said_to_be_missing(
    kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_batches, "PROPAGATION_S", 0.5)
    write(kafka, topic, ["a"])
    log = kafka_log(kafka, topic)
    leader = log._open_leader(0)
    assert fetch_batches(leader, 0).batches
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap()})
    admin.delete_topics([topic])[topic].result(30)
    with pytest.raises(UserError, match="the topic or partition does not exist"):
        fetch_batches(leader, 0)


def test_a_reading_that_ends_early_leaves_nothing_to_the_next(kafka: Kafka, topic: str) -> None:
    write(kafka, topic, [f"{number}" for number in range(5_000)])
    log = kafka_log(kafka, topic)
    for start in (0, 700, 100):
        reading = log.read(0, OffsetRange(start, 5_000))
        assert next(iter(reading)).column("offset")[0].as_py() == start
        reading.close()  # type: ignore[attr-defined]  # it is a generator
    assert [row["offset"] for row in read(log, 0, 4_990)] == list(range(4_990, 5_000))
    record_log._pool.close()
    assert len(read(log)) == 5_000


@pytest.mark.soak
def test_brokers_that_come_back_are_waited_for(start_kafka: Callable[..., Kafka]) -> None:
    kafka = start_kafka()
    make_topic(kafka, "orders", partitions=1)
    write(kafka, "orders", [f"{number} {'x' * 50_000}" for number in range(3_000)])
    reading = kafka_log(kafka, "orders").read(0, OffsetRange(0, 3_000))
    offsets = next(reading).column("offset").to_pylist()
    kafka.kill()
    kafka.restart()
    for batch in reading:
        offsets += batch.column("offset").to_pylist()
    assert offsets == list(range(3_000))
    record_log._pool.close()


def truncate(kafka: Kafka, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap()})
    for deleted in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        deleted.result(30)
