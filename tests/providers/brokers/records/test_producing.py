"""Producing to real topics: routed, timed and told apart as it was given, each refusal raised, read by a stranger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from reconciler.errors import UserError
from reconciler.providers.brokers.records.record_producer import KafkaProducer
from reconciler.records.log import OffsetRange
from reconciler.records.schema import INPUT_SCHEMA, encode_name_as_text
from tests.embedded.samples import NOW, read
from tests.providers.brokers.records.writing import write
from tests.servers.kafkatopics import build_record_settings, kafka_log, make_topic
from tests.servers.rawrecords import NAMES, Raw, read_raw

if TYPE_CHECKING:
    from tests.servers.kafka import Kafka

pytestmark = pytest.mark.thorough


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    empty = {"partition": 0, "timestamp_ms": NOW, "timestamp_type": 0, "key": None, "value": None, "headers": []}
    return pa.RecordBatch.from_pylist([{**empty, **row} for row in rows], schema=INPUT_SCHEMA)


@pytest.fixture
def topic(kafka_broker: Kafka, kafka_prefix: str) -> str:
    make_topic(kafka_broker, kafka_prefix)
    return kafka_prefix


def producer(kafka: Kafka, topic: str, **options: Any) -> KafkaProducer:
    return KafkaProducer(topic, build_record_settings(kafka), "west", **options)


@pytest.mark.fact("F-K-090")
def test_the_brokers_own_consumer_reads_what_was_produced(kafka_broker: Kafka, topic: str) -> None:
    writing = producer(kafka_broker, topic)
    headers = [{"key": "h", "value": b"1"}, {"key": "h", "value": b""}, {"key": "none", "value": None}]
    writing.append(
        batch(
            {"key": b"k", "value": b"v", "headers": headers, "timestamp_ms": 1_000},
            {"key": b"", "value": None, "timestamp_ms": 1_001},
            {"key": None, "value": b"", "timestamp_ms": 1_002},
        )
    )
    assert writing.flush() == {0: OffsetRange(0, 3)}
    assert kafka_broker.consumed(topic, 3) == [
        "CreateTime:1000\tPartition:0\tOffset:0\th:1,h:,none:null\tk\tv",
        "CreateTime:1001\tPartition:0\tOffset:1\tNO_HEADERS\t\tnull",
        "CreateTime:1002\tPartition:0\tOffset:2\tNO_HEADERS\tnull\t",
    ]


def test_keys_go_where_other_clients_send_them(kafka_broker: Kafka, topic: str) -> None:
    keys = [f"key-{number}" for number in range(50)]
    other = Producer({**build_record_settings(kafka_broker), "partitioner": "murmur2"})
    for key in keys:
        other.produce(topic, b"theirs", key=key)
    other.flush(30)
    writing = producer(kafka_broker, topic)
    writing.append(batch(*({"partition": None, "key": key.encode(), "value": b"ours"} for key in keys)))
    assert sum(gained.length for gained in writing.flush().values()) == 50
    log = kafka_log(kafka_broker, topic)
    for partition in range(3):
        rows = read(log, partition)
        theirs = [row["key"] for row in rows if row["value"] == b"theirs"]
        assert theirs == [row["key"] for row in rows if row["value"] == b"ours"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_many_records_arrive_once_and_in_order(kafka_broker: Kafka, topic: str, codec: str) -> None:
    writing = producer(kafka_broker, topic, compression=codec)
    for first in range(0, 20_000, 4_000):
        rows = [{"partition": number % 3, "value": b"%d" % number} for number in range(first, first + 4_000)]
        writing.append(batch(*rows))
    assert sum(gained.length for gained in writing.flush().values()) == 20_000
    log = kafka_log(kafka_broker, topic)
    for partition in range(3):
        values = [int(row["value"]) for row in read(log, partition)]
        assert values == list(range(partition, 20_000, 3))


def test_what_was_gained_is_told_since_the_last_time(kafka_broker: Kafka, topic: str) -> None:
    writing = producer(kafka_broker, topic)
    assert writing.flush() == {}
    writing.append(batch({"value": b"a"}, {"value": b"b", "partition": 2}))
    assert writing.flush() == {0: OffsetRange(0, 1), 2: OffsetRange(0, 1)}
    write(kafka_broker, topic, ["another"])
    writing.append(batch({"value": b"c"}, {"value": b"d"}))
    assert writing.flush() == {0: OffsetRange(2, 4)}


def test_a_record_without_time_gets_the_present(kafka_broker: Kafka, topic: str) -> None:
    writing = producer(kafka_broker, topic)
    writing.append(batch({"value": b"a", "timestamp_ms": None}))
    writing.flush()
    assert read(kafka_log(kafka_broker, topic))[0]["timestamp_ms"] > NOW


def test_what_the_client_would_change_is_written_as_it_is_and_in_order(kafka_broker: Kafka, topic: str) -> None:
    writing = producer(kafka_broker, topic)
    usual = {"key": b"k", "value": b"usual"}
    headers = [{"key": encode_name_as_text(name), "value": name} for name in (*NAMES, b"nul\0", b"\0")]
    odd = {"key": b"", "value": None, "headers": headers}
    writing.append(batch(usual, usual))
    writing.append(batch({**odd, "timestamp_ms": 0}, usual, odd, {**usual, "timestamp_ms": 0, "partition": 1}))
    writing.append(batch(usual))
    assert writing.flush() == {0: OffsetRange(0, 6), 1: OffsetRange(0, 1)}
    writing.append(batch(odd))
    assert writing.flush() == {0: OffsetRange(6, 7)}
    plain, names = Raw(NOW, b"k", b"usual"), tuple((name, name) for name in (*NAMES, b"nul\0", b"\0"))
    odd_now = Raw(NOW, b"", None, names)
    assert read_raw(kafka_broker, topic) == [plain, plain, odd_now._replace(time=0), plain, odd_now, plain, odd_now]
    assert read_raw(kafka_broker, topic, 1) == [plain._replace(time=0)]


def test_an_odd_record_without_time_gets_the_present(kafka_broker: Kafka, topic: str) -> None:
    writing = producer(kafka_broker, topic)
    writing.append(batch({"timestamp_ms": None, "headers": [{"key": encode_name_as_text(b"\xff"), "value": None}]}))
    writing.flush()
    assert read_raw(kafka_broker, topic)[0].time > NOW


@pytest.mark.parametrize(
    ("configs", "row", "refusal"),
    [
        ({"cleanup_policy": "compact"}, {"value": b"no key"}, "do not take such a record"),
        ({"max_message_bytes": "1000"}, {"value": b"x" * 5_000}, "larger|too large"),
        ({}, {"value": b"x", "partition": 9}, "partition 9: the topic does not have it"),
    ],
)
def test_refusals_of_brokers_are_raised(
    kafka_broker: Kafka, kafka_prefix: str, configs: dict[str, str], row: dict[str, Any], refusal: str
) -> None:
    make_topic(kafka_broker, kafka_prefix, **configs)
    writing = producer(kafka_broker, kafka_prefix)

    def produce() -> None:
        writing.append(batch(row))
        writing.flush()

    with pytest.raises(UserError, match=refusal):
        produce()


def test_records_for_a_topic_that_is_not_there_are_refused(kafka_broker: Kafka, kafka_prefix: str) -> None:
    with pytest.raises(UserError, match=r"no such topic|[Uu]nknown topic"):
        producer(kafka_broker, f"{kafka_prefix}.none").append(batch({"value": b"x", "partition": None}))
