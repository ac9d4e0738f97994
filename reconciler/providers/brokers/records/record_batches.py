"""Record batches of the Kafka protocol.

They carry records that librdkafka cannot handle: with time 0, or header names with byte 0 or not in UTF-8.
"""

from __future__ import annotations

import atexit
import os
import pickle
import struct
import threading
import zlib
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import pyarrow as pa
import xxhash

from reconciler.errors import RetryableError
from reconciler.providers.brokers.client import ABSENT, UNAUTHORIZED, KafkaClient
from reconciler.providers.brokers.faults import translate_code
from reconciler.providers.brokers.security import to_admin_settings
from reconciler.runtime.retry import pause

if TYPE_CHECKING:
    from reconciler.records.log import Isolation

# Only processes with such records import the client library.
# ruff: noqa: PLC0415


_opened: Final[dict[tuple[int, str, bytes], KafkaClient]] = {}
_opening: Final = threading.Lock()


def open_connection(settings: Mapping[str, Any], cluster: str) -> KafkaClient:
    """Return this process's connection for picklable settings of kafka-python."""
    key = (os.getpid(), cluster, pickle.dumps(dict(settings)))
    with _opening:
        if key not in _opened:
            _opened[key] = KafkaClient(cluster, lambda: settings)
        return _opened[key]


def close_connections() -> None:
    """Close this process's connections. The next request opens them again."""
    with _opening:
        for key in list(_opened):
            client = _opened.pop(key)
            if key[0] == os.getpid():
                client.close()


atexit.register(close_connections)


RawHeaders = list[tuple[bytes, bytes | None]]
Header = tuple[str | bytes, bytes | None]
"""Name and value. Names that a client cannot represent as text are bytes."""
Headers = list[Header] | None
Row = tuple[bytes | None, bytes | None, int, Headers, int]
"""Value, key, time, headers, and (ignored) source offset."""

PREFIX: Final = struct.Struct(">qiibI")
"""First part of a batch header: first offset, remaining length, leader epoch, format, checksum."""
REST: Final = struct.Struct(">hiqqqhii")
"""Rest of the header: attributes, last offset delta, times, producer id, epoch, sequence, record count."""
LENGTH_END: Final = 12
FORMAT: Final = 2
COMPRESSION: Final = 0x07
APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
HORIZON: Final = 0x40
"""Attribute of a compacted batch whose first time is its delete horizon."""
CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
CODEC_NAMES: Final = {number: name for name, number in CODECS.items()}
_MORE: Final = 0x80
"""Bit set in every byte of a varint except the last."""
_NULL: Final = b"\x01"
_MARKER: Final = struct.Struct(">hh")
"""Key of a marker: version, and type of the transaction's end."""
_ABORT: Final = 0

_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_VERSIONS: Final = struct.pack(">ii", 1, 1)
_BLOCK_BYTES: Final = 64 << 10
_LZ4_FRAME: Final = b"\x04\x22\x4d\x18"
_LZ4_SETTINGS: Final = b"\x60\x40"
_LZ4_PLAIN: Final = 1 << 31


class BatchHead(NamedTuple):
    """Header of a batch, and its position in a response."""

    begin: int
    end: int
    form: int
    first: int
    last: int
    """Last offset. Compaction may have removed its record."""
    records: int
    attributes: int
    first_ms: int
    newest_ms: int
    is_readable: bool
    """False for markers and aborted batches, which consumers do not get."""

    @property
    def through(self) -> int:
        """Offset after the last record."""
        return self.last + 1

    @property
    def codec(self) -> str | None:
        """Compression of the records; `None` if unknown."""
        return CODEC_NAMES.get(self.attributes & COMPRESSION)

    def has_only_attributes(self, attributes: int) -> bool:
        """Return whether the batch has the current format, a known codec, and only these attributes."""
        return self.form == FORMAT and not self.attributes & ~attributes and self.codec is not None

    def decompress_records(self, fetched: bytes) -> bytes:
        """Return the batch's decompressed records from the response."""
        return _decompress(fetched[self.content_begin : self.end], self.codec or "none")

    @property
    def content_begin(self) -> int:
        """Position of the records in the response."""
        return self.begin + PREFIX.size + REST.size


