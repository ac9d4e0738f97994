"""The records of a Kafka topic as a `TopicLog`.

Opening a consumer costs tens of milliseconds and a connection to every broker; a job reads thousands of ranges.
"""

from __future__ import annotations

import atexit
import os
import pickle
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from reconciler.errors import ReconcilerError, RetryableError, SourceChangedError
from reconciler.providers.kafka.faults import of_code
from reconciler.providers.kafka.offsets import EARLIEST, LATEST, bounds_of, offsets_at, sizes_of
from reconciler.providers.kafka.reachability import told, unreached, watermarks
from reconciler.providers.kafka.records.columns import Lots, columns_in, readable_in
from reconciler.providers.kafka.records.record_batches import Answer, HeadersOf, Leader, asking, fetched
from reconciler.providers.kafka.records.whole_batches import WholeBatch, answers, has_whole_batches, whole_batches
from reconciler.providers.kafka.security import revealed
from reconciler.records.hashes import digest_of
from reconciler.records.log import Bounds, Digest, Extent, Isolation, OffsetRange
from reconciler.resources.mirrors import SOURCE_TOPIC_ID_CHANGED

if TYPE_CHECKING:
    import pyarrow as pa

    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.providers.kafka.translate import TopicSeen


_IDLE: Final = 16
"""Consumers of the same settings that are kept open while no process reads through them."""
_CONSUMER: Final = {
    "group.id": "reconciler",  # the library demands one; nothing is ever committed, so no group exists
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    # Where an offset is not there, nobody else decides where to go on.
    "auto.offset.reset": "error",
    # How long the end of a partition is waited for: an empty answer is what tells that it was reached.
    "fetch.wait.max.ms": 5,
    # A topic that was just made is known everywhere after that; one that is still unknown does not exist.
    "topic.metadata.propagation.max.ms": 5000,
    "fetch.message.max.bytes": 4 << 20,
    # A reader that has caught up with what was fetched ahead would wait a second for more.
    "fetch.queue.backoff.ms": 5,
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 64 << 10,
}


class _Pool:
    """Consumers that no process reads through at the moment, by settings; those of a parent process are left alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[bytes, list[Consumer]] = {}
        self._inherited: list[object] = []
        os.register_at_fork(after_in_child=self._inherit)
        atexit.register(self.close)

    def take(self, key: bytes, settings: dict[str, Any]) -> Consumer:
        with self._lock:
            idle = self._idle.get(key)
            if idle:
                return idle.pop()
        return Consumer(settings)

    def give_back(self, key: bytes, consumer: Consumer) -> None:
        consumer.unassign()
        with self._lock:
            idle = self._idle.setdefault(key, [])
            if len(idle) < _IDLE:
                idle.append(consumer)
                return
        consumer.close()

    def close(self) -> None:
        with self._lock:
            idle = [consumer for each in self._idle.values() for consumer in each]
            self._idle.clear()
        for consumer in idle:
            with suppress(Exception):
                consumer.close()

    def _inherit(self) -> None:
        """Begin anew in a forked process: the threads of these clients live on in its parent alone."""
        # Kept, never used: to end a client whose threads are not here would wait for them for ever.
        self._inherited.append(self._idle)
        self._lock, self._idle = threading.Lock(), {}


_pool: Final = _Pool()


@contextmanager
def lent_consumer(settings: Mapping[str, Any], isolation: Isolation) -> Iterator[Consumer]:
    """Lend a consumer that reads what `isolation` may see; after an error it is closed, else kept for the next."""
    key = pickle.dumps((dict(settings), isolation))
    lent = _pool.take(key, {**_CONSUMER, **revealed(settings), "isolation.level": isolation})
    try:
        yield lent
    except GeneratorExit:
        _pool.give_back(key, lent)
        raise
    except BaseException:
        lent.close()
        raise
    else:
        _pool.give_back(key, lent)


# Reading a range of one partition to exactly its end, whatever lies there: records, markers, gaps, nothing at all.


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
_PACKED: Final = 5_000
"""From so many offsets on the batches of a range are unpacked here; for fewer a second connection is not worth it."""

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
    at = offsets.start
    if offsets.length >= _PACKED:
        for through, found in _of_packed(place, offsets):
            at = through
            if found.num_rows:
                yield found
    lots = Lots(place.partition)
    for taken in messages(place, OffsetRange(at, offsets.stop), begun=offsets.start):
        lots.add(taken)
        if lots.rows >= _BATCH_ROWS or lots.bytes >= _BATCH_BYTES:
            yield lots.batch()
            lots = Lots(place.partition)
    if lots.rows:
        yield lots.batch()


def _of_packed(place: Place, offsets: OffsetRange) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield records by the batches that brokers send, with the offset up to which they are complete.

    It ends at what only the client can read, and at the first trouble: the client goes on from there, as patient as it
    is, and says what is wrong.
    """
    leader = Leader(place.settings, place.cluster, place.topic, place.partition, is_asked_once=True)

    def ask(offset: int) -> Answer:
        return fetched(leader, offset, place.isolation)

    with suppress(ReconcilerError, ValueError):
        for answer, heads in answers(ask, offsets, readable_in):
            yield from columns_in(answer, heads, place.partition, offsets)


