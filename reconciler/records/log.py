"""Protocols to read and write a topic's records by partition and offset, and digests of records.

Logs and sinks are picklable; executors open them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, Protocol, get_args, runtime_checkable

from reconciler.errors import RetryableError, SourceChangedError, UserError
from reconciler.resources.mirrors import SOURCE_TOPIC_ID_CHANGED, UNEXPECTED_TRUNCATION
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.effects import build_process_id

if TYPE_CHECKING:
    import pyarrow as pa

    from reconciler.records.offset_map import OffsetMap


# h is a 128-bit hash of a record's timestamp, key, value and headers; sums are mod 2^128.


_MODULUS: Final = 1 << 128


@dataclass(frozen=True, slots=True)
class Digest:
    """Number of records, and sums Σh and Σ(offset)·h. Offsets may be relative to a base."""

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
"""Whether a reader waits for open transactions or reads their records. Aborted records are never returned."""
MAX_OFFSET: Final = (1 << 63) - 1
_ISOLATIONS: Final[tuple[Isolation, ...]] = get_args(Isolation)


def parse_isolation(text: object) -> Isolation:
    """Parse an isolation level; case does not matter."""
    for isolation in _ISOLATIONS:
        if isinstance(text, str) and text.lower() == isolation:
            return isolation
    raise UserError(f"there is no isolation {text!r}", hint=f"Isolations: {', '.join(_ISOLATIONS)}.")


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets from `start`, inclusive, to `stop`, exclusive."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """Number of offsets, including offsets without records."""
        return max(0, self.stop - self.start)

    def contains(self, other: OffsetRange) -> bool:
        """Return whether another range is inside this one."""
        return self.start <= other.start and other.stop <= self.stop


@dataclass(frozen=True, slots=True)
class Bounds:
    """Offsets at which a partition starts and ends. `stable` is the last stable offset."""

    start: int
    local_start: int | None
    """Start of the local tier; `None` if unknown."""
    stable: int
    end: int
    epochs: tuple[tuple[int, int], ...] = ()
    compacted_to: int = 0
    """Offset below which compaction may have removed records."""

    def find_readable_end(self, isolation: Isolation) -> int:
        """Return the log end; for `read_committed`, the last stable offset."""
        return self.end if isolation == "read_uncommitted" else self.stable

    def find_unchanged_end(self, epoch: int) -> int:
        """Return the offset at which epochs after `epoch` begin. Lower offsets are unchanged since `epoch`."""
        return min((start for number, start in self.epochs if number > epoch), default=MAX_OFFSET)

    def limit_to_local(self) -> Bounds:
        """Return the bounds of the local tier, or these bounds if its start is unknown."""
        return self if self.local_start in {None, self.start} else replace(self, start=self.local_start or 0)


@dataclass(frozen=True, slots=True)
class LostOffsets:
    """A range of offsets whose object is missing or damaged."""

    topic: str
    partition: int
    first: int
    last: int
    key: str
    url: str
    damage: str = ""
    """Damage of the object; empty if the object is missing."""

    def __str__(self) -> str:
        where = f"{self.topic}, partition {self.partition}"
        if self.damage:
            lost = f"offsets {self.first} to {self.last} cannot be read"
            return f"{where}: {lost}: {self.url}: object {self.key} is damaged: {self.damage}"
        return f"{where}: offsets {self.first} to {self.last} are gone: {self.url} has no object {self.key}"


@dataclass(frozen=True, slots=True)
class Extent:
    """A range of a log stored together, such as a segment."""

    offsets: OffsetRange
    records: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class StagedRecords:
    """Records that a task has staged for the driver to publish. Picklable and small.

    `at` is the offset range; `None` lets the publication assign offsets. The sink defines the format of `entries`.
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
    """State of a copy's source before a round of copying. The sink stores it with the records."""

    topic_id: str | None
    bounds: Mapping[int, Bounds]


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """Position of a sink's partition. Records below `fetched` come from the source with this id and these epochs."""

    end: int
    topic_id: str | None = None
    epochs: tuple[tuple[int, int], ...] = ()
    fetched: int = 0


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """A committed transaction of a copy. The partition has all source records below `through`."""

    partition: int
    through: int
    records: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class Spans:
    """Offset ranges of one partition in a log and in its copy."""

    left: OffsetRange
    right: OffsetRange
    offsets: OffsetMap | None = field(default=None, compare=False, repr=False)
    """Map from the right log's offsets to the left log's; `None` if unknown."""


