"""What `transaction.py` does, by the protocol itself: for records that librdkafka cannot write as they are."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from reconciler.errors import LostRaceError, ProducerFencedError, ReconcilerError
from reconciler.providers.kafka.copying.messages import Odd
from reconciler.providers.kafka.faults import of_code
from reconciler.providers.kafka.ledger import TOPIC
from reconciler.providers.kafka.ledgerwire import TRANSACTION_MS
from reconciler.providers.kafka.reaching.security import as_admin
from reconciler.providers.kafka.records.asking import asking
from reconciler.providers.kafka.records.batches import Producer
from reconciler.providers.kafka.records.wire import know, until_told
from reconciler.providers.kafka.records.writer import BatchWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from reconciler.providers.kafka.copying.messages import Sent

# Whoever meets no such record imports no client.
# ruff: noqa: PLC0415

_TRANSACTIONAL_ID: Final = 1
"""What kind of coordinator is looked for."""
_AGAIN: Final = frozenset({3, 7, 13, 14, 15, 16, 51})
"""Codes of a coordinator that moves or loads, or still ends the transaction before."""
_CALM: Final = 2_000
"""After so many records that librdkafka can write, it goes on."""


class RawTransactions:
    """As `Transactions`. Slow: each batch is packed here, and waits for the one before it."""

    def __init__(self, settings: Mapping[str, Any], place: tuple[str, int], cluster: str) -> None:
        """Fence whoever else copies the partition, the client of this process included."""
        self._topic, self._partition = place
        self._cluster = cluster
        self._client = asking(as_admin(settings), cluster)
        self._id: str = settings["transactional.id"]
        self._coordinator: int | None = None
        self._sources: list[int] = []
        self._targets: list[int] = []
        self._places: list[tuple[int, int]] = []
        self._opened: set[tuple[str, int]] = set()
        self._calm = 0
        with self._in_our_words():
            self._producer = self._begun()
        self._writer = BatchWriter(settings, cluster, self._producer)

    @property
    def is_calm(self) -> bool:
        """Tell whether librdkafka could have written the last records."""
        return self._calm >= _CALM

    def takes(self, batch: Sequence[Sent]) -> bool:  # noqa: ARG002 - as `Transactions` has it
        """Tell whether it can write all records of a batch: it can write any."""
        return True

    def take(self, batch: Sequence[Sent], into: int | None = None) -> None:
        """Write records, into another partition where one is named; they are readable once they are committed.

        Raises:
            UserError: Brokers refuse one.
            LostRaceError: Somebody else copies this partition now.
            RetryableError: The cluster does not answer.
        """
        self._partition = self._partition if into is None else into
        self._calm = 0 if isinstance(batch, Odd) else self._calm + len(batch)
        with self._in_our_words():
            self._open(self._topic, self._partition)
            offsets = self._writer.write(self._topic, self._partition, batch)
        self._sources += [row[4] for row in batch]
        self._targets += offsets
        self._places += [(self._partition, offset) for offset in offsets]

    def settle(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return where the records of this transaction were in the source, and where they are in the copy."""
        return np.array(self._sources, np.int64), np.array(self._targets, np.int64)

    def places(self) -> list[tuple[int, int]]:
        """Return partition and offset of each record of this transaction."""
        return self._places

    def commit(self, ledger: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Make it readable, together with what the ledger says of it."""
        now = time.time_ns() // 1_000_000
        with self._in_our_words():
            self._open(TOPIC, 0)
            self._writer.write(TOPIC, 0, [(value, key, now, None, 0) for key, value in ledger])
            self._end(is_committed=True)
        self._sources, self._targets, self._places = [], [], []

    def close(self) -> None:
        """Abort what is open: nobody has to wait for it then."""
        if self._opened:
            with suppress(ReconcilerError):
                self._end(is_committed=False)

    def _begun(self) -> Producer:
        from kafka.protocol.producer import InitProducerIdRequest

        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=TRANSACTION_MS,
            producer_id=-1,
            producer_epoch=-1,
            max_version=4,
        )
        found = self._asked(request, lambda answer: int(answer.error_code))
        return Producer(found.producer_id, found.producer_epoch, self._id)

    def _open(self, topic: str, partition: int) -> None:
        """Make a partition part of the transaction, which begins with the first."""
        from kafka.protocol.producer import AddPartitionsToTxnRequest

        if (topic, partition) in self._opened:
            return
        named = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer.id,
            v3_and_below_producer_epoch=self._producer.epoch,
            v3_and_below_topics=[named(name=topic, partitions=[partition])],
            max_version=3,
        )
        self._asked(request, _added)
        self._opened.add((topic, partition))

    def _end(self, *, is_committed: bool) -> None:
        from kafka.protocol.producer import EndTxnRequest

        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer.id,
            producer_epoch=self._producer.epoch,
            committed=is_committed,
            max_version=3,
        )
        self._asked(request, lambda answer: int(answer.error_code))
        self._opened = set()

    def _asked(self, request: Any, code: Callable[[Any], int]) -> Any:
        """Return what the coordinator answers; each of its requests may come twice."""
        found = until_told(
            lambda: self._client.send(request, doing=self._doing, node=self._coordinating()), code, _AGAIN, self._forget
        )
        if (refused := code(found)) != 0:
            raise of_code(refused, "", what=f"cluster {self._cluster}: {self._doing}")
        return found

    def _coordinating(self) -> int:
        from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

        if self._coordinator is None:
            request = FindCoordinatorRequest(key=self._id, key_type=_TRANSACTIONAL_ID, max_version=3)
            found = until_told(
                lambda: self._client.send(request, doing=self._doing),
                lambda answer: int(answer.error_code),
                _AGAIN,
                self._forget,
            )
            if found.error_code:
                raise of_code(found.error_code, "", what=f"cluster {self._cluster}: {self._doing}")
            brokers = MetadataRequest(topics=[], allow_auto_topic_creation=False, max_version=9)
            know(self._client, self._client.send(brokers, doing=self._doing))
            self._coordinator = int(found.node_id)
        return self._coordinator

    def _forget(self) -> None:
        self._coordinator = None

    @contextmanager
    def _in_our_words(self) -> Iterator[None]:
        try:
            yield
        except ProducerFencedError as error:
            where = f"{self._topic}, partition {self._partition} of cluster {self._cluster}"
            hint = "Somebody else copies it now: it is looked at again next time."
            raise LostRaceError(where, None, hint=hint) from error

    @property
    def _doing(self) -> str:
        return f"copying into {self._topic}, partition {self._partition}"


def _added(answer: Any) -> int:
    ((topic),) = answer.results_by_topic_v3_and_below
    (partition,) = topic.results_by_partition
    return int(partition.partition_error_code)
