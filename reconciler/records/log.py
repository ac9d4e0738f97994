"""The `TopicLog` protocol: the records of a topic by partition and offset, and their additive digest.

Logs and sinks are picklable and are opened on the executors of a job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, Protocol, get_args, runtime_checkable

from reconciler.errors import RetryableError, SourceChangedError, UserError
from reconciler.resources.mirrors import SOURCE_TOPIC_ID_CHANGED, UNEXPECTED_TRUNCATION
from reconciler.runtime.effects import this_process

if TYPE_CHECKING:
    import pyarrow as pa

    from reconciler.records.offset_map import OffsetMap


# A digest of records that can be added, shifted and compared without reading them again.
#
# Two sums mod 2^128 of h, a 128-bit hash of (timestamp, key, value, headers): Σh, and Σ(offset)·h. Parts keep them over
# offsets from their base; any other base is reached by arithmetic, so borders of parts do not show.


_MODULUS: Final = 1 << 128


@dataclass(frozen=True, slots=True)
class Digest:
    """Count and sums of some records; offsets in `weighted` are counted from the base its maker chose."""

    records: int = 0
    total: int = 0
    weighted: int = 0

    def shifted(self, base: int) -> Digest:
        """Return the digest with `base` added to every offset."""
        return Digest(self.records, self.total, (self.weighted + base * self.total) % _MODULUS)

    def __add__(self, other: Digest) -> Digest:
        """Return the digest of both, where both count offsets from the same base."""
        return Digest(
            self.records + other.records,
            (self.total + other.total) % _MODULUS,
            (self.weighted + other.weighted) % _MODULUS,
        )


Isolation = Literal["read_committed", "read_uncommitted"]
"""Whether a reader waits for open transactions, or sees their records too. Aborted ones are never visible."""
MAX_OFFSET: Final = (1 << 63) - 1
_ISOLATIONS: Final[tuple[Isolation, ...]] = get_args(Isolation)


def isolation_of(text: object) -> Isolation:
    """Return the isolation of that name, in whatever case it is written.

    Raises:
        UserError: There is none.
    """
    for isolation in _ISOLATIONS:
        if isinstance(text, str) and text.lower() == isolation:
            return isolation
    raise UserError(f"there is no isolation {text!r}", hint=f"Isolations: {', '.join(_ISOLATIONS)}.")


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets from `start` up to, not including, `stop`."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """How many offsets it spans; records may be fewer (aborted transactions, compaction)."""
        return max(0, self.stop - self.start)

    def holds(self, other: OffsetRange) -> bool:
        """Return whether another range is contained."""
        return self.start <= other.start and other.stop <= self.stop


@dataclass(frozen=True, slots=True)
class Bounds:
    """Start and end of a partition. `stable` is the last stable offset, the limit for `read_committed`."""

    start: int
    local_start: int
    stable: int
    end: int
    epochs: tuple[tuple[int, int], ...] = ()
    """(epoch, first offset), oldest first."""
    compacted_to: int = 0
    """Below this offset compaction may have removed records that later ones of their keys supersede."""

    def readable_end(self, isolation: Isolation) -> int:
        """Return the end of what may be read."""
        return self.end if isolation == "read_uncommitted" else self.stable

    def same_to(self, epoch: int) -> int:
        """Return the offset up to which the log is unchanged since `epoch` was its newest."""
        return min((start for number, start in self.epochs if number > epoch), default=MAX_OFFSET)

    def only_local(self) -> Bounds:
        """Return the bounds without the remote tier."""
        return self if self.start == self.local_start else replace(self, start=self.local_start)


@dataclass(frozen=True, slots=True)
class LostOffsets:
    """Unreadable offsets of a log: their object is missing or damaged."""

    topic: str
    partition: int
    first: int
    last: int
    key: str
    """Of the object; `url` is where it should be."""
    url: str
    damage: str = ""
    """What is wrong with an object that is there."""

    def __str__(self) -> str:
        """Say it in a sentence."""
        where = f"{self.topic}, partition {self.partition}"
        if self.damage:
            lost = f"offsets {self.first} to {self.last} cannot be read"
            return f"{where}: {lost}: {self.url}: object {self.key} is damaged: {self.damage}"
        return f"{where}: offsets {self.first} to {self.last} are gone: {self.url} has no object {self.key}"


@dataclass(frozen=True, slots=True)
class Extent:
    """A stored stretch of a log, at most one task's work; copied whole."""

    offsets: OffsetRange
    records: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class StagedRecords:
    """What a task wrote under fresh names and the driver may publish: picklable, small.

    `at` is where it belongs; `None`: numbered when it is published. `entries` is the sink's own description.
    """

    partition: int
    at: OffsetRange | None
    records: int
    stored_bytes: int
    digest: Digest
    entries: bytes
    by: str = field(default_factory=this_process, compare=False)
    """Process that wrote it."""


