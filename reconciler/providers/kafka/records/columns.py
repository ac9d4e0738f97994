"""Messages of confluent-kafka as Arrow columns and back.

Messages come in small lots, for what the client makes of them is fastest while it stays in the processor's cache; to
build arrays of so few would cost more than all the rest. So lots are only joined, and arrays are built of many.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from reconciler.records.schema import (
    CREATE_TIME,
    HEADERS,
    LOG_APPEND_TIME,
    RECORD_SCHEMA,
    has_marks,
    has_nul,
    name_of,
    texts_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


Header = tuple[str | bytes, bytes | None]
"""A name is bytes where a client cannot have it as text."""
Headers = list[Header] | None


class Lots:
    """Messages of one partition on their way to be one batch, in order; none of them is an error."""

    def __init__(self, partition: int) -> None:
        """Begin with none."""
        self._partition = partition
        self._offsets: list[npt.NDArray[np.int64]] = []
        self._times: list[npt.NDArray[np.int64]] = []
        self._headers: list[Sequence[Any]] = []
        self._keys, self._values = _Contents(), _Contents()
        self.rows = 0

    @property
    def bytes(self) -> int:
        """What their keys and values take."""
        return self._keys.bytes + self._values.bytes

    def add(self, messages: Sequence[Message]) -> None:
        """Take what follows."""
        count = len(messages)
        self._offsets.append(_offsets(messages))
        # Pairs of type and time: each is gone again before the next is made.
        self._times.append(np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * count))
        self._keys.add(list(map(Message.key, messages)))
        self._values.add(list(map(Message.value, messages)))
        self._headers.append(list(map(Message.headers, messages)))
        self.rows += count

    def batch(self) -> pa.RecordBatch:
        """Return all of them as records."""
        times = np.concatenate(self._times)
        types = np.where(times[::2] == TIMESTAMP_LOG_APPEND_TIME, LOG_APPEND_TIME, CREATE_TIME).astype(np.int8)
        columns = [
            pa.array(np.full(self.rows, self._partition, np.int32)),
            pa.array(np.concatenate(self._offsets)),
            pa.array(np.ascontiguousarray(times[1::2])),
            pa.array(types),
            self._keys.array(),
            self._values.array(),
            _headers(self._headers, self.rows),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


class _Contents:
    """A column of bytes in the making; a length of -1 is no bytes at all."""

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

    def array(self) -> pa.Array:
        lengths = np.concatenate(self._lengths)
        absent = lengths < 0
        starts = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(np.maximum(lengths, 0), out=starts[1:])
        validity = pa.py_buffer(np.packbits(~absent, bitorder="little")) if absent.any() else None
        buffers = [validity, pa.py_buffer(starts), pa.py_buffer(b"".join(self._joined))]
        return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


def _offsets(messages: Sequence[Message]) -> npt.NDArray[np.int64]:
    first, last = messages[0].offset() or 0, messages[-1].offset() or 0
    if last - first == len(messages) - 1:  # they only go up: no gap
        return np.arange(first, last + 1, dtype=np.int64)
    return np.fromiter(map(Message.offset, messages), np.int64, len(messages))


def _headers(lots: Sequence[Sequence[Any]], rows: int) -> pa.ListArray:
    if not any(map(any, lots)):
        starts = pa.array(np.zeros(rows + 1, np.int32))
        return pa.ListArray.from_arrays(starts, pa.array([], HEADERS.value_type), type=HEADERS)
    headers = list(chain.from_iterable(lots))
    counts = np.fromiter((len(each) if each else 0 for each in headers), np.int32, rows)
    flat = [pair for each in headers if each for pair in each]
    names = texts_of([name for name, _ in flat])
    values = pa.array([value for _, value in flat], pa.binary())
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    starts = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
    return pa.ListArray.from_arrays(starts, pairs, type=HEADERS)


def contents_of(column: pa.Array) -> list[bytes | None]:
    """Return a column of bytes as Python has it; much faster than `to_pylist`."""
    found: list[bytes | None] = column.to_numpy(zero_copy_only=False).tolist()
    return found


def headers_of(column: pa.ListArray) -> list[Headers]:
    """Return the headers of each record as a producer takes them; `None` where there are none."""
    flat = column.flatten()
    if not len(flat):
        return [None] * len(column)
    texts = flat.field("key")
    names: list[Any] = texts.to_pylist()
    if has_marks(texts) or has_nul(texts):
        names = [written(text) for text in names]
    pairs: list[Header] = list(zip(names, flat.field("value").to_pylist(), strict=True))
    found: list[Headers] = []
    at = 0
    for length in column.value_lengths().to_pylist():
        found.append(pairs[at : at + length] or None)
        at += length
    return found


def written(text: str) -> str | bytes:
    """Return a name as librdkafka writes it; as bytes where it would write another."""
    name = name_of(text)
    try:
        return name if b"\0" in name else name.decode()
    except UnicodeDecodeError:
        return name