class TopicLog(Protocol):
    """One topic's records."""

    @property
    def topic_id(self) -> str | None:
        """Topic id; `None` if the platform has none. A recreated topic has another id."""
        ...

    def check_shared(self) -> None:
        """Raise if this machine cannot read the log."""
        ...

    def read_bounds(self, only: Collection[int] | None = None) -> Mapping[int, Bounds]:
        """Return the bounds of all partitions in one request, or of `only` in one each."""
        ...

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield the readable records in `offsets` as batches of `RECORD_SCHEMA`."""
        ...

    def find_offset_at(self, partition: int, timestamp_ms: int) -> int | None:
        """Return the offset of the first record at or after a time; `None` if all records are older."""
        ...

    def list_extents(self, partition: int, offsets: OffsetRange) -> Iterator[Extent]:
        """Yield the stored extents in `offsets` without reading records.

        Counts of extents that the range cuts are estimates. Offsets without records may be in no extent.
        """
        ...

    def read_digests(self, partition: int, offsets: OffsetRange) -> Iterator[Digest]:
        """Yield digests that together cover `offsets`, with absolute offsets."""
        ...


@runtime_checkable
class CompactingLog(Protocol):
    """A log that does not report its compacted offset, such as a broker's."""

    def may_lack_records(self) -> bool:
        """Return whether compaction may have removed records."""
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """Columns of `RECORD_SCHEMA` and range of times to read."""

    columns: frozenset[str]
    since_ms: int | None = None
    until_ms: int | None = None

    def may_contain(self, first_ms: int, last_ms: int) -> bool:
        """Return whether records within these times may be selected."""
        is_early = self.since_ms is not None and last_ms < self.since_ms
        return not is_early and (self.until_ms is None or first_ms <= self.until_ms)


