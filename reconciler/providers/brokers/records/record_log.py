"""Kafka topics as `TopicLog`s. Consumers are pooled, because opening one is slow."""

from __future__ import annotations

import atexit
import os
import pickle
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from reconciler.errors import ReconcilerError, RetryableError, SourceChangedError
from reconciler.providers.brokers.faults import translate_code
from reconciler.providers.brokers.offsets import EARLIEST, LATEST, read_bounds, read_offsets, read_partition_sizes
from reconciler.providers.brokers.reachability import explain_unreachable, read_watermarks, translate_record_error
from reconciler.providers.brokers.records.columns import MessageBuffer, decode_columns, select_decodable
from reconciler.providers.brokers.records.record_batches import (
    FetchReply,
    HeaderReader,
    LeaderConnection,
    fetch_batches,
    open_connection,
)
from reconciler.providers.brokers.records.whole_batches import (
    WholeBatch,
    fetch_answers,
    has_whole_batches,
    read_whole_batches,
)
from reconciler.providers.brokers.security import reveal_secrets
from reconciler.records.hashes import compute_digest
from reconciler.records.log import Bounds, Digest, Extent, Isolation, OffsetRange
from reconciler.resources.mirrors import SOURCE_TOPIC_ID_CHANGED
from reconciler.runtime.dataclass import dataclass, field

if TYPE_CHECKING:
    import pyarrow as pa

    from reconciler.providers.brokers.client import KafkaClient
    from reconciler.providers.brokers.translate import TopicMetadata


_IDLE: Final = 16
_CONSUMER: Final = {
    "group.id": "reconciler",  # The library requires a group id, though no offsets are committed.
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    # `_RangeReader` handles offsets out of range.
    "auto.offset.reset": "error",
    # Only an empty response shows a partition's end, so it should come soon.
    "fetch.wait.max.ms": 5,
    # A topic that is unknown after this time does not exist.
    "topic.metadata.propagation.max.ms": 5000,
    "fetch.message.max.bytes": 4 << 20,
    # By default, a reader without prefetched records waits a second.
    "fetch.queue.backoff.ms": 5,
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 64 << 10,
}


class _ConsumerPool:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[bytes, list[Consumer]] = {}
        self._inherited: list[object] = []
        os.register_at_fork(after_in_child=self._reset_after_fork)
        atexit.register(self.close)

    def acquire(self, key: bytes, settings: dict[str, Any]) -> Consumer:
        with self._lock:
            idle = self._idle.get(key)
            if idle:
                return idle.pop()
        return Consumer(settings)

    def release(self, key: bytes, consumer: Consumer) -> None:
        consumer.unassign()
        with self._lock:
            idle = self._idle.setdefault(key, [])
            if len(idle) < _IDLE:
                idle.append(consumer)
                return
        consumer.close()

    def close(self) -> None:
        with self._lock:
            idle = [consumer for consumers in self._idle.values() for consumer in consumers]
            self._idle.clear()
        for consumer in idle:
            with suppress(Exception):
                consumer.close()

    def _reset_after_fork(self) -> None:
        # A forked process keeps inherited consumers, because closing one without its threads would block forever.
        self._inherited.append(self._idle)
        self._lock, self._idle = threading.Lock(), {}


_pool: Final = _ConsumerPool()


@contextmanager
def borrow_consumer(settings: Mapping[str, Any], isolation: Isolation) -> Iterator[Consumer]:
    """Lend a consumer from the pool. After an error, it is closed instead of returned."""
    key = pickle.dumps((dict(settings), isolation))
    lent = _pool.acquire(key, {**_CONSUMER, **reveal_secrets(settings), "isolation.level": isolation})
    try:
        yield lent
    except GeneratorExit:
        _pool.release(key, lent)
        raise
    except BaseException:
        lent.close()
        raise
    else:
        _pool.release(key, lent)


# The library has no public names for internal error codes.
# ruff: noqa: SLF001

_AT_ONCE: Final = 250
"""Messages consumed together, few enough for the processor's caches."""
_BYTES_AT_ONCE: Final = 8 << 20
_SAMPLE: Final = 20
_BATCH_ROWS: Final = 16_000
_BATCH_BYTES: Final = 8 << 20
_LOOK_S: Final = 1.0
_GATHER_S: Final = 0.01
_SILENCE_S: Final = 60.0
_ANSWER_S: Final = 30.0
_MISSED: Final = 2
_UNPACKED: Final = 5_000
"""Minimum offsets to decode without librdkafka, which takes a second connection."""

