"""How the ledger is read and written: one partition, to its end, and small transactions, over confluent-kafka."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

from reconciler.errors import ProducerFencedError, ReconcilerError, RetryableError
from reconciler.providers.kafka.fatal import behind, named
from reconciler.providers.kafka.reaching.revealing import revealed
from reconciler.providers.kafka.reaching.unreached import check_hope
from reconciler.providers.kafka.reaching.unreached import told as told_of_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

# Whoever has no links imports no client.
# ruff: noqa: PLC0415
# The library has no public names for what it finds wrong itself.
# ruff: noqa: SLF001

TRANSACTION_MS: Final = 60_000
"""After this long the cluster aborts a transaction whose producer is gone: nobody waits longer for one to end."""
WAIT_S: Final = TRANSACTION_MS / 1000 + 15.0
SLICE_S: Final = 10.0
"""After so long of it, whoever waits looks whether that is of use."""
_WRITING: Final = "writing what links keep"
_ANSWER_S: Final = 30.0
_POLL_S: Final = 0.1
_MISSING: Final = -1
_QUICKLY: Final = {"retry.backoff.ms": 20}
"""Little is written, and somebody waits for it."""
_READING: Final = {
    "group.id": "reconciler",  # Required by the library; nothing is committed under it.
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 20,
    **_QUICKLY,
}


class Tail:
    """Reads one partition from where it stopped before, up to its end of now, as far as it is committed."""

    def __init__(self, settings: Mapping[str, Any], topic: str, cluster: str, start: int = 0) -> None:
        self._settings, self._topic, self._cluster = settings, topic, cluster
        self._consumer: Any = None
        self._next = start

    @property
    def position(self) -> int:
        """The offset at which another reader goes on who knows what was read here."""
        return self._next

    def news(self, forget: Callable[[], None]) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield what is new, waiting for transactions that are open there; `forget` where the topic was made anew.

        Raises:
            RetryableError: The cluster does not answer, or a transaction stays open.
        """
        from confluent_kafka import TopicPartition

        stable = self._stable()
        if self._next and stable < self._next:
            forget()
            self.close()
            self._next = 0
            stable = self._stable()
        if stable == _MISSING:
            return
        self._consumer.assign([TopicPartition(self._topic, 0, self._next)])
        try:
            yield from self._to_the_end()
        finally:
            self._consumer.unassign()

    def close(self) -> None:
        """Let go of the connection; another call opens it again."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _to_the_end(self) -> Iterator[tuple[bytes, bytes | None]]:
        from confluent_kafka import KafkaError

        until, has_looked = monotonic() + WAIT_S, False
        while not (has_looked and self._next >= self._end()):
            found = self._consumer.poll(_POLL_S)
            if found is None:
                pass
            elif (error := found.error()) is None:
                yield found.key(), found.value()
                self._next, until = found.offset() + 1, monotonic() + WAIT_S
            elif error.code() == KafkaError._PARTITION_EOF:
                self._next, has_looked = max(self._next, found.offset()), True
            elif not error.retriable():
                raise told(error, self._settings, f"reading {self._topic}", self._cluster)
            if monotonic() > until:
                message = f"{self._topic} of cluster {self._cluster} is not readable from offset {self._next} on"
                hint = "A transaction is open there, or brokers are gone: it is over within a minute. Try again then."
                raise RetryableError(message, hint=hint)

    def _end(self) -> int:
        """Return where it ends, uncommitted records too, as the last fetch has it.

        What a transaction has left that has just ended may not be readable yet: it is waited for.
        """
        from confluent_kafka import TopicPartition

        place = TopicPartition(self._topic, 0)
        return cast("int", self._consumer.get_watermark_offsets(place, cached=True)[1])

    def _stable(self) -> int:
        """Return up to where it is readable; asks, and so finds out whether it is there at all."""
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

        if self._consumer is None:
            self._consumer = Consumer(revealed({**self._settings, **_READING}))
        try:
            return cast("int", self._consumer.get_watermark_offsets(TopicPartition(self._topic, 0), _ANSWER_S)[1])
        except KafkaException as error:
            missing = {KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART}
            if error.args[0].code() in missing:
                self.close()  # It would go on believing that.
                return _MISSING
            raise told(error.args[0], self._settings, f"reading {self._topic}", self._cluster) from error


def starts_of(
    settings: Mapping[str, Any], cluster: str, places: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """Return where partitions begin.

    Raises:
        RetryableError: The cluster does not answer.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer: Any = Consumer(revealed({**settings, **_READING}))
    try:
        return {place: consumer.get_watermark_offsets(TopicPartition(*place), _ANSWER_S)[0] for place in places}
    except KafkaException as error:
        raise told(error.args[0], settings, "looking where partitions begin", cluster) from error
    finally:
        consumer.close()


class Writer:
    """A producer of one transactional id: from here on, all others of that id are fenced."""

    def __init__(self, settings: Mapping[str, Any], transactional_id: str, cluster: str) -> None:
        from confluent_kafka import Producer

        how = {
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "transaction.timeout.ms": TRANSACTION_MS,
            **_QUICKLY,
        }
        self._producer, self._settings, self._cluster = Producer(revealed({**settings, **how})), settings, cluster
        self._asked(self._producer.init_transactions, SLICE_S)

    def write(self, topic: str, messages: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write records into partition 0 of a topic, all or none.

        Raises:
            ProducerFencedError: Another producer of this id began meanwhile; nothing was written.
            RetryableError: The cluster does not answer: it may have been written or not.
        """
        self._asked(self._producer.begin_transaction)
        for key, value in messages:
            self._asked(self._producer.produce, topic, key=key, value=value, partition=0)
        self._asked(self._producer.commit_transaction, SLICE_S)

    def _asked(self, call: Callable[..., Any], *given: Any, **more: Any) -> None:
        from confluent_kafka import KafkaException

        try:
            patiently(partial(call, *given, **more), self._settings, doing=_WRITING, cluster=self._cluster)
        except (KafkaException, SystemError) as error:
            if (found := behind(error)) is None:
                raise
            found = named(self._producer, found)
            if found.txn_requires_abort():
                with suppress(KafkaException):
                    self._producer.abort_transaction(_ANSWER_S)
            raise told(found, self._settings, _WRITING, self._cluster) from error


def patiently(call: Callable[[], object], settings: Mapping[str, Any], *, doing: str, cluster: str) -> None:
    """Make a call of a transactional producer until it is through, as long as that may help.

    Raises:
        KafkaException: It is refused, or it took too long.
        UserError: No broker can be reached, and that does not pass by itself.
    """
    from confluent_kafka import KafkaException

    until = monotonic() + WAIT_S
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable() or monotonic() > until:
                raise
            check_hope(settings, doing=doing, cluster=cluster)
        else:
            return


def is_fenced(error: Any) -> bool:
    """Tell whether another producer of the same transactional id has begun."""
    from confluent_kafka import KafkaError

    return error.code() in {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


def told(error: Any, settings: Mapping[str, Any], doing: str, cluster: str) -> ReconcilerError:
    """Return what went wrong in our words."""
    if is_fenced(error):
        message = f"{doing} on cluster {cluster}: {error.str()}"
        return ProducerFencedError(message, hint="Somebody else took over: run the same command again.")
    return told_of_records(error, settings, doing=doing, cluster=cluster)
