"""A folder as a bucket: topics leave a cluster for it and come back with the same records at the same offsets."""

from __future__ import annotations

import json
import shutil
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

from tests.servers.redpanda import wire

_CHUNK: Final = 1 << 24
_FILLED: Final = 100_000
"""Records of one batch that fills offsets before the start of a log."""
_TRIES: Final = 400
_PAUSE_SECONDS: Final = 0.02
_LARGEST_GAP: Final = 200
"""Offsets that are filled by markers of empty transactions; each takes some milliseconds."""
_CONTROL, _TRANSACTIONAL = 0x20, 0x10
_LATEST, _EARLIEST = -1, -2
_COMMIT: Final = b"\x00\x01"
_BUSY: Final = frozenset({14, 15, 16, 51})
"""Coordinator loading, not available or not here; the transaction before is not ended yet."""
_OPEN: Final = {"retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": str(1 << 30)}
"""Configs while records are written back."""


class StoppedError(Exception):
    """Records cannot be written back at their offsets."""


class Location(NamedTuple):
    """Where a topic is in the bucket."""

    topic: str
    uuid: str
    revision: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.uuid}/{self.revision}"


class _Batch(NamedTuple):
    content: bytes

    @classmethod
    def split(cls, content: bytes) -> list[_Batch]:
        batches, at = [], 0
        while at + 61 <= len(content):
            size = 12 + int.from_bytes(content[at + 8 : at + 12], "big")
            if at + size <= len(content):
                batches.append(cls(content[at : at + size]))
            at += size
        return batches

    @property
    def base(self) -> int:
        return int.from_bytes(self.content[:8], "big")

    @property
    def end(self) -> int:
        return self.base + int.from_bytes(self.content[23:27], "big") + 1

    @property
    def attributes(self) -> int:
        return int.from_bytes(self.content[21:23], "big")

    @property
    def producer(self) -> int:
        return int.from_bytes(self.content[43:51], "big", signed=True)

    @property
    def is_dense(self) -> bool:
        return self.end - self.base == int.from_bytes(self.content[57:61], "big")

    @property
    def commits(self) -> bool:
        """Whether this control batch is a commit: its record's key ends with the type of the marker."""
        return self.content[61 + 5 :][2:4] == _COMMIT

    def without_producer(self) -> bytes:
        """Return the batch as written by a producer without transactions."""
        attributes = struct.pack(">H", self.attributes & ~_TRANSACTIONAL)
        body = attributes + self.content[23:43] + struct.pack(">qhi", -1, -1, -1) + self.content[57:]
        return self.content[:17] + struct.pack(">I", calc_crc32c(body)) + body


class Bucket:
    """Mount manifests (`migration/…`) and the data of topics (`data/…`) in a folder that clusters may share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def list_mountable(self) -> list[Location]:
        found = [path.relative_to(self.folder).parts[1:] for path in self.folder.glob("migration/*/kafka/*/*")]
        return sorted(Location(topic, uuid, int(revision)) for uuid, _, topic, revision in found)

    def release(self, location: Location) -> None:
        """Write the mount manifest: no cluster owns the topic."""
        manifest = self._manifest(location)
        manifest.parent.mkdir(parents=True, exist_ok=True)
        manifest.touch()

    def claim(self, location: Location) -> bool:
        """Remove the mount manifest; only one cluster succeeds."""
        with suppress(FileNotFoundError):
            self._manifest(location).unlink()
            return True
        return False

    def store(self, line: wire.BrokerLine, topic: str, location: Location, settings: dict[str, Any]) -> None:
        """Copy a topic's raw batches and configs from the broker."""
        folder = self.folder / "data" / str(location)
        folder.mkdir(parents=True, exist_ok=True)
        bounds = read_bounds(line, topic)
        for partition, (start, end) in bounds.items():
            (folder / f"{partition}.log").write_bytes(_read_log(line, topic, partition, start, end))
        configs = _read_configs(line, topic)
        document = {"bounds": bounds, "configs": configs, "settings": settings}
        (folder / "topic.json").write_text(json.dumps(document))

    def read_topic(self, location: Location) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / "data" / str(location) / "topic.json").read_text())
        return document

    def remove(self, location: Location) -> None:
        shutil.rmtree(self.folder / "data" / str(location), ignore_errors=True)

    def restore(self, line: wire.BrokerLine, topic: str, location: Location, configs: dict[str, str]) -> None:
        """Create a topic at the broker with its records at the same offsets.

        Raises:
            StoppedError: A gap inside the log cannot be written; the topic is left with the records before it.
        """
        document = self.read_topic(location)
        create_topic(line, topic, len(document["bounds"]))
        for number, (start, end) in document["bounds"].items():
            content = (self.folder / "data" / str(location) / f"{number}.log").read_bytes()
            _write_log(line, topic, int(number), _Batch.split(content), start, end)
        changes = [(name, 1, None) for name in _OPEN if name not in configs]
        changes += [(name, 0, value) for name, value in configs.items()]
        request = wire.REQUESTS[wire.INCREMENTAL_ALTER_CONFIGS]
        resource = request.AlterConfigsResource
        rows = [resource.AlterableConfig(name=n, config_operation=operation, value=v) for n, operation, v in changes]
        asked = request(resources=[resource(resource_type=2, resource_name=topic, configs=rows)], validate_only=False)
        _check(line.ask(asked, 1).responses[0], topic)

    def _manifest(self, location: Location) -> Path:
        return self.folder / "migration" / location.uuid / "kafka" / location.topic / str(location.revision)


