"""Batches of records as the protocol has them, for those that librdkafka cannot read or write as they are.

It hands on a header's name as a C string, which Python decodes: a name that is not UTF-8 cannot be read through it,
one with a byte 0 not written. The other client gets and sends whole batches; they are read and packed here.
"""

from __future__ import annotations

import struct
import zlib
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from reconciler.errors import RetryableError
from reconciler.providers.kafka.faults import of_code
from reconciler.providers.kafka.reaching.patience import pause
from reconciler.providers.kafka.reaching.security import as_admin
from reconciler.providers.kafka.records.asking import asking

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.providers.kafka.client import KafkaClient

# Whoever meets no such record imports no client.
# ruff: noqa: PLC0415

RawHeaders = list[tuple[bytes, bytes | None]]

_PREFIX: Final = struct.Struct(">qiibI")
"""Of a batch: its first offset, its length from here on, the leader's epoch, the format, a checksum."""
_REST: Final = struct.Struct(">hiqqqhii")
"""What follows: attributes, last offset, first and last time, producer, its epoch, its number, count of records."""
_LENGTH_END: Final = 12
_FORMAT: Final = 2
_COMPRESSION: Final = 0x07
_SNAPPY: Final = 2
_CODECS: Final = {1: "gzip", 3: "lz4", 4: "zstd"}
_XERIAL: Final = b"\x82SNAPPY\x00"
"""How Java's client begins what is compressed by Snappy, in blocks."""
_XERIAL_BYTES: Final = 16

_MORE: Final = 0x80
"""Set in every byte of a number but its last."""
_FETCH_BYTES: Final = 4 << 20
_FETCH_VERSIONS: Final = (4, 12)
"""From 13 on topics are named by their ids."""
_WAIT_MS: Final = 500
_MOVED: Final = frozenset({3, 5, 6, 9, 56, 74, 75, 76, 78})
"""Codes of who leads no longer or not yet, or of a topic that it has not heard of yet: somebody else is asked."""
_SILENCE_S: Final = 30.0
_PAUSE_S: Final = 0.1


class Leader:
    """Who leads one partition, asked over again when that changes."""

    def __init__(self, settings: Mapping[str, Any], cluster: str, topic: str, partition: int) -> None:
        """Take settings of confluent-kafka, secrets hidden; a connection is made when something is sent."""
        self.client: KafkaClient = asking(as_admin(settings), cluster)
        self.topic, self.partition = topic, partition
        self._node: int | None = None

    def send(self, request: Any, answer: Any, *, doing: str) -> Any:
        """Return what the leader answers about the partition, picked from its response by `answer`.

        Raises:
            ReconcilerError: It refuses, or nobody leads.
        """
        until = monotonic() + _SILENCE_S
        while True:
            found = answer(self.client.send(request, doing=doing, node=self._known()))
            if found.error_code not in _MOVED or monotonic() > until:
                break
            self._node = None
            pause(_PAUSE_S)
        if found.error_code:
            what = f"cluster {self.client.name}: {doing}"
            raise of_code(found.error_code, getattr(found, "error_message", None) or "", what=what)
        return found

    def _known(self) -> int:
        from kafka.protocol.metadata import MetadataRequest

        until = monotonic() + _SILENCE_S
        while self._node is None:
            wanted = [MetadataRequest.MetadataRequestTopic(name=self.topic)]
            request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, max_version=9)
            found = self.client.send(request, doing=f"looking who leads {self.topic}")
            (topic,) = found.topics
            led = {each.partition_index: each.leader_id for each in topic.partitions}
            node = led.get(self.partition, -1)
            if node >= 0:
                self.client.admin._manager.cluster.update_metadata(found)  # noqa: SLF001 - it must know the address
                self._node = node
            elif monotonic() > until:
                code = topic.error_code or 5
                raise of_code(code, "", what=f"cluster {self.client.name}: {self.topic}, partition {self.partition}")
            else:
                pause(_PAUSE_S)
        return self._node


class HeadersOf:
    """The headers of records of one partition, by offset, in bytes. Offsets are asked for in their order."""

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
            for batch in batches_in(self._fetched(offset)):
                self._found.update(headers_in(batch))
        if offset not in self._found:
            message = f"{self._leader.topic}, partition {self._leader.partition}: offset {offset:,} is gone"
            raise RetryableError(message, hint="It was removed while it was read. Run the same command again.")
        return self._found[offset]

    def _fetched(self, offset: int) -> bytes:
        from kafka.protocol.consumer import FetchRequest

        leader = self._leader
        topic = FetchRequest.FetchTopic
        wanted = topic.FetchPartition(partition=leader.partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            topics=[topic(topic=leader.topic, partitions=[wanted])],
            min_version=_FETCH_VERSIONS[0],
            max_version=_FETCH_VERSIONS[1],
        )
        doing = f"reading {leader.topic}, partition {leader.partition}"
        found = leader.send(request, lambda answer: answer.responses[0].partitions[0], doing=doing)
        return bytes(found.records or b"")


class Batch(NamedTuple):
    """A batch of records."""

    first: int
    records: int
    content: bytes
    """The records, not compressed."""


def batches_in(fetched: bytes) -> Iterator[Batch]:
    """Yield the batches of an answer; what is cut off at its end is left out, as is what is older than headers."""
    at = 0
    while at + _PREFIX.size + _REST.size <= len(fetched):
        first, length, _, form, _ = _PREFIX.unpack_from(fetched, at)
        end = at + _LENGTH_END + length
        if end > len(fetched):
            return
        if form == _FORMAT:
            attributes, *_, count = _REST.unpack_from(fetched, at + _PREFIX.size)
            content = fetched[at + _PREFIX.size + _REST.size : end]
            yield Batch(first, count, _plain(content, attributes & _COMPRESSION))
        at = end


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


def _plain(content: bytes, codec: int) -> bytes:
    if codec == 0:
        return content
    if codec == _SNAPPY:
        return b"".join(_snappy(block) for block in _blocks(content))
    if _CODECS[codec] == "gzip":
        return zlib.decompress(content, wbits=31)
    with pa.CompressedInputStream(pa.BufferReader(content), _CODECS[codec]) as stream:
        return bytes(stream.read())


def _blocks(content: bytes) -> Iterator[bytes]:
    if not content.startswith(_XERIAL):
        yield content
        return
    at = _XERIAL_BYTES
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
