"""Records of a source as the producer of a copy takes them, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa

    from reconciler.records.log import OffsetRange, TopicLog

_ROWS: Final = 5_000
"""Records turned into Python objects at once: they stay in the caches of the processor."""

Sent: TypeAlias = "tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]] | None, int]"
"""Value, key, time, headers, and the offset in the source. A plain tuple: there are millions of them."""


@runtime_checkable
class MessageLog(Protocol):
    """A log that hands on its client's own objects: a copy from Kafka to Kafka needs no columns in between."""

    def messages(self, partition: int, offsets: OffsetRange) -> Iterator[Sequence[Any]]:
        """Yield what `read` would, as lists of confluent-kafka messages."""
        ...


def batches_of(source: TopicLog, partition: int, offsets: OffsetRange) -> Iterator[Sequence[Sent]]:
    """Yield the records of a range, in order; no batch is empty."""
    if isinstance(source, MessageLog):
        for messages in source.messages(partition, offsets):
            yield [(each.value(), each.key(), each.timestamp()[1], each.headers(), each.offset()) for each in messages]
    else:
        for batch in source.read(partition, offsets):
            for start in range(0, batch.num_rows, _ROWS):
                yield rows_of(batch.slice(start, _ROWS))


def rows_of(batch: pa.RecordBatch) -> list[Sent]:
    """Return the records of a batch of `RECORD_SCHEMA`."""
    from reconciler.providers.kafka.records.columns import contents_of, headers_of  # noqa: PLC0415 - brings the client

    columns = (
        contents_of(batch.column("value")),
        contents_of(batch.column("key")),
        batch.column("timestamp_ms").to_pylist(),
        headers_of(batch.column("headers")),
        batch.column("offset").to_pylist(),
    )
    return list(zip(*columns, strict=True))
