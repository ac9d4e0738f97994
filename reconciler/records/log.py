"""The `TopicLog` protocol: the records of a topic by partition and offset, and their additive digest.

Logs and sinks are picklable and are opened on the executors of a job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, Protocol, get_args, runtime_checkable

from reconciler.errors import RetryableError, SourceChangedError, UserError
from reconciler.resources.mirrors import SOURCE_TOPIC_ID_CHANGED, UNEXPECTED_TRUNCATION
from reconciler.runtime.effects import build_process_id

if TYPE_CHECKING:
    import pyarrow as pa

    from reconciler.records.offset_map import OffsetMap


# Two sums mod 2^128 of h, a 128-bit hash of (timestamp, key, value, headers): Σh, and Σ(offset)·h. Parts store them
# relative to a base; shifting and adding them gives the digest of any range.


_MODULUS: Final = 1 << 128


@dataclass(frozen=True, slots=True)
class Digest:
    """Count and sums of records; the creator chose the base of the offsets in `weighted`."""

    records: int = 0
    total: int = 0
    weighted: int = 0

    def shift(self, base: int) -> Digest:
        """Return the digest with `base` added to each offset."""
        return Digest(self.records, self.total, (self.weighted + base * self.total) % _MODULUS)

    def __add__(self, other: Digest) -> Digest:
        return Digest(
            self.records + other.records,
            (self.total + other.total) % _MODULUS,
            (self.weighted + other.weighted) % _MODULUS,
        )


Isolation = Literal["read_committed", "read_uncommitted"]
"""Whether a reader waits for open transactions or sees their records. Aborted ones are never visible."""
MAX_OFFSET: Final = (1 << 63) - 1
_ISOLATIONS: Final[tuple[Isolation, ...]] = get_args(Isolation)


def parse_isolation(text: object) -> Isolation:
    """Return the isolation of that name, in any case."""
    for isolation in _ISOLATIONS:
        if isinstance(text, str) and text.lower() == isolation:
            return isolation
    raise UserError(f"there is no isolation {text!r}", hint=f"Isolations: {', '.join(_ISOLATIONS)}.")


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets from `start` up to, but excluding, `stop`."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """Number of offsets; records may be fewer (aborted transactions, compaction)."""
        return max(0, self.stop - self.start)

    def contains(self, other: OffsetRange) -> bool:
        """Return whether another range is contained."""
        return self.start <= other.start and other.stop <= self.stop


@dataclass(frozen=True, slots=True)
class Bounds:
    """Start and end of a partition. `stable` is the last stable offset, the limit of `read_committed`."""

    start: int
    local_start: int | None
    """`None`: unknown."""
    stable: int
    end: int
    epochs: tuple[tuple[int, int], ...] = ()
    """(epoch, first offset), oldest first."""
    compacted_to: int = 0
    """Below this offset compaction may have removed superseded records."""

    def readable_end(self, isolation: Isolation) -> int:
        """Return the log end, or the last stable offset for `read_committed`."""
        return self.end if isolation == "read_uncommitted" else self.stable

    def find_unchanged_end(self, epoch: int) -> int:
        """Return the end of the offsets unchanged since `epoch` was the log's newest."""
        return min((start for number, start in self.epochs if number > epoch), default=MAX_OFFSET)

    def limit_to_local(self) -> Bounds:
        """Return the bounds of the local tier alone; unchanged if its start is unknown."""
        return self if self.local_start in {None, self.start} else replace(self, start=self.local_start or 0)


@dataclass(frozen=True, slots=True)
class LostOffsets:
    """Unreadable offsets: their object is missing or damaged."""

    topic: str
    partition: int
    first: int
    last: int
    key: str
    """The object's key in the store `url`."""
    url: str
    damage: str = ""
    """Damage of an object that exists; empty if it is missing."""

    def __str__(self) -> str:
        where = f"{self.topic}, partition {self.partition}"
        if self.damage:
            lost = f"offsets {self.first} to {self.last} cannot be read"
            return f"{where}: {lost}: {self.url}: object {self.key} is damaged: {self.damage}"
        return f"{where}: offsets {self.first} to {self.last} are gone: {self.url} has no object {self.key}"


