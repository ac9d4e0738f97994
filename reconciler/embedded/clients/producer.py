"""The producer: buffer records, split them by partition, write and publish parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa

from reconciler.archives.entries import STALE_MS, Entry
from reconciler.embedded.acl import check_may_append, find_visible_topic
from reconciler.embedded.clients.sequences import (
    DELIVERY_TIMEOUT_MS,
    Delivery,
    ProducerIdentity,
    SequencedBatch,
    advance_sequence,
    check_sequence,
    find_batch_offsets,
    is_batch_stored,
    update_producers,
)
from reconciler.embedded.keys import check_producer_id, fresh_producer_id, part_key
from reconciler.embedded.segments.admission import (
    AppendRules,
    admit_batch,
    conform_batch,
    parse_whole_number,
    read_append_rules,
    to_row,
)
from reconciler.embedded.segments.gate import AppendGate, check_writer
from reconciler.embedded.segments.head import PRODUCERS, Head, read_heads
from reconciler.embedded.segments.parts import PartWriter
from reconciler.errors import BrokenInvariantError, MissingObjectError, UserError
from reconciler.objectstore.register import create_mark
from reconciler.records.hashes import RoundRobinPosition, split_by_partition
from reconciler.records.log import OffsetRange
from reconciler.records.schema import INPUT_SCHEMA
from reconciler.runtime.dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from reconciler.embedded.context import ClusterContext


class _StalePartsError(Exception):
    """The parts are so old that a sweep may delete them before a head references them."""


@dataclass(slots=True)
class PartitionAppend:
    """Unpublished parts of one partition, stored at `put_ms`. Their offsets begin at 0."""

    gate: AppendGate
    partition: int
    parts: list[Entry]
    put_ms: int

    @property
    def record_count(self) -> int:
        """Number of records."""
        return self.parts[-1].last + 1

    @property
    def partition_label(self) -> str:
        """Topic and partition, for messages."""
        return f"{self.gate.full_name}, partition {self.partition}"


def publish_append(
    append: PartitionAppend,
    batch: SequencedBatch,
    delivery: Delivery,
    check_not_fenced: Callable[[], None] = lambda: None,
) -> OffsetRange | None:
    """Publish an append in one swap, unless its batch is stored; return its offsets.

    `None` means a batch whose offsets the head no longer has. `check_not_fenced` raises if the producer was fenced.
    """
    mark = create_mark()
    offsets: OffsetRange | None = None

    def extend(head: Head, epoch: int) -> Head | None:
        nonlocal offsets
        now_ms = delivery.now_ms()
        if is_batch_stored(head, batch, append.partition_label, now_ms):
            offsets = find_batch_offsets(head, batch)
            return None
        if now_ms - append.put_ms > STALE_MS:
            raise _StalePartsError
        offsets = OffsetRange(head.end, head.end + batch.count)
        return _append_to_head(head, append.parts, batch, epoch, now_ms)

    def attempt() -> OffsetRange | None:
        while True:
            try:
                append.gate.append_to_head(append.partition, extend, mark=mark, patience_s=delivery.patience_s)
            except _StalePartsError:
                check_not_fenced()
                _store_under_new_keys(append, delivery.now_ms())
            else:
                return offsets

    return delivery.retry_until_timeout(attempt, f"the append to {append.partition_label}")


def _append_to_head(head: Head, parts: list[Entry], batch: SequencedBatch, epoch: int, now_ms: int) -> Head:
    return replace(
        head,
        entries=(*head.entries, *[part.shift(head.end, epoch) for part in batch.mark_entries(parts)]),
        end=head.end + batch.count,
        producers=update_producers(head, batch.identity, batch.last, now_ms),
        transactions=_add_open_transaction(head, batch.identity),
    )


def _add_open_transaction(head: Head, who: ProducerIdentity) -> dict[str, object]:
    if who.transactional_id is None:
        return head.transactions
    opened = head.transactions.get(who.transactional_id)
    if opened is None:
        return {**head.transactions, who.transactional_id: {"epoch": who.epoch, "base": head.end}}
    if opened["epoch"] != who.epoch:
        message = (
            f"transaction {who.transactional_id}/{opened['epoch']} is still open while {who.transaction_mark} begins"
        )
        raise BrokenInvariantError(message, hint="Please report this, with the output of `cluster check`.")
    return head.transactions


def _store_under_new_keys(append: PartitionAppend, now_ms: int) -> None:
    store = append.gate.store
    try:
        for position, part in enumerate(append.parts):
            key = part_key(append.gate.full_name, append.partition)
            store.copy_from(key, store, part.key, kms_key_id=part.kms_key_id)
            append.parts[position] = replace(part, key=key)
    except MissingObjectError as error:
        where = append.partition_label
        message = f"the append to {where} waited so long that its uploaded parts were deleted; no record was written"
        raise UserError(message, hint="Append the records again.") from error
    append.put_ms = now_ms


_WRITE_THREADS: Final = 8
_MIN_THREAD_BYTES: Final = 128 * 1024


@dataclass(frozen=True, slots=True)
class RoutedRecords:
    """Validated records of one topic by partition; offsets begin at 0 in each."""

    gate: AppendGate
    rules: AppendRules
    by_partition: dict[int, list[pa.RecordBatch]]

    def make_writer(self, partition: int) -> PartWriter:
        """Return a writer of a partition's parts."""
        return PartWriter.of(self.gate.store, self.rules, partition)


