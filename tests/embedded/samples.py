"""Clusters, batches and what is read back, for the tests of the embedded cluster."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.records.log import OffsetRange
from reconciler.records.schema import RECORD_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.objectstore.base import ObjectStore
    from reconciler.records.log import TopicLog

NOW = 1_700_000_000_000


def ids() -> Any:
    """Return what makes ids that are told apart easily."""
    numbers = itertools.count(1)
    return lambda: f"00000000-0000-4000-8000-{next(numbers):012}"


def cluster_in(store: ObjectStore, *, now_ms: int = NOW) -> EmbeddedCluster:
    return EmbeddedCluster.create(store, now_ms=lambda: now_ms, new_id=ids())


def values(*contents: bytes | str | None, **columns: list[Any]) -> pa.RecordBatch:
    """Return a batch to append: `value`, and any other columns of records."""
    encoded = [content.encode() if isinstance(content, str) else content for content in contents]
    return pa.RecordBatch.from_pydict({"value": pa.array(encoded, pa.binary()), **columns})


def numbered(first: int, count: int, *, partition: int = 0) -> pa.RecordBatch:
    """Return records as they lie in a log: value, key and time tell the offset."""
    offsets = range(first, first + count)
    rows = [
        {
            "partition": partition,
            "offset": offset,
            "timestamp_ms": NOW + offset,
            "timestamp_type": 0,
            "key": b"k%d" % offset if offset % 3 else None,
            "value": b"v%d" % offset if offset % 5 else b"",
            "headers": [{"key": "n", "value": b"%d" % offset}] if offset % 2 else [],
        }
        for offset in offsets
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Return records as rows, having seen that each batch is one of records."""
    rows: list[dict[str, Any]] = []
    for batch in batches:
        assert batch.schema.equals(RECORD_SCHEMA)
        rows += batch.to_pylist()
    return rows


def read(log: TopicLog, partition: int = 0, start: int = 0, stop: int = 1 << 40) -> list[dict[str, Any]]:
    return rows_of(log.read(partition, OffsetRange(start, stop)))


def contents(log: TopicLog, partition: int = 0) -> list[tuple[int, bytes | None]]:
    return [(row["offset"], row["value"]) for row in read(log, partition)]