class FetchReply(NamedTuple):
    """Part of a fetch response for one partition."""

    batches: bytes
    """Batches as stored by the broker. The last one may be truncated."""
    aborted: Sequence[tuple[int, int]] = ()


def parse_heads(answer: FetchReply) -> Iterator[BatchHead]:
    """Yield the headers of a response's batches, without a truncated last batch."""
    fetched, at = answer.batches, 0
    coming = deque(sorted(answer.aborted, key=itemgetter(1)))
    aborting: set[int] = set()
    while at + PREFIX.size + REST.size <= len(fetched):
        first, length, _, form, _ = PREFIX.unpack_from(fetched, at)
        end = at + LENGTH_END + length
        if length <= 0 or end > len(fetched):
            return
        attributes, last, first_ms, newest_ms, producer, _, _, records = REST.unpack_from(fetched, at + PREFIX.size)
        while coming and coming[0][1] <= first + last:
            aborting.add(coming.popleft()[0])
        is_marker = form == FORMAT and bool(attributes & CONTROL)
        is_aborted = form == FORMAT and bool(attributes & TRANSACTIONAL) and producer in aborting
        is_readable = not is_marker and not is_aborted
        if is_marker and records:  # Compaction may empty a marker. An empty marker ends no transaction.
            try:
                if _is_abort(fetched[at + PREFIX.size + REST.size : end]):
                    aborting.discard(producer)
            except (IndexError, struct.error):
                # The marker is damaged, so it is unknown which later batches are aborted.
                return
        yield BatchHead(at, end, form, first, first + last, records, attributes, first_ms, newest_ms, is_readable)
        at = end


def _is_abort(marker: bytes) -> bool:
    at = length = 0
    for number in range(4):  # Before the key are length, attributes (one byte), time, offset and key length.
        length, at = _read_number(marker, at + (number == 1))
    if length < _MARKER.size:
        raise IndexError
    return bool(_MARKER.unpack_from(marker, at)[1] == _ABORT)


class DecompressedBatch(NamedTuple):
    """Batch of records, decompressed."""

    first: int
    records: int
    content: bytes


def parse_batches(answer: FetchReply) -> Iterator[DecompressedBatch]:
    """Yield a response's batches. Old formats, which have no headers, are omitted."""
    for head in parse_heads(answer):
        if head.form == FORMAT:
            yield DecompressedBatch(head.first, head.records, head.decompress_records(answer.batches))


def parse_headers(batch: DecompressedBatch) -> Iterator[tuple[int, RawHeaders]]:
    """Yield each record's offset and headers."""
    at, content = 0, batch.content
    for _ in range(batch.records):
        length, at = _read_number(content, at)
        end = at + length
        _, at = _read_number(content, at + 1)
        offset, at = _read_number(content, at)
        for _ in range(2):
            length, at = _read_number(content, at)
            at += max(0, length)
        count, at = _read_number(content, at)
        headers: RawHeaders = []
        for _ in range(count):
            name, at = _read_bytes(content, at)
            value, at = _read_bytes(content, at)
            headers.append((name or b"", value))
        yield batch.first + offset, headers
        at = end


