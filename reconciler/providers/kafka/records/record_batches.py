"""Record batches of the Kafka protocol, for records that librdkafka cannot handle."""

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
from reconciler.providers.kafka.client import ABSENT, UNAUTHORIZED, KafkaClient
from reconciler.providers.kafka.faults import of_code
from reconciler.providers.kafka.security import as_admin
from reconciler.runtime.retry import pause

if TYPE_CHECKING:
    from reconciler.records.log import Isolation

# A process that meets no such record imports no client.
# ruff: noqa: PLC0415


_opened: Final[dict[tuple[int, str, bytes], KafkaClient]] = {}
_opening: Final = threading.Lock()


def asking(settings: Mapping[str, Any], cluster: str) -> KafkaClient:
    """Return the connection of this process, over settings of kafka-python that have travelled."""
    key = (os.getpid(), cluster, pickle.dumps(dict(settings)))
    with _opening:
        if key not in _opened:
            _opened[key] = KafkaClient(cluster, lambda: settings)
        return _opened[key]


def close_connections() -> None:
    """Close what this process has open. Another question opens it again."""
    with _opening:
        for key in list(_opened):
            client = _opened.pop(key)
            if key[0] == os.getpid():
                client.close()


atexit.register(close_connections)


# Batches of records as the protocol has them: read, and packed.
#
# librdkafka hands on a header's name as a C string, which Python decodes: a name that is not UTF-8 cannot be read
# through it, one with a byte 0 not be written, nor a record of time 0, which it takes for now. Those go as batches that
# are read and packed here.


RawHeaders = list[tuple[bytes, bytes | None]]
Header = tuple[str | bytes, bytes | None]
"""A name is bytes where a client cannot have it as text."""
Headers = list[Header] | None
Row = tuple[bytes | None, bytes | None, int, Headers, int]
"""Value, key, time, headers, and a number that does not matter here: the offset where it came from."""

PREFIX: Final = struct.Struct(">qiibI")
"""Of a batch: its first offset, its length from here on, the leader's epoch, the format, a checksum."""
REST: Final = struct.Struct(">hiqqqhii")
"""What follows: attributes, last offset, first and last time, producer, its epoch, its number, count of records."""
LENGTH_END: Final = 12
FORMAT: Final = 2
COMPRESSION: Final = 0x07
APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
"""Of a batch of one marker, which ends a transaction."""
HORIZON: Final = 0x40
"""Of a compacted batch: its first time is when its deletions go, and the times of its records count from there."""
CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
CODEC_NAMES: Final = {number: name for name, number in CODECS.items()}
_MORE: Final = 0x80
"""Set in every byte of a number but its last."""
_NULL: Final = b"\x01"
"""The length -1."""
_MARKER: Final = struct.Struct(">hh")
"""The key of a marker: its version, and how the transaction ended."""
_ABORT: Final = 0
"""Of such an end, where another number is a transaction that counts, or no end."""

_XERIAL: Final = b"\x82SNAPPY\x00"
"""How Java's client begins what is compressed by Snappy, in blocks."""
_XERIAL_VERSIONS: Final = struct.pack(">ii", 1, 1)
_BLOCK_BYTES: Final = 64 << 10
_LZ4_FRAME: Final = b"\x04\x22\x4d\x18"
_LZ4_SETTINGS: Final = b"\x60\x40"
"""Blocks that do not depend on each other, as brokers demand it, of 64 KiB."""
_LZ4_PLAIN: Final = 1 << 31
"""Set in the length of a block that is not compressed."""


class BatchHead(NamedTuple):
    """What the head of a batch says, and where the batch lies in an answer."""

    begin: int
    end: int
    form: int
    first: int
    last: int
    """Offsets; compaction may have removed records between them, and these two as well."""
    records: int
    attributes: int
    first_ms: int
    newest_ms: int
    counts: bool
    """False for a marker and for a batch of an aborted transaction: consumers do not get their records."""

    @property
    def through(self) -> int:
        """The offset after its last one."""
        return self.last + 1

    @property
    def codec(self) -> str | None:
        """What its records are compressed by; `None` where that is none we know."""
        return CODEC_NAMES.get(self.attributes & COMPRESSION)

    def has_only(self, attributes: int) -> bool:
        """Tell whether it has no other attributes than these, a format with headers, and a codec we know."""
        return self.form == FORMAT and not self.attributes & ~attributes and self.codec is not None

    def content_in(self, fetched: bytes) -> bytes:
        """Return its records, no longer compressed; the codec is one we know."""
        return _plain(fetched[self.content_begin : self.end], self.codec or "none")

    @property
    def content_begin(self) -> int:
        """Where its records begin in the answer."""
        return self.begin + PREFIX.size + REST.size


