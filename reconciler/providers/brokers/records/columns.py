"""Conversion of Kafka records to Arrow columns, from batches or confluent-kafka messages, and back."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from reconciler.providers.brokers.records.record_batches import (
    APPEND_TIME,
    COMPRESSION,
    HORIZON,
    TRANSACTIONAL,
    BatchHead,
    FetchReply,
    Header,
    Headers,
    parse_heads,
)
from reconciler.records.schema import (
    CREATE_TIME,
    HEADERS,
    LOG_APPEND_TIME,
    RECORD_SCHEMA,
    decode_text_as_name,
    has_nul_byte,
    has_private_characters,
    to_name_column,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from reconciler.records.log import OffsetRange


class MessageBuffer:
    """Messages of one partition, in order and without errors, for one batch."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._offsets: list[npt.NDArray[np.int64]] = []
        self._times: list[npt.NDArray[np.int64]] = []
        self._headers: list[Sequence[Any]] = []
        self._keys, self._values = _BinaryColumn(), _BinaryColumn()
        self.rows = 0

    @property
    def bytes(self) -> int:
        """Size of keys and values in bytes."""
        return self._keys.bytes + self._values.bytes

    def add(self, messages: Sequence[Message]) -> None:
        """Append messages of the partition."""
        count = len(messages)
        self._offsets.append(_build_offsets(messages))
        # `fromiter` frees each (type, time) pair before the next is created.
        self._times.append(np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * count))
        self._keys.add(list(map(Message.key, messages)))
        self._values.add(list(map(Message.value, messages)))
        self._headers.append(list(map(Message.headers, messages)))
        self.rows += count

    def build_batch(self) -> pa.RecordBatch:
        """Return all added messages as one batch."""
        times = np.concatenate(self._times)
        types = np.where(times[::2] == TIMESTAMP_LOG_APPEND_TIME, LOG_APPEND_TIME, CREATE_TIME).astype(np.int8)
        columns = [
            pa.array(np.full(self.rows, self._partition, np.int32)),
            pa.array(np.concatenate(self._offsets)),
            pa.array(np.ascontiguousarray(times[1::2])),
            pa.array(types),
            self._keys.build_array(),
            self._values.build_array(),
            _build_headers(self._headers, self.rows),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


class _BinaryColumn:
    def __init__(self) -> None:
        self._joined: list[bytes] = []
        self._lengths: list[npt.NDArray[np.int32]] = []
        self.bytes = 0

    def add(self, cells: list[bytes | None]) -> None:
        absent = cells.count(None)
        if absent == len(cells):
            self._lengths.append(np.full(absent, -1, np.int32))
            return
        present = [cell for cell in cells if cell is not None] if absent else cells
        joined = b"".join(present)  # type: ignore[arg-type]  # none of these is None
        lengths = (-1 if cell is None else len(cell) for cell in cells) if absent else map(len, cells)  # type: ignore[arg-type]
        self._lengths.append(np.fromiter(lengths, np.int32, len(cells)))
        self._joined.append(joined)
        self.bytes += len(joined)

    def build_array(self) -> pa.Array:
        lengths = np.concatenate(self._lengths)
        absent = lengths < 0
        starts = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(np.maximum(lengths, 0), out=starts[1:])
        validity = pa.py_buffer(np.packbits(~absent, bitorder="little")) if absent.any() else None
        buffers = [validity, pa.py_buffer(starts), pa.py_buffer(b"".join(self._joined))]
        return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


def _build_offsets(messages: Sequence[Message]) -> npt.NDArray[np.int64]:
    first, last = messages[0].offset() or 0, messages[-1].offset() or 0
    if last - first == len(messages) - 1:
        return np.arange(first, last + 1, dtype=np.int64)
    return np.fromiter(map(Message.offset, messages), np.int64, len(messages))


def _build_headers(lots: Sequence[Sequence[Any]], rows: int) -> pa.ListArray:
    if not any(map(any, lots)):
        starts = pa.array(np.zeros(rows + 1, np.int32))
        return pa.ListArray.from_arrays(starts, pa.array([], HEADERS.value_type), type=HEADERS)
    headers = list(chain.from_iterable(lots))
    counts = np.fromiter((len(headers_of_row) if headers_of_row else 0 for headers_of_row in headers), np.int32, rows)
    flat = [pair for headers_of_row in headers if headers_of_row for pair in headers_of_row]
    names = to_name_column([name for name, _ in flat])
    values = pa.array([value for _, value in flat], pa.binary())
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    starts = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
    return pa.ListArray.from_arrays(starts, pairs, type=HEADERS)


# A loop finds where records begin. numpy then decodes each field of thousands of records together.

_MOST_ROWS: Final = 16_000
_MOST_BYTES: Final = 8 << 20
_ARROW_BYTES: Final = (1 << 31) - 1
_MORE: Final = 0x80
"""Bit set in every byte of a varint except the last."""
_LONGEST: Final = 63
"""Largest shift of a varint's bits."""
_READABLE: Final = COMPRESSION | APPEND_TIME | HORIZON | TRANSACTIONAL


def select_decodable(answer: FetchReply, offsets: OffsetRange) -> Sequence[BatchHead]:
    """Return the response's first batches, up to one that only librdkafka can decode."""
    heads: list[BatchHead] = []
    for head in parse_heads(answer):
        if head.first >= offsets.stop or (head.is_readable and not head.has_only_attributes(_READABLE)):
            break
        if head.through > offsets.start:
            heads.append(head)
    return heads


def decode_columns(
    answer: FetchReply, heads: Sequence[BatchHead], partition: int, offsets: OffsetRange
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield a response's records in a range as (offset up to which records are complete, batch).

    Raises:
        ValueError: A batch is damaged.
    """
    lot = _BatchLot(answer.batches)
    for head in heads:
        if head.is_readable:
            lot.add(head)
        if lot.rows >= _MOST_ROWS or lot.bytes >= _MOST_BYTES or head is heads[-1]:
            yield min(head.through, offsets.stop), _build_columns(lot, partition, offsets)
            lot = _BatchLot(answer.batches)


class _BatchLot:
    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._plain: list[bytes | None] = []
        self.heads: list[BatchHead] = []
        self.rows = self.bytes = 0

    def add(self, head: BatchHead) -> None:
        try:
            plain = None if head.codec == "none" else head.decompress_records(self._answer)
        except (zlib.error, OSError, pa.ArrowException) as error:
            raise ValueError("a batch cannot be decompressed") from error
        self._plain.append(plain)
        self.heads.append(head)
        self.rows += head.records
        self.bytes += head.end - head.content_begin if plain is None else len(plain)

    def join_contents(self) -> tuple[bytes, Sequence[tuple[int, int]]]:
        """Return the bytes of all records, and each batch's start and end in them."""
        if not any(plain is not None for plain in self._plain):
            return self._answer, [(head.content_begin, head.end) for head in self.heads]
        view = memoryview(self._answer)
        parts = [
            view[head.content_begin : head.end] if plain is None else plain
            for head, plain in zip(self.heads, self._plain, strict=True)
        ]
        ends = list(accumulate(map(len, parts)))
        return b"".join(parts), list(zip([0, *ends], ends, strict=False))


def _build_columns(lot: _BatchLot, partition: int, offsets: OffsetRange) -> pa.RecordBatch:
    if not lot.heads:
        return pa.RecordBatch.from_arrays([pa.nulls(0, field_.type) for field_ in RECORD_SCHEMA], schema=RECORD_SCHEMA)
    content, places = lot.join_contents()
    if len(content) > _ARROW_BYTES:
        raise ValueError("a batch is larger than a column may be")
    data = np.frombuffer(content, np.uint8)
    counts = [head.records for head in lot.heads]
    try:
        lengths, at = _decode_numbers(data, _find_starts(content, places, counts))
        ends = at + lengths
        since_first, at = _decode_numbers(data, at + 1)
        deltas, at = _decode_numbers(data, at)
        keys, at = _decode_cells(data, content, at)
        values, at = _decode_cells(data, content, at)
        headers, at = _decode_headers(data, content, at)
    except (IndexError, OverflowError, pa.ArrowException) as error:
        raise ValueError("a record is longer than its batch") from error
    if not np.array_equal(at, ends):
        raise ValueError("a record's length does not match its length field")
    positions = deltas + np.repeat([head.first for head in lot.heads], counts)
    is_appended = np.repeat([bool(head.attributes & APPEND_TIME) for head in lot.heads], counts)
    newest = np.repeat([head.newest_ms for head in lot.heads], counts)
    times = np.where(is_appended, newest, since_first + np.repeat([head.first_ms for head in lot.heads], counts))
    columns = [
        pa.array(np.full(len(positions), partition, np.int32)),
        pa.array(positions),
        pa.array(times),
        pa.array(np.where(is_appended, LOG_APPEND_TIME, CREATE_TIME).astype(np.int8)),
        keys,
        values,
        headers,
    ]
    begin, end = np.searchsorted(positions, (offsets.start, offsets.stop))
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA).slice(begin, end - begin)


def _find_starts(content: bytes, places: Sequence[tuple[int, int]], counts: Sequence[int]) -> npt.NDArray[np.int64]:
    begins: list[int] = []
    add, more = begins.append, _MORE  # This loop runs once per record, and local names are faster.
    for (begin, end), count in zip(places, counts, strict=True):
        at = begin
        for _ in range(count):
            add(at)
            low = content[at]
            if low < more:
                at += 1 + (low >> 1)
                continue
            high = content[at + 1]
            if high < more:
                at += 2 + ((low & 0x7F | high << 7) >> 1)
                continue
            length, shift, at = low & 0x7F | (high & 0x7F) << 7, 14, at + 2
            while True:
                byte = content[at]
                at += 1
                length |= (byte & 0x7F) << shift
                shift += 7
                if byte < more:
                    break
            at += length >> 1
        if at != end:
            raise IndexError
    return np.array(begins, np.int64)


def _decode_numbers(
    data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Decode varints at positions `at`; return them and their ends."""
    byte = data[at].astype(np.int64)
    numbers = byte & 0x7F
    at = at + 1
    more = np.flatnonzero(byte >= _MORE)
    shift = 7
    while len(more):
        if shift > _LONGEST:
            raise OverflowError
        byte = data[at[more]].astype(np.int64)
        numbers[more] |= (byte & 0x7F) << shift
        at[more] += 1
        more = more[byte >= _MORE]
        shift += 7
    # The lowest bit is the sign. The mask clears the highest bit, which `>>` copies.
    return (numbers >> 1) & np.int64(np.iinfo(np.int64).max) ^ -(numbers & 1), at


def _decode_cells(
    data: npt.NDArray[np.uint8], content: bytes, at: npt.NDArray[np.int64]
) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Decode length-prefixed bytes at positions `at`; return them and their ends.

    A negative length means null.
    """
    lengths, begins = _decode_numbers(data, at)
    ends = begins + np.maximum(lengths, 0)
    if len(ends) and ends.max() > len(content):
        raise IndexError
    # Elements at odd positions are the bytes between cells, which `take` leaves out.
    bounds = np.empty(2 * len(begins) + 1, np.int32)
    bounds[:-1:2], bounds[1::2], bounds[-1] = begins, ends, ends[-1] if len(ends) else 0
    both = pa.Array.from_buffers(pa.binary(), 2 * len(begins), [None, pa.py_buffer(bounds), pa.py_buffer(content)])
    wanted = np.arange(0, 2 * len(begins), 2, dtype=np.int32)
    absent = lengths < 0
    return both.take(pa.array(wanted, mask=absent if absent.any() else None)), ends


def _decode_headers(
    data: npt.NDArray[np.uint8], content: bytes, at: npt.NDArray[np.int64]
) -> tuple[pa.ListArray, npt.NDArray[np.int64]]:
    """Decode headers at positions `at`; return them and their ends.

    Each round decodes one header of every record.
    """
    counts, at = _decode_numbers(data, at)
    if len(counts) and counts.min() < 0:
        raise OverflowError
    starts = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
    rows, names, values = [], [], []
    left = np.flatnonzero(counts)
    while len(left):
        name, ends = _decode_cells(data, content, at[left])
        value, at[left] = _decode_cells(data, content, ends)
        rows.append(left)
        names.append(name)
        values.append(value)
        left = left[counts[left] > len(rows)]
    if not rows:
        return pa.ListArray.from_arrays(starts, pa.array([], HEADERS.value_type), type=HEADERS), at
    order = pa.array(np.argsort(np.concatenate(rows), kind="stable"))
    texts = _to_texts(pa.concat_arrays(names).take(order))
    pairs = [texts, pa.concat_arrays(values).take(order)]
    structs = pa.StructArray.from_arrays(pairs, fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(starts, structs, type=HEADERS), at


def _to_texts(names: pa.Array) -> pa.Array:
    try:
        texts = names.cast(pa.string())
    except pa.ArrowInvalid:
        return to_name_column(names.to_pylist())
    return to_name_column(names.to_pylist()) if has_private_characters(texts) else texts


def to_contents(column: pa.Array) -> list[bytes | None]:
    """Return a binary column as Python objects, much faster than `to_pylist`."""
    contents: list[bytes | None] = column.to_numpy(zero_copy_only=False).tolist()
    return contents


def to_headers(column: pa.ListArray) -> list[Headers]:
    """Return each record's headers as producers accept them, or `None`."""
    flat = column.flatten()
    if not len(flat):
        return [None] * len(column)
    texts = flat.field("key")
    names: list[Any] = texts.to_pylist()
    if has_private_characters(texts) or has_nul_byte(texts):
        names = [encode_name(text) for text in names]
    pairs: list[Header] = list(zip(names, flat.field("value").to_pylist(), strict=True))
    headers: list[Headers] = []
    at = 0
    for length in column.value_lengths().to_pylist():
        headers.append(pairs[at : at + length] or None)
        at += length
    return headers


def encode_name(text: str) -> str | bytes:
    """Return a header name as text, or as bytes if librdkafka would alter the name."""
    name = decode_text_as_name(text)
    try:
        return name if b"\0" in name else name.decode()
    except UnicodeDecodeError:
        return name