def messages(place: Place, offsets: OffsetRange, *, begun: int | None = None) -> Iterator[Sequence[Message]]:
    """Yield the same as the client's own objects: copies from Kafka to Kafka need no columns in between.

    `begun`: where the reading began of which this is the rest. What is removed after that is missed aloud.
    """
    if offsets.start >= offsets.stop:
        return
    with lent_consumer(place.settings, place.isolation) as consumer:
        yield from _Reading(place, consumer, offsets, offsets.start if begun is None else begun).run()


class _Reading:
    """One consumer on its way through one range."""

    def __init__(self, place: Place, consumer: Consumer, offsets: OffsetRange, begun: int) -> None:
        self._place, self._consumer = place, consumer
        self._begin, self._next = begun, offsets.start
        self._stop = offsets.stop
        self._is_done = False
        self._missed = 0
        self._at_once = 100

    def run(self) -> Iterator[Sequence[Message]]:
        self._know_leader()
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

    def _know_leader(self) -> None:
        """Ask who leads: of a topic it meets for the first time the client finds that out only after a second."""
        with suppress(KafkaException):  # whether brokers answer is seen by reading
            self._consumer.list_topics(self._place.topic, _LOOK_S)

    def _assign(self) -> None:
        self._consumer.assign([TopicPartition(self._place.topic, self._place.partition, self._next)])

    def _bounds(self) -> tuple[int, int]:
        """Return where it begins and how far it may be read; asks the leader."""
        at = TopicPartition(self._place.topic, self._place.partition)
        try:
            return watermarks(self._consumer, at, self._place.settings)
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


# The records of one topic of a Kafka cluster, as a `TopicLog`. Picklable: whoever reads opens what it needs.


_EXTENT_BYTES: Final = 16 << 20
_RECORD_BYTES: Final = 100
"""What a record is taken to need where brokers do not say."""


