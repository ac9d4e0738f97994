"""Handing records to librdkafka, which sends them while Python goes on; those it can write as they are."""

from __future__ import annotations

from itertools import repeat
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc
from confluent_kafka import KafkaException

from reconciler.errors import RetryableError
from reconciler.providers.kafka.faults import translated
from reconciler.providers.kafka.records.columns import contents_of, headers_of
from reconciler.records.headers import has_marks, has_nul

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa
    from confluent_kafka import KafkaError, Message, Producer

    Report = Callable[[KafkaError | None, Message], None] | None

BATCH_BYTES: Final = 1_000_000
"""What one batch may be: brokers take 1,048,588 unless a topic says otherwise."""
PRODUCER: Final = {
    "enable.idempotence": True,
    "acks": "all",
    # One record may be larger than a batch: whether that is too large is for the topic to say.
    "message.max.bytes": 500_000_000,
    # A topic that was just made is known everywhere after that; one that is still unknown does not exist.
    "topic.metadata.propagation.max.ms": 5000,
    "linger.ms": 20,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 64 << 10,
}
"""What every producer is set to: nothing lost, nothing doubled, order kept, bounded memory."""
_POLL_EVERY: Final = 2_000
_SILENCE_S: Final = 130.0
"""Longer than a record may take until it is given up: its report comes before that."""


def is_odd(records: pa.RecordBatch) -> bool:
    """Tell whether the client would write another record than one of these: it takes time 0 for now."""
    names = records.column("headers").flatten().field("key")
    return has_marks(names) or has_nul(names) or bool(pc.any(pc.equal(records.column("timestamp_ms"), 0)).as_py())


class Sender:
    """One client and the topic it writes to."""

    def __init__(self, producer: Producer, topic: str, cluster: str) -> None:
        """Take a client that is open; who opened it ends it."""
        self.producer, self.topic, self.cluster = producer, topic, cluster

    def send(self, records: pa.RecordBatch, partitions: Iterable[int], reports: Iterable[Report]) -> None:
        """Hand over records with their partitions, and who is told of each; waits while the client's queue is full.

        None of them `is_odd`: the client would write another.

        Raises:
            UserError: The client refuses one of them.
            RetryableError: The queue stays full.
        """
        headers = headers_of(records.column("headers"))
        times = records.column("timestamp_ms")
        rows = zip(
            contents_of(records.column("value")),
            contents_of(records.column("key")),
            partitions,
            reports,
            repeat(None),  # a second name of the library's for the same argument
            (times.fill_null(0) if times.null_count else times).to_numpy().tolist(),
            headers,
            strict=False,
        )
        produce, topic = self.producer.produce, self.topic
        for number, row in enumerate(rows):
            try:
                produce(topic, *row)
            except BufferError:
                self._again(row)
            except KafkaException as error:
                raise self._told(error) from error
            if number % _POLL_EVERY == 0:
                self.producer.poll(0)

    def flush(self) -> None:
        """Wait until everything has been reported, delivered or not.

        Raises:
            RetryableError: Reports stay away.
        """
        until = monotonic() + _SILENCE_S
        while self.producer.flush(1.0):
            if monotonic() > until:
                raise self._silent()

    def _again(self, row: tuple[Any, ...]) -> None:
        until = monotonic() + _SILENCE_S
        while True:
            self.producer.poll(0.1)
            try:
                return self.producer.produce(self.topic, *row)
            except BufferError:
                if monotonic() > until:
                    raise self._silent() from None

    def _told(self, error: KafkaException) -> Exception:
        return translated(error, doing=f"writing to {self.topic}", cluster=self.cluster)

    def _silent(self) -> RetryableError:
        message = f"{self.topic} of cluster {self.cluster} takes no records"
        return RetryableError(message, hint="See whether its brokers are alive, then run the same command again.")
