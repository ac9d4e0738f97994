"""Production of records to a Kafka topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from reconciler.errors import RetryableError, UserError
from reconciler.providers.brokers.faults import translate_error
from reconciler.providers.brokers.records.columns import to_contents, to_headers
from reconciler.providers.brokers.security import reveal_secrets
from reconciler.records.hashes import RoundRobinPosition, assign_partitions, check_partitions
from reconciler.records.log import OffsetRange
from reconciler.records.schema import has_nul_byte, has_private_characters

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from reconciler.providers.brokers.records.record_batches import BatchWriter, Row


Report = Callable[[KafkaError | None, Message], None] | None

BATCH_BYTES: Final = 1_000_000
PRODUCER: Final = {
    "enable.idempotence": True,
    "acks": "all",
    # The topic's limit applies to large records, not the client's.
    "message.max.bytes": 500_000_000,
    # A topic that is unknown after this time does not exist.
    "topic.metadata.propagation.max.ms": 5000,
    "linger.ms": 20,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 64 << 10,
}
_POLL_EVERY: Final = 2_000
_REPORT_LIMIT_S: Final = 130.0


def has_odd_records(records: pa.RecordBatch) -> bool:
    """Return whether any record is odd: librdkafka would alter its time (0) or a header name."""
    names = records.column("headers").flatten().field("key")
    return (
        has_private_characters(names)
        or has_nul_byte(names)
        or bool(pc.any(pc.equal(records.column("timestamp_ms"), 0)).as_py())
    )


class RecordSender:
    """Writer of records to one topic; the caller closes its client."""

    def __init__(self, producer: Producer, topic: str, cluster: str) -> None:
        self.producer, self.topic, self.cluster = producer, topic, cluster

    def send(self, records: pa.RecordBatch, partitions: Iterable[int], reports: Iterable[Report]) -> None:
        """Queue records with partitions and delivery callbacks. Blocks while the queue is full.

        Records must not be odd (see `has_odd_records`).
        """
        headers = to_headers(records.column("headers"))
        times = records.column("timestamp_ms")
        rows = zip(
            to_contents(records.column("value")),
            to_contents(records.column("key")),
            partitions,
            reports,
            repeat(None),
            (times.fill_null(0) if times.null_count else times).to_numpy().tolist(),
            headers,
            strict=False,
        )
        produce, topic = self.producer.produce, self.topic
        for number, row in enumerate(rows):
            try:
                produce(topic, *row)
            except BufferError:
                self._retry_produce(row)
            except KafkaException as error:
                raise self._translate(error) from error
            if number % _POLL_EVERY == 0:
                self.producer.poll(0)

    def flush(self) -> None:
        """Wait until every record is reported as delivered or failed."""
        until = monotonic() + _REPORT_LIMIT_S
        while self.producer.flush(1.0):
            if monotonic() > until:
                raise self._timeout_error()

    def _retry_produce(self, row: tuple[Any, ...]) -> None:
        until = monotonic() + _REPORT_LIMIT_S
        while True:
            self.producer.poll(0.1)
            try:
                return self.producer.produce(self.topic, *row)
            except BufferError:
                if monotonic() > until:
                    raise self._timeout_error() from None

    def _translate(self, error: KafkaException) -> Exception:
        return translate_error(error, doing=f"writing to {self.topic}", cluster=self.cluster)

    def _timeout_error(self) -> RetryableError:
        message = f"{self.topic} of cluster {self.cluster} takes no records"
        return RetryableError(message, hint="See whether its brokers are alive, then run the same command again.")


_PATIENCE_MS: Final = 120_000
_ANSWER_S: Final = 30.0


class KafkaProducer:
    """`TopicProducer` for a Kafka topic. Not thread-safe.

    `topic` is the name on the brokers, `settings` are those of confluent-kafka. `compression` is none, gzip, snappy,
    lz4 or zstd. `batch_bytes` must not exceed the topic's `max.message.bytes`.
    """

    def __init__(
        self,
        topic: str,
        settings: Mapping[str, Any],
        cluster: str,
        *,
        compression: str = "none",
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        how = {"message.timeout.ms": _PATIENCE_MS, "compression.type": compression, "batch.size": batch_bytes}
        self._settings = settings
        self._producer = Producer({**PRODUCER, **how, **reveal_secrets(settings)})
        self._sender = RecordSender(self._producer, topic, cluster)
        self._reports: dict[int, _DeliveryReports] = {}
        self._spread = RoundRobinPosition()
        self._partitions = 0

    def append(self, records: pa.RecordBatch) -> None:
        """Queue a batch of `INPUT_SCHEMA`."""
        numbers = self._choose_partitions(records)
        reports = {number: self._reports.setdefault(number, _DeliveryReports()) for number in set(numbers.tolist())}
        if has_odd_records(records):
            self._write_odd_records(records, numbers)
            return
        callbacks = map(_DeliveryReports.next_callback, map(reports.__getitem__, numbers.tolist()))
        self._sender.send(records, numbers.tolist(), callbacks)

    def flush(self) -> Mapping[int, OffsetRange]:
        """Write all queued records.

        Raises:
            UserError: Brokers rejected records. Others may be written.
            RetryableError: Brokers did not respond in time; queued records may have been written.
        """
        self._sender.flush()
        reports, self._reports = self._reports, {}
        self._check_delivered(reports.values())
        return {number: report.compute_gained_range() for number, report in sorted(reports.items())}

    def _write_odd_records(self, records: pa.RecordBatch, numbers: npt.NDArray[np.int32]) -> None:
        self._sender.flush()
        self._check_delivered(self._reports.values())
        times = records.column("timestamp_ms").fill_null(time.time_ns() // 1_000_000)
        columns = (
            to_contents(records.column("value")),
            to_contents(records.column("key")),
            times.to_pylist(),
            to_headers(records.column("headers")),
            numbers.tolist(),
        )
        by_partition: dict[int, list[Row]] = {}
        for row in zip(*columns, strict=True):
            by_partition.setdefault(row[4], []).append(row)
        for number, rows in sorted(by_partition.items()):
            self._reports[number].add_offsets(self._writer.write(self._sender.topic, number, rows))

    @cached_property
    def _writer(self) -> BatchWriter:
        from reconciler.providers.brokers.records.record_batches import BatchWriter  # noqa: PLC0415 - imports the other client

        return BatchWriter(self._settings, self._sender.cluster)

    def _check_delivered(self, reports: Iterable[_DeliveryReports]) -> None:
        for report in reports:
            if report.errors:
                doing = f"writing to {self._sender.topic}"
                raise translate_error(KafkaException(report.errors[0]), doing=doing, cluster=self._sender.cluster)

    def _choose_partitions(self, records: pa.RecordBatch) -> npt.NDArray[np.int32]:
        partitions, keys = records.column("partition"), records.column("key")
        self._check_partitions(partitions)
        if partitions.null_count == 0:
            chosen = partitions
        else:
            chosen = pc.coalesce(partitions, assign_partitions(keys, self._count_partitions(), state=self._spread))
        return cast("npt.NDArray[np.int32]", chosen.to_numpy())

    def _check_partitions(self, partitions: pa.Array) -> None:
        if partitions.null_count == len(partitions):
            return
        try:
            check_partitions(partitions, self._count_partitions())
        except UserError:
            self._partitions = 0
            check_partitions(partitions, self._count_partitions())

    def _count_partitions(self) -> int:
        if not self._partitions:
            topic, cluster = self._sender.topic, self._sender.cluster
            try:
                seen = self._producer.list_topics(topic, _ANSWER_S).topics[topic]
            except KafkaException as error:
                raise translate_error(error, doing=f"looking at {topic}", cluster=cluster) from error
            if seen.error is not None:
                raise translate_error(KafkaException(seen.error), doing=f"looking at {topic}", cluster=cluster)
            self._partitions = len(seen.partitions)
        return self._partitions


class _DeliveryReports:
    """First and last delivery report of a partition with in-order delivery."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._last = 0
        self._others: dict[KafkaError | None, Message] = {}
        self._has_first = False

    def next_callback(self) -> Any:
        if not self._has_first:
            self._has_first = True
            return self._record_first
        return self._others.__setitem__

    def add_offsets(self, offsets: Sequence[int]) -> None:
        self._has_first = True
        self._first = offsets[0] if self._first is None else self._first
        self._last = offsets[-1]

    @property
    def errors(self) -> list[KafkaError]:
        return [error for error in self._others if error is not None]

    def compute_gained_range(self) -> OffsetRange:
        """Return the range of written offsets, which may include other producers' records."""
        last = self._others.get(None)
        first = self._first or 0
        return OffsetRange(first, 1 + max(first, self._last, (last.offset() or 0) if last is not None else first))

    def _record_first(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._first = message.offset()
        self._others[error] = message
