"""The records of one topic, by partition and offset, on any platform: how they are read and how they are written.

Logs and sinks are picklable and are opened on the executors of a job.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, Protocol, get_args, runtime_checkable

from reconciler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from reconciler.records.digest import Digest
    from reconciler.records.offsetmap import OffsetMap


Isolation = Literal["read_committed", "read_uncommitted"]
"""Whether a reader waits for open transactions, or sees their records too. Those of aborted ones nobody sees."""
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
        """Tell whether another range lies within it."""
        return self.start <= other.start and other.stop <= self.stop


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a partition begins and ends. `stable` is the last stable offset: what `read_committed` may reach."""

    start: int
    local_start: int
    stable: int
    end: int
    epochs: tuple[tuple[int, int], ...] = ()
    """(epoch, first offset), oldest first."""
    compacted_to: int = 0
    """Below this offset compaction may have removed records that later ones of their keys supersede."""

    def readable_end(self, isolation: Isolation) -> int:
        """Return how far it may be read."""
        return self.end if isolation == "read_uncommitted" else self.stable

    def same_to(self, epoch: int) -> int:
        """Return how far the log is still what it was when `epoch` was its newest; an end that was cut is not."""
        return min((start for number, start in self.epochs if number > epoch), default=MAX_OFFSET)

    def only_local(self) -> Bounds:
        """Return it as it is where nothing may be fetched from the remote tier."""
        return self if self.start == self.local_start else replace(self, start=self.local_start)


@dataclass(frozen=True, slots=True)
class Lost:
    """Offsets that a log has and that cannot be read: the object that held them is not there, or damaged."""

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
    """A stretch of a log as it is stored, worth one task at most: copies take it over whole and do not cut it."""

    offsets: OffsetRange
    records: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class Staged:
    """What a task wrote under fresh names and the driver may publish: picklable, small.

    `at` is where it belongs; `None`: numbered when it is published. `entries` is the sink's own description.
    """

    partition: int
    at: OffsetRange | None
    records: int
    stored_bytes: int
    digest: Digest
    entries: bytes


@dataclass(frozen=True, slots=True)
class SourceSeen:
    """The log that a copy follows, as it was seen before a round of copying: what goes with what is published."""

    topic_id: str | None
    """Another one: it was deleted and made anew. `None`: its platform has none."""
    bounds: Mapping[int, Bounds]


@dataclass(frozen=True, slots=True)
class Reached:
    """Where a partition of a sink ends. All below `fetched` is the log with that id, as it was under those epochs."""

    end: int
    topic_id: str | None = None
    epochs: tuple[tuple[int, int], ...] = ()
    fetched: int = 0


@dataclass(frozen=True, slots=True)
class Copied:
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
    """Where each record of the right one is in the left one; `None`: nobody kept that."""


class TopicLog(Protocol):
    """The records of one topic."""

    @property
    def topic_id(self) -> str | None:
        """Which topic it is: one of the same name that is made later has another. `None`: its platform has none."""
        ...

    def check_shared(self) -> None:
        """Return if the log is to be found from this machine.

        Raises:
            UserError: It is not: a folder of the driver that this executor does not share looks like an empty log.
        """
        ...

    def bounds(self, only: Collection[int] | None = None) -> Mapping[int, Bounds]:
        """Return every partition's bounds, in one bulk call; of `only` some, looked at one by one, where few matter."""
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
class Compacting(Protocol):
    """A log that is compacted, or is not, without saying how far: brokers do not tell."""

    def compacts(self) -> bool:
        """Tell whether records may be gone that later ones of their keys supersede."""
        ...


class StagedSink(Protocol):
    """Where many tasks may write at once and one swap a partition makes it readable."""

    def check_shared(self) -> None:
        """Return if what is staged on this machine will be found by the driver.

        Raises:
            UserError: It will not: the sink is a folder that this executor does not share.
        """
        ...

    def ends(self) -> Mapping[int, int]:
        """Return each partition's end: where the next range must start."""
        ...

    def reached(self, only: Collection[int] | None = None) -> Mapping[int, Reached]:
        """Return the same, and what each partition keeps of the log it was copied from; of `only` some."""
        ...

    def following(self, source: SourceSeen) -> StagedSink:
        """Return the same sink for a round over a source: what it publishes keeps which log that was copied from."""
        ...

    def stage(self, partition: int, batches: Iterable[pa.RecordBatch], *, at: OffsetRange | None) -> Staged:
        """Write records under a fresh name; nothing is readable yet."""
        ...

    def stage_copy(self, partition: int, source: TopicLog, offsets: OffsetRange) -> Staged:
        """Stage a range of another log at the same offsets, verbatim where both ends allow."""
        ...

    def publish(self, staged: Sequence[Staged]) -> Mapping[int, OffsetRange]:
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

    def reached(self, only: Collection[int] | None = None) -> Mapping[int, Reached]:
        """Return how far the source was copied into each partition; of `only` some."""
        ...

    def spans(self, source: Mapping[int, Bounds]) -> Mapping[int, Spans]:
        """Return what of each partition both have: the copy, by the numbers it gave, and its source."""
        ...

    def following(self, source: SourceSeen) -> TransactionalSink:
        """Return the same sink for a round over a source: what it commits keeps which log that was copied from."""
        ...

    def copy_range(self, partition: int, source: TopicLog, offsets: OffsetRange) -> Iterator[Copied]:
        """Copy a range in transactions, and say so after each; goes on where a copier before this one stopped.

        Raises:
            LostRaceError: Somebody else copies this partition now; what was committed stays.
            SourceChangedError: What is there is no copy of the log that is followed.
        """
        ...

    def complete(self) -> None:
        """Record that a mirror's first copy has reached the end its source had at the start. Repeating is harmless."""
        ...


class TopicProducer(Protocol):
    """Where new records of one topic go in: numbered and routed by their platform. Not shared between threads."""

    def append(self, records: pa.RecordBatch) -> None:
        """Take a batch of `INPUT_SCHEMA`; it is written when there is enough, at the latest by `flush`."""
        ...

    def flush(self) -> Mapping[int, OffsetRange]:
        """Write all that was taken, and return what each partition gained since the last call."""
        ...


def came_since(log: TopicLog, ends: Mapping[int, int]) -> list[int]:
    """Return the partitions that have records at or after `ends`, or are new; ends of transactions are no records."""
    found = []
    for number, bounds in sorted(log.bounds().items()):
        begin = max(ends.get(number, 0), bounds.start)
        offsets = OffsetRange(begin, max(begin, bounds.stable))
        if number not in ends or (offsets.length and any(batch.num_rows for batch in log.read(number, offsets))):
            found.append(number)
    return found
