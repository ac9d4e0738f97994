"""Messages of confluent-kafka as Arrow columns and back, a column at a time: no Python code runs for each record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from reconciler.records.schema import CREATE_TIME, HEADERS, LOG_APPEND_TIME, RECORD_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Sequence

Header = tuple[str, bytes | None]
Headers = list[Header] | None

_TIMES: Final = np.dtype([("type", np.int64), ("ms", np.int64)])


def batch_of(messages: Sequence[Message], partition: int) -> pa.RecordBatch:
    """Return messages of one partition as records, in their order; none of them is an error."""
    count = len(messages)
    times = np.fromiter(map(Message.timestamp, messages), _TIMES, count)
    types = np.where(times["type"] == TIMESTAMP_LOG_APPEND_TIME, LOG_APPEND_TIME, CREATE_TIME).astype(np.int8)
    columns = [
        pa.array(np.full(count, partition, np.int32)),
        pa.array(_offsets(messages)),
        pa.array(np.ascontiguousarray(times["ms"])),
        pa.array(types),
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        _headers(list(map(Message.headers, messages))),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def _offsets(messages: Sequence[Message]) -> np.ndarray[Any, np.dtype[np.int64]]:
    first, last = messages[0].offset() or 0, messages[-1].offset() or 0
    if last - first == len(messages) - 1:  # they only go up: no gap
        return np.arange(first, last + 1, dtype=np.int64)
    return np.fromiter(map(Message.offset, messages), np.int64, len(messages))


def _headers(headers: Sequence[Any]) -> pa.ListArray:
    if not any(headers):
        starts = pa.array(np.zeros(len(headers) + 1, np.int32))
        return pa.ListArray.from_arrays(starts, pa.array([], HEADERS.value_type), type=HEADERS)
    counts = np.fromiter((len(each) if each else 0 for each in headers), np.int32, len(headers))
    flat = [pair for each in headers if each for pair in each]
    names = pa.array([name for name, _ in flat], pa.string())
    values = pa.array([value for _, value in flat], pa.binary())
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(starts), pairs, type=HEADERS)


def contents_of(column: pa.Array) -> list[bytes | None]:
    """Return a column of bytes as Python has it; much faster than `to_pylist`."""
    found: list[bytes | None] = column.to_numpy(zero_copy_only=False).tolist()
    return found


def headers_of(column: pa.ListArray) -> list[Headers]:
    """Return the headers of each record as a producer takes them; `None` where there are none."""
    flat = column.flatten()
    if not len(flat):
        return [None] * len(column)
    pairs: list[Header] = list(zip(flat.field("key").to_pylist(), flat.field("value").to_pylist(), strict=True))
    found: list[Headers] = []
    at = 0
    for length in column.value_lengths().to_pylist():
        found.append(pairs[at : at + length] or None)
        at += length
    return found