@dataclass(frozen=True, slots=True)
class Extent:
    """A stored stretch of a log, copied whole; at most one task's work."""

    offsets: OffsetRange
    records: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class StagedRecords:
    """Records that a task staged for the driver to publish. Picklable, small.

    `at` is their range; `None`: numbered by the publication. `entries` is the sink's own description.
    """

    partition: int
    at: OffsetRange | None
    records: int
    stored_bytes: int
    digest: Digest
    entries: bytes
    by: str = field(default_factory=build_process_id, compare=False)


@dataclass(frozen=True, slots=True)
class ObservedSource:
    """The log that a copy follows, as read before a round of copying. The sink stores it with the published records."""

    topic_id: str | None
    """A recreated topic has another. `None`: the platform has none."""
    bounds: Mapping[int, Bounds]


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """Position of a sink's partition. Records below `fetched` equal the source log with this id and these epochs."""

    end: int
    topic_id: str | None = None
    epochs: tuple[tuple[int, int], ...] = ()
    fetched: int = 0


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """Commit of a transactional sink: a partition has all source records below `through`."""

    partition: int
    through: int
    records: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class Spans:
    """Ranges of one partition in a log and its copy, which have different offsets."""

    left: OffsetRange
    right: OffsetRange
    offsets: OffsetMap | None = field(default=None, compare=False, repr=False)
    """Maps offsets of the right log to the left; `None`: unknown."""


class TopicLog(Protocol):
    """The records of one topic."""

    @property
    def topic_id(self) -> str | None:
        """Id of the topic; a recreated topic has another. `None`: the platform has none."""
        ...

    def check_shared(self) -> None:
        """Raise `UserError` if this machine cannot reach the log, as with an unshared folder."""
        ...

    def read_bounds(self, only: Collection[int] | None = None) -> Mapping[int, Bounds]:
        """Return the bounds of all partitions in one bulk call, or of the partitions `only`, one by one."""
        ...

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield the readable records in `offsets`, in order, as batches of `RECORD_SCHEMA`."""
        ...

    def find_offset_at(self, partition: int, timestamp_ms: int) -> int | None:
        """Return the offset of the first record at or after a time; `None` if all are older."""
        ...

    def list_extents(self, partition: int, offsets: OffsetRange) -> Iterator[Extent]:
        """Yield the stored extents of `offsets` in order, cut at both ends; reads no records.

        Counts of a cut extent are estimates; offsets without records may be in no extent.
        """
        ...

    def read_digests(self, partition: int, offsets: OffsetRange) -> Iterator[Digest]:
        """Yield digests that cover `offsets`: stored ones if possible, else computed from records.

        Their weights count offsets from 0, so they are comparable with any other log's.
        """
        ...


@runtime_checkable
class CompactingLog(Protocol):
    """A log that cannot report its compacted offset, such as a broker's."""

    def may_lack_records(self) -> bool:
        """Return whether superseded records may be missing."""
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """Columns of `RECORD_SCHEMA` and times that a reader wants."""

    columns: frozenset[str]
    since_ms: int | None = None
    until_ms: int | None = None

    def may_contain(self, first_ms: int, last_ms: int) -> bool:
        """Return whether records within these times may be wanted."""
        is_early = self.since_ms is not None and last_ms < self.since_ms
        return not is_early and (self.until_ms is None or first_ms <= self.until_ms)


