"""The consumer: subscription, positions and streams of records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args

from reconciler.archives.topic_manifest import Committed
from reconciler.embedded.acl import Kind, Operation, topic_shown
from reconciler.embedded.catalog.tables import Catalog, check_served, is_served, topic_named
from reconciler.embedded.clients.group_admin import Groups
from reconciler.embedded.clients.topic_log import EmbeddedLog
from reconciler.embedded.segments.groups import Place
from reconciler.errors import ReconcilerError, UserError
from reconciler.records.log import MAX_OFFSET, Bounds, Isolation, LostOffsets, OffsetRange
from reconciler.records.schema import decoded, matching

if TYPE_CHECKING:
    import pyarrow as pa

    from reconciler.embedded.catalog.model import TopicEntry
    from reconciler.embedded.context import ClusterContext


# One partition being read: a position that moves on as records are taken, and what was fetched beyond it.


class Stream:
    """Reads one partition of a log from `position` on. Not shared between threads."""

    def __init__(self, log: EmbeddedLog, partition: int, position: int, *, is_strict: bool = False) -> None:
        """Read from `position`; `is_strict`: where the log does not have that any more, nobody goes on elsewhere."""
        self.log = log
        self.partition = partition
        self._is_strict = is_strict
        self.position = position
        """The offset of the next record to be taken, or of a gap before it."""
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._rest: pa.RecordBatch | None = None
        self._until = position
        self.epoch: int | None = None
        """The newest that the log had when it was last looked at."""

    def take(self, most: int) -> pa.RecordBatch | None:
        """Return the next records, at most so many; `None` where there are none now.

        Raises:
            UserError: It is strict, and the log does not have its position.
        """
        if self._rest is None:
            self._rest = self._next()
        if self._rest is None:
            return None
        taken, rest = self._rest.slice(0, most), self._rest.slice(most)
        self._rest = rest if rest.num_rows else None
        self.position = taken.column("offset")[-1].as_py() + 1
        return taken

    def seek(self, offset: int) -> None:
        """Go on reading elsewhere; what was fetched is forgotten."""
        self.position, self._batches, self._rest, self.epoch = offset, None, None, None

    def bounds(self) -> Bounds:
        """Return where the partition begins and ends now."""
        return self.log.bounds_of(self.partition)

    def end(self, bounds: Bounds) -> int:
        """Return how far it may be read."""
        return bounds.readable_end(self.log.isolation)

    def _next(self) -> pa.RecordBatch | None:
        if self._batches is None:
            bounds = self.bounds()
            # Of what was read, some may have been cut since: what lies there now is new (KIP-320).
            same_to = MAX_OFFSET if self.epoch is None else bounds.same_to(self.epoch)
            if self._is_strict:
                self._check_within(bounds.start, min(bounds.end, same_to))
            self.position = min(self.position, same_to)
            self.epoch = bounds.epochs[-1][0]
            self._until, self.position = self.end(bounds), max(self.position, bounds.start)
            if self.position >= self._until:
                return None
            self._batches = self.log.read(self.partition, OffsetRange(self.position, self._until))
        try:
            found = next(self._batches, None)
        except ReconcilerError:
            self._batches = None  # it would look read to its end, and what could not be read be left out
            raise
        if found is None:
            # Past a gap at the end: aborted or compacted records are never read, and are not waited for.
            self.position, self._batches = self._until, None
        return found

    def _check_within(self, start: int, end: int) -> None:
        if not start <= self.position <= end:
            where = f"{self.log.full_name}, partition {self.partition}"
            message = f"{where}: offset {self.position} is out of range: what was read is there from offset {start}"
            hint = "Seek to where it is to go on, or let it begin at 'earliest' or 'latest'."
            raise UserError(f"{message} to offset {end}", hint=hint)


T = TypeVar("T")

Beginning = Literal["earliest", "latest", "none"]
_BEGINNINGS: Final = get_args(Beginning)


@dataclass(frozen=True, slots=True)
class Record:
    """One record. Key and value are bytes or `None`; headers are in their order, a name may come twice.

    A name that is not UTF-8 is decoded as Python does it with names of files: `surrogateescape`.
    """

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def consume(log: EmbeddedLog, *, start_ms: int | None = None) -> Iterator[Record]:
    """Yield what is readable at the time of the call, partition by partition, from the beginning or from a time."""
    for partition, bounds in log.bounds().items():
        start: int | None = bounds.start
        if start_ms is not None:
            start = log.offset_for_time(partition, start_ms)
        if start is None:
            continue
        for batch in log.read(partition, OffsetRange(start, bounds.readable_end(log.isolation))):
            yield from map(_record, batch.to_pylist())


def _record(row: dict[str, Any]) -> Record:
    headers = tuple((decoded(header["key"]), header["value"]) for header in row["headers"])
    return Record(row["partition"], row["offset"], row["timestamp_ms"], row["key"], row["value"], headers)


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records of one partition, in offset order: an Arrow batch of `RECORD_SCHEMA`, or one by one."""

    topic: str
    partition: int
    records: pa.RecordBatch

    def __len__(self) -> int:
        """Return how many records these are."""
        return int(self.records.num_rows)

    def __iter__(self) -> Iterator[Record]:
        """Yield them."""
        yield from map(_record, self.records.to_pylist())