def read_bounds(line: wire.BrokerLine, topic: str) -> dict[int, tuple[int, int]]:
    """Return the first offset and the end of every partition; nothing for a topic that does not exist."""
    request = wire.REQUESTS[wire.METADATA]
    asked = request(topics=[request.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    numbers = sorted(each.partition_index for each in line.ask(asked, 9).topics[0].partitions)
    bounds = []
    for time_ in (_EARLIEST, _LATEST):
        rows = _list_offsets(line, topic, numbers, time_) if numbers else {}
        bounds.append(rows)
    return {number: (bounds[0][number], bounds[1][number]) for number in numbers}


def create_topic(line: wire.BrokerLine, topic: str, partitions: int) -> None:
    request = wire.REQUESTS[wire.CREATE_TOPICS].CreatableTopic
    configs = [request.CreatableTopicConfig(name=name, value=value) for name, value in _OPEN.items()]
    row = request(name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=configs)
    asked = wire.REQUESTS[wire.CREATE_TOPICS](topics=[row], timeout_ms=30_000, validate_only=False)
    _check(line.ask(asked, 5).topics[0], topic)
    for _ in range(_TRIES):
        with suppress(KeyError, AssertionError):
            if len(read_bounds(line, topic)) == partitions:
                return
        time.sleep(_PAUSE_SECONDS)
    raise TimeoutError(f"{topic} does not become known")


def delete_topics(line: wire.BrokerLine, topics: list[str]) -> None:
    line.ask(wire.REQUESTS[wire.DELETE_TOPICS](topic_names=topics, timeout_ms=30_000), 4)


def _list_offsets(line: wire.BrokerLine, topic: str, partitions: list[int], timestamp: int) -> dict[int, int]:
    request = wire.REQUESTS[2]
    part = request.ListOffsetsTopic.ListOffsetsPartition
    parts = [part(partition_index=each, timestamp=timestamp) for each in partitions]
    topics = [request.ListOffsetsTopic(name=topic, partitions=parts)]
    answer = line.ask(request(replica_id=-1, isolation_level=0, topics=topics), 4).topics[0]
    return {_check(each, topic).partition_index: each.offset for each in answer.partitions}


def _read_configs(line: wire.BrokerLine, topic: str) -> dict[str, str]:
    """Return the configs that were set."""
    request = wire.REQUESTS[wire.DESCRIBE_CONFIGS]
    resource = request.DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=None)
    answer = line.ask(request(resources=[resource]), 4).results[0]
    return {each.name: each.value for each in answer.configs if each.config_source == 1}


def _read_log(line: wire.BrokerLine, topic: str, partition: int, start: int, end: int) -> bytes:
    request, batches = wire.REQUESTS[wire.FETCH], []
    while start < end:
        part = request.FetchTopic.FetchPartition(partition=partition, fetch_offset=start, partition_max_bytes=_CHUNK)
        topics = [request.FetchTopic(topic=topic, partitions=[part])]
        asked = request(max_wait_ms=100, min_bytes=1, max_bytes=_CHUNK, topics=topics)
        answer = _check(line.ask(asked, 11).responses[0].partitions[0], topic)
        new = [each for each in _Batch.split(bytes(answer.records or b"")) if each.base < end]
        if not new:
            break
        batches += [each.content for each in new]
        start = new[-1].end
    return b"".join(batches)


def _write_log(line: wire.BrokerLine, topic: str, partition: int, batches: list[_Batch], start: int, end: int) -> None:
    offset = _fill(line, topic, partition, batches[0].base if batches else end)
    for batch in _visible(batches):
        offset = _skip(line, (topic, partition), offset, batch.base)
        if not batch.is_dense:
            raise StoppedError(f"{topic}/{partition}: offsets are missing inside the batch at {batch.base}")
        is_plain = not batch.attributes & _TRANSACTIONAL
        _produce(line, topic, partition, batch.content if is_plain else batch.without_producer())
        offset = batch.end
    _skip(line, (topic, partition), offset, end)
    if start:
        request = wire.REQUESTS[21]
        part = request.DeleteRecordsTopic.DeleteRecordsPartition(partition_index=partition, offset=start)
        topics = [request.DeleteRecordsTopic(name=topic, partitions=[part])]
        answer = line.ask(request(topics=topics, timeout_ms=30_000), 1)
        _check(answer.topics[0].partitions[0], topic)


def _visible(batches: list[_Batch]) -> list[_Batch]:
    """Return the batches without markers and aborted records."""
    kept: list[_Batch] = []
    opened: dict[int, list[_Batch]] = {}
    for batch in batches:
        if batch.attributes & _CONTROL:
            kept += opened.pop(batch.producer, []) if batch.commits else opened.pop(batch.producer, [])[:0]
        elif batch.attributes & _TRANSACTIONAL:
            opened.setdefault(batch.producer, []).append(batch)
        else:
            kept.append(batch)
    return sorted(kept, key=lambda batch: batch.base)


def _fill(line: wire.BrokerLine, topic: str, partition: int, end: int) -> int:
    """Write records that are deleted afterwards, so that the next one gets the offset `end`."""
    for start in range(0, end, _FILLED):
        batch = DefaultRecordBatchBuilder(
            magic=2, compression_type=1, is_transactional=False, producer_id=-1, producer_epoch=-1, base_sequence=-1,
            batch_size=1 << 30,
        )  # fmt: skip
        for number in range(min(_FILLED, end - start)):
            batch.append(number, int(time.time() * 1000), b"", b"", [])
        _produce(line, topic, partition, bytes(batch.build()))
    return end


def _skip(line: wire.BrokerLine, place: tuple[str, int], offset: int, end: int) -> int:
    """Fill a gap with markers of empty transactions, which no consumer sees."""
    if end - offset > _LARGEST_GAP:
        raise StoppedError(
            f"{place[0]}/{place[1]}: a gap of {end - offset} offsets at {offset} is too large to be filled"
        )
    if offset < end:
        name = f"fill-{place[0]}-{place[1]}"
        producer = _retry(line, wire.REQUESTS[22](transactional_id=name, transaction_timeout_ms=60_000), 2)
    for position in range(offset, end):
        request = wire.REQUESTS[24]
        ids = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        named = {f"v3_and_below_{key}": value for key, value in {"transactional_id": name, **ids}.items()}
        topic = request.AddPartitionsToTxnTopic(name=place[0], partitions=[place[1]])
        _retry(line, request(**named, v3_and_below_topics=[topic]), 3)
        _retry(line, wire.REQUESTS[26](transactional_id=name, **ids, committed=True), 3)
        for _ in range(_TRIES):
            if _list_offsets(line, place[0], [place[1]], _LATEST)[place[1]] > position:
                break
            time.sleep(_PAUSE_SECONDS)
    return end


def _retry(line: wire.BrokerLine, request: Any, version: int) -> Any:
    for _ in range(_TRIES):
        answer = line.ask(request, version)
        code = answer.error_code or next(
            (row.partition_error_code for topic in getattr(answer, "results_by_topic_v3_and_below", ())
             for row in topic.results_by_partition), 0)  # fmt: skip
        if code not in _BUSY:
            assert not code, answer
            return answer
        time.sleep(_PAUSE_SECONDS)
    raise TimeoutError(f"{request} is still refused: {answer}")


def _produce(line: wire.BrokerLine, topic: str, partition: int, batch: bytes) -> None:
    request = wire.REQUESTS[wire.PRODUCE].TopicProduceData
    data = request.PartitionProduceData(index=partition, records=batch)
    row = request(name=topic, partition_data=[data])
    asked = wire.REQUESTS[wire.PRODUCE](acks=-1, timeout_ms=30_000, topic_data=[row])
    _check(line.ask(asked, 7).responses[0].partition_responses[0], topic)


def _check(row: Any, topic: str) -> Any:
    assert not row.error_code, f"{topic}: {row}"
    return row