@runtime_checkable
class SelectiveLog(Protocol):
    """A columnar log with statistics of times."""

    def read_selected(self, partition: int, offsets: OffsetRange, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield records with `offset` and the selected columns.

        Some records may be outside the selected times, because statistics cover many records.
        """
        ...


class StagedSink(Protocol):
    """A sink in which many tasks stage records. One compare-and-swap per partition publishes them."""

    def check_shared(self) -> None:
        """Raise an error on an executor whose files the driver cannot read."""
        ...

    def read_ends(self) -> Mapping[int, int]:
        """Return each partition's end offset."""
        ...

    def read_positions(self, only: Collection[int] | None = None) -> Mapping[int, SinkPosition]:
        """Return the positions of all partitions, or of `only`."""
        ...

    def follow_source(self, source: ObservedSource) -> StagedSink:
        """Return a sink that stores `source` with each publication of one round."""
        ...

    def stage(self, partition: int, batches: Iterable[pa.RecordBatch], *, at: OffsetRange | None) -> StagedRecords:
        """Write records that readers see only after `publish`. If `at` is `None`, that assigns offsets."""
        ...

    def stage_copy(self, partition: int, source: TopicLog, offsets: OffsetRange) -> StagedRecords:
        """Stage a range of another log at the same offsets, by copying objects if possible."""
        ...

    def publish(self, staged: Sequence[StagedRecords]) -> Mapping[int, OffsetRange]:
        """Publish staged ranges and return the offsets appended per partition.

        A range must start at the partition's end; the new end is `at.stop`.

        Raises:
            SourceChangedError: A partition is not a copy of the source; other partitions are published.
        """
        ...

    def mark_complete(self) -> None:
        """Record that a mirror's first copy is complete. Idempotent."""
        ...


@runtime_checkable
class TransactionalSink(Protocol):
    """A sink that one task per partition writes and commits (Kafka). Ranges are in source offsets."""

    def check_shared(self) -> None:
        """Raise if this machine cannot access the sink."""
        ...

    def read_positions(self, only: Collection[int] | None = None) -> Mapping[int, SinkPosition]:
        """Return the positions of all partitions, or of `only`, in source offsets."""
        ...

    def find_spans(self, source: Mapping[int, Bounds]) -> Mapping[int, Spans]:
        """Return each partition's ranges that both copy and source have."""
        ...

    def follow_source(self, source: ObservedSource) -> TransactionalSink:
        """Return a sink that stores `source` with each commit of one round."""
        ...

    def copy_range(self, partition: int, source: TopicLog, offsets: OffsetRange) -> Iterator[CopyProgress]:
        """Copy a range in transactions, and yield after each commit. Skip committed records.

        Raises:
            LostRaceError: Another process copies this partition.
            SourceChangedError: The sink is not a copy of the source.
        """
        ...

    def mark_complete(self) -> None:
        """Record that a mirror's first copy is complete. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class Written:
    """Size of the records that a task committed to one partition of a `RekeySink`."""

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
        """Raise if this machine cannot access the sink."""
        ...

    def follow_source(self, source: ObservedSource) -> RekeySink:
        """Return a sink that stores `source` with each commit of one round."""
        ...

    def read_positions(self) -> Mapping[int, Mapping[int, int]]:
        """Return, by target partition, the offset in each source partition below which all records are committed."""
        ...

    def write(self, partition: int, records: Iterable[pa.RecordBatch], through: Mapping[int, int]) -> Iterator[Written]:
        """Write records of several source partitions, in source order; yield after each commit.

        Committed records are skipped. At the end, the partition has all its records from below `through`.

        Raises:
            LostRaceError: Another process writes this partition.
            SourceChangedError: The sink is not a copy of the source.
        """
        ...

    def read_written_digest(self) -> Digest:
        """Return the digest of all written records."""
        ...


class TopicProducer(Protocol):
    """Writes new records to one topic, which assigns partitions and offsets. Not thread-safe."""

    def append(self, records: pa.RecordBatch) -> None:
        """Buffer a batch of `INPUT_SCHEMA`, and perhaps write it."""
        ...

    def flush(self) -> Mapping[int, OffsetRange]:
        """Write the buffered records; return the offsets appended per partition since the last call."""
        ...


@dataclass(frozen=True, slots=True)
class NumberedBatch:
    """Number of a stream's batch, so a batch is published only once."""

    stream: str
    number: int


@dataclass(frozen=True, slots=True)
class StagedAppend:
    """New records that a task staged at `put_ms`, by partition. Picklable and small.

    `input_digest` covers the task's input before partitions and times were assigned.
    """

    put_ms: int
    parts: tuple[StagedRecords, ...]
    input_digest: Digest = Digest()


class AppendSink(Protocol):
    """A sink in which many tasks stage new records. A publication makes all of them readable, or none.

    Picklable. Unpublished records are deleted after a day.
    """

    def check_shared(self) -> None:
        """Raise an error on an executor whose files the driver cannot read."""
        ...

    def stage(self, records: Iterable[pa.RecordBatch], *, task: int) -> StagedAppend:
        """Stage batches of `INPUT_SCHEMA`. `task` determines where the round robin of records without keys starts."""
        ...

    def publish(self, staged: Sequence[StagedAppend], batch: NumberedBatch | None = None) -> bool:
        """Publish the records in order; return `False` if the batch is already published.

        Raises:
            ProducerFencedError: Another writer of the same stream took over; nothing is published.
            UserError: The topic is deleted or a mirror, or the stream has other or later records; nothing is published.
            RetryableError: The store did not answer in time; publish the same numbered batch again.
        """
        ...


def find_changed_partitions(log: TopicLog, ends: Mapping[int, int]) -> list[int]:
    """Return new partitions, and those with records (not only transaction markers) at or after `ends`."""
    partitions = []
    for number, bounds in sorted(log.read_bounds().items()):
        begin = max(ends.get(number, 0), bounds.start)
        offsets = OffsetRange(begin, max(begin, bounds.stable))
        if number not in ends or (offsets.length and any(batch.num_rows for batch in log.read(number, offsets))):
            partitions.append(number)
    return partitions


# A truncated log continues under a later leader epoch. So two logs are equal below an offset if their last epochs below
# that offset are equal and start at the same offset.


_HINT: Final = "Nothing was copied. Fail over to keep what the mirror has, or delete it and create it again."


def check_source_unchanged(name: str, partition: int, reached: SinkPosition, source: ObservedSource) -> None:
    """Check that a source has not changed since a mirror's partition was copied.

    Callers read the mirror before the source, because another process may advance the mirror.

    Raises:
        SourceChangedError: The source was created again, ends before the mirror, or was rewritten below that end.
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
    """Raise `RetryableError` if the source was read before the epoch from which the mirror has records."""
    bounds = source.bounds.get(partition)
    if bounds is None or reached.topic_id is None or reached.topic_id != source.topic_id:
        return
    if max((epoch for epoch, _ in reached.epochs), default=0) > max((epoch for epoch, _ in bounds.epochs), default=0):
        message = f"{name}, partition {partition}: source metadata is stale (the writer changed); nothing was copied"
        raise RetryableError(message, hint="Run the same command again.")


def _find_last_below(offset: int, epochs: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    epochs_below = [(epoch, start) for epoch, start in epochs if start < offset]
    return epochs_below[-1] if epochs_below else None
