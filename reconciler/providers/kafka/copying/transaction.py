"""One producer of one transactional id that copies one partition: from here on, all others of that id are fenced."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from reconciler.errors import LostRaceError, RetryableError
from reconciler.providers.kafka.copying.messages import Odd
from reconciler.providers.kafka.fatal import behind, named
from reconciler.providers.kafka.ledger import TOPIC
from reconciler.providers.kafka.ledgerwire import SLICE_S, TRANSACTION_MS, WAIT_S, is_fenced, patiently, told
from reconciler.providers.kafka.reaching.revealing import revealed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from reconciler.errors import ReconcilerError
    from reconciler.providers.kafka.copying.messages import Sent
    from reconciler.records.log import OffsetRange

# ruff: noqa: PLC0415 - whoever copies nothing imports no client

_ABORT_S: Final = 10.0
_FULL_S: Final = 0.1
_QUEUED_MESSAGES: Final = 200_000
_WRITING: Final = {
    "retry.backoff.ms": 20,
    "transaction.timeout.ms": TRANSACTION_MS,
    # A batch is sent when it is full, or when there is nothing more to come.
    "linger.ms": 20,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": _QUEUED_MESSAGES,
    "queue.buffering.max.kbytes": 256 << 10,
    "message.max.bytes": 1_000_000_000,  # The broker judges what is too large.
    "compression.type": "lz4",
}


class Transactions:
    """Writes records, and what the ledger says of them, all or nothing."""

    def __init__(self, settings: Mapping[str, Any], place: tuple[str, int], cluster: str) -> None:
        """Fence whoever else copies the partition."""
        from confluent_kafka import Producer

        self._topic, self._partition = place
        self._settings, self._cluster = settings, cluster
        self._sources: list[int] = []
        self._targets: list[int] = []
        self._errors: list[Any] = []
        self._is_open = False
        self._producer: Any = Producer(revealed({**_WRITING, **settings}))
        self._asked(self._producer.init_transactions, SLICE_S)

    @property
    def is_calm(self) -> bool:
        """Tell whether another way of writing does better from here on."""
        return False

    def takes(self, batch: Sequence[Sent]) -> bool:
        """Tell whether it can write all records of a batch as they are."""
        return not isinstance(batch, Odd)

    def take(self, batch: Sequence[Sent], into: int | None = None) -> None:
        """Write records, into another partition where one is named; they are readable once they are committed.

        Raises:
            UserError: One cannot be written as it is.
        """
        self._partition = self._partition if into is None else into
        if not self._is_open:
            self._asked(self._producer.begin_transaction)
            self._is_open = True
        with self._in_our_words():
            self._produce(batch)
            self._producer.poll(0)
        self._sources += [row[4] for row in batch]
        self._check()

    def settle(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return where the records of this transaction were in the source, and where they are in the copy.

        Raises:
            LostRaceError: Somebody else copies this partition now.
            RetryableError: The cluster does not answer.
        """
        until = monotonic() + WAIT_S
        while self._flush(1.0):
            self._check()
            if monotonic() > until:
                message = f"{self._topic}, partition {self._partition} of cluster {self._cluster} takes no records"
                raise RetryableError(
                    message, hint="See whether its brokers are alive, then run the same command again."
                )
        self._check()
        return np.array(self._sources, np.int64), np.array(self._targets, np.int64)

    def commit(self, ledger: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Make it readable, together with what the ledger says of it."""
        if not self._is_open:
            self._asked(self._producer.begin_transaction)
        for key, value in ledger:
            self._asked(self._producer.produce, TOPIC, value, key, 0)
        self._asked(self._producer.commit_transaction, SLICE_S)
        self._is_open = False
        self._sources, self._targets = [], []

    def close(self) -> None:
        """Abort what is open: nobody has to wait for it then."""
        from confluent_kafka import KafkaException

        if self._is_open:
            with suppress(KafkaException):
                self._producer.abort_transaction(_ABORT_S)
        self._is_open = False

    def _produce(self, batch: Sequence[Sent]) -> None:
        produce, topic, partition, delivered = self._producer.produce, self._topic, self._partition, self._delivered
        for value, key, timestamp_ms, headers, _ in batch:
            try:
                produce(topic, value, key, partition, delivered, timestamp=timestamp_ms, headers=headers)
            except BufferError:
                self._wait_for_room()
                produce(topic, value, key, partition, delivered, timestamp=timestamp_ms, headers=headers)

    def _flush(self, seconds: float) -> int:
        with self._in_our_words():
            return int(self._producer.flush(seconds))

    @contextmanager
    def _in_our_words(self) -> Iterator[None]:
        """Translate what the client raises."""
        from confluent_kafka import KafkaException

        try:
            yield
        except (KafkaException, SystemError) as error:
            if (found := behind(error)) is None:
                raise
            raise self._told(found) from error

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self._targets.append(message.offset())
        else:
            self._errors.append(error)

    def _wait_for_room(self) -> None:
        until = monotonic() + WAIT_S
        while len(self._producer) > _QUEUED_MESSAGES // 2 and monotonic() < until:
            self._producer.poll(_FULL_S)
            self._check()

    def _check(self) -> None:
        if self._errors:
            raise self._told(self._errors[0])

    def _asked(self, call: Callable[..., Any], *given: Any) -> None:
        with self._in_our_words():
            patiently(partial(call, *given), self._settings, doing=self._doing, cluster=self._cluster)

    def _told(self, error: Any) -> ReconcilerError:
        where = f"{self._topic}, partition {self._partition} of cluster {self._cluster}"
        error = named(self._producer, error)
        if is_fenced(error):
            return LostRaceError(where, None, hint="Somebody else copies it now: it is looked at again next time.")
        return told(error, self._settings, self._doing, self._cluster)

    @property
    def _doing(self) -> str:
        return f"copying into {self._topic}, partition {self._partition}"


def check_in_order(sources: npt.NDArray[np.int64], targets: npt.NDArray[np.int64], within: OffsetRange) -> None:
    """Return if what was read is what was asked for, and was written once each, in that order.

    Raises:
        RetryableError: It was not; nothing of it is committed.
    """
    is_asked = not len(sources) or (sources[0] >= within.start and sources[-1] < within.stop)
    is_whole = len(sources) == len(targets) and bool((np.diff(sources) > 0).all() and (np.diff(targets) > 0).all())
    if not (is_asked and is_whole):
        message = "the source changed while it was read"
        raise RetryableError(message, hint="Nothing of that was committed: run the same command again.")