def write_parts(routed: Iterable[RoutedRecords], now_ms: int) -> list[PartitionAppend]:
    """Write records as durable parts."""
    jobs = [(one, partition, records) for one in routed for partition, records in sorted(one.by_partition.items())]
    if len(jobs) == 1 and sum(batch.nbytes for batch in jobs[0][2]) < _MIN_THREAD_BYTES:
        ((one, partition, records),) = jobs
        return [PartitionAppend(one.gate, partition, list(one.make_writer(partition).write(records)), now_ms)]
    with ThreadPoolExecutor(_WRITE_THREADS, thread_name_prefix="put") as threads:
        begun = [
            (one.gate, partition, list(one.make_writer(partition).begin_writing(records, threads)))
            for one, partition, records in jobs
        ]
        for _, _, parts in begun:
            for _, put in parts:
                put.result()
    return [PartitionAppend(gate, partition, [entry for entry, _ in parts], now_ms) for gate, partition, parts in begun]


@dataclass(frozen=True, slots=True)
class RoundRobinState:
    """A producer's round-robin position in a topic."""

    position: RoundRobinPosition = field(default_factory=RoundRobinPosition)


def route_records(
    cluster: ClusterContext, full_name: str, batches: Sequence[pa.RecordBatch], course: RoundRobinState
) -> RoutedRecords:
    """Assign batches of `INPUT_SCHEMA` to partitions."""
    catalog = cluster.catalog.read()
    check_may_append(cluster.permissions, catalog, full_name)
    topic = find_visible_topic(cluster.permissions, catalog, full_name)
    check_writer(full_name, topic, PRODUCERS)
    rules, now_ms = read_append_rules(catalog, full_name), cluster.now_ms()
    split: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
    lengths: defaultdict[int, int] = defaultdict(int)
    for batch in batches:
        fitting = admit_batch(batch, rules, now_ms)
        for partition, records in split_by_partition(
            fitting, partitions=topic.partitions, now_ms=now_ms, spread=course.position
        ):
            split[partition].append(_number_offsets(lengths[partition], records))
            lengths[partition] += records.num_rows
    return RoutedRecords(
        AppendGate(cluster.store, cluster.catalog, full_name, topic.id, PRODUCERS, cluster.heads), rules, dict(split)
    )


def _number_offsets(first: int, records: pa.RecordBatch) -> pa.RecordBatch:
    if first == 0:
        return records
    index = records.schema.get_field_index("offset")
    return records.set_column(index, records.schema.field(index), pa.array(np.arange(first, first + records.num_rows)))


FLUSH_BYTES: Final = 128 * 1024 * 1024
FLUSH_RECORDS: Final = 50_000

Gained = dict[int, OffsetRange]


