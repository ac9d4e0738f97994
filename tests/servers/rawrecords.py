"""Records with any bytes in the names of their headers and with any time, written and read by kafka-python's own code.

Neither library has a public way for them. Batches are packed and read by kafka-python; only its turning of names into
text and back is replaced.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, NamedTuple, SupportsIndex

import pyarrow as pa
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from reconciler.providers.brokers.connection import open_admin

if TYPE_CHECKING:
    from tests.servers.kafka import Kafka

_BATCH: Final = 1 << 24
_MARKER_SECONDS: Final = 60.0
"""A broker answers a commit before it writes its markers: one that lost a leader writes some later."""
_CODECS: Final = {3: "lz4", 4: "zstd"}
"""For which kafka-python wants libraries."""


class Raw(NamedTuple):
    """A record as the protocol has it."""

    time: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


NAMES: Final = (b"plain", b"\xff\xfe", b"", b"\xed\xa0\x80", "ø".encode(), "\U0010f7ff".encode(), b"\x1b[2J")
NOW: Final = 1_700_000_000_000
ODD: Final = [
    *(Raw(time, b"k", b"time", ()) for time in (0, 1, -1, 0, NOW, -2, -1_000_000)),
    *(Raw(NOW, b"k", b"name", ((name, b"\xff"), (name, None), (b"z", b""))) for name in NAMES),
    Raw(0, b"k", None, tuple((name, name) for name in NAMES)),
    Raw(0, None, b""),
    Raw(-1, None, None),
]
"""What librdkafka cannot read or write as it is."""


class _Name(str):
    """A name that is encoded as the bytes it was made of."""

    __slots__ = ("raw",)
    raw: bytes

    @classmethod
    def of(cls, raw: bytes) -> _Name:
        found = cls()
        found.raw = raw
        return found

    def encode(self, *_: str) -> bytes:  # type: ignore[override]  # that is the point of it
        return self.raw


class _Slice(bytearray):
    """Bytes that are decoded as they are."""

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        return _Slice(super().__getitem__(at)) if isinstance(at, slice) else super().__getitem__(at)

    def decode(self, *_: str) -> str:  # type: ignore[override]  # as above
        return super().decode("latin-1")


def write_raw(kafka: Kafka, topic: str, records: Sequence[Raw], partition: int = 0, *, codec: int = 0) -> None:
    """Write records in one batch; a broker that has to pack it anew replaces what is not UTF-8."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=_BATCH,
    )
    for number, record in enumerate(records):
        headers = [(_Name.of(name), value) for name, value in record.headers]
        builder.append(number, record.time, record.key, record.value, headers)
    topics = ProduceRequest.TopicProduceData
    data = topics.PartitionProduceData(index=partition, records=bytes(builder.build()))
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[topics(name=topic, partition_data=[data])], max_version=9
    )
    answer = _sent(kafka, (topic, partition), request).responses[0].partition_responses[0]
    assert not answer.error_code, answer


def read_raw(kafka: Kafka, topic: str, partition: int = 0) -> list[Raw]:
    """Return all that was written and is committed, and see that no other records are there."""
    return [record for _, record in placed(kafka, topic, partition)]


def placed(kafka: Kafka, topic: str, partition: int = 0) -> list[tuple[int, Raw]]:
    """Return the same with their offsets."""
    found: list[tuple[int, Raw]] = []
    opened: dict[int, list[tuple[int, Raw]]] = {}
    at = 0
    deadline = time.monotonic() + _MARKER_SECONDS
    while (batches := _fetched(kafka, topic, partition, at)) or (opened and time.monotonic() < deadline):
        for batch in batches:
            at = batch.next_offset
            records = [] if batch.is_control_batch else [(each.offset, _raw(each)) for each in batch]
            if batch.is_control_batch:
                (marker,) = batch
                ended = opened.pop(batch.producer_id, [])
                found += ended if marker.commit else []
            elif batch.is_transactional:
                opened.setdefault(batch.producer_id, []).extend(records)
            else:
                found += records
    assert not opened, f"{topic}: a transaction is open"
    return sorted(found)


def _fetched(kafka: Kafka, topic: str, partition: int, offset: int) -> list[Any]:
    topics = FetchRequest.FetchTopic
    wanted = topics.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_BATCH)
    request = FetchRequest(
        max_wait_ms=10,
        min_bytes=1,
        max_bytes=_BATCH,
        topics=[topics(topic=topic, partitions=[wanted])],
        max_version=12,
    )
    answer = _sent(kafka, (topic, partition), request).responses[0].partitions[0]
    assert not answer.error_code, answer
    found = []
    for batch in MemoryRecords(answer.records or b""):
        assert isinstance(batch, DefaultRecordBatch)
        if codec := _CODECS.get(batch.compression_type):
            content = pa.BufferReader(bytes(batch._buffer[batch._pos :]))
            batch._buffer, batch._pos, batch._decompressed = bytearray(), 0, True
            batch._buffer += pa.CompressedInputStream(content, codec).read()
        batch._maybe_uncompress()
        batch._buffer = _Slice(batch._buffer)
        found.append(batch)
    return found


def _raw(record: Any) -> Raw:
    headers = tuple((name.encode("latin-1"), value) for name, value in record.headers)
    return Raw(record.timestamp, record.key, record.value, headers)


def leader_of(kafka: Kafka, topic: str, partition: int = 0) -> int:
    """Return the number of the broker that leads a partition."""
    with closing(_opened(kafka)) as admin:
        return _leader(admin, topic, partition)


def _opened(kafka: Kafka) -> Any:
    """Return a connection; by itself the library leaves sockets open to brokers that are gone."""
    return open_admin({"bootstrap_servers": kafka.bootstrap().split(",")}, cluster="tests")


def _leader(admin: Any, topic: str, partition: int) -> int:
    (found,) = admin.describe_topics([topic])
    return next(each["leader_id"] for each in found["partitions"] if each["partition_index"] == partition)


def _sent(kafka: Kafka, place: tuple[str, int], request: Any) -> Any:
    with closing(_opened(kafka)) as admin:
        return admin._manager.run(admin._manager.send, request, _leader(admin, *place))