_FINAL: Final = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID}
"""Permanent errors, because the client has already waited for a new topic."""
_TRANSIENT: Final = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
}


@dataclass(frozen=True, slots=True)
class PartitionSource:
    """Partition to read, with its settings."""

    settings: Mapping[str, Any]
    cluster: str
    topic: str
    partition: int
    isolation: Isolation

    def __str__(self) -> str:
        return f"{self.topic}, partition {self.partition}"


def read_batches(place: PartitionSource, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yield the readable records of a range as batches of `RECORD_SCHEMA`."""
    at = offsets.start
    if offsets.length >= _UNPACKED:
        for through, records in _unpack_batches(place, offsets):
            at = through
            if records.num_rows:
                yield records
    lots = MessageBuffer(place.partition)
    for taken in read_messages(place, OffsetRange(at, offsets.stop), begun=offsets.start):
        lots.add(taken)
        if lots.rows >= _BATCH_ROWS or lots.bytes >= _BATCH_BYTES:
            yield lots.build_batch()
            lots = MessageBuffer(place.partition)
    if lots.rows:
        yield lots.build_batch()


def _unpack_batches(place: PartitionSource, offsets: OffsetRange) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (offset up to which records are complete, batch).

    Stops at errors and at formats that only the client reads.
    """
    leader = LeaderConnection(place.settings, place.cluster, place.topic, place.partition, is_sent_once=True)

    def ask(offset: int) -> FetchReply:
        return fetch_batches(leader, offset, place.isolation)

    with suppress(ReconcilerError, ValueError):
        for answer, heads in fetch_answers(ask, offsets, select_decodable):
            yield from decode_columns(answer, heads, place.partition, offsets)


def read_messages(
    place: PartitionSource, offsets: OffsetRange, *, begun: int | None = None
) -> Iterator[Sequence[Message]]:
    """Yield the readable records of a range as the client's messages.

    It is an error if a record after the offset `begun` was removed.
    """
    if offsets.start >= offsets.stop:
        return
    with borrow_consumer(place.settings, place.isolation) as consumer:
        yield from _RangeReader(place, consumer, offsets, offsets.start if begun is None else begun).read()


class _RangeReader:
    def __init__(self, place: PartitionSource, consumer: Consumer, offsets: OffsetRange, begun: int) -> None:
        self._source, self._consumer = place, consumer
        self._begin, self._next = begun, offsets.start
        self._stop = offsets.stop
        self._is_done = False
        self._missed = 0
        self._at_once = 100

    def read(self) -> Iterator[Sequence[Message]]:
        self._fetch_leader()
        self._assign()
        until = monotonic() + _SILENCE_S
        while not self._is_done:
            messages = self._consume()
            readable = self._drop_outside_range(
                self._handle_events(messages) if any(map(Message.error, messages)) else messages
            )
            if readable:
                self._load_headers(readable)
                yield readable
                until = monotonic() + _SILENCE_S
            elif monotonic() > until and not self._is_done:
                raise self._timeout_error()
            elif not messages:
                self._check_exists()

    def _consume(self) -> list[Message]:
        first = self._consumer.consume(1, _LOOK_S)
        more = min(self._at_once, self._stop - self._next) - 1
        return first + self._consumer.consume(more, _GATHER_S) if first and more > 0 else first

    def _drop_outside_range(self, messages: Sequence[Message]) -> Sequence[Message]:
        if not messages:
            return messages
        self._next = _get_offset(messages[-1]) + 1
        self._is_done = self._is_done or self._next >= self._stop
        if self._next > self._stop:
            messages = [message for message in messages if _get_offset(message) < self._stop]
        size = sum(map(len, messages[:_SAMPLE])) // max(1, len(messages[:_SAMPLE]))
        self._at_once = max(1, min(_AT_ONCE, _BYTES_AT_ONCE // max(1, size)))
        return messages

    def _load_headers(self, readable: Sequence[Message]) -> None:
        """Load all headers, by the protocol if a name is not UTF-8.

        Repeating the client's call for such a message crashes the process.
        """
        seen: list[Any] = []
        while len(seen) < len(readable):
            try:
                seen.extend(map(Message.headers, islice(readable, len(seen), None)))
            except (SystemError, UnicodeDecodeError):
                failed = readable[len(seen)]
                failed.set_headers(self._headers.read_headers(_get_offset(failed)))  # type: ignore[arg-type]  # it takes anything
                seen.append(failed)

    @cached_property
    def _headers(self) -> HeaderReader:
        place = self._source
        return HeaderReader(LeaderConnection(place.settings, place.cluster, place.topic, place.partition))

    def _handle_events(self, messages: Sequence[Message]) -> list[Message]:
        readable: list[Message] = []
        for message in messages:
            error = message.error()
            if error is None:
                readable.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._reach_end(_get_offset(message))
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._resume_in_log()
            elif not _is_transient(error):
                raise self._translate(error)
        return readable

    def _reach_end(self, offset: int) -> None:
        self._is_done = offset >= min(self._stop, self._read_bounds()[1])

    def _resume_in_log(self) -> None:
        low, high = self._read_bounds()
        if self._next >= high:
            self._is_done = True
        elif self._next > self._begin:
            what = f"offsets {self._next:,} to {low - 1:,} were removed while they were read"
            hint = "Retention or a deletion of records ran in the meantime. Run the same command again."
            raise RetryableError(f"{self._source}: {what}", hint=hint)
        elif low >= self._stop:
            self._is_done = True
        else:
            self._next = self._begin = max(low, self._next)
            self._assign()

    def _fetch_leader(self) -> None:
        with suppress(KafkaException):
            self._consumer.list_topics(self._source.topic, _LOOK_S)

    def _assign(self) -> None:
        self._consumer.assign([TopicPartition(self._source.topic, self._source.partition, self._next)])

    def _read_bounds(self) -> tuple[int, int]:
        at = TopicPartition(self._source.topic, self._source.partition)
        try:
            return read_watermarks(self._consumer, at, self._source.settings)
        except KafkaException as error:
            raise self._translate(error.args[0]) from error

    def _check_exists(self) -> None:
        """A new partition may be missing once."""
        try:
            seen = self._consumer.list_topics(self._source.topic, _ANSWER_S).topics[self._source.topic]
        except KafkaException:
            return
        error = seen.error
        if error is None and self._source.partition not in seen.partitions:
            error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        self._missed = 0 if error is None or _is_transient(error) else self._missed + 1
        if error is not None and self._missed == _MISSED:
            raise self._translate(error)

    def _translate(self, error: KafkaError) -> ReconcilerError:
        return translate_record_error(
            error, self._source.settings, doing=f"reading {self._source}", cluster=self._source.cluster
        )

    def _timeout_error(self) -> ReconcilerError:
        place = self._source
        if error := explain_unreachable(place.settings, doing=f"reading {place}", cluster=place.cluster):
            return error
        message = f"{self._source} of cluster {self._source.cluster}: offset {self._next:,} did not come"
        hint = f"No broker gave it for {_SILENCE_S:.0f} s: see whether they are alive, then run the same command again."
        return RetryableError(message, hint=hint)


def _get_offset(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None else offset


def _is_transient(error: KafkaError) -> bool:
    return (error.retriable() and error.code() not in _FINAL) or error.code() in _TRANSIENT


_EXTENT_BYTES: Final = 16 << 20
_RECORD_BYTES: Final = 100


@dataclass(frozen=True)
class KafkaLog:
    """Topic, by its name on the brokers. Picklable.

    `settings` are those of confluent-kafka, `admin` those of kafka-python. `id` rejects a recreated topic.
    """

    topic: str
    settings: Mapping[str, Any] = field(repr=False)
    admin: Mapping[str, Any] = field(repr=False)
    cluster: str
    isolation: Isolation = "read_committed"
    id: str | None = None
    _sizes: dict[int, int] = field(default_factory=dict, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        settings, admin = dict(self.settings), dict(self.admin)
        return type(self), (self.topic, settings, admin, self.cluster, self.isolation, self.id)

    @property
    def topic_id(self) -> str | None:
        """Id of the topic; `None` accepts any topic of this name."""
        return self.id or self._describe_topic().id

    def check_shared(self) -> None:
        """Do nothing, because all processes can reach the brokers."""

    def read_bounds(self, only: Collection[int] | None = None) -> Mapping[int, Bounds]:
        """Return partitions' bounds."""
        seen = self._describe_topic()
        self._check_same(seen)
        partitions = range(len(seen.replicas))
        wanted = [number for number in partitions if only is None or number in only]
        bounds = read_bounds(self._client, [(self.topic, number) for number in wanted])
        return {number: bounds[self.topic, number] for number in wanted}

    def may_lack_records(self) -> bool:
        """Return whether compaction may remove records."""
        ((_, configs),) = self._client.read_configs([self.topic], ["cleanup.policy"])
        if isinstance(configs, int):
            raise translate_code(configs, "", what=f"configs of topic {self.topic} of cluster {self.cluster}")
        return "compact" in (configs["cleanup.policy"].value or "")

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield the readable records of `offsets`.

        Raises:
            UserError: The partition does not exist, or may not be read.
            RetryableError: Brokers do not respond, or records were removed during the read.
            SourceChangedError: Raised at the end if another topic now has the name.
        """
        yield from read_batches(self._build_source(partition), offsets)
        if self.id is not None and offsets.length:  # Records were read by name, and the topic may have been recreated.
            seen = self._client.read_topics([self.topic])[self.topic]
            if not seen.error:
                self._check_same(seen)

    def read_messages(self, partition: int, offsets: OffsetRange) -> Iterator[Sequence[Message]]:
        """Yield a range's records as messages."""
        return read_messages(self._build_source(partition), offsets)

    def has_whole_batches(self, partition: int, offsets: OffsetRange) -> bool:
        """Return whether to copy whole batches."""
        return has_whole_batches(self._open_leader(partition), offsets, self.isolation)

    def read_whole_batches(self, partition: int, offsets: OffsetRange) -> Iterator[WholeBatch]:
        """Yield stored batches."""
        return read_whole_batches(self._open_leader(partition), offsets, self.isolation)

    def find_offset_at(self, partition: int, timestamp_ms: int) -> int | None:
        """Return the first offset at or after a time."""
        if timestamp_ms < 0:  # Brokers would take a negative time for a special value.
            bounds = self.read_bounds([partition])[partition]
            return bounds.start if bounds.start < bounds.end else None
        offset = read_offsets(self._client, [(self.topic, partition)], timestamp_ms)[self.topic, partition]
        return None if offset < 0 else offset

    def list_extents(self, partition: int, offsets: OffsetRange) -> Iterator[Extent]:
        """Yield equal parts of `offsets` with estimated record counts and sizes."""
        place = (self.topic, partition)
        start = read_offsets(self._client, [place], EARLIEST)[place]
        end = read_offsets(self._client, [place], LATEST, is_stable=self.isolation == "read_committed")[place]
        within = OffsetRange(max(offsets.start, start), min(offsets.stop, end))
        each_bytes = self._estimate_record_bytes(partition, end - start)
        step = max(1, int(_EXTENT_BYTES / each_bytes))
        for at in range(within.start, within.stop, step):
            cut = OffsetRange(at, min(at + step, within.stop))
            yield Extent(cut, cut.length, max(1, int(cut.length * each_bytes)))

    def read_digests(self, partition: int, offsets: OffsetRange) -> Iterator[Digest]:
        """Yield digests of `offsets`, computed from the records."""
        for batch in self.read(partition, offsets):
            yield compute_digest(batch, base=0)

    def _estimate_record_bytes(self, partition: int, offsets: int) -> float:
        if not self._sizes:
            try:
                self._sizes.update(
                    {number: size for (_, number), size in read_partition_sizes(self._client, [self.topic]).items()}
                )
            except ReconcilerError:  # Sizes may be unreadable; a constant balances work well enough.
                return _RECORD_BYTES
        return max(1.0, self._sizes.get(partition, 0) / max(1, offsets))

    def _describe_topic(self) -> TopicMetadata:
        seen = self._client.read_topics([self.topic])[self.topic]
        if seen.error:
            raise translate_code(seen.error, "", what=f"topic {self.topic} of cluster {self.cluster}")
        return seen

    def _check_same(self, seen: TopicMetadata) -> None:
        if self.id is not None and seen.id != self.id:
            message = f"topic {self.topic} of cluster {self.cluster} was deleted and created again"
            hint = "It is another topic now: read it from its beginning, a stream with another checkpointLocation."
            raise SourceChangedError(message, code=SOURCE_TOPIC_ID_CHANGED, hint=hint)

    def _build_source(self, partition: int) -> PartitionSource:
        return PartitionSource(self.settings, self.cluster, self.topic, partition, self.isolation)

    def _open_leader(self, partition: int) -> LeaderConnection:
        return LeaderConnection(self.settings, self.cluster, self.topic, partition)

    @property
    def _client(self) -> KafkaClient:
        return open_connection(self.admin, self.cluster)