class Producer:
    """Appends records to topics of one cluster, exactly once. Not thread-safe.

    Records are buffered until they are enough, until `flush`, or until a `with` block ends. If a flush fails, its
    records may be stored.
    """

    def __init__(self, cluster: ClusterContext, *, delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS) -> None:
        self._cluster = cluster
        self._delivery = Delivery(cluster.now_ms, delivery_timeout_ms)
        self._identity = ProducerIdentity(fresh_producer_id())
        self._next: dict[tuple[str, int], int] = {}
        self._waiting: defaultdict[str, list[pa.RecordBatch]] = defaultdict(list)
        self._single: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self._bytes: defaultdict[str, int] = defaultdict(int)
        self._single_bytes: defaultdict[str, int] = defaultdict(int)
        self._courses: defaultdict[str, RoundRobinState] = defaultdict(RoundRobinState)
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
        """Append one record. The key chooses a missing partition; a missing timestamp is the current time."""
        self._check_open()
        row = to_row(topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)
        single = self._single[topic]
        single.append(row)
        self._single_bytes[topic] += _count_record_bytes(row)
        if len(single) >= FLUSH_RECORDS or self._single_bytes[topic] >= FLUSH_BYTES:
            self._batch_single_records(topic)
            self._flush_if_large(topic)

    def append(self, topic: str, records: pa.RecordBatch) -> None:
        """Append a batch with any of the columns `value, key, headers, timestamp_ms, partition`.

        Missing columns are null, and text becomes UTF-8. `offset`, `timestamp_type` and `topic` are ignored. Partitions
        keep the order of rows.
        """
        self._check_open()
        batch = conform_batch(topic, records)
        self._batch_single_records(topic)
        pieces = max(1, -(-batch.nbytes // FLUSH_BYTES))
        rows = max(1, -(-batch.num_rows // pieces))
        for start in range(0, batch.num_rows, rows):
            piece = batch.slice(start, rows)
            self._waiting[topic].append(piece)
            self._bytes[topic] += piece.nbytes
            self._flush_if_large(topic)

    def flush(self) -> dict[str, Gained]:
        """Write buffered records; return the offsets appended since the last call, by topic and partition.

        If a topic rejects a record, all its buffered records are dropped, and nothing is written.

        Raises:
            RetryableError: No attempt succeeded in time; records may be stored.
        """
        for topic in list(self._single):
            self._batch_single_records(topic)
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

    def _batch_single_records(self, topic: str) -> None:
        rows = self._single.pop(topic, [])
        self._single_bytes.pop(topic, None)
        if rows:
            batch = pa.RecordBatch.from_pylist(rows, schema=INPUT_SCHEMA)
            self._waiting[topic].append(batch)
            self._bytes[topic] += batch.nbytes

    def _flush_if_large(self, topic: str) -> None:
        if self._bytes[topic] >= FLUSH_BYTES:
            self._flush([topic])

    def _flush(self, topics: Sequence[str]) -> None:
        routed = []
        for topic in topics:
            try:
                routed.append(route_records(self._cluster, topic, self._waiting[topic], self._courses[topic]))
            except Exception:
                # If the rejected record stayed buffered, every later flush would fail.
                self._drop_buffered(topic)
                raise
        for topic in topics:
            self._drop_buffered(topic)
        appends = write_parts(routed, self._cluster.now_ms())
        if appends:
            self._prepare_partitions(appends)
        for append in appends:
            self._publish(append)

    def _publish(self, append: PartitionAppend) -> None:
        place = append.gate.topic_id, append.partition
        batch = SequencedBatch(self._identity, self._next.get(place, 0), append.record_count)
        try:
            offsets = publish_append(append, batch, self._delivery, self._check_not_fenced)
        except BaseException:
            self._handle_failure()
            raise
        self._next[place] = advance_sequence(batch.first, batch.count)
        if offsets is not None:
            gained = self._gained[append.gate.full_name]
            before = gained.get(append.partition, offsets)
            gained[append.partition] = OffsetRange(min(before.start, offsets.start), offsets.stop)

    def _drop_buffered(self, topic: str) -> None:
        self._waiting.pop(topic, None)
        self._bytes.pop(topic, None)

    def _handle_failure(self) -> None:
        """Begin a new epoch, since the last batch may be stored."""
        self._identity = replace(self._identity, epoch=self._identity.epoch + 1)
        self._next.clear()

    def _check_open(self) -> None:
        """Reject records outside a transaction."""

    def _prepare_partitions(self, appends: Sequence[PartitionAppend]) -> None:
        """Register partitions with the transaction before records are appended."""

    def _check_not_fenced(self) -> None:
        """Reject a fenced producer after a long pause."""


def _count_record_bytes(row: dict[str, Any]) -> int:
    headers = sum(len(header["key"]) + len(header["value"] or b"") for header in row["headers"])
    return len(row["key"] or b"") + len(row["value"] or b"") + headers


class SequencedProducer:
    """Appends batches exactly once, by the caller's producer id and sequence numbers. Not thread-safe.

    Sequence numbers count a partition's records from 0 in each epoch, and wrap after 2^31 - 1. A partition forgets a
    producer after 24 hours, and then accepts any number.
    """

    def __init__(
        self,
        cluster: ClusterContext,
        producer_id: str,
        *,
        epoch: int = 0,
        delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS,
    ) -> None:
        check_producer_id(producer_id)
        if parse_whole_number("epoch", epoch, bits=64) < 0:
            raise UserError(f"{epoch} is not a producer epoch", hint="Epochs count from 0.")
        self._cluster = cluster
        self._delivery = Delivery(cluster.now_ms, delivery_timeout_ms)
        self._identity = ProducerIdentity(producer_id, epoch, is_lasting=True)
        self._courses: dict[str, RoundRobinState] = {}

    def append(self, topic: str, partition: int, records: pa.RecordBatch, *, sequence: int) -> OffsetRange | None:
        """Append a batch whose first record is number `sequence`; return its offsets, or `None` if unknown.

        A stored batch is not appended again.

        Raises:
            OutOfOrderSequenceError: The batch does not follow the last one.
            ProducerFencedError: The partition has a later epoch.
            NotAuthorizedError: The principal may not write to the topic.
            RetryableError: No attempt succeeded in time. Append the same batch again: it is stored once.
        """
        check_sequence(parse_whole_number(f"{topic}: sequence", sequence, bits=64))
        partition = parse_whole_number(f"{topic}: partition", partition, bits=32)
        course = self._courses.setdefault(topic, RoundRobinState())
        routed = route_records(self._cluster, topic, [conform_batch(topic, records, partition=partition)], course)
        for append in write_parts([routed], self._cluster.now_ms()):
            return publish_append(append, SequencedBatch(self._identity, sequence, append.record_count), self._delivery)
        return None

    def last_sequences(self, topic: str) -> dict[int, int]:
        """Return the last sequence number per partition in this epoch."""
        heads = read_heads(self._cluster.store, self._cluster.topic(topic).id)
        known = {number: head.producers.get(self._identity.producer_id) for number, head in heads.items()}
        return {
            number: state["last"]
            for number, state in sorted(known.items())
            if state is not None and state["epoch"] == self._identity.epoch and state["last"] >= 0
        }
