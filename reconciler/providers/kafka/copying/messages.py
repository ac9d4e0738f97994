"""Records of a source as the producer of a copy takes them, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa

    from reconciler.providers.kafka.records.columns import Headers
    from reconciler.records.log import OffsetRange, TopicLog

_ROWS: Final = 5_000
"""Records turned into Python objects at once: they stay in the caches of the processor."""

Sent: TypeAlias = "tuple[bytes | None, bytes | None, int, Headers, int]"
"""Value, key, time, headers, and the offset in the source. A plain tuple: there are millions of them."""
_time: Final = itemgetter(2)
_headers: Final = itemgetter(3)


class Odd(list["Sent"]):
    """Records of which librdkafka cannot write one as it is: names that are bytes (see `columns.py`), or time 0."""


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
            yield told_apart(
                [(each.value(), each.key(), each.timestamp()[1], each.headers(), each.offset()) for each in messages]
            )
    else:
        for batch in source.read(partition, offsets):
            for start in range(0, batch.num_rows, _ROWS):
                yield rows_of(batch.slice(start, _ROWS))


def told_apart(rows: list[Sent]) -> list[Sent]:
    """Return the records, as `Odd` where one of them is."""
    if 0 in map(_time, rows):
        return Odd(rows)
    if any(map(_headers, rows)) and any(isinstance(name, bytes) for row in rows for name, _ in row[3] or ()):
        return Odd(rows)
    return rows


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
    return told_apart(list(zip(*columns, strict=True)))