def _read_bytes(content: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _read_number(content, at)
    return (None, at) if length < 0 else (content[at : at + length], at + length)


def _read_number(content: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if not byte & _MORE:
            return (number >> 1) ^ -(number & 1), at
        shift += 7


class ProducerId(NamedTuple):
    """Ids by which brokers detect duplicates."""

    id: int
    epoch: int
    transactional_id: str | None = None


def pack_batch(rows: Sequence[Row], producer: ProducerId, number: int, *, codec: str) -> bytes:
    """Return records as one batch; `number` is the first record's sequence number."""
    from kafka.record.util import calc_crc32c

    first = rows[0][2]
    content = b"".join(_pack_record(row, at, first) for at, row in enumerate(rows))
    attributes = CODECS[codec] | (0 if producer.transactional_id is None else TRANSACTIONAL)
    last = max(row[2] for row in rows)
    rest = REST.pack(
        attributes, len(rows) - 1, first, last, producer.id, producer.epoch, number & 0x7FFFFFFF, len(rows)
    )
    body = rest + _compress(content, codec)
    length = PREFIX.size - LENGTH_END + len(body)
    return PREFIX.pack(0, length, -1, FORMAT, calc_crc32c(body)) + body


def estimate_row_size(row: Row) -> int:
    """Return a record's estimated size in bytes."""
    headers = sum(len(name) + len(value or b"") + 4 for name, value in row[3] or ())
    return len(row[0] or b"") + len(row[1] or b"") + headers + 20


def _pack_record(row: Row, at: int, first: int) -> bytes:
    value, key, time, headers, _ = row
    parts = [b"\0", _pack_number(time - first), _pack_number(at), _pack_bytes(key), _pack_bytes(value)]
    parts.append(_pack_number(len(headers or ())))
    for name, content in headers or ():
        parts += _pack_bytes(name if isinstance(name, bytes) else name.encode()), _pack_bytes(content)
    body = b"".join(parts)
    return _pack_number(len(body)) + body


def _pack_bytes(content: bytes | None) -> bytes:
    return _NULL if content is None else _pack_number(len(content)) + content


def _pack_number(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    packed_bytes = bytearray()
    while rest >= _MORE:
        packed_bytes.append(rest & 0x7F | _MORE)
        rest >>= 7
    packed_bytes.append(rest)
    return bytes(packed_bytes)


def _compress(content: bytes, codec: str) -> bytes:
    blocks = (content[at : at + _BLOCK_BYTES] for at in range(0, len(content), _BLOCK_BYTES))
    if codec == "gzip":
        return zlib.compress(content, 1, wbits=31)
    if codec == "zstd":
        return bytes(pa.compress(content, codec="zstd", asbytes=True))
    if codec == "snappy":
        compressed = (pa.compress(block, codec="snappy", asbytes=True) for block in blocks)
        return _XERIAL + _XERIAL_VERSIONS + b"".join(len(block).to_bytes(4, "big") + block for block in compressed)
    if codec == "lz4":
        checksum = xxhash.xxh32_intdigest(_LZ4_SETTINGS) >> 8 & 0xFF
        return _LZ4_FRAME + _LZ4_SETTINGS + bytes([checksum]) + b"".join(map(_compress_lz4_block, blocks)) + bytes(4)
    return content


def _compress_lz4_block(block: bytes) -> bytes:
    compressed = bytes(pa.compress(block, codec="lz4_raw", asbytes=True))
    if len(compressed) >= len(block):
        return (len(block) | _LZ4_PLAIN).to_bytes(4, "little") + block
    return len(compressed).to_bytes(4, "little") + compressed


def _decompress(content: bytes, codec: str) -> bytes:
    if codec == "none":
        return content
    if codec == "snappy":
        return b"".join(_decompress_snappy_block(block) for block in _split_snappy_blocks(content))
    if codec == "gzip":
        return zlib.decompress(content, wbits=31)
    with pa.CompressedInputStream(pa.BufferReader(content), codec) as stream:
        return bytes(stream.read())


def _split_snappy_blocks(content: bytes) -> Iterator[bytes]:
    if not content.startswith(_XERIAL):
        yield content
        return
    at = len(_XERIAL) + len(_XERIAL_VERSIONS)
    while at < len(content):
        length = int.from_bytes(content[at : at + 4], "big")
        yield content[at + 4 : at + 4 + length]
        at += 4 + length


def _decompress_snappy_block(block: bytes) -> bytes:
    size = shift = 0
    for byte in block:
        size |= (byte & 0x7F) << shift
        if not byte & _MORE:
            break
        shift += 7
    return bytes(pa.decompress(block, decompressed_size=size, codec="snappy", asbytes=True))


T = TypeVar("T")

_FETCH_BYTES: Final = 8 << 20
_FETCH_VERSIONS: Final = (4, 12)
"""Version 13 and later identify topics by id."""
_WAIT_MS: Final = 500
_NO_WAIT_MS: Final = 5
_MOVED: Final = frozenset({3, 5, 6, 7, 9, 13, 19, 20, 56, 74, 75, 78})
_GONE: Final = 1
"""Error code OFFSET_OUT_OF_RANGE."""
SILENCE_S: Final = 60.0
PROPAGATION_S: Final = 30.0
"""Seconds until all brokers know a new topic. A topic still unknown then counts as deleted."""
_PAUSE_S: Final = 0.1
_THROTTLED_S: Final = 600.0
"""Maximum wait in seconds for a quota, possibly shared with other clients."""


def retry_until_answered(
    ask: Callable[[], T], code: Callable[[T], int], again: Collection[int], forget: Callable[[], None]
) -> T:
    """Repeat a request while its error code is in `again`. Calls `forget` before each retry."""
    until = monotonic() + SILENCE_S
    while True:
        try:
            answer = ask()
        except RetryableError:
            if monotonic() > until:
                raise
        else:
            if code(answer) not in again or monotonic() > until:
                return answer
        forget()
        pause(_PAUSE_S)


class LeaderConnection:
    """Connection to a partition's leader, also after leader changes."""

    def __init__(
        self, settings: Mapping[str, Any], cluster: str, topic: str, partition: int, *, is_sent_once: bool = False
    ) -> None:
        """Accept settings of confluent-kafka. `is_sent_once` disables retries."""
        self.client: KafkaClient = open_connection(to_admin_settings(settings), cluster)
        self.topic, self.partition = topic, partition
        self._node: int | None = None
        self._missed_since: float | None = None
        self.wait_ms = _NO_WAIT_MS if is_sent_once else _WAIT_MS
        self._is_sent_once = is_sent_once

    def send(self, request: Any, answer: Callable[[Any], Any], *, doing: str, fine: Collection[int] = ()) -> Any:
        """Send an idempotent request, and return the part of the response that `answer` extracts.

        The caller handles error codes in `fine`.
        """

        def ask() -> Any:
            until = monotonic() + _THROTTLED_S
            while not (partition_answer := self._send(request, doing=doing, node=self._find_leader())).responses:
                # A response without partitions means that the client exceeds its quota.
                if self._is_sent_once or monotonic() > until:
                    message = f"cluster {self.client.name}: {doing}: the broker throttles this client and sends nothing"
                    raise RetryableError(message, hint="See its quotas: kafka-configs.sh --describe.")
                pause(_PAUSE_S)
            return answer(partition_answer)

        is_once = self._is_sent_once
        partition_answer = (
            ask()
            if is_once
            else retry_until_answered(
                ask, lambda partition_answer: int(partition_answer.error_code), _MOVED, self._forget_leader
            )
        )
        if partition_answer.error_code and partition_answer.error_code not in fine:
            detail = getattr(partition_answer, "error_message", None) or ""
            raise translate_code(partition_answer.error_code, detail, what=f"cluster {self.client.name}: {doing}")
        return partition_answer

    def _send(self, request: Any, *, doing: str, node: int | None = None) -> Any:
        return self.client.send(request, doing=doing, node=node, is_only_once=self._is_sent_once)

    def _forget_leader(self) -> None:
        self._node = None

    def _find_leader(self) -> int:
        from kafka.protocol.metadata import MetadataRequest

        if self._node is None:
            wanted = [MetadataRequest.MetadataRequestTopic(name=self.topic)]
            request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, max_version=9)
            metadata = self._send(request, doing=f"looking who leads {self.topic}")
            (topic,) = metadata.topics
            self._check_exists(topic.error_code)
            node = {description.partition_index: description.leader_id for description in topic.partitions}.get(
                self.partition, -1
            )
            if node < 0:
                where = f"cluster {self.client.name}: {self.topic}, partition {self.partition}"
                raise RetryableError(f"{where}: it has no leader", hint="See whether its brokers are alive.")
            update_brokers(self.client, metadata)
            self._node = node
        return self._node

    def _check_exists(self, code: int) -> None:
        """Reject a deleted or hidden topic, whose leader would be awaited forever."""
        if code not in ABSENT:
            self._missed_since = None
        elif self._missed_since is None:
            self._missed_since = monotonic()
        is_gone = self._missed_since is not None and monotonic() - self._missed_since > PROPAGATION_S
        if is_gone or code == UNAUTHORIZED:
            raise translate_code(code, "", what=f"topic {self.topic} of cluster {self.client.name}")


def update_brokers(client: KafkaClient, metadata: Any) -> None:
    """Add the brokers in `metadata` to a connection, which knows no others."""
    client.admin._manager.cluster.update_metadata(metadata)  # noqa: SLF001 - the library has no public way


class HeaderReader:
    """Reader of a partition's record headers as bytes, in order of offsets."""

    def __init__(self, leader: LeaderConnection) -> None:
        self._leader = leader
        self._by_offset: dict[int, RawHeaders] = {}

    def read_headers(self, offset: int) -> RawHeaders:
        """Return the headers of the record at an offset."""
        if offset not in self._by_offset:
            self._by_offset = {}
            for batch in parse_batches(fetch_batches(self._leader, offset)):
                self._by_offset.update(parse_headers(batch))
        if offset not in self._by_offset:
            message = f"{self._leader.topic}, partition {self._leader.partition}: offset {offset:,} no longer exists"
            raise RetryableError(message, hint="It was removed while it was read. Run the same command again.")
        return self._by_offset[offset]


def fetch_batches(leader: LeaderConnection, offset: int, isolation: Isolation = "read_uncommitted") -> FetchReply:
    """Return some MiB of stored batches from an offset on; none if it is outside the log.

    `read_committed` ends before open transactions. Batches of aborted transactions are included and listed.
    """
    from kafka.protocol.consumer import FetchRequest

    topic = FetchRequest.FetchTopic
    wanted = topic.FetchPartition(partition=leader.partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
    request = FetchRequest(
        max_wait_ms=leader.wait_ms,
        min_bytes=1,
        max_bytes=_FETCH_BYTES,
        isolation_level=int(isolation == "read_committed"),
        topics=[topic(topic=leader.topic, partitions=[wanted])],
        min_version=_FETCH_VERSIONS[0],
        max_version=_FETCH_VERSIONS[1],
    )
    doing = f"reading {leader.topic}, partition {leader.partition}"
    response = leader.send(request, lambda answer: answer.responses[0].partitions[0], doing=doing, fine={_GONE})
    aborted = [
        (transaction.producer_id, transaction.first_offset) for transaction in response.aborted_transactions or ()
    ]
    return FetchReply(bytes(response.records or b""), aborted)


_BATCH_BYTES: Final = 1_000_000
_OVERHEAD: Final = 1_024
_TIMEOUT_MS: Final = 30_000
_VERSIONS: Final = (3, 11)
"""Version 12 opens transactions, version 13 identifies topics by id."""
_WRITE_CODECS: Final = {"producer": "gzip", "uncompressed": "none"}
"""Codecs, which all clients read, for topics whose compression type is no codec."""
_STORED_CODECS: Final = {"uncompressed": "none"}
_LOADING: Final = frozenset({14, 15, 16})


class _PackOptions(NamedTuple):
    """Options for batches that brokers store unchanged. Recompression would alter names that are not UTF-8."""

    codec: str
    batch_bytes: int
    stored_codec: str | None
    """Codec that brokers store unchanged; `None` means any."""
    max_bytes: int


class BatchWriter:
    """Idempotent producer of record batches, sent one at a time."""

    def __init__(self, settings: Mapping[str, Any], cluster: str, producer: ProducerId | None = None) -> None:
        """Accept settings of confluent-kafka. A producer id is requested unless `producer` is given."""
        self._settings, self._cluster = settings, cluster
        self._client = open_connection(to_admin_settings(settings), cluster)
        self._producer = producer or _request_producer(self._client)
        self._next_sequences: Counter[tuple[str, int]] = Counter()
        self._leaders: dict[tuple[str, int], LeaderConnection] = {}
        self._options_by_topic: dict[str, _PackOptions] = {}

    def write(self, topic: str, partition: int, rows: Sequence[Row]) -> list[int]:
        """Write records to a partition and return their offsets.

        Raises:
            ReconcilerError: Brokers reject records or do not respond; some may be written.
        """
        options = self._read_options(topic)
        offsets: list[int] = []
        for some in _split_rows(rows, options.batch_bytes):
            pack = partial(pack_batch, some, codec=options.codec)
            offsets += self.send_batch(topic, partition, pack, len(some))
        return offsets

    def stores_unchanged(self, topic: str, codec: str, size: int) -> bool:
        """Return whether brokers store a batch of this codec and size unchanged."""
        options = self._read_options(topic)
        return options.stored_codec in {None, codec} and size <= options.max_bytes

    def send_batch(self, topic: str, partition: int, pack: Callable[[ProducerId, int], bytes], records: int) -> range:
        """Send one batch and return its records' offsets.

        `pack` builds it from the producer and sequence number.
        """
        from kafka.protocol.producer import ProduceRequest

        place = (topic, partition)
        leader = self._leaders.setdefault(place, LeaderConnection(self._settings, self._cluster, topic, partition))
        topic_data = ProduceRequest.TopicProduceData
        content = pack(self._producer, self._next_sequences[place])
        data = topic_data.PartitionProduceData(index=partition, records=content)
        request = ProduceRequest(
            transactional_id=self._producer.transactional_id,
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[topic_data(name=topic, partition_data=[data])],
            min_version=_VERSIONS[0],
            max_version=_VERSIONS[1],
        )
        doing = f"writing to {topic}, partition {partition}"
        response = leader.send(request, lambda answer: answer.responses[0].partition_responses[0], doing=doing)
        self._next_sequences[place] += records
        return range(response.base_offset, response.base_offset + records)

    def _read_options(self, topic: str) -> _PackOptions:
        if topic not in self._options_by_topic:
            ((_, configs),) = self._client.read_configs([topic], ["compression.type", "max.message.bytes"])
            values = {} if isinstance(configs, int) else {name: config.value for name, config in configs.items()}
            topic_codec = values.get("compression.type") or "producer"
            most = int(values.get("max.message.bytes") or _BATCH_BYTES)
            size = max(1, min(_BATCH_BYTES, most - _OVERHEAD))
            stored_codec = None if topic_codec == "producer" else _STORED_CODECS.get(topic_codec, topic_codec)
            self._options_by_topic[topic] = _PackOptions(
                _WRITE_CODECS.get(topic_codec, topic_codec), size, stored_codec, most
            )
        return self._options_by_topic[topic]


def _request_producer(client: KafkaClient) -> ProducerId:
    from kafka.protocol.producer import InitProducerIdRequest

    doing = "asking for a producer id"
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0, max_version=4)
    response = retry_until_answered(
        lambda: client.send(request, doing=doing), lambda response: int(response.error_code), _LOADING, lambda: None
    )
    if response.error_code:
        raise translate_code(response.error_code, "", what=f"cluster {client.name}: {doing}")
    return ProducerId(response.producer_id, response.producer_epoch)


def _split_rows(rows: Sequence[Row], most: int) -> Iterator[Sequence[Row]]:
    begin = size = 0
    for at, row in enumerate(rows):
        size_of_row = estimate_row_size(row)
        if at > begin and size + size_of_row > most:
            yield rows[begin:at]
            begin, size = at, 0
        size += size_of_row
    if begin < len(rows):
        yield rows[begin:]