@dataclass(frozen=True, slots=True)
class SourceSeen:
    """The log that a copy follows, as it was seen before a round of copying: what goes with what is published."""

    topic_id: str | None
    """Another one: it was deleted and created again. `None`: its platform has none."""
    bounds: Mapping[int, Bounds]


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """Where a partition of a sink ends. All below `fetched` is the log with that id, as it was under those epochs."""

    end: int
    topic_id: str | None = None
    epochs: tuple[tuple[int, int], ...] = ()
    fetched: int = 0


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """What a transactional sink has committed of one partition: all below `through` of its source is there."""

    partition: int
    through: int
    records: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class Spans:
    """Ranges of one partition in two logs that number their records differently: one should be a copy of the other."""

    left: OffsetRange
    right: OffsetRange
    offsets: OffsetMap | None = field(default=None, compare=False, repr=False)
    """Maps records of the right log to the left; `None`: unknown."""


class TopicLog(Protocol):
    """The records of one topic."""

    @property
    def topic_id(self) -> str | None:
        """Id of the topic; a recreated topic has another. `None`: the platform has none."""
        ...

    def check_shared(self) -> None:
        """Check that this machine can reach the log.

        Raises:
            UserError: It cannot: an unshared folder would look like an empty log.
        """
        ...

    def bounds(self, only: Collection[int] | None = None) -> Mapping[int, Bounds]:
        """Return the bounds of all partitions in one bulk call, or of `only` these, one by one."""
        ...

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield what is readable in `offsets`, in offset order, as batches of `RECORD_SCHEMA`."""
        ...

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        """Return the first offset whose record is at or after a time; `None` where all are older."""
        ...

    def extents(self, partition: int, offsets: OffsetRange) -> Iterator[Extent]:
        """Yield how `offsets` is stored, in offset order, cut at both ends; reads no records.

        Counts of a stretch that was cut are estimates; offsets without records may belong to no extent.
        """
        ...

    def digests(self, partition: int, offsets: OffsetRange) -> Iterator[Digest]:
        """Yield digests that together cover `offsets`: kept ones where the log has them, else computed by reading.

        Their weights count offsets from 0, so they add up and compare with those of any other log.
        """
        ...


@runtime_checkable
class CompactingLog(Protocol):
    """A log that cannot report how far it is compacted: brokers do not."""

    def compacts(self) -> bool:
        """Tell whether records may be gone that later ones of their keys supersede."""
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """Columns of `RECORD_SCHEMA` that a reader wants, and the times outside of which it wants no record."""

    columns: frozenset[str]
    since_ms: int | None = None
    until_ms: int | None = None

    def may_hold(self, first_ms: int, last_ms: int) -> bool:
        """Tell whether something whose oldest and newest times are these may hold a wanted record."""
        is_early = self.since_ms is not None and last_ms < self.since_ms
        return not is_early and (self.until_ms is None or first_ms <= self.until_ms)


@runtime_checkable
class SelectiveLog(Protocol):
    """A log that is stored by column and keeps statistics of times, so that less is fetched where less is wanted."""

    def select(self, partition: int, offsets: OffsetRange, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield the same records as `read`, in the same order: of each `offset` and the columns that are wanted.

        Records outside of the wanted times may be among them: the statistics are of many records at once.
        """
        ...


