"""Records of a source as the producer of a copy takes them, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

from reconciler.errors import RetryableError
from reconciler.providers.kafka.ledgerwire import opened, told

if TYPE_CHECKING:
    import pyarrow as pa

    from reconciler.records.log import OffsetRange, TopicLog

# ruff: noqa: PLC0415 - whoever copies nothing imports no client
# ruff: noqa: SLF001 - the library has no public names for what it finds wrong itself

BATCH: Final = 5_000
"""Records taken at once: their Python objects stay in the caches of the processor."""
_WAIT_S: Final = 60.0
_POLL_S: Final = 0.5
_READING: Final = {
    "group.id": "reconciler",  # Required by the library; nothing is committed under it.
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 64 << 10,
    "fetch.message.max.bytes": 4 << 20,
    "fetch.wait.max.ms": 50,
}


Sent: TypeAlias = "tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]] | None, int]"
"""Value, key, time, headers, and the offset in the source. A plain tuple: there are millions of them."""


@runtime_checkable
class MessageLog(Protocol):
    """A log that hands on its client's own objects: a copy from Kafka to Kafka needs no columns in between."""

    def messages(self, partition: int, offsets: OffsetRange) -> Iterator[Sequence[Any]]:
        """Yield what `read` would, as lists of confluent-kafka messages."""
        ...


def batches_of(source: TopicLog, partition: int, offsets: OffsetRange) -> Iterator[Sequence[Sent]]:
    """Yield the records of a range, in order."""
    if isinstance(source, MessageLog):
        for messages in source.messages(partition, offsets):
            yield [(each.value(), each.key(), each.timestamp()[1], each.headers(), each.offset()) for each in messages]
    else:
        for batch in source.read(partition, offsets):
            for start in range(0, batch.num_rows, BATCH):
                yield rows_of(batch.slice(start, BATCH))


def rows_of(batch: pa.RecordBatch) -> list[Sent]:
    """Return the records of a batch of `RECORD_SCHEMA`."""
    value, key, timestamp_ms, offset = (
        batch.column(name).to_pylist() for name in ("value", "key", "timestamp_ms", "offset")
    )
    return list(zip(value, key, timestamp_ms, _headers(batch.column("headers")), offset, strict=True))


def _headers(column: pa.ListArray) -> list[list[tuple[str, bytes | None]] | None]:
    flat = column.flatten()
    if not len(flat):
        return [None] * len(column)
    pairs = list(zip(flat.field("key").to_pylist(), flat.field("value").to_pylist(), strict=True))
    found: list[list[tuple[str, bytes | None]] | None] = []
    at = 0
    for length in column.value_lengths().to_pylist():
        found.append(pairs[at : at + length] or None)
        at += length
    return found


@dataclass(frozen=True, slots=True)
class Messages:
    """Reads ranges of a topic as its client's own objects. Picklable."""

    settings: Mapping[str, Any]
    topic: str
    cluster: str

    def of(self, partition: int, offsets: OffsetRange) -> Iterator[Sequence[Any]]:
        """Yield the messages of a range that is committed, in order; waits while brokers are away.

        Raises:
            RetryableError: They stay away for a minute.
        """
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(opened(self.settings, _READING))
        try:
            consumer.assign([TopicPartition(self.topic, partition, offsets.start)])
            yield from self._until(consumer, offsets.stop)
        finally:
            consumer.close()

    def _until(self, consumer: Any, stop: int) -> Iterator[Sequence[Any]]:
        until = monotonic() + _WAIT_S
        while True:
            found = consumer.consume(BATCH, _POLL_S)
            if not found and monotonic() > until:
                message = f"{self.topic} of cluster {self.cluster} gave nothing for {_WAIT_S:.0f} s"
                raise RetryableError(
                    message, hint="See whether its brokers are alive, then run the same command again."
                )
            if found:
                until = monotonic() + _WAIT_S
                messages, is_end = self._told_apart(found, stop)
                if messages:
                    yield messages
                if is_end:
                    return

    def _told_apart(self, found: Sequence[Any], stop: int) -> tuple[Sequence[Any], bool]:
        """Return the messages among what was consumed, and whether all before `stop` was."""
        from confluent_kafka import KafkaError

        if found[-1].error() is None and found[-1].offset() < stop and all(each.error() is None for each in found):
            return found, found[-1].offset() + 1 == stop
        messages: list[Any] = []
        for each in found:
            error = each.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                if not error.retriable() and error.code() not in {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}:
                    raise told(error, f"reading {self.topic}", self.cluster)
            elif each.offset() >= stop:
                return messages, True
            elif error is None:
                messages.append(each)
        return messages, bool(messages) and messages[-1].offset() + 1 == stop