@dataclass(frozen=True)
class KafkaLog:
    """One topic, by the name its brokers give it.

    `settings` are those of confluent-kafka, `admin` those of kafka-python (for what the other cannot ask); values with
    `reveal` are secrets. `id` is the topic's where it is known: one made later under its name is another topic.
    """

    topic: str
    settings: Mapping[str, Any] = field(repr=False)
    admin: Mapping[str, Any] = field(repr=False)
    cluster: str
    isolation: Isolation = "read_committed"
    id: str | None = None
    _sizes: dict[int, int] = field(default_factory=dict, repr=False, compare=False)
    """Bytes of each partition as they were when extents were first asked for: only estimates come of them."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without what was seen."""
        settings, admin = dict(self.settings), dict(self.admin)
        return type(self), (self.topic, settings, admin, self.cluster, self.isolation, self.id)

    @property
    def topic_id(self) -> str | None:
        """Which topic it is."""
        return self.id or self._seen().id

    def check_shared(self) -> None:
        """Return: brokers are found from everywhere, or reading says why not."""

    def bounds(self, only: Collection[int] | None = None) -> Mapping[int, Bounds]:
        """Return every partition's bounds, or those of some: one request for each kind of offset to each leader.

        Raises:
            SourceChangedError: There is another topic under its name by now.
            UserError: There is no such topic any more, or it may not be described.
        """
        seen = self._seen()
        self._check_same(seen)
        partitions = range(len(seen.replicas))
        wanted = [number for number in partitions if only is None or number in only]
        found = bounds_of(self._client, [(self.topic, number) for number in wanted])
        return {number: found[self.topic, number] for number in wanted}

    def compacts(self) -> bool:
        """Tell whether records may be gone that later ones of their keys supersede.

        Raises:
            NotAuthorizedError: Its configs may not be described.
        """
        ((_, found),) = self._client.configs([self.topic], ["cleanup.policy"])
        if isinstance(found, int):
            raise of_code(found, "", what=f"configs of topic {self.topic} of cluster {self.cluster}")
        return "compact" in (found["cleanup.policy"].value or "")

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield what is readable in `offsets`, in offset order, as batches of `RECORD_SCHEMA`.

        Raises:
            UserError: There is no such partition, or it may not be read.
            RetryableError: Brokers stay away, or records were removed while they were read.
            SourceChangedError: At the end: there is another topic under its name by now.
        """
        yield from batches(self._place(partition), offsets)
        if self.id is not None and offsets.length:  # It was read by its name.
            seen = self._client.topics([self.topic])[self.topic]
            if not seen.error:
                self._check_same(seen)

    def messages(self, partition: int, offsets: OffsetRange) -> Iterator[Sequence[Message]]:
        """Yield the same as lists of confluent-kafka's messages, none of them an error."""
        return messages(self._place(partition), offsets)

    def has_whole_batches(self, partition: int, offsets: OffsetRange) -> bool:
        """Tell whether a range is worth to be copied by whole batches, as far as its beginning shows."""
        return has_whole_batches(self._leader(partition), offsets, self.isolation)

    def whole_batches(self, partition: int, offsets: OffsetRange) -> Iterator[WholeBatch]:
        """Yield batches as brokers keep them, up to the first that must be read record by record."""
        return whole_batches(self._leader(partition), offsets, self.isolation)

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        """Return the first offset whose record is at or after a time; `None` where all are older."""
        if timestamp_ms < 0:  # Brokers take such numbers as words for the two ends.
            bounds = self.bounds([partition])[partition]
            return bounds.start if bounds.start < bounds.end else None
        found = offsets_at(self._client, [(self.topic, partition)], timestamp_ms)[self.topic, partition]
        return None if found < 0 else found

    def extents(self, partition: int, offsets: OffsetRange) -> Iterator[Extent]:
        """Yield even stretches of what there is of `offsets`; their records and bytes are estimates."""
        place = (self.topic, partition)
        start = offsets_at(self._client, [place], EARLIEST)[place]
        end = offsets_at(self._client, [place], LATEST, is_stable=self.isolation == "read_committed")[place]
        within = OffsetRange(max(offsets.start, start), min(offsets.stop, end))
        each_bytes = self._record_bytes(partition, end - start)
        step = max(1, int(_EXTENT_BYTES / each_bytes))
        for at in range(within.start, within.stop, step):
            cut = OffsetRange(at, min(at + step, within.stop))
            yield Extent(cut, cut.length, max(1, int(cut.length * each_bytes)))

    def digests(self, partition: int, offsets: OffsetRange) -> Iterator[Digest]:
        """Yield digests of `offsets`, absolute, by reading: brokers keep none."""
        for batch in self.read(partition, offsets):
            yield digest_of(batch, base=0)

    def _record_bytes(self, partition: int, offsets: int) -> float:
        if not self._sizes:
            try:
                self._sizes.update({number: size for (_, number), size in sizes_of(self._client, [self.topic]).items()})
            except ReconcilerError:  # Sizes of disks are told to few; they only even out the work.
                return _RECORD_BYTES
        return max(1.0, self._sizes.get(partition, 0) / max(1, offsets))

    def _seen(self) -> TopicSeen:
        seen = self._client.topics([self.topic])[self.topic]
        if seen.error:
            raise of_code(seen.error, "", what=f"topic {self.topic} of cluster {self.cluster}")
        return seen

    def _check_same(self, seen: TopicSeen) -> None:
        if self.id is not None and seen.id != self.id:
            message = f"topic {self.topic} of cluster {self.cluster} was deleted and created again"
            hint = "It is another topic now: read it from its beginning, a stream with another checkpointLocation."
            raise SourceChangedError(message, code=SOURCE_TOPIC_ID_CHANGED, hint=hint)

    def _place(self, partition: int) -> Place:
        return Place(self.settings, self.cluster, self.topic, partition, self.isolation)

    def _leader(self, partition: int) -> Leader:
        return Leader(self.settings, self.cluster, self.topic, partition)

    @property
    def _client(self) -> KafkaClient:
        return asking(self.admin, self.cluster)