class Answer(NamedTuple):
    """What a broker sends of a partition."""

    batches: bytes
    """As the broker keeps them; the last one may be cut off."""
    aborted: Sequence[tuple[int, int]] = ()
    """Transactions of which some of the records do not count: the producer, and the offset of the first."""


def heads_in(answer: Answer) -> Iterator[BatchHead]:
    """Yield the heads of an answer's batches, of any format; what is cut off at the end is left out."""
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
        counts = not is_marker and not is_aborted
        if is_marker and records:  # Compaction empties markers; such a one ends nothing.
            try:
                if _is_abort(fetched[at + PREFIX.size + REST.size : end]):
                    aborting.discard(producer)
            except (IndexError, struct.error):  # damaged, and with it what would be known of those behind it
                return
        yield BatchHead(at, end, form, first, first + last, records, attributes, first_ms, newest_ms, counts)
        at = end


def _is_abort(marker: bytes) -> bool:
    """Tell whether a marker ends a transaction that was aborted. Its one record is never compressed."""
    at = length = 0
    for number in range(4):  # the length, the time, the offset, the length of the key; attributes take one byte
        length, at = _number(marker, at + (number == 1))
    if length < _MARKER.size:
        raise IndexError
    return bool(_MARKER.unpack_from(marker, at)[1] == _ABORT)


class Batch(NamedTuple):
    """A batch of records."""

    first: int
    records: int
    content: bytes
    """The records, not compressed."""


def batches_in(answer: Answer) -> Iterator[Batch]:
    """Yield the batches of an answer; what is older than headers is left out."""
    for head in heads_in(answer):
        if head.form == FORMAT:
            yield Batch(head.first, head.records, head.content_in(answer.batches))


def headers_in(batch: Batch) -> Iterator[tuple[int, RawHeaders]]:
    """Yield the headers of each record with its offset."""
    at, content = 0, batch.content
    for _ in range(batch.records):
        length, at = _number(content, at)
        end = at + length
        _, at = _number(content, at + 1)  # its time
        offset, at = _number(content, at)
        for _ in range(2):  # its key and its value
            length, at = _number(content, at)
            at += max(0, length)
        count, at = _number(content, at)
        headers: RawHeaders = []
        for _ in range(count):
            name, at = _bytes(content, at)
            value, at = _bytes(content, at)
            headers.append((name or b"", value))
        yield batch.first + offset, headers
        at = end


