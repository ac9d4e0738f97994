"""The logs of a real broker: topics are read, and written back with the same records at the same offsets."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from typing import Any, Final

from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

from tests.servers.emulation.wire import BrokerConnection

_CHUNK: Final = 1 << 24
_FILLED: Final = 100_000
"""Records in one batch that fills offsets before the start of a log."""
_TRIES, _PAUSE_SECONDS = 400, 0.02
_LARGEST_GAP: Final = 200
"""Offsets that are filled by markers of empty transactions; each takes some milliseconds."""
_CONTROL, _TRANSACTIONAL = 0x20, 0x10
_EARLIEST, _LATEST = -2, -1
_BUSY: Final = frozenset({14, 15, 16, 51})
"""The coordinator loads, is not available or not known yet, or ends the transaction before."""
_NO_LEADER: Final = frozenset({3, 5, 6})
"""The partition is not known yet, or has no leader yet."""
OPEN: Final = {"retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": str(1 << 30)}
"""Configs while records are written back."""


class StoppedError(Exception):
    """Records cannot be written back at their offsets."""


class Batch:
    """A record batch as the log has it."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.base = int.from_bytes(content[:8], "big")
        self.end = self.base + int.from_bytes(content[23:27], "big") + 1
        self.attributes, self.producer = struct.unpack(">h20xq", content[21:51])
        self.is_dense = self.end - self.base == int.from_bytes(content[57:61], "big")
        self.commits = content[68:70] == b"\x00\x01"  # the type in the key of a marker

    @classmethod
    def split(cls, content: bytes) -> list[Batch]:
        batches, at = [], 0
        while at + 61 <= len(content):
            size = 12 + int.from_bytes(content[at + 8 : at + 12], "big")
            if at + size <= len(content):
                batches.append(cls(content[at : at + size]))
            at += size
        return batches

    def without_producer(self) -> bytes:
        attributes = struct.pack(">h", self.attributes & ~_TRANSACTIONAL)
        body = attributes + self.content[23:43] + struct.pack(">qhi", -1, -1, -1) + self.content[57:]
        return self.content[:17] + struct.pack(">I", calc_crc32c(body)) + body