@runtime_checkable
class SelectiveLog(Protocol):
    """A columnar log with statistics of times, which can fetch less than whole records."""

    def read_selected(self, partition: int, offsets: OffsetRange, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield the records that `read` yields, with `offset` and the wanted columns.

        Statistics cover many records at once, so some records may be outside the wanted times.
        """
        ...


class StagedSink(Protocol):
    """A sink that many tasks write in parallel; one swap per partition makes staged records readable."""

    def check_shared(self) -> None:
        """Raise `UserError` unless the driver sees files staged by this executor."""
        ...

    def read_ends(self) -> Mapping[int, int]:
        """Return each partition's end, the start of the next range."""
        ...

    def read_positions(self, only: Collection[int] | None = None) -> Mapping[int, SinkPosition]:
        """Return each partition's end, and the source that it was copied from; `only` limits the partitions."""
        ...

    def follow_source(self, source: ObservedSource) -> StagedSink:
        """Return this sink for a round over a source, which it stores with each publication."""
        ...

    def stage(self, partition: int, batches: Iterable[pa.RecordBatch], *, at: OffsetRange | None) -> StagedRecords:
        """Write records under a new name; none is readable yet."""
        ...

    def stage_copy(self, partition: int, source: TopicLog, offsets: OffsetRange) -> StagedRecords:
        """Stage a range of another log at the same offsets, verbatim if both sides allow."""
        ...

    def publish(self, staged: Sequence[StagedRecords]) -> Mapping[int, OffsetRange]:
        """Make staged ranges readable, one swap per partition; return each partition's gain.

        A range must start at the log's end; the new end is `at.stop`.

        Raises:
            SourceChangedError: A partition is no copy of the followed log; other partitions are published.
        """
        ...

    def mark_complete(self) -> None:
        """Record that a mirror's first copy is complete. Idempotent."""
        ...


@runtime_checkable
class TransactionalSink(Protocol):
    """A sink that one task per partition writes and commits (Kafka). Ranges are in source offsets."""

    def check_shared(self) -> None:
        """Raise `UserError` if this machine cannot reach the sink."""
        ...

    def read_positions(self, only: Collection[int] | None = None) -> Mapping[int, SinkPosition]:
        """Return the position in the source of each partition; `only` limits them."""
        ...

    def find_spans(self, source: Mapping[int, Bounds]) -> Mapping[int, Spans]:
        """Return the ranges of each partition that both the copy and its source have."""
        ...

    def follow_source(self, source: ObservedSource) -> TransactionalSink:
        """Return this sink for a round over a source, which it stores with each commit."""
        ...

    def copy_range(self, partition: int, source: TopicLog, offsets: OffsetRange) -> Iterator[CopyProgress]:
        """Copy a range in transactions, yielding after each; continues where an earlier copier stopped.

        Raises:
            LostRaceError: Another process copies this partition now.
            SourceChangedError: The sink is no copy of the followed log.
        """
        ...

    def mark_complete(self) -> None:
        """Record that a mirror's first copy is complete. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class Written:
    """Records committed by a task to one partition of a rewritten topic."""

    partition: int
    records: int
    bytes: int


@runtime_checkable
class RekeySink(Protocol):
    """A copy of a topic with another number of partitions. One task writes each partition."""

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        ...

    def check_shared(self) -> None:
        """Raise `UserError` if this machine cannot reach the sink."""
        ...

    def follow_source(self, source: ObservedSource) -> RekeySink:
        """Return this sink for a round over a source, which it stores with each commit."""
        ...

    def read_positions(self) -> Mapping[int, Mapping[int, int]]:
        """Return each partition's position in each source partition: all its records below are committed."""
        ...

    def write(self, partition: int, records: Iterable[pa.RecordBatch], through: Mapping[int, int]) -> Iterator[Written]:
        """Write records of several source partitions, in source order; yield after each commit.

        Committed records are skipped. At the end, the partition has all its records below `through`.

        Raises:
            LostRaceError: Another process writes this partition now.
            SourceChangedError: The sink is no copy of the followed log.
        """
        ...

    def read_written_digest(self) -> Digest:
        """Return the digest of all records ever written."""
        ...


class TopicProducer(Protocol):
    """Writes new records of one topic; the platform assigns partitions and offsets. Not thread-safe."""

    def append(self, records: pa.RecordBatch) -> None:
        """Buffer a batch of `INPUT_SCHEMA`, written at the latest by `flush`."""
        ...

    def flush(self) -> Mapping[int, OffsetRange]:
        """Write the buffered records; return each partition's gain since the last call."""
        ...


@dataclass(frozen=True, slots=True)
class NumberedBatch:
    """A numbered batch of a stream; publishing it again has no effect."""

    stream: str
    number: int


@dataclass(frozen=True, slots=True)
class StagedAppend:
    """New records that a task staged since `put_ms`, by partition. Picklable, small.

    `input_digest` is the digest of the task's input, independent of assigned partitions and times.
    """

    put_ms: int
    parts: tuple[StagedRecords, ...]
    input_digest: Digest = Digest()


class AppendSink(Protocol):
    """A sink in which many tasks stage new records, and one publication makes all readable, or none.

    Picklable. Unpublished records are swept after a day.
    """

    def check_shared(self) -> None:
        """Raise `UserError` unless the driver sees files staged by this executor."""
        ...

    def stage(self, records: Iterable[pa.RecordBatch], *, task: int) -> StagedAppend:
        """Stage batches with a `TopicProducer`'s columns, in order.

        Records without key and partition rotate, from a partition that depends on `task`.
        """
        ...

    def publish(self, staged: Sequence[StagedAppend], batch: NumberedBatch | None = None) -> bool:
        """Make the records readable, in the order passed; `False`: the batch was published before.

        Raises:
            ProducerFencedError: Another writer of the same stream took over; nothing is readable.
            UserError: The topic is gone or a mirror, or the stream has other or later records; nothing is readable.
            RetryableError: The store did not answer in time; publish a numbered batch again unchanged.
        """
        ...


def find_changed_partitions(log: TopicLog, ends: Mapping[int, int]) -> list[int]:
    """Return the partitions that are new or have records at or after `ends`; transaction markers do not count."""
    partitions = []
    for number, bounds in sorted(log.read_bounds().items()):
        begin = max(ends.get(number, 0), bounds.start)
        offsets = OffsetRange(begin, max(begin, bounds.stable))
        if number not in ends or (offsets.length and any(batch.num_rows for batch in log.read(number, offsets))):
            partitions.append(number)
    return partitions


# Logs are appended to, or cut and then appended to under a later epoch. So two logs with the same start and the same
# last epoch below an offset are equal below it.


_HINT: Final = "Nothing was copied. Fail over to keep what the mirror has, or delete it and create it again."


def check_source_unchanged(name: str, partition: int, reached: SinkPosition, source: ObservedSource) -> None:
    """Reject a source that is no longer the log a mirror's partition was copied from.

    Read the mirror's end before the source: another process may advance the mirror.

    Raises:
        SourceChangedError: The source was recreated, ends before the mirror, or was rewritten below its end.
    """
    where = f"{name}, partition {partition}"
    if reached.topic_id is not None and source.topic_id not in {None, reached.topic_id}:
        message = f"{where}: the source was deleted and created again (its topic id changed)"
        raise SourceChangedError(message, code=SOURCE_TOPIC_ID_CHANGED, hint=_HINT)
    bounds = source.bounds.get(partition)
    if bounds is None:
        return
    if reached.topic_id is not None and bounds.end < reached.end:
        message = f"{where} ends at {reached.end:,}, its source at {bounds.end:,}: the source was cut"
        raise SourceChangedError(message, code=UNEXPECTED_TRUNCATION, hint=_HINT)
    ours, theirs = _find_last_below(reached.fetched, reached.epochs), _find_last_below(reached.fetched, bounds.epochs)
    if ours is not None and theirs is not None and ours != theirs:
        message = f"{where}: below {reached.fetched:,}, to which it was copied, the source was cut and written again"
        raise SourceChangedError(message, code=UNEXPECTED_TRUNCATION, hint=_HINT)


def check_copy_current(name: str, partition: int, reached: SinkPosition, source: ObservedSource) -> None:
    """Raise `RetryableError` if a staged copy was read before the mirror's last known epoch."""
    bounds = source.bounds.get(partition)
    if bounds is None or reached.topic_id is None or reached.topic_id != source.topic_id:
        return
    if max((epoch for epoch, _ in reached.epochs), default=0) > max((epoch for epoch, _ in bounds.epochs), default=0):
        message = f"{name}, partition {partition}: source metadata is stale (the writer changed); nothing was copied"
        raise RetryableError(message, hint="Run the same command again.")


def _find_last_below(offset: int, epochs: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    epochs_below = [(epoch, start) for epoch, start in epochs if start < offset]
    return epochs_below[-1] if epochs_below else None