class StagedSink(Protocol):
    """Where many tasks may write at once and one swap a partition makes it readable."""

    def check_shared(self) -> None:
        """Check that the driver sees files staged by executors.

        Raises:
            UserError: It does not: the sink is a folder that this executor does not share.
        """
        ...

    def ends(self) -> Mapping[int, int]:
        """Return each partition's end: where the next range must start."""
        ...

    def reached(self, only: Collection[int] | None = None) -> Mapping[int, SinkPosition]:
        """Return the same, and what each partition keeps of the log it was copied from; of `only` some."""
        ...

    def following(self, source: SourceSeen) -> StagedSink:
        """Return the same sink for a round over a source: what it publishes keeps which log that was copied from."""
        ...

    def stage(self, partition: int, batches: Iterable[pa.RecordBatch], *, at: OffsetRange | None) -> StagedRecords:
        """Write records under a fresh name; nothing is readable yet."""
        ...

    def stage_copy(self, partition: int, source: TopicLog, offsets: OffsetRange) -> StagedRecords:
        """Stage a range of another log at the same offsets, verbatim where both ends allow."""
        ...

    def publish(self, staged: Sequence[StagedRecords]) -> Mapping[int, OffsetRange]:
        """Make staged ranges readable, one swap a partition, and return what each partition gained.

        A range is published only where its `at.start` is the log's end; the end becomes `at.stop` even after a gap.

        Raises:
            SourceChangedError: What is there is no copy of the log that is followed; other partitions got theirs.
        """
        ...

    def complete(self) -> None:
        """Record that a mirror's first copy has reached the end its source had at the start. Repeating is harmless."""
        ...


@runtime_checkable
class TransactionalSink(Protocol):
    """Where one task a partition writes and commits (Kafka). Offsets are those of the source: the copy has its own."""

    def check_shared(self) -> None:
        """Return if the sink is to be found from this machine."""
        ...

    def reached(self, only: Collection[int] | None = None) -> Mapping[int, SinkPosition]:
        """Return how far the source was copied into each partition; of `only` some."""
        ...

    def spans(self, source: Mapping[int, Bounds]) -> Mapping[int, Spans]:
        """Return what of each partition both have: the copy, by the numbers it gave, and its source."""
        ...

    def following(self, source: SourceSeen) -> TransactionalSink:
        """Return the same sink for a round over a source: what it commits keeps which log that was copied from."""
        ...

    def copy_range(self, partition: int, source: TopicLog, offsets: OffsetRange) -> Iterator[CopyProgress]:
        """Copy a range in transactions and yield after each; continues where an earlier copier stopped.

        Raises:
            LostRaceError: Another process copies this partition now; committed records stay.
            SourceChangedError: The sink is no copy of the followed log.
        """
        ...

    def complete(self) -> None:
        """Record that a mirror's first copy has reached the end its source had at the start. Repeating is harmless."""
        ...


@dataclass(frozen=True, slots=True)
class Written:
    """What a task has committed of one partition of a rewritten topic."""

    partition: int
    records: int
    bytes: int


@runtime_checkable
class RekeySink(Protocol):
    """A topic rewritten from one with another number of partitions. One task writes each partition."""

    @property
    def partitions(self) -> int:
        """How many it has."""
        ...

    def check_shared(self) -> None:
        """Return if the sink is to be found from this machine."""
        ...

    def following(self, source: SourceSeen) -> RekeySink:
        """Return the same sink for a round over a source: what it commits keeps which log that was copied from."""
        ...

    def reached(self) -> Mapping[int, Mapping[int, int]]:
        """Return for each partition below which offset of each of the source it has all that goes to it."""
        ...

    def write(self, partition: int, records: Iterable[pa.RecordBatch], through: Mapping[int, int]) -> Iterator[Written]:
        """Write batches of `RECORD_SCHEMA` as their source numbers them, by its partition and offset; say what is new.

        What is there already is left out. After the last batch all of some partitions of the source is there, up to
        the offsets of `through`.

        Raises:
            LostRaceError: Another process writes this partition now; what was committed stays.
            SourceChangedError: What is there is no copy of the log that is followed.
        """
        ...

    def written(self) -> Digest:
        """Return the digest of all that was ever written."""
        ...


class TopicProducer(Protocol):
    """Where new records of one topic go in: numbered and routed by their platform. Not shared between threads."""

    def append(self, records: pa.RecordBatch) -> None:
        """Take a batch of `INPUT_SCHEMA`; it is written when there is enough, at the latest by `flush`."""
        ...

    def flush(self) -> Mapping[int, OffsetRange]:
        """Write all that was taken, and return what each partition gained since the last call."""
        ...


