"""Transactions of a copy, by librdkafka or by the protocol."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from operator import itemgetter
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np

from reconciler.errors import LostRaceError, ProducerFencedError, ReconcilerError, RetryableError
from reconciler.providers.brokers.faults import find_cause, find_original_error, translate_code
from reconciler.providers.brokers.ledger import (
    SLICE_S,
    TOPIC,
    TRANSACTION_MS,
    WAIT_S,
    is_fenced,
    repeat_patiently,
    translate_ledger_error,
)
from reconciler.providers.brokers.records.record_batches import (
    BatchWriter,
    Headers,
    ProducerId,
    open_connection,
    retry_until_answered,
    update_brokers,
)
from reconciler.providers.brokers.records.whole_batches import WholeBatch, replace_producer
from reconciler.providers.brokers.security import reveal_secrets, to_admin_settings
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from reconciler.records.log import OffsetRange, TopicLog

# Only processes that copy import the client libraries.
# ruff: noqa: PLC0415


_ROWS: Final = 5_000
"""Records converted to Python objects together, few enough for the processor's caches."""

SentRecord: TypeAlias = "tuple[bytes | None, bytes | None, int, Headers, int]"
"""Value, key, time, headers and source offset, in a tuple for speed."""
_read_time: Final = itemgetter(2)
_read_headers: Final = itemgetter(3)


Content: TypeAlias = "Sequence[SentRecord] | WholeBatch"


class OddRecords(list["SentRecord"]):
    """Records with a header name in bytes or time 0, which librdkafka cannot write."""


@runtime_checkable
class BatchLog(Protocol):
    """Log that provides batches as a broker stores them."""

    def has_whole_batches(self, partition: int, offsets: OffsetRange) -> bool:
        """Return whether the first batches of a range are worth copying whole."""
        ...

    def read_whole_batches(self, partition: int, offsets: OffsetRange) -> Iterator[WholeBatch]:
        """Yield a range's batches in order, up to the first that must be read record by record."""
        ...


@runtime_checkable
class MessageLog(Protocol):
    """Log that provides confluent-kafka messages, for copies without columns."""

    def read_messages(self, partition: int, offsets: OffsetRange) -> Iterator[Sequence[Any]]:
        """Yield a range's records as lists of messages."""
        ...


@dataclass(frozen=True, slots=True)
class CopyLot:
    """Records written together, or one whole batch. `through` is the offset after the last."""

    content: Content
    first: int
    through: int
    newest_ms: int
    records: int
    bytes: int
    """Size in bytes of keys and values, or of the stored batch."""


def read_whole_lots(source: BatchLog, partition: int, offsets: OffsetRange) -> Iterator[CopyLot]:
    """Yield a range's batches, up to the first that cannot be copied whole."""
    for batch in source.read_whole_batches(partition, offsets):
        yield CopyLot(batch, batch.first, batch.through, batch.newest_ms, batch.records, len(batch.raw))


def read_record_lots(source: TopicLog, partition: int, offsets: OffsetRange) -> Iterator[CopyLot]:
    """Yield a range's records in order."""
    for batch in read_row_batches(source, partition, offsets):
        taken = sum(len(row[0] or b"") + len(row[1] or b"") for row in batch)
        yield CopyLot(batch, batch[0][4], batch[-1][4] + 1, max(map(_read_time, batch)), len(batch), taken)


def read_row_batches(source: TopicLog, partition: int, offsets: OffsetRange) -> Iterator[Sequence[SentRecord]]:
    """Yield a range's records in order, in non-empty batches."""
    if isinstance(source, MessageLog):
        for messages in source.read_messages(partition, offsets):
            yield mark_odd_records(
                [
                    (message.value(), message.key(), message.timestamp()[1], message.headers(), message.offset())
                    for message in messages
                ]
            )
    else:
        for batch in source.read(partition, offsets):
            yield from map(to_rows, split_batch(batch))