def _bytes(content: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _number(content, at)
    return (None, at) if length < 0 else (content[at : at + length], at + length)


def _number(content: bytes, at: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, the lowest first, and where it ends."""
    found = shift = 0
    while True:
        byte = content[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if not byte & _MORE:
            return (found >> 1) ^ -(found & 1), at
        shift += 7


class Producer(NamedTuple):
    """Who writes: what brokers know a batch by that comes twice."""

    id: int
    epoch: int
    transactional_id: str | None = None


def packed(rows: Sequence[Row], producer: Producer, number: int, *, codec: str) -> bytes:
    """Return records as one batch; `number` counts the records of this producer in this partition before it."""
    from kafka.record.util import calc_crc32c

    first = rows[0][2]
    content = b"".join(_record(row, at, first) for at, row in enumerate(rows))
    attributes = CODECS[codec] | (0 if producer.transactional_id is None else TRANSACTIONAL)
    last = max(row[2] for row in rows)
    rest = REST.pack(
        attributes, len(rows) - 1, first, last, producer.id, producer.epoch, number & 0x7FFFFFFF, len(rows)
    )
    body = rest + _compressed(content, codec)
    length = PREFIX.size - LENGTH_END + len(body)
    return PREFIX.pack(0, length, -1, FORMAT, calc_crc32c(body)) + body


def size_of(row: Row) -> int:
    """Return about what a record takes."""
    headers = sum(len(name) + len(value or b"") + 4 for name, value in row[3] or ())
    return len(row[0] or b"") + len(row[1] or b"") + headers + 20


def _record(row: Row, at: int, first: int) -> bytes:
    value, key, time, headers, _ = row
    parts = [b"\0", _packed_number(time - first), _packed_number(at), _packed_bytes(key), _packed_bytes(value)]
    parts.append(_packed_number(len(headers or ())))
    for name, content in headers or ():
        parts += _packed_bytes(name if isinstance(name, bytes) else name.encode()), _packed_bytes(content)
    body = b"".join(parts)
    return _packed_number(len(body)) + body


def _packed_bytes(content: bytes | None) -> bytes:
    return _NULL if content is None else _packed_number(len(content)) + content


def _packed_number(number: int) -> bytes:
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left >= _MORE:
        found.append(left & 0x7F | _MORE)
        left >>= 7
    found.append(left)
    return bytes(found)


def _compressed(content: bytes, codec: str) -> bytes:
    blocks = (content[at : at + _BLOCK_BYTES] for at in range(0, len(content), _BLOCK_BYTES))
    if codec == "gzip":
        return zlib.compress(content, 1, wbits=31)
    if codec == "zstd":
        return bytes(pa.compress(content, codec="zstd", asbytes=True))
    if codec == "snappy":
        found = (pa.compress(block, codec="snappy", asbytes=True) for block in blocks)
        return _XERIAL + _XERIAL_VERSIONS + b"".join(len(block).to_bytes(4, "big") + block for block in found)
    if codec == "lz4":
        checksum = xxhash.xxh32_intdigest(_LZ4_SETTINGS) >> 8 & 0xFF
        return _LZ4_FRAME + _LZ4_SETTINGS + bytes([checksum]) + b"".join(map(_lz4_block, blocks)) + bytes(4)
    return content


def _lz4_block(block: bytes) -> bytes:
    found = bytes(pa.compress(block, codec="lz4_raw", asbytes=True))
    if len(found) >= len(block):
        return (len(block) | _LZ4_PLAIN).to_bytes(4, "little") + block
    return len(found).to_bytes(4, "little") + found


def _plain(content: bytes, codec: str) -> bytes:
    if codec == "none":
        return content
    if codec == "snappy":
        return b"".join(_snappy(block) for block in _blocks(content))
    if codec == "gzip":
        return zlib.decompress(content, wbits=31)
    with pa.CompressedInputStream(pa.BufferReader(content), codec) as stream:
        return bytes(stream.read())


def _blocks(content: bytes) -> Iterator[bytes]:
    if not content.startswith(_XERIAL):
        yield content
        return
    at = len(_XERIAL) + len(_XERIAL_VERSIONS)
    while at < len(content):
        length = int.from_bytes(content[at : at + 4], "big")
        yield content[at + 4 : at + 4 + length]
        at += 4 + length


def _snappy(block: bytes) -> bytes:
    size = shift = 0
    for byte in block:
        size |= (byte & 0x7F) << shift
        if not byte & _MORE:
            break
        shift += 7
    return bytes(pa.decompress(block, decompressed_size=size, codec="snappy", asbytes=True))


# Requests to leaders for the records that librdkafka cannot read or write, over the other client.


T = TypeVar("T")

_FETCH_BYTES: Final = 8 << 20
_FETCH_VERSIONS: Final = (4, 12)
"""From 13 on topics are named by their ids."""
_WAIT_MS: Final = 500
_NO_WAIT_MS: Final = 5
"""How long brokers wait for records where there are none."""
_MOVED: Final = frozenset({3, 5, 6, 7, 9, 13, 19, 20, 56, 74, 75, 78})
"""Codes of who leads no longer or not yet, has not heard of a topic yet, or has too few followers for the moment."""
_GONE: Final = 1
"""An offset that is not in the log."""
SILENCE_S: Final = 60.0
PROPAGATION_S: Final = 30.0
"""A topic that was just made is known everywhere after that; one that is still unknown is gone."""
_PAUSE_S: Final = 0.1
_THROTTLED_S: Final = 600.0
"""How long a client is waited for that is over its quota: others may share that."""


def until_told(ask: Callable[[], T], code: Callable[[T], int], again: Collection[int], forget: Callable[[], None]) -> T:
    """Return an answer to what may be asked again, once it is not to be asked again; before that, forget who was asked.

    Raises:
        RetryableError: There is no answer.
    """
    until = monotonic() + SILENCE_S
    while True:
        try:
            found = ask()
        except RetryableError:
            if monotonic() > until:
                raise
        else:
            if code(found) not in again or monotonic() > until:
                return found
        forget()
        pause(_PAUSE_S)


class Leader:
    """Who leads one partition; asked over again when that changes."""

    def __init__(
        self, settings: Mapping[str, Any], cluster: str, topic: str, partition: int, *, is_asked_once: bool = False
    ) -> None:
        """Take settings of confluent-kafka, secrets hidden; a connection is made when something is sent.

        `is_asked_once`: a request that fails is not sent again, as the caller has another way to read.
        """
        self.client: KafkaClient = asking(as_admin(settings), cluster)
        self.topic, self.partition = topic, partition
        self._node: int | None = None
        self._missed_since: float | None = None
        self.wait_ms = _NO_WAIT_MS if is_asked_once else _WAIT_MS
        self._is_asked_once = is_asked_once

    def send(self, request: Any, answer: Callable[[Any], Any], *, doing: str, fine: Collection[int] = ()) -> Any:
        """Return what the leader says of the partition, picked from its answer; the request may come twice.

        `fine`: codes that are left to the caller.

        Raises:
            ReconcilerError: It refuses, or nobody leads.
        """

        def ask() -> Any:
            until = monotonic() + _THROTTLED_S
            while not (found := self._sent(request, doing=doing, node=self._known())).responses:
                # So brokers answer who is over a quota. They take the next request when they are ready for it.
                if self._is_asked_once or monotonic() > until:
                    message = f"cluster {self.client.name}: {doing}: the broker throttles this client and sends nothing"
                    raise RetryableError(message, hint="See its quotas: kafka-configs.sh --describe.")
                pause(_PAUSE_S)
            return answer(found)

        is_once = self._is_asked_once
        found = ask() if is_once else until_told(ask, lambda found: int(found.error_code), _MOVED, self._forget)
        if found.error_code and found.error_code not in fine:
            said = getattr(found, "error_message", None) or ""
            raise of_code(found.error_code, said, what=f"cluster {self.client.name}: {doing}")
        return found

    def _sent(self, request: Any, *, doing: str, node: int | None = None) -> Any:
        return self.client.send(request, doing=doing, node=node, is_only_once=self._is_asked_once)

    def _forget(self) -> None:
        self._node = None

    def _known(self) -> int:
        from kafka.protocol.metadata import MetadataRequest

        if self._node is None:
            wanted = [MetadataRequest.MetadataRequestTopic(name=self.topic)]
            request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, max_version=9)
            found = self._sent(request, doing=f"looking who leads {self.topic}")
            (topic,) = found.topics
            self._check_there(topic.error_code)
            node = {each.partition_index: each.leader_id for each in topic.partitions}.get(self.partition, -1)
            if node < 0:
                where = f"cluster {self.client.name}: {self.topic}, partition {self.partition}"
                raise RetryableError(f"{where}: it has no leader", hint="See whether its brokers are alive.")
            know(self.client, found)
            self._node = node
        return self._node

    def _check_there(self, code: int) -> None:
        """Refuse a topic that is gone, or that may not be described: nobody leads it, however long one waits.

        Raises:
            UserError: It is so.
        """
        if code not in ABSENT:
            self._missed_since = None
        elif self._missed_since is None:
            self._missed_since = monotonic()
        is_gone = self._missed_since is not None and monotonic() - self._missed_since > PROPAGATION_S
        if is_gone or code == UNAUTHORIZED:
            raise of_code(code, "", what=f"topic {self.topic} of cluster {self.client.name}")


def know(client: KafkaClient, metadata: Any) -> None:
    """Let a connection know where brokers are: it sends to no other."""
    client.admin._manager.cluster.update_metadata(metadata)  # noqa: SLF001 - the library has no public way


class HeadersOf:
    """The headers of records of one partition in bytes, by offset. Asked for in the order of offsets."""

    def __init__(self, leader: Leader) -> None:
        """Take who is asked."""
        self._leader = leader
        self._found: dict[int, RawHeaders] = {}

    def at(self, offset: int) -> RawHeaders:
        """Return the headers of the record at an offset.

        Raises:
            RetryableError: It was removed meanwhile.
        """
        if offset not in self._found:
            self._found = {}
            for batch in batches_in(fetched(self._leader, offset)):
                self._found.update(headers_in(batch))
        if offset not in self._found:
            message = f"{self._leader.topic}, partition {self._leader.partition}: offset {offset:,} is gone"
            raise RetryableError(message, hint="It was removed while it was read. Run the same command again.")
        return self._found[offset]


def fetched(leader: Leader, offset: int, isolation: Isolation = "read_uncommitted") -> Answer:
    """Return some MiB of batches from the one with an offset on, as the broker keeps them; none where it is gone.

    `read_committed` ends before transactions that are open, and says which were aborted; their batches are sent too.
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
    found = leader.send(request, lambda answer: answer.responses[0].partitions[0], doing=doing, fine={_GONE})
    aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]
    return Answer(bytes(found.records or b""), aborted)


# Records that librdkafka cannot write, written as batches packed here: once each, in their order.


_BATCH_BYTES: Final = 1_000_000
_OVERHEAD: Final = 1_024
_TIMEOUT_MS: Final = 30_000
_VERSIONS: Final = (3, 11)
"""Of the request: from 12 on brokers open transactions with it, from 13 on topics are named by their ids."""
_WRITE_CODECS: Final = {"producer": "gzip", "uncompressed": "none"}
"""What a topic keeps as it comes is packed so that every client can read it."""
_KEPT: Final = {"uncompressed": "none"}
"""A topic's word for a codec, where it is another than that of batches."""
_LOADING: Final = frozenset({14, 15, 16})


class _Packing(NamedTuple):
    """How batches for a topic are made: brokers that pack them anew replace what is not UTF-8."""

    codec: str
    bytes: int
    kept: str | None
    """The only codec that brokers keep as it comes; `None`: any."""
    most: int
    """The largest batch that brokers take."""


class BatchWriter:
    """One producer id. Every batch waits for the one before it; one that is sent again is written once."""

    def __init__(self, settings: Mapping[str, Any], cluster: str, producer: Producer | None = None) -> None:
        """Take settings of confluent-kafka, and who writes; `None`: brokers are asked for a new producer id."""
        self._settings, self._cluster = settings, cluster
        self._client = asking(as_admin(settings), cluster)
        self._producer = producer or _new(self._client)
        self._counts: Counter[tuple[str, int]] = Counter()
        self._leaders: dict[tuple[str, int], Leader] = {}
        self._packings: dict[str, _Packing] = {}

    def write(self, topic: str, partition: int, rows: Sequence[Row]) -> list[int]:
        """Write records to a partition and return the offset of each.

        Raises:
            ReconcilerError: Brokers refuse them, or do not answer; a part may have been written.
        """
        packing = self._packing(topic)
        offsets: list[int] = []
        for some in _cut(rows, packing.bytes):
            pack = partial(packed, some, codec=packing.codec)
            offsets += self.put(topic, partition, pack, len(some))
        return offsets

    def keeps(self, topic: str, codec: str, size: int) -> bool:
        """Tell whether brokers keep a batch of so many bytes as it is."""
        packing = self._packing(topic)
        return packing.kept in {None, codec} and size <= packing.most

    def put(self, topic: str, partition: int, pack: Callable[[Producer, int], bytes], records: int) -> range:
        """Send one batch and return the offsets of its records; `pack` makes it, of the producer and its next number.

        Raises:
            ReconcilerError: Brokers refuse it, or do not answer.
        """
        from kafka.protocol.producer import ProduceRequest

        place = (topic, partition)
        leader = self._leaders.setdefault(place, Leader(self._settings, self._cluster, topic, partition))
        named = ProduceRequest.TopicProduceData
        content = pack(self._producer, self._counts[place])
        data = named.PartitionProduceData(index=partition, records=content)
        request = ProduceRequest(
            transactional_id=self._producer.transactional_id,
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[named(name=topic, partition_data=[data])],
            min_version=_VERSIONS[0],
            max_version=_VERSIONS[1],
        )
        doing = f"writing to {topic}, partition {partition}"
        found = leader.send(request, lambda answer: answer.responses[0].partition_responses[0], doing=doing)
        self._counts[place] += records
        return range(found.base_offset, found.base_offset + records)

    def _packing(self, topic: str) -> _Packing:
        if topic not in self._packings:
            ((_, found),) = self._client.configs([topic], ["compression.type", "max.message.bytes"])
            values = {} if isinstance(found, int) else {name: each.value for name, each in found.items()}
            kept_as = values.get("compression.type") or "producer"
            most = int(values.get("max.message.bytes") or _BATCH_BYTES)
            size = max(1, min(_BATCH_BYTES, most - _OVERHEAD))
            kept = None if kept_as == "producer" else _KEPT.get(kept_as, kept_as)
            self._packings[topic] = _Packing(_WRITE_CODECS.get(kept_as, kept_as), size, kept, most)
        return self._packings[topic]


def _new(client: KafkaClient) -> Producer:
    """Return a producer without transactions."""
    from kafka.protocol.producer import InitProducerIdRequest

    doing = "asking for a producer id"
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0, max_version=4)
    found = until_told(
        lambda: client.send(request, doing=doing), lambda found: int(found.error_code), _LOADING, lambda: None
    )
    if found.error_code:
        raise of_code(found.error_code, "", what=f"cluster {client.name}: {doing}")
    return Producer(found.producer_id, found.producer_epoch)


def _cut(rows: Sequence[Row], most: int) -> Iterator[Sequence[Row]]:
    """Yield records in lots that fit into a batch; one that is larger has a batch of its own."""
    begin = size = 0
    for at, row in enumerate(rows):
        each = size_of(row)
        if at > begin and size + each > most:
            yield rows[begin:at]
            begin, size = at, 0
        size += each
    if begin < len(rows):
        yield rows[begin:]