def list_partitions(broker: BrokerConnection, topic: str) -> list[int]:
    """Return the partitions of a topic; none for one that does not exist."""
    answer = broker.ask("Metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=False)
    return sorted(each.partition_index for each in answer.topics[0].partitions)


def read_bounds(broker: BrokerConnection, topic: str) -> dict[int, tuple[int, int]]:
    """Return the first offset and the end of every partition; nothing for a topic that does not exist."""
    numbers = list_partitions(broker, topic)
    starts, ends = (_list_offsets(broker, topic, numbers, timestamp) for timestamp in (_EARLIEST, _LATEST))
    return {number: (starts[number], ends[number]) for number in numbers}


def create_topic(broker: BrokerConnection, topic: str, partitions: int) -> None:
    configs = [{"name": name, "value": value} for name, value in OPEN.items()]
    row = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": configs}
    _check(broker.ask("CreateTopics", 5, topics=[row], timeout_ms=30_000, validate_only=False).topics[0])
    while len(list_partitions(broker, topic)) != partitions:
        time.sleep(_PAUSE_SECONDS)


def read_configs(broker: BrokerConnection, topic: str) -> dict[str, str]:
    """Return the configs that are set on a topic at the broker."""
    answer = broker.ask("DescribeConfigs", 4, resources=[{"resource_type": 2, "resource_name": topic}])
    return {each.name: each.value for each in answer.results[0].configs if each.config_source == 1}


def set_configs(broker: BrokerConnection, topic: str, changes: Mapping[str, str | None]) -> None:
    """Change configs of a topic at the broker; `None` resets one."""
    rows = [{"name": name, "config_operation": int(value is None), "value": value} for name, value in changes.items()]
    resource = {"resource_type": 2, "resource_name": topic, "configs": rows}
    _check(broker.ask("IncrementalAlterConfigs", 1, resources=[resource], validate_only=False).responses[0])


def delete_topics(broker: BrokerConnection, topics: list[str]) -> None:
    broker.ask("DeleteTopics", 4, topic_names=topics, timeout_ms=30_000)


def _list_offsets(broker: BrokerConnection, topic: str, partitions: list[int], timestamp: int) -> dict[int, int]:
    rows = [{"partition_index": number, "timestamp": timestamp} for number in partitions]
    for _ in range(_TRIES):
        answer = broker.ask("ListOffsets", 4, replica_id=-1, topics=[{"name": topic, "partitions": rows}])
        found = [each for row in answer.topics for each in row.partitions]
        if not any(each.error_code in _NO_LEADER for each in found):
            break
        time.sleep(_PAUSE_SECONDS)
    return {_check(each).partition_index: each.offset for each in found}


def read_log(broker: BrokerConnection, topic: str, partition: int, start: int, end: int) -> bytes:
    content = b""
    while start < end:
        row = {"partition": partition, "fetch_offset": start, "partition_max_bytes": _CHUNK}
        topics = [{"topic": topic, "partitions": [row]}]
        answer = broker.ask("Fetch", 11, max_wait_ms=100, min_bytes=1, max_bytes=_CHUNK, topics=topics)
        batches = Batch.split(bytes(_check(answer.responses[0].partitions[0]).records or b""))
        content += b"".join(each.content for each in batches)
        start = batches[-1].end if batches else end
    return content


def write_log(broker: BrokerConnection, topic: str, partition: int, batches: list[Batch], start: int, end: int) -> None:
    offset = batches[0].base if batches else end
    fill(broker, topic, partition, offset)
    append(broker, topic, partition, _list_visible(batches), offset, end)
    if start:
        delete_before(broker, topic, partition, start)


def append(broker: BrokerConnection, topic: str, partition: int, batches: list[Batch], offset: int, end: int) -> None:
    """Write batches at their offsets to a log that ends at `offset`; it ends at `end` then.

    Raises:
        StoppedError: A gap cannot be written; the batches before it are.
    """
    for batch in batches:
        if batch.base < offset:
            raise StoppedError(f"{topic}/{partition}: offset {offset} is inside the batch at {batch.base}")
        _skip(broker, topic, partition, offset, batch.base)
        if not batch.is_dense:
            raise StoppedError(f"{topic}/{partition}: offsets are missing inside the batch at {batch.base}")
        is_plain = not batch.attributes & _TRANSACTIONAL
        _produce(broker, topic, partition, batch.content if is_plain else batch.without_producer())
        offset = batch.end
    _skip(broker, topic, partition, offset, end)


def delete_before(broker: BrokerConnection, topic: str, partition: int, start: int) -> None:
    """Delete the records before an offset."""
    topics = [{"name": topic, "partitions": [{"partition_index": partition, "offset": start}]}]
    _check(broker.ask("DeleteRecords", 1, topics=topics, timeout_ms=30_000).topics[0].partitions[0])


def list_committed(batches: list[Batch], aborted: list[tuple[int, int]]) -> list[Batch]:
    """Return fetched batches without markers and aborted records.

    `aborted`: first offset and producer of the aborted transactions, as a broker answers to a committed read. The
    batches belong to no producer, so that a broker takes them in any order.
    """
    committed, waiting, current = [], sorted(aborted), set[int]()
    for batch in batches:
        while waiting and waiting[0][0] < batch.end:
            current.add(waiting.pop(0)[1])
        if batch.attributes & _CONTROL:
            current -= set() if batch.commits else {batch.producer}
        elif not batch.attributes & _TRANSACTIONAL or batch.producer not in current:
            committed.append(batch if batch.producer < 0 else Batch(batch.without_producer()))
    return committed


def _list_visible(batches: list[Batch]) -> list[Batch]:
    """Return the batches without markers and aborted records."""
    visible: list[Batch] = []
    opened: dict[int, list[Batch]] = {}
    for batch in batches:
        if batch.attributes & _CONTROL:
            ended = opened.pop(batch.producer, [])
            visible += ended if batch.commits else []
        elif batch.attributes & _TRANSACTIONAL:
            opened.setdefault(batch.producer, []).append(batch)
        else:
            visible.append(batch)
    return sorted(visible, key=lambda batch: batch.base)


def fill(broker: BrokerConnection, topic: str, partition: int, count: int) -> None:
    """Write so many records, which are deleted afterwards: the next one gets the offset wanted."""
    for start in range(0, count, _FILLED):
        batch = DefaultRecordBatchBuilder(2, 1, False, -1, -1, -1, 1 << 30)  # noqa: FBT003 - gzip, no transaction
        for number in range(min(_FILLED, count - start)):
            batch.append(number, int(time.time() * 1000), b"", b"", [])
        _produce(broker, topic, partition, bytes(batch.build()))


def _skip(broker: BrokerConnection, topic: str, partition: int, offset: int, end: int) -> None:
    """Fill a gap with markers of empty transactions, which no consumer sees."""
    if end - offset > _LARGEST_GAP:
        raise StoppedError(
            f"{topic}/{partition}: the gap of {end - offset} offsets at {offset} is too large to be filled"
        )
    if offset >= end:
        return
    name = f"fill-{topic}-{partition}"
    _retry(broker, "FindCoordinator", 2, key=name, key_type=1)  # The broker makes its topic for transactions then.
    producer = _retry(broker, "InitProducerId", 2, transactional_id=name, transaction_timeout_ms=60_000)
    ids = {"transactional_id": name, "producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    topics = {"v3_and_below_topics": [{"name": topic, "partitions": [partition]}]}
    while _list_offsets(broker, topic, [partition], _LATEST)[partition] < end:
        before = _list_offsets(broker, topic, [partition], _LATEST)[partition]
        _retry(
            broker, "AddPartitionsToTxn", 3, **{f"v3_and_below_{key}": value for key, value in ids.items()}, **topics
        )
        _retry(broker, "EndTxn", 3, **ids, committed=True)
        while _list_offsets(broker, topic, [partition], _LATEST)[partition] == before:
            time.sleep(_PAUSE_SECONDS)


def _retry(broker: BrokerConnection, name: str, version: int, **values: Any) -> Any:
    for _ in range(_TRIES):
        answer = broker.ask(name, version, **values)
        topics = answer.results_by_topic_v3_and_below if name == "AddPartitionsToTxn" else []
        codes = {answer.error_code, *(each.partition_error_code for row in topics for each in row.results_by_partition)}
        if not codes & _BUSY:
            assert codes == {0}, answer
            return answer
        time.sleep(_PAUSE_SECONDS)
    raise TimeoutError(f"{name} is still refused: {answer}")


def _produce(broker: BrokerConnection, topic: str, partition: int, batch: bytes) -> None:
    row = {"name": topic, "partition_data": [{"index": partition, "records": bytes(8) + batch[8:]}]}
    for _ in range(_TRIES):
        answer = broker.ask("Produce", 7, acks=-1, timeout_ms=30_000, topic_data=[row])
        if answer.responses[0].partition_responses[0].error_code not in _NO_LEADER:
            break
        time.sleep(_PAUSE_SECONDS)
    _check(answer.responses[0].partition_responses[0])


def _check(row: Any) -> Any:
    assert not row.error_code, row
    return row