@dataclass(frozen=True, slots=True)
class NumberedBatch:
    """One batch of a stream. Published again it changes nothing; the numbers of a stream only grow.

    Under one number there are always the same records.
    """

    stream: str
    number: int


@dataclass(frozen=True, slots=True)
class StagedAppend:
    """New records that a task wrote under fresh names since `put_ms`, by partition: picklable, small.

    `given` counts and sums what the task was given, whatever partitions and times that got here.
    """

    put_ms: int
    parts: tuple[StagedRecords, ...]
    given: Digest = Digest()


class AppendSink(Protocol):
    """Where many tasks stage new records of a topic, and one publication makes all of them readable, or none.

    Picklable. What is staged and never published is nothing: it is swept after a day.
    """

    def check_shared(self) -> None:
        """Return if what is staged on this machine will be found by the driver.

        Raises:
            UserError: It will not: the topic is in a folder that this executor does not share.
        """
        ...

    def stage(self, records: Iterable[pa.RecordBatch], *, task: int) -> StagedAppend:
        """Write batches with the columns that a `TopicProducer` takes, in their order.

        Records without key and partition take turns, beginning with a partition that depends on `task`.

        Raises:
            UserError: The topic is gone, is a mirror, or refuses a record.
        """
        ...

    def publish(self, staged: Sequence[StagedAppend], batch: NumberedBatch | None = None) -> bool:
        """Make all of it readable, in the order given; `False`: the batch was published before.

        Raises:
            ProducerFencedError: Another writer of the same stream took over; nothing is readable.
            UserError: The topic is gone, or a mirror by now; or the stream has published a later batch, or other
                records under this number. Nothing is readable.
            RetryableError: It was not possible in time. Of a numbered batch: publish the same again.
        """
        ...


def came_since(log: TopicLog, ends: Mapping[int, int]) -> list[int]:
    """Return the partitions that are new or have records at or after `ends`; transaction markers do not count."""
    partitions = []
    for number, bounds in sorted(log.bounds().items()):
        begin = max(ends.get(number, 0), bounds.start)
        offsets = OffsetRange(begin, max(begin, bounds.stable))
        if number not in ends or (offsets.length and any(batch.num_rows for batch in log.read(number, offsets))):
            partitions.append(number)
    return partitions


# Logs are only appended to, or cut and then appended to under a later epoch. So two logs with the same last epoch below
# an offset, begun at the same place, are equal below it.


_HINT: Final = "Nothing was copied. Fail over to keep what the mirror has, or delete it and create it again."


def check_followed(name: str, partition: int, reached: SinkPosition, source: SourceSeen) -> None:
    """Reject a source that no longer is the log that a mirror's partition was copied from.

    Read the mirror's end before the source: another process may advance the mirror beyond what was read of the source.

    Raises:
        SourceChangedError: The source was recreated, ends before the mirror, or was cut and rewritten below its end.
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
    ours, theirs = _last_below(reached.fetched, reached.epochs), _last_below(reached.fetched, bounds.epochs)
    if ours is not None and theirs is not None and ours != theirs:
        message = f"{where}: below {reached.fetched:,}, to which it was copied, the source was cut and written again"
        raise SourceChangedError(message, code=UNEXPECTED_TRUNCATION, hint=_HINT)


def check_current(name: str, partition: int, reached: SinkPosition, source: SourceSeen) -> None:
    """Reject a staged copy whose source was read before the mirror's last known epoch.

    Raises:
        RetryableError: The source has epochs that the staged copy did not see.
    """
    bounds = source.bounds.get(partition)
    if bounds is None or reached.topic_id is None or reached.topic_id != source.topic_id:
        return
    if max((epoch for epoch, _ in reached.epochs), default=0) > max((epoch for epoch, _ in bounds.epochs), default=0):
        message = f"{name}, partition {partition}: source metadata is stale (the writer changed); nothing was copied"
        raise RetryableError(message, hint="Look at it again.")


def _last_below(offset: int, epochs: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the last epoch with offsets below `offset`."""
    epochs_below = [(epoch, start) for epoch, start in epochs if start < offset]
    return epochs_below[-1] if epochs_below else None
