"""Consuming record by record: the friendly form of a log's batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.embedded.log import EmbeddedLog


@dataclass(frozen=True, slots=True)
class Record:
    """One record. Key and value are bytes or `None`; headers are in their order, a name may come twice."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def consume(log: EmbeddedLog, *, start_ms: int | None = None) -> Iterator[Record]:
    """Yield what is committed at the time of the call, partition by partition, from the beginning or from a time."""
    for partition, bounds in log.bounds().items():
        start: int | None = bounds.start
        if start_ms is not None:
            start = log.offset_for_time(partition, start_ms)
        if start is None:
            continue
        for batch in log.read(partition, OffsetRange(start, bounds.stable)):
            yield from map(_record, batch.to_pylist())


def _record(row: dict[str, Any]) -> Record:
    headers = tuple((header["key"], header["value"]) for header in row["headers"])
    return Record(row["partition"], row["offset"], row["timestamp_ms"], row["key"], row["value"], headers)