def split_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield slices small enough to convert to Python objects together."""
    for start in range(0, batch.num_rows, _ROWS):
        yield batch.slice(start, _ROWS)


def mark_odd_records(rows: list[SentRecord]) -> list[SentRecord]:
    """Return the records; as `OddRecords` if librdkafka cannot write all of them."""
    if 0 in map(_read_time, rows):
        return OddRecords(rows)
    if any(map(_read_headers, rows)) and any(isinstance(name, bytes) for row in rows for name, _ in row[3] or ()):
        return OddRecords(rows)
    return rows


def to_rows(batch: pa.RecordBatch) -> list[SentRecord]:
    """Return the records of a batch of `RECORD_SCHEMA`."""
    from reconciler.providers.brokers.records.columns import to_contents, to_headers

    columns = (
        to_contents(batch.column("value")),
        to_contents(batch.column("key")),
        batch.column("timestamp_ms").to_pylist(),
        to_headers(batch.column("headers")),
        batch.column("offset").to_pylist(),
    )
    return mark_odd_records(list(zip(*columns, strict=True)))


_TAKEN: Final = "Nothing is lost: another process copies it now. Run again later."
_ABORT_S: Final = 10.0
_FULL_S: Final = 0.1
_WRITING: Final = {
    "retry.backoff.ms": 20,
    "transaction.timeout.ms": TRANSACTION_MS,
    "linger.ms": 20,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 256 << 10,
    "message.max.bytes": 1_000_000_000,  # The client's limit is never reached, because the broker enforces its own.
    "compression.type": "lz4",
}


class ClientTransactions:
    """Transactions of records and ledger entries by confluent-kafka. Opening fences earlier producers."""

    def __init__(self, settings: Mapping[str, Any], place: tuple[str, int], cluster: str) -> None:
        from confluent_kafka import Producer

        self._topic, self._partition = place
        self._settings, self._cluster = settings, cluster
        self._sources: list[int] = []
        self._targets: list[int] = []
        self._errors: list[Any] = []
        self._is_open = False
        self._producer: Any = Producer(reveal_secrets({**_WRITING, **settings}))
        self._call(self._producer.init_transactions, SLICE_S)

    @property
    def should_switch(self) -> bool:
        """Always false."""
        return False

    def can_write(self, batch: Content) -> bool:
        """Return whether this writer can write a batch unchanged."""
        return isinstance(batch, list) and not isinstance(batch, OddRecords)

    def write_records(self, batch: Content) -> None:
        """Write records, which become readable with the commit."""
        rows = cast("Sequence[SentRecord]", batch)
        if not self._is_open:
            self._call(self._producer.begin_transaction)
            self._is_open = True
        with self._translate_errors():
            self._produce(rows)
            self._producer.poll(0)
        self._sources += [row[4] for row in rows]
        self._raise_delivery_error()

    def await_offsets(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Wait until the records are written, and return their source and target offsets."""
        until = monotonic() + WAIT_S
        while self._flush(1.0):
            self._raise_delivery_error()
            if monotonic() > until:
                raise self._timeout_error()
        self._raise_delivery_error()
        return np.array(self._sources, np.int64), np.array(self._targets, np.int64)

    def commit(self, ledger: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Commit the records together with ledger entries."""
        if not self._is_open:
            self._call(self._producer.begin_transaction)
        for key, value in ledger:
            self._call(self._producer.produce, TOPIC, value, key, 0)
        self._call(self._producer.commit_transaction, SLICE_S)
        self._is_open = False
        self._sources, self._targets = [], []

    def close(self) -> None:
        """Abort an open transaction."""
        from confluent_kafka import KafkaException

        if self._is_open:
            with suppress(KafkaException):
                self._producer.abort_transaction(_ABORT_S)
        self._is_open = False

    def _produce(self, batch: Sequence[SentRecord]) -> None:
        produce, topic, partition, delivered = self._producer.produce, self._topic, self._partition, self._on_delivery
        for value, key, timestamp_ms, headers, _ in batch:
            try:
                produce(topic, value, key, partition, delivered, timestamp=timestamp_ms, headers=headers)
            except BufferError:
                self._retry_produce(
                    partial(produce, topic, value, key, partition, delivered, timestamp=timestamp_ms, headers=headers)
                )

    def _flush(self, seconds: float) -> int:
        with self._translate_errors():
            return int(self._producer.flush(seconds))

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        from confluent_kafka import KafkaException

        try:
            yield
        except (KafkaException, SystemError) as error:
            if (cause := find_cause(error)) is None:
                raise
            raise self._translate(cause) from error

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is None:
            self._targets.append(message.offset())
        else:
            self._errors.append(error)

    def _retry_produce(self, produce: Callable[[], None]) -> None:
        until = monotonic() + WAIT_S
        while True:
            self._producer.poll(_FULL_S)
            self._raise_delivery_error()
            try:
                return produce()
            except BufferError:
                if monotonic() > until:
                    raise self._timeout_error() from None

    def _timeout_error(self) -> RetryableError:
        message = f"{self._topic}, partition {self._partition} of cluster {self._cluster} takes no records"
        return RetryableError(message, hint="See whether its brokers are alive, then run the same command again.")

    def _raise_delivery_error(self) -> None:
        if self._errors:
            raise self._translate(self._errors[0])

    def _call(self, call: Callable[..., Any], *arguments: Any) -> None:
        with self._translate_errors():
            repeat_patiently(partial(call, *arguments), self._settings, doing=self._doing, cluster=self._cluster)

    def _translate(self, error: Any) -> ReconcilerError:
        where = f"{self._topic}, partition {self._partition} of cluster {self._cluster}"
        error = find_original_error(self._producer, error)
        if is_fenced(error):
            return LostRaceError(where, None, hint=_TAKEN)
        return translate_ledger_error(error, self._settings, self._doing, self._cluster)

    @property
    def _doing(self) -> str:
        return f"copying into {self._topic}, partition {self._partition}"


def check_in_order(sources: npt.NDArray[np.int64], targets: npt.NDArray[np.int64], within: OffsetRange) -> None:
    """Check that all records are in the range, and written once in order."""
    is_asked = not len(sources) or (sources[0] >= within.start and sources[-1] < within.stop)
    is_whole = len(sources) == len(targets) and bool((np.diff(sources) > 0).all() and (np.diff(targets) > 0).all())
    if not (is_asked and is_whole):
        raise source_changed_error()


def source_changed_error() -> RetryableError:
    """Return the error for copied records that do not match the source's range."""
    message = "the source changed while it was read"
    return RetryableError(message, hint="Nothing of that was committed: run the same command again.")


_TRANSACTIONAL_ID: Final = 1
_AGAIN: Final = frozenset({3, 7, 13, 14, 15, 16, 51})
_ORDINARY_RECORDS: Final = 2_000


class ProtocolTransactions:
    """`ClientTransactions` by Kafka's protocol, for records that librdkafka cannot write."""

    def __init__(self, settings: Mapping[str, Any], place: tuple[str, int], cluster: str) -> None:
        self._topic, self._partition = place
        self._cluster = cluster
        self._client = open_connection(to_admin_settings(settings), cluster)
        self._id: str = settings["transactional.id"]
        self._coordinator: int | None = None
        self._sources: list[int] = []
        self._targets: list[int] = []
        self._opened: set[tuple[str, int]] = set()
        self._ordinary_count = 0
        with self._translate_errors():
            self._producer = self._init_producer()
        self._writer = BatchWriter(settings, cluster, self._producer)

    @property
    def should_switch(self) -> bool:
        """Return whether librdkafka, which is faster, could have written the last records."""
        return self._ordinary_count >= _ORDINARY_RECORDS

    def can_write(self, batch: Content) -> bool:
        """Return whether brokers would store a whole batch unchanged; records can always be written."""
        if isinstance(batch, list):
            return True
        whole = cast("WholeBatch", batch)
        return self._writer.stores_unchanged(self._topic, whole.codec, len(whole.raw))

    def write_records(self, batch: Content) -> None:
        """Write records, which become readable with the commit."""
        with self._translate_errors():
            self._add_partition(self._topic, self._partition)
            if isinstance(batch, list):
                self._ordinary_count = 0 if isinstance(batch, OddRecords) else self._ordinary_count + len(batch)
                self._targets += self._writer.write(self._topic, self._partition, batch)
                self._sources += [row[4] for row in batch]
            else:
                whole = cast("WholeBatch", batch)
                self._targets += self._writer.send_batch(
                    self._topic, self._partition, partial(replace_producer, whole), whole.records
                )
                self._sources += range(whole.first, whole.through)

    def await_offsets(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the source and target offsets of this transaction's records."""
        return np.array(self._sources, np.int64), np.array(self._targets, np.int64)

    def commit(self, ledger: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Commit the records together with ledger entries."""
        now = time.time_ns() // 1_000_000
        with self._translate_errors():
            self._add_partition(TOPIC, 0)
            self._writer.write(TOPIC, 0, [(value, key, now, None, 0) for key, value in ledger])
            self._end_transaction(is_committed=True)
        self._sources, self._targets = [], []

    def close(self) -> None:
        """Abort an open transaction."""
        if self._opened:
            with suppress(ReconcilerError):
                self._end_transaction(is_committed=False)

    def _init_producer(self) -> ProducerId:
        from kafka.protocol.producer import InitProducerIdRequest

        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=TRANSACTION_MS,
            producer_id=-1,
            producer_epoch=-1,
            max_version=4,
        )
        response = self._send_to_coordinator(request, lambda answer: int(answer.error_code))
        return ProducerId(response.producer_id, response.producer_epoch, self._id)

    def _add_partition(self, topic: str, partition: int) -> None:
        from kafka.protocol.producer import AddPartitionsToTxnRequest

        if (topic, partition) in self._opened:
            return
        request_topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer.id,
            v3_and_below_producer_epoch=self._producer.epoch,
            v3_and_below_topics=[request_topic(name=topic, partitions=[partition])],
            max_version=3,
        )
        self._send_to_coordinator(request, _partition_error_code)
        self._opened.add((topic, partition))

    def _end_transaction(self, *, is_committed: bool) -> None:
        from kafka.protocol.producer import EndTxnRequest

        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer.id,
            producer_epoch=self._producer.epoch,
            committed=is_committed,
            max_version=3,
        )
        self._send_to_coordinator(request, lambda answer: int(answer.error_code))
        self._opened = set()

    def _send_to_coordinator(self, request: Any, code: Callable[[Any], int]) -> Any:
        response = retry_until_answered(
            lambda: self._client.send(request, doing=self._doing, node=self._find_coordinator()),
            code,
            _AGAIN,
            self._forget_coordinator,
        )
        if (refused := code(response)) != 0:
            raise translate_code(refused, "", what=f"cluster {self._cluster}: {self._doing}")
        return response

    def _find_coordinator(self) -> int:
        from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

        if self._coordinator is None:
            request = FindCoordinatorRequest(key=self._id, key_type=_TRANSACTIONAL_ID, max_version=3)
            response = retry_until_answered(
                lambda: self._client.send(request, doing=self._doing),
                lambda answer: int(answer.error_code),
                _AGAIN,
                self._forget_coordinator,
            )
            if response.error_code:
                raise translate_code(response.error_code, "", what=f"cluster {self._cluster}: {self._doing}")
            brokers = MetadataRequest(topics=[], allow_auto_topic_creation=False, max_version=9)
            update_brokers(self._client, self._client.send(brokers, doing=self._doing))
            self._coordinator = int(response.node_id)
        return self._coordinator

    def _forget_coordinator(self) -> None:
        self._coordinator = None

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except ProducerFencedError as error:
            where = f"{self._topic}, partition {self._partition} of cluster {self._cluster}"
            raise LostRaceError(where, None, hint=_TAKEN) from error

    @property
    def _doing(self) -> str:
        return f"copying into {self._topic}, partition {self._partition}"


def _partition_error_code(answer: Any) -> int:
    ((topic),) = answer.results_by_topic_v3_and_below
    (partition,) = topic.results_by_partition
    return int(partition.partition_error_code)
