"""Batches of records as the protocol has them: read, and packed.

librdkafka hands on a header's name as a C string, which Python decodes: a name that is not UTF-8 cannot be read through
it, one with a byte 0 not be written, nor a record of time 0, which it takes for now. Those go as batches that are read
and packed here.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.providers.kafka.records.columns import Headers

RawHeaders = list[tuple[bytes, bytes | None]]
Row = tuple[bytes | None, bytes | None, int, "Headers", int]
"""Value, key, time, headers, and a number that does not matter here: the offset where it came from."""

_PREFIX: Final = struct.Struct(">qiibI")
"""Of a batch: its first offset, its length from here on, the leader's epoch, the format, a checksum."""
_REST: Final = struct.Struct(">hiqqqhii")
"""What follows: attributes, last offset, first and last time, producer, its epoch, its number, count of records."""
_LENGTH_END: Final = 12
_FORMAT: Final = 2
_COMPRESSION: Final = 0x07
_TRANSACTIONAL: Final = 0x10
_CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_NAMES: Final = {number: name for name, number in _CODECS.items()}
_MORE: Final = 0x80
"""Set in every byte of a number but its last."""
_NULL: Final = b"\x01"
"""The length -1."""

_XERIAL: Final = b"\x82SNAPPY\x00"
"""How Java's client begins what is compressed by Snappy, in blocks."""
_XERIAL_VERSIONS: Final = struct.pack(">ii", 1, 1)
_BLOCK_BYTES: Final = 64 << 10
_LZ4_FRAME: Final = b"\x04\x22\x4d\x18"
_LZ4_SETTINGS: Final = b"\x60\x40"
"""Blocks that do not depend on each other, as brokers demand it, of 64 KiB."""
_LZ4_PLAIN: Final = 1 << 31
"""Set in the length of a block that is not compressed."""


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
            yield Batch(first, count, _plain(content, _NAMES[attributes & _COMPRESSION]))
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


class Producer(NamedTuple):
    """Who writes: what brokers know a batch by that comes twice."""

    id: int
    epoch: int
    transactional_id: str | None = None


def packed(rows: Sequence[Row], producer: Producer, number: int, *, codec: str) -> bytes:
    """Return records as one batch; `number` counts the records of this producer in this partition before it."""
    from kafka.record.util import calc_crc32c  # noqa: PLC0415 - whoever reads brings no client

    first = rows[0][2]
    content = b"".join(_record(row, at, first) for at, row in enumerate(rows))
    attributes = _CODECS[codec] | (0 if producer.transactional_id is None else _TRANSACTIONAL)
    last = max(row[2] for row in rows)
    rest = _REST.pack(
        attributes, len(rows) - 1, first, last, producer.id, producer.epoch, number & 0x7FFFFFFF, len(rows)
    )
    body = rest + _compressed(content, codec)
    length = _PREFIX.size - _LENGTH_END + len(body)
    return _PREFIX.pack(0, length, -1, _FORMAT, calc_crc32c(body)) + body


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
