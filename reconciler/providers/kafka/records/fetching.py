"""Reading a range of one partition to exactly its end, whatever lies there: records, markers, gaps, nothing at all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from reconciler.errors import RetryableError
from reconciler.providers.kafka.reaching.unreached import told, unreached
from reconciler.providers.kafka.records import clients
from reconciler.providers.kafka.records.columns import Lots
from reconciler.providers.kafka.records.wire import HeadersOf, Leader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from reconciler.errors import ReconcilerError
    from reconciler.records.log import Isolation, OffsetRange

# The library has no public names for what it finds itself.
# ruff: noqa: SLF001

_AT_ONCE: Final = 250
"""Messages taken at once: what the client makes of them stays in the caches of the processor."""
_BYTES_AT_ONCE: Final = 8 << 20
_SAMPLE: Final = 20
_BATCH_ROWS: Final = 16_000
_BATCH_BYTES: Final = 8 << 20
_LOOK_S: Final = 1.0
_GATHER_S: Final = 0.01
_SILENCE_S: Final = 60.0
"""How long brokers may be away in the middle of a reading."""
_ANSWER_S: Final = 30.0
_MISSED: Final = 2

_FINAL: Final = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID}
"""The client has waited for it to become known."""
_PASSING: Final = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
}


@dataclass(frozen=True, slots=True)
class Place:
    """A partition of a topic of a cluster, and how it is read."""

    settings: Mapping[str, Any]
    cluster: str
    topic: str
    partition: int
    isolation: Isolation

    def __str__(self) -> str:
        """Name it as errors do."""
        return f"{self.topic}, partition {self.partition}"


def batches(place: Place, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yield what is readable of a range as batches of `RECORD_SCHEMA`.

    Raises:
        UserError: There is no such partition, or it may not be read.
        RetryableError: Brokers stay away, or records were removed while they were read.
    """
    lots = Lots(place.partition)
    for found in messages(place, offsets):
        lots.add(found)
        if lots.rows >= _BATCH_ROWS or lots.bytes >= _BATCH_BYTES:
            yield lots.batch()
            lots = Lots(place.partition)
    if lots.rows:
        yield lots.batch()


def messages(place: Place, offsets: OffsetRange) -> Iterator[Sequence[Message]]:
    """Yield the same as the client's own objects: copies from Kafka to Kafka need no columns in between."""
    if offsets.start >= offsets.stop:
        return
    with clients.consumer(place.settings, place.isolation) as consumer:
        yield from _Reading(place, consumer, offsets).run()


