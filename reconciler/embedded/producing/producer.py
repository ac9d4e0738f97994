"""Producing: records gathered, split by partition, written as parts and published by one swap a partition."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from reconciler.embedded.keys import fresh_producer_id
from reconciler.embedded.producing.appending import publish
from reconciler.embedded.producing.batches import conformed, row_of
from reconciler.embedded.producing.delivery import DELIVERY_TIMEOUT_MS, Delivery
from reconciler.embedded.producing.sequences import Identity, Numbered, advanced
from reconciler.embedded.producing.writing import Course, route
from reconciler.records.log import OffsetRange
from reconciler.records.schema import INPUT_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from reconciler.embedded.context import ClusterContext
    from reconciler.embedded.producing.appending import Append

FLUSH_BYTES: Final = 128 * 1024 * 1024
FLUSH_RECORDS: Final = 50_000
"""Of single records, each a Python object until it is flushed."""

Gained = dict[int, OffsetRange]


class Producer:
    """Appends records to topics of one cluster, each of them once. Not shared between threads.

    Records are gathered and written when there are enough, at `flush`, and at the end of a `with` block that raised
    nothing. What a failed flush was writing may be there or not.
    """

    def __init__(self, cluster: ClusterContext, *, delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS) -> None:
        self._cluster = cluster
        self._delivery = Delivery(cluster.now_ms, delivery_timeout_ms)
        self._identity = Identity(fresh_producer_id())
        self._next: dict[tuple[str, int], int] = {}
        self._waiting: defaultdict[str, list[pa.RecordBatch]] = defaultdict(list)
        self._single: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self._bytes: defaultdict[str, int] = defaultdict(int)
        self._courses: defaultdict[str, Course] = defaultdict(Course)
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
        """Append one record. Without a partition its key decides; without a time it gets the present one.

        Raises:
            UserError: A field is not of a type it takes; what was sent before stays.
        """
        self._check_open()
        row = row_of(topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)
        single = self._single[topic]
        single.append(row)
        if len(single) >= FLUSH_RECORDS:
            self._gather_single(topic)
            self._flush_if_large(topic)

    def append(self, topic: str, records: pa.RecordBatch) -> None:
        """Append a batch: any of the columns `value, key, headers, timestamp_ms, partition`.

        Missing columns are null; text is taken as UTF-8. What else records have that were read (`offset`,
        `timestamp_type`, `topic`) is left out. The order of rows is kept within each partition.

        Raises:
            UserError: A column is none of these, or not of its type; what was sent before stays.
        """
        self._check_open()
        batch = conformed(topic, records)
        self._gather_single(topic)
        pieces = max(1, -(-batch.nbytes // FLUSH_BYTES))
        rows = max(1, -(-batch.num_rows // pieces))
        for start in range(0, batch.num_rows, rows):
            piece = batch.slice(start, rows)
            self._waiting[topic].append(piece)
            self._bytes[topic] += piece.nbytes
            self._flush_if_large(topic)

    def flush(self) -> dict[str, Gained]:
        """Write what was gathered; return what each partition of each topic gained since the last call.

        A record that a topic refuses takes all that waits for that topic with it; nothing is written then.

        Raises:
            InvalidNamespaceError: The namespace of a topic does not exist.
            NotAuthorizedError: Whoever acts may not write to a topic.
            UserError: A topic does not exist, is a mirror (only its link writes to it), or refuses a record.
            RetryableError: It was not possible in time; says whether records may be there.
        """
        for topic in list(self._single):
            self._gather_single(topic)
        self._flush(sorted(self._waiting))
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
            self._flush([topic])

    def _flush(self, topics: Sequence[str]) -> None:
        """Admit everything, then write it, then publish it."""
        routed = []
        for topic in topics:
            try:
                routed.append(route(self._cluster, topic, self._waiting[topic], self._courses[topic]))
            except Exception:
                # What was refused must not be refused again with the next flush, and keeps no other topic waiting.
                self._forget(topic)
                raise
        for topic in topics:
            self._forget(topic)
        now_ms = self._cluster.now_ms()
        appends = [append for one in routed for append in one.written(now_ms)]
        if appends:
            self._before(appends)
        for append in appends:
            self._publish(append)

    def _publish(self, append: Append) -> None:
        place = append.gate.topic_id, append.partition
        batch = Numbered(self._identity, self._next.get(place, 0), append.records)
        try:
            offsets = publish(append, batch, self._delivery, self._check_wanted)
        except BaseException:
            self._doubt()
            raise
        self._next[place] = advanced(batch.first, batch.count)
        if offsets is not None:
            gained = self._gained[append.gate.full_name]
            before = gained.get(append.partition, offsets)
            gained[append.partition] = OffsetRange(min(before.start, offsets.start), offsets.stop)

    def _forget(self, topic: str) -> None:
        self._waiting.pop(topic, None)
        self._bytes.pop(topic, None)

    def _doubt(self) -> None:
        """Begin a new epoch: whether the last numbers were used, nobody knows."""
        self._identity = replace(self._identity, epoch=self._identity.epoch + 1)
        self._next.clear()

    def _check_open(self) -> None:
        """Refuse records nobody waits for."""

    def _before(self, appends: Sequence[Append]) -> None:
        """Do what must be done before the first swap of a flush."""

    def _check_wanted(self) -> None:
        """Refuse to go on after a long sleep."""
