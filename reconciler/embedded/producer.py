"""Producing: records gathered, split by partition, written as parts and published by one swap a partition."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa

from reconciler.embedded.admission import admitted, rules_of
from reconciler.embedded.gate import Gate, check_writer
from reconciler.embedded.head import PRODUCERS, Entry, Head
from reconciler.embedded.keys import fresh_mark
from reconciler.embedded.lookups import topic_named
from reconciler.embedded.parts import PartWriter
from reconciler.embedded.permissions import check_writing
from reconciler.records.log import OffsetRange
from reconciler.records.partitioner import Spread
from reconciler.records.routing import split_by_partition
from reconciler.records.schema import CREATE_TIME, INPUT_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from reconciler.embedded.admission import Rules
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.embedded.entries import TopicEntry

FLUSH_BYTES: Final = 128 * 1024 * 1024
FLUSH_RECORDS: Final = 50_000
"""Of single records, each a Python object until it is flushed."""

Gained = dict[int, OffsetRange]


class Producer:
    """Appends records to topics of one cluster. Not shared between threads.

    Records are gathered and written when there are enough, at `flush`, and at the end of a `with` block that raised
    nothing. What a failed flush was writing may be there or not.
    """

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self._waiting: defaultdict[str, list[pa.RecordBatch]] = defaultdict(list)
        self._single: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self._bytes: defaultdict[str, int] = defaultdict(int)
        self._spread: defaultdict[str, Spread] = defaultdict(Spread)
        self._gained: defaultdict[str, Gained] = defaultdict(dict)

    def send(
        self,
        topic: str,
        value: str | bytes | None = None,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Append one record. Without a partition its key decides; without a time it gets the present one."""
        pairs = [{"key": name, "value": _bytes(content)} for name, content in (headers or {}).items()]
        single = self._single[topic]
        single.append(
            {
                "partition": partition,
                "timestamp_ms": timestamp_ms,
                "timestamp_type": CREATE_TIME,
                "key": _bytes(key),
                "value": _bytes(value),
                "headers": pairs,
            }
        )
        if len(single) >= FLUSH_RECORDS:
            self._gather_single(topic)
            self._flush_if_large(topic)

    def append(self, topic: str, records: pa.RecordBatch) -> None:
        """Append a batch: any columns of `INPUT_SCHEMA` (`value, key, headers, timestamp_ms, partition`), others not.

        Missing columns are null; text is taken as UTF-8. The order of rows is kept within each partition.
        """
        self._gather_single(topic)
        batch = conformed(records)
        pieces = max(1, -(-batch.nbytes // FLUSH_BYTES))
        rows = max(1, -(-batch.num_rows // pieces))
        for start in range(0, batch.num_rows, rows):
            piece = batch.slice(start, rows)
            self._waiting[topic].append(piece)
            self._bytes[topic] += piece.nbytes
            self._flush_if_large(topic)

    def flush(self) -> dict[str, Gained]:
        """Write what was gathered; return what each partition of each topic gained since the last call.

        Raises:
            InvalidNamespaceError: The namespace of a topic does not exist.
            NotAuthorizedError: A topic may not be written to.
            UserError: A topic does not exist, is a mirror (only its link writes to it), or refuses a record.
            LostRaceError: Others were faster too often.
        """
        for topic in sorted({*self._waiting, *self._single}):
            self._gather_single(topic)
            self._flush(topic)
        gained, self._gained = self._gained, defaultdict(dict)
        return dict(gained)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()

    def _gather_single(self, topic: str) -> None:
        rows = self._single.pop(topic, [])
        if rows:
            batch = pa.RecordBatch.from_pylist(rows, schema=INPUT_SCHEMA)
            self._waiting[topic].append(batch)
            self._bytes[topic] += batch.nbytes

    def _flush_if_large(self, topic: str) -> None:
        if self._bytes[topic] >= FLUSH_BYTES:
            self._flush(topic)

    def _flush(self, topic: str) -> None:
        batches = self._waiting.pop(topic, [])
        self._bytes.pop(topic, None)
        if not batches:
            return
        catalog = self._cluster.catalog.read()
        check_writing(self._cluster.permissions, catalog, topic)
        entry = topic_named(catalog, topic)
        check_writer(topic, entry, PRODUCERS)
        rules = rules_of(catalog, topic)
        for partition, parts in self._written(rules, entry, batches).items():
            offsets = self._published(topic, entry, partition, parts)
            before = self._gained[topic].get(partition, offsets)
            self._gained[topic][partition] = OffsetRange(min(before.start, offsets.start), offsets.stop)

    def _written(self, rules: Rules, topic: TopicEntry, batches: list[pa.RecordBatch]) -> dict[int, list[Entry]]:
        """Write the records of each partition as parts, numbered from 0."""
        now_ms, spread = self._cluster.now_ms(), self._spread[rules.full_name]
        split: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
        lengths: defaultdict[int, int] = defaultdict(int)
        for batch in batches:
            fitting = admitted(batch, rules, now_ms)
            for partition, records in split_by_partition(
                fitting, partitions=topic.partitions, now_ms=now_ms, spread=spread
            ):
                split[partition].append(_from(lengths[partition], records))
                lengths[partition] += records.num_rows
        store = self._cluster.store
        return {
            partition: list(PartWriter.of(store, rules, partition).write(records))
            for partition, records in sorted(split.items())
        }

    def _published(self, full_name: str, topic: TopicEntry, partition: int, parts: list[Entry]) -> OffsetRange:
        """Publish parts at the end of a partition: a lost race repeats only the swap, never the bytes."""
        gate = Gate(self._cluster.store, self._cluster.catalog, full_name, topic.id, PRODUCERS)
        start = 0
        length = parts[-1].last + 1

        def extend(head: Head, epoch: int) -> Head:
            nonlocal start
            start = head.end
            added = [part.placed(start, epoch) for part in parts]
            return head.extended(added, end=start + length)

        gate.swap(partition, extend, mark=fresh_mark())
        return OffsetRange(start, start + length)


def conformed(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch as `INPUT_SCHEMA`: columns in order and of their types, null where they are missing."""
    columns: list[pa.Array[Any]] = []
    for field in INPUT_SCHEMA:
        index = records.schema.get_field_index(field.name)
        if index >= 0 and field.name != "timestamp_type":
            column = records.column(index)
            columns.append(column if column.type == field.type else column.cast(field.type))
        else:
            columns.append(_absent(field, records.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=INPUT_SCHEMA)


def _absent(field: pa.Field[Any], rows: int) -> pa.Array[Any]:
    if field.name == "headers":
        none = pa.array(np.zeros(rows + 1, np.int32))
        return pa.ListArray.from_arrays(none, pa.array([], field.type.value_type), type=field.type)
    if field.name == "timestamp_type":
        return pa.repeat(pa.scalar(CREATE_TIME, field.type), rows)
    return pa.nulls(rows, field.type)


def _from(first: int, records: pa.RecordBatch) -> pa.RecordBatch:
    if first == 0:
        return records
    index = records.schema.get_field_index("offset")
    return records.set_column(index, records.schema.field(index), pa.array(np.arange(first, first + records.num_rows)))


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