class _Reading:
    """One consumer on its way through one range."""

    def __init__(self, place: Place, consumer: Consumer, offsets: OffsetRange) -> None:
        self._place, self._consumer = place, consumer
        self._begin = self._next = offsets.start
        self._stop = offsets.stop
        self._is_done = False
        self._missed = 0
        self._at_once = 100

    def run(self) -> Iterator[Sequence[Message]]:
        self._assign()
        until = monotonic() + _SILENCE_S
        while not self._is_done:
            found = self._taken()
            readable = self._within(self._readable(found) if any(map(Message.error, found)) else found)
            if readable:
                self._see_headers(readable)
                yield readable
                until = monotonic() + _SILENCE_S
            elif monotonic() > until and not self._is_done:
                raise self._silent()
            elif not found:
                self._check_there()

    def _taken(self) -> list[Message]:
        """Return as many as are worth to be converted together, or what has come when no more does."""
        first = self._consumer.consume(1, _LOOK_S)
        more = min(self._at_once, self._stop - self._next) - 1
        return first + self._consumer.consume(more, _GATHER_S) if first and more > 0 else first

    def _within(self, found: Sequence[Message]) -> Sequence[Message]:
        """Return what lies in the range; what lies behind it tells that all of it has come."""
        if not found:
            return found
        self._next = _offset(found[-1]) + 1
        self._is_done = self._is_done or self._next >= self._stop
        if self._next > self._stop:
            found = [each for each in found if _offset(each) < self._stop]
        # As many at once as fit, of large records fewer.
        size = sum(map(len, found[:_SAMPLE])) // max(1, len(found[:_SAMPLE]))
        self._at_once = max(1, min(_AT_ONCE, _BYTES_AT_ONCE // max(1, size)))
        return found

    def _see_headers(self, readable: Sequence[Message]) -> None:
        """See to it that the headers of all can be had: the client fails where a name is not UTF-8.

        They come another way then, their names as bytes. Where it failed it must not be asked again: what it keeps
        then is not whole, and who looks at that dies.
        """
        seen: list[Any] = []
        while len(seen) < len(readable):
            try:
                seen.extend(map(Message.headers, islice(readable, len(seen), None)))
            except (SystemError, UnicodeDecodeError):
                failed = readable[len(seen)]
                failed.set_headers(self._headers.at(_offset(failed)))  # type: ignore[arg-type]  # it takes anything
                seen.append(failed)

    @cached_property
    def _headers(self) -> HeadersOf:
        place = self._place
        return HeadersOf(Leader(place.settings, place.cluster, place.topic, place.partition))

    def _readable(self, found: Sequence[Message]) -> list[Message]:
        """Return the messages among what was consumed; the rest says how reading goes."""
        readable: list[Message] = []
        for each in found:
            error = each.error()
            if error is None:
                readable.append(each)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._reach_end(_offset(each))
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._go_where_it_is()
            elif not _passes(error):
                raise self._told(error)
        return readable

    def _reach_end(self, offset: int) -> None:
        """End at the end; a leader that has just been elected may not know yet how far its log is committed."""
        self._is_done = offset >= min(self._stop, self._bounds()[1])

    def _go_where_it_is(self) -> None:
        """Go on where the log begins, or end where it ends: the next offset is not in it."""
        low, high = self._bounds()
        if self._next >= high:
            self._is_done = True
        elif self._next > self._begin:
            what = f"offsets {self._next:,} to {low - 1:,} were removed while they were read"
            hint = "Retention or a deletion of records went on meanwhile. Run the same command again."
            raise RetryableError(f"{self._place}: {what}", hint=hint)
        elif low >= self._stop:
            self._is_done = True
        else:
            self._next = self._begin = max(low, self._next)
            self._assign()

    def _assign(self) -> None:
        self._consumer.assign([TopicPartition(self._place.topic, self._place.partition, self._next)])

    def _bounds(self) -> tuple[int, int]:
        """Return where it begins and how far it may be read; asks the leader."""
        at = TopicPartition(self._place.topic, self._place.partition)
        try:
            return self._consumer.get_watermark_offsets(at, _ANSWER_S)
        except KafkaException as error:
            raise self._told(error.args[0]) from error

    def _check_there(self) -> None:
        """Ask whether there is such a partition: a reader that waits for one that is not there is never told.

        Raises:
            UserError: Twice there was none: one that was just made is not known to every broker at once.
        """
        try:
            seen = self._consumer.list_topics(self._place.topic, _ANSWER_S).topics[self._place.topic]
        except KafkaException:
            return  # whether brokers come back is seen soon enough
        error = seen.error
        if error is None and self._place.partition not in seen.partitions:
            error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        self._missed = 0 if error is None or _passes(error) else self._missed + 1
        if error is not None and self._missed == _MISSED:
            raise self._told(error)

    def _told(self, error: KafkaError) -> ReconcilerError:
        return told(error, self._place.settings, doing=f"reading {self._place}", cluster=self._place.cluster)

    def _silent(self) -> ReconcilerError:
        place = self._place
        if found := unreached(place.settings, doing=f"reading {place}", cluster=place.cluster):
            return found
        message = f"{self._place} of cluster {self._place.cluster}: offset {self._next:,} did not come"
        hint = f"No broker gave it for {_SILENCE_S:.0f} s: see whether they are alive, then run the same command again."
        return RetryableError(message, hint=hint)


def _offset(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None else offset


def _passes(error: KafkaError) -> bool:
    """Tell whether the client goes on by itself: brokers come back; no group is used, so none needs to be allowed."""
    return (error.retriable() and error.code() not in _FINAL) or error.code() in _PASSING