@dataclass(frozen=True, slots=True)
class Reading:
    """How a consumer reads. `beginning` is where, of what its group never committed: Kafka's `auto.offset.reset`."""

    group: str | None = None
    isolation: Isolation = "read_committed"
    beginning: Beginning = "earliest"
    partitions: tuple[int, ...] | None = None
    on_missing: Callable[[LostOffsets], None] | None = None
    """Told of offsets whose object is gone, and reading goes on after them; `None`: reading them is an error."""

    def __post_init__(self) -> None:
        """Refuse to begin where nobody could: anything else would be taken for the earliest.

        Raises:
            UserError: There is no such beginning.
        """
        if self.beginning not in _BEGINNINGS:
            message = f"not a place to begin: {self.beginning!r}"
            raise UserError(message, hint=f"auto_offset_reset takes {', '.join(_BEGINNINGS)}.")


class Consumer:
    """Reads topics from where its group left off. Not shared between threads.

    There is no membership, for there is no server: two consumers of one group both read everything, unless each is
    told its own `partitions`. Each `poll` looks anew which topics there are, so one made later joins by itself.
    """

    def __init__(self, cluster: ClusterContext, subscription: Subscription, reading: Reading) -> None:
        """Use `EmbeddedCluster.consumer`."""
        self._cluster = cluster
        self._subscription = subscription
        self._reading = reading
        self._streams: dict[Place, Stream] = {}
        self._order: deque[Place] = deque()
        self._assign()

    def poll(self, max_records: int = 10_000) -> list[Fetched]:
        """Return the next records, at most so many; nothing where everything is read. Partitions take turns.

        Where a partition cannot be read, what was read of others before is returned, and the next poll raises.

        Raises:
            UserError: A topic it names is gone; or `beginning` is `none`, and its group never committed a partition,
                or a log does not have its position any more: its end was cut, or its start has moved beyond that.
        """
        self._assign()
        fetched: list[Fetched] = []
        left, waiting = max_records, self._order
        self._order = deque()
        while waiting and left > 0:
            place = waiting.popleft()
            stream = self._streams[place]
            try:
                records = stream.take(left)
            except ReconcilerError:
                if not fetched:
                    raise
                # What was taken before would be lost with the error: this partition comes first in the next poll.
                waiting.appendleft(place)
                break
            if records is None:
                self._order.append(place)
                continue
            left -= records.num_rows
            fetched.append(Fetched(stream.log.full_name, stream.partition, records))
            waiting.append(place)
        self._order.extendleft(reversed(waiting))
        return fetched

    def assignment(self) -> list[tuple[str, int]]:
        """Return what is read: full names of topics, and partitions."""
        return sorted(self._named(self._streams))

    def position(self, topic: str, partition: int) -> int:
        """Return the next offset `poll` looks for.

        Raises:
            UserError: It does not read that partition.
        """
        return self._stream(topic, partition).position

    def positions(self) -> dict[tuple[str, int], Committed]:
        """Return all of them as a transaction commits them, by topic and partition: see `send_offsets`."""
        return self._named(self._reached())

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on reading elsewhere. What the group has committed stays until the next `commit`.

        Raises:
            UserError: It does not read that partition, or no log can have that offset.
        """
        if offset < 0:
            raise UserError(f"{offset} is not an offset", hint="Offsets count from 0.")
        self._stream(topic, partition).seek(offset)

    def commit(self) -> None:
        """Commit the position of every partition: what `poll` has returned will not be read again.

        Raises:
            UserError: It has no group.
        """
        Groups.of(self._cluster).commit_places(self._group(), self._reached())

    def committed(self) -> dict[tuple[str, int], int | None]:
        """Return what its group has committed of each partition it reads; `None`: never.

        Raises:
            UserError: It has no group.
        """
        found = Groups.of(self._cluster).fetch_places(self._group(), self._streams)
        offsets = {place: found[place].offset if place in found else None for place in self._streams}
        return self._named(offsets)

    def lag(self) -> dict[tuple[str, int], int]:
        """Return how many offsets lie between the position and the end of each partition it reads."""
        behind = {
            place: max(0, each.end(bounds) - max(each.position, bounds.start))
            for place, each in self._streams.items()
            for bounds in [each.bounds()]
        }
        return self._named(behind)

    def _reached(self) -> dict[Place, Committed]:
        """Return how far each partition is read, and under which epoch: where its log was cut since, that tells."""
        return {place: Committed(each.position, epoch=each.epoch) for place, each in self._streams.items()}

    def _assign(self) -> None:
        """Look which topics and partitions there are now; what is new starts, what is gone ends."""
        catalog = self._cluster.catalog.read()
        topics = {entry.id: (name, entry) for name, entry in self._topics(catalog).items()}
        wanted = [(topic_id, partition) for topic_id in topics for partition in self._partitions(*topics[topic_id])]
        self._streams = {place: self._streams[place] for place in wanted if place in self._streams}
        new = [place for place in wanted if place not in self._streams]
        committed = self._committed(new)
        logs = {topic_id: self._log(name, topic_id) for topic_id, (name, _) in topics.items()}
        for place, stream in self._streams.items():
            stream.log = logs[place[0]]  # it may have another name by now
        for topic_id, partition in new:
            started = self._started(logs[topic_id], partition, committed.get((topic_id, partition)))
            self._streams[topic_id, partition] = started
        kept = dict.fromkeys(place for place in self._order if place in self._streams)
        self._order = deque([*kept, *(place for place in wanted if place not in kept)])

    def _topics(self, catalog: Catalog) -> dict[str, TopicEntry]:
        who = self._cluster.permissions
        if self._subscription.pattern is None:
            for name in sorted(self._subscription.names):
                who.check(catalog, Operation.READ, Kind.TOPIC, name)
                check_served(name, topic_shown(who, catalog, name))
        topics = self._subscription.topics(catalog)
        return {
            name: each
            for name, each in topics.items()
            if is_served(each) and who.may(catalog, Operation.READ, Kind.TOPIC, name)
        }

    def _log(self, full_name: str, topic_id: str) -> EmbeddedLog:
        cluster, reading = self._cluster, self._reading
        return EmbeddedLog(
            cluster.store,
            cluster.catalog,
            full_name,
            topic_id,
            cluster.permissions,
            reading.isolation,
            cluster.remote,
            reading.on_missing,
        )

    def _partitions(self, full_name: str, topic: TopicEntry) -> list[int]:
        asked = self._reading.partitions
        if asked is None:
            return list(range(topic.partitions))
        there = [partition for partition in asked if 0 <= partition < topic.partitions]
        if len(there) < len(asked) and self._subscription.pattern is None:
            message = f"topic {full_name} has {topic.partitions} partitions, and not all of {list(asked)}"
            raise UserError(message, hint="Partitions count from 0.")
        return there

    def _committed(self, places: list[Place]) -> Mapping[Place, Committed]:
        if self._reading.group is None or not places:
            return {}
        return Groups.of(self._cluster).fetch_places(self._reading.group, places)

    def _started(self, log: EmbeddedLog, partition: int, committed: Committed | None) -> Stream:
        is_strict = self._reading.beginning == "none"
        stream = Stream(log, partition, 0 if committed is None else committed.offset, is_strict=is_strict)
        stream.epoch = None if committed is None else committed.epoch
        if committed is None and self._reading.beginning == "latest":
            stream.position = stream.end(stream.bounds())
        if committed is None and self._reading.beginning == "none":
            message = f"{log.full_name}, partition {partition}: group {self._reading.group} never committed an offset"
            raise UserError(message, hint="Commit or reset its offsets first, or begin at 'earliest' or 'latest'.")
        return stream

    def _stream(self, topic: str, partition: int) -> Stream:
        for (_, number), stream in self._streams.items():
            if number == partition and stream.log.full_name == topic:
                return stream
        raise UserError(f"{topic}, partition {partition}, is not read here", hint="List what is: assignment().")

    def _group(self) -> str:
        if self._reading.group is None:
            raise UserError("a consumer without a group commits nothing", hint="Name one: consumer(group=…).")
        return self._reading.group

    def _named(self, places: Mapping[Place, T]) -> dict[tuple[str, int], T]:
        return {(self._streams[place].log.full_name, place[1]): places[place] for place in places}


# Which topics a consumer reads: those it names, or all whose full name matches a regular expression (KIP-37).
#
# A pattern is matched against the whole full name: `.*` sees all namespaces, and `shop:.*` all below `shop`.


@dataclass(frozen=True, slots=True)
class Subscription:
    """Names, or a pattern; never both."""

    names: tuple[str, ...] = ()
    pattern: str | None = None

    @classmethod
    def of(cls, topics: Iterable[str] | None, pattern: str | None) -> Subscription:
        """Return what is asked for.

        Raises:
            UserError: It is nothing, or both, or the pattern is not a regular expression.
        """
        if isinstance(topics, str):
            raise UserError(f"{topics!r} is one topic, not several", hint=f"Write it as topics=[{topics!r}].")
        names = tuple(dict.fromkeys(topics or ()))
        if bool(names) == (pattern is not None):
            raise UserError(
                "topics and pattern are both missing, or both given", hint="Give topics, or a pattern over full names."
            )
        if pattern is not None:
            matching(pattern, [])
        return cls(names, pattern)

    def topics(self, catalog: Catalog) -> dict[str, TopicEntry]:
        """Return the topics it means now, by full name, sorted.

        Raises:
            InvalidNamespaceError: A topic is named whose namespace does not exist.
            UserError: A topic is named that does not exist.
        """
        if self.pattern is None:
            return {name: topic_named(catalog, name) for name in sorted(self.names)}
        return {name: catalog.topics[name] for name in matching(self.pattern, sorted(catalog.topics))}
