"""Names of headers that are no UTF-8: read as they are, by whoever reads, whatever a batch is compressed with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.providers.brokers.records import record_log
from reconciler.records.log import OffsetRange
from reconciler.records.schema import decode_text_as_name
from tests.servers.kafkatopics import kafka_log, make_topic
from tests.servers.rawrecords import Raw, read_raw, write_raw

if TYPE_CHECKING:
    from tests.servers.kafka import Kafka

pytestmark = pytest.mark.thorough

NAMES = (b"plain", b"\xff\xfe", b"", b"\xed\xa0\x80", "ø".encode(), "\U0010f7ff".encode(), b"\xf4\x8f\x9e", b"\x1b[2J")
RECORDS = [
    Raw(5, b"k", b"v", ((b"plain", b"1"),)),
    *(
        Raw(1_700_000_000_000 + n, None, b"v", ((name, b"\xff"), (name, None), (b"z", b"")))
        for n, name in enumerate(NAMES)
    ),
    Raw(7, b"k", None, tuple((name, name) for name in NAMES)),
    Raw(1, None, None),
]


def headers(kafka: Kafka, topic: str) -> list[tuple[tuple[bytes, bytes | None], ...]]:
    log = kafka_log(kafka, topic)
    batches = log.read(0, OffsetRange(0, log.read_bounds()[0].end))
    return [
        tuple((decode_text_as_name(one["key"]), one["value"]) for one in row)
        for batch in batches
        for row in batch.column("headers").to_pylist()
    ]


@pytest.fixture
def topic(kafka_broker: Kafka, kafka_prefix: str) -> str:
    make_topic(kafka_broker, kafka_prefix, partitions=1)
    return kafka_prefix


@pytest.fixture(params=["messages", "batches"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read them through the client, and by the batches they came in."""
    monkeypatch.setattr(record_log, "_UNPACKED", {"messages": 1 << 62, "batches": 1}[request.param])


def test_names_of_any_bytes_are_read(kafka_broker: Kafka, topic: str) -> None:
    write_raw(kafka_broker, topic, RECORDS)
    assert read_raw(kafka_broker, topic) == RECORDS
    assert headers(kafka_broker, topic) == [record.headers for record in RECORDS]


def test_names_of_any_bytes_are_read_from_a_batch_that_is_compressed(kafka_broker: Kafka, topic: str) -> None:
    write_raw(kafka_broker, topic, RECORDS * 200, codec=1)
    assert headers(kafka_broker, topic) == [record.headers for record in RECORDS] * 200


def test_many_of_them_are_read_in_few_questions(kafka_broker: Kafka, topic: str) -> None:
    records = [Raw(n + 1, b"%d" % n, b"v" * 100, ((b"\xff%d" % n, b"%d" % n),) * (n % 3)) for n in range(6000)]
    for start in range(0, len(records), 500):
        write_raw(kafka_broker, topic, records[start : start + 500])
    assert headers(kafka_broker, topic) == [record.headers for record in records]
