"""The consumer: subscriptions, positions and record streams."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args

from reconciler.archives.topic_manifest import CommittedOffset
from reconciler.embedded.acl import Kind, Operation, find_visible_topic
from reconciler.embedded.catalog.tables import Catalog, check_served, get_topic, is_served
from reconciler.embedded.clients.group_admin import Groups
from reconciler.embedded.clients.topic_log import EmbeddedLog
from reconciler.embedded.segments.groups import Place
from reconciler.errors import ReconcilerError, UserError
from reconciler.records.log import MAX_OFFSET, Bounds, Isolation, LostOffsets, OffsetRange
from reconciler.records.schema import decode_name, match_names
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

    from reconciler.embedded.catalog.model import TopicEntry
    from reconciler.embedded.context import ClusterContext


class PartitionStream:
    """Reads and prefetches one partition. Not thread-safe."""

    def __init__(self, log: EmbeddedLog, partition: int, position: int, *, is_strict: bool = False) -> None:
        """Start at `position`. If the log lacks it, reading fails (`is_strict`) or moves to the nearest offset."""
        self.log = log
        self.partition = partition
        self._is_strict = is_strict
        self.position = position
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._rest: pa.RecordBatch | None = None
        self._until = position
        self.epoch: int | None = None

    def read_next(self, most: int) -> pa.RecordBatch | None:
        """Return at most `most` records; `None` at the log's end.

        Raises:
            UserError: The stream is strict, and the log lacks its position.
        """
        if self._rest is None:
            self._rest = self._read_batch()
        if self._rest is None:
            return None
        taken, rest = self._rest.slice(0, most), self._rest.slice(most)
        self._rest = rest if rest.num_rows else None
        self.position = taken.column("offset")[-1].as_py() + 1
        return taken

    def seek(self, offset: int) -> None:
        """Continue at another offset."""
        self.position, self._batches, self._rest, self.epoch = offset, None, None, None

    def read_bounds(self) -> Bounds:
        """Return the partition's current bounds."""
        return self.log.bounds_of(self.partition)

    def find_readable_end(self, bounds: Bounds) -> int:
        """Return the log end, or the last stable offset for `read_committed`."""
        return bounds.find_readable_end(self.log.isolation)

    def _read_batch(self) -> pa.RecordBatch | None:
        if self._batches is None:
            bounds = self.read_bounds()
            # If the log was truncated below the position, reading continues at the truncation (KIP-320).
            same_to = MAX_OFFSET if self.epoch is None else bounds.find_unchanged_end(self.epoch)
            if self._is_strict:
                self._check_position(bounds.start, min(bounds.end, same_to))
            self.position = min(self.position, same_to)
            self.epoch = bounds.epochs[-1][0]
            self._until, self.position = self.find_readable_end(bounds), max(self.position, bounds.start)
            if self.position >= self._until:
                return None
            self._batches = self.log.read(self.partition, OffsetRange(self.position, self._until))
        try:
            batch = next(self._batches, None)
        except ReconcilerError:
            self._batches = None
            raise
        if batch is None:
            self.position, self._batches = self._until, None
        return batch

    def _check_position(self, start: int, end: int) -> None:
        if not start <= self.position <= end:
            where = f"{self.log.full_name}, partition {self.partition}"
            message = f"{where}: offset {self.position} is out of range: what was read is there from offset {start}"
            hint = "Seek to an offset, or begin at 'earliest' or 'latest'."
            raise UserError(f"{message} to offset {end}", hint=hint)


T = TypeVar("T")

Beginning = Literal["earliest", "latest", "none"]
_BEGINNINGS: Final = get_args(Beginning)


@dataclass(frozen=True, slots=True)
class Record:
    """A record; header names may repeat.

    Header names are decoded with `surrogateescape`.
    """

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def iter_current_records(log: EmbeddedLog, *, start_ms: int | None = None) -> Iterator[Record]:
    """Yield the records readable now, partition by partition."""
    for partition, bounds in log.read_bounds().items():
        start: int | None = bounds.start
        if start_ms is not None:
            start = log.find_offset_at(partition, start_ms)
        if start is None:
            continue
        for batch in log.read(partition, OffsetRange(start, bounds.find_readable_end(log.isolation))):
            yield from map(_to_record, batch.to_pylist())


def _to_record(row: dict[str, Any]) -> Record:
    headers = tuple((decode_name(header["key"]), header["value"]) for header in row["headers"])
    return Record(row["partition"], row["offset"], row["timestamp_ms"], row["key"], row["value"], headers)


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """Records of one partition: an Arrow batch of `RECORD_SCHEMA`, iterable as `Record`."""

    topic: str
    partition: int
    records: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.records.num_rows)

    def __iter__(self) -> Iterator[Record]:
        yield from map(_to_record, self.records.to_pylist())


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """Options of a consumer. `beginning` is Kafka's `auto.offset.reset`."""

    group: str | None = None
    isolation: Isolation = "read_committed"
    beginning: Beginning = "earliest"
    partitions: tuple[int, ...] | None = None
    on_missing: Callable[[LostOffsets], None] | None = None
    """Gets missing or damaged offsets, which are skipped; without it, reading fails."""

    def __post_init__(self) -> None:
        if self.beginning not in _BEGINNINGS:
            message = f"not a start position: {self.beginning!r}"
            raise UserError(message, hint=f"auto_offset_reset takes {', '.join(_BEGINNINGS)}.")


class Consumer:
    """Reads topics from its group's committed offsets. Not thread-safe.

    Consumers of a group do not share partitions: each reads all of them, or only its own `partitions`.
    """

    def __init__(self, cluster: ClusterContext, subscription: Subscription, reading: ConsumerOptions) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._reading = reading
        self._streams: dict[Place, PartitionStream] = {}
        self._order: deque[Place] = deque()
        self._update_streams()

    def poll(self, max_records: int = 10_000) -> list[FetchedRecords]:
        """Return at most `max_records` records; partitions take turns.

        If a partition cannot be read, this poll returns the others' records, and the next poll raises the error.
        """
        self._update_streams()
        fetched: list[FetchedRecords] = []
        left, waiting = max_records, self._order
        self._order = deque()
        while waiting and left > 0:
            place = waiting.popleft()
            stream = self._streams[place]
            try:
                records = stream.read_next(left)
            except ReconcilerError:
                if not fetched:
                    raise
                # This poll returns the records already read, and the next poll raises.
                waiting.appendleft(place)
                break
            if records is None:
                self._order.append(place)
                continue
            left -= records.num_rows
            fetched.append(FetchedRecords(stream.log.full_name, stream.partition, records))
            waiting.append(place)
        self._order.extendleft(reversed(waiting))
        return fetched

    def assignment(self) -> list[tuple[str, int]]:
        """Return the partitions to read, as (full name, partition)."""
        return sorted(self._key_by_name(self._streams))

    def position(self, topic: str, partition: int) -> int:
        """Return the offset of the next record."""
        return self._get_stream(topic, partition).position

    def positions(self) -> dict[tuple[str, int], CommittedOffset]:
        """Return positions by topic and partition, for `send_offsets`."""
        return self._key_by_name(self._current_positions())

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue at another offset, without a commit."""
        if offset < 0:
            raise UserError(f"{offset} is not an offset", hint="Offsets count from 0.")
        self._get_stream(topic, partition).seek(offset)

    def commit(self) -> None:
        """Commit all positions."""
        Groups.of(self._cluster).commit_places(self._require_group(), self._current_positions())

    def committed(self) -> dict[tuple[str, int], int | None]:
        """Return the group's committed offset per partition, or `None`."""
        fetched = Groups.of(self._cluster).fetch_places(self._require_group(), self._streams)
        offsets = {place: fetched[place].offset if place in fetched else None for place in self._streams}
        return self._key_by_name(offsets)

    def lag(self) -> dict[tuple[str, int], int]:
        """Return the number of offsets between position and end, per partition."""
        behind = {
            place: max(0, stream.find_readable_end(bounds) - max(stream.position, bounds.start))
            for place, stream in self._streams.items()
            for bounds in [stream.read_bounds()]
        }
        return self._key_by_name(behind)

    def _current_positions(self) -> dict[Place, CommittedOffset]:
        return {place: CommittedOffset(stream.position, epoch=stream.epoch) for place, stream in self._streams.items()}

    def _update_streams(self) -> None:
        catalog = self._cluster.catalog.read()
        topics = {entry.id: (name, entry) for name, entry in self._find_topics(catalog).items()}
        wanted = [
            (topic_id, partition) for topic_id in topics for partition in self._select_partitions(*topics[topic_id])
        ]
        self._streams = {place: self._streams[place] for place in wanted if place in self._streams}
        new = [place for place in wanted if place not in self._streams]
        committed = self._fetch_committed(new)
        logs = {topic_id: self._open_log(name, topic_id) for topic_id, (name, _) in topics.items()}
        for place, stream in self._streams.items():
            stream.log = logs[place[0]]  # The topic may have been renamed.
        for topic_id, partition in new:
            started = self._start_stream(logs[topic_id], partition, committed.get((topic_id, partition)))
            self._streams[topic_id, partition] = started
        remaining = dict.fromkeys(place for place in self._order if place in self._streams)
        self._order = deque([*remaining, *(place for place in wanted if place not in remaining)])

    def _find_topics(self, catalog: Catalog) -> dict[str, TopicEntry]:
        who = self._cluster.permissions
        if self._subscription.pattern is None:
            for name in sorted(self._subscription.names):
                who.check_allowed(catalog, Operation.READ, Kind.TOPIC, name)
                check_served(name, find_visible_topic(who, catalog, name))
        topics = self._subscription.find_topics(catalog)
        return {
            name: topic
            for name, topic in topics.items()
            if is_served(topic) and who.is_allowed(catalog, Operation.READ, Kind.TOPIC, name)
        }

    def _open_log(self, full_name: str, topic_id: str) -> EmbeddedLog:
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

    def _select_partitions(self, full_name: str, topic: TopicEntry) -> list[int]:
        wanted = self._reading.partitions
        if wanted is None:
            return list(range(topic.partitions))
        existing = [partition for partition in wanted if 0 <= partition < topic.partitions]
        if len(existing) < len(wanted) and self._subscription.pattern is None:
            message = f"topic {full_name} has {topic.partitions} partitions, and not all of {list(wanted)}"
            raise UserError(message, hint="Partitions count from 0.")
        return existing

    def _fetch_committed(self, places: list[Place]) -> Mapping[Place, CommittedOffset]:
        if self._reading.group is None or not places:
            return {}
        return Groups.of(self._cluster).fetch_places(self._reading.group, places)

    def _start_stream(self, log: EmbeddedLog, partition: int, committed: CommittedOffset | None) -> PartitionStream:
        is_strict = self._reading.beginning == "none"
        stream = PartitionStream(log, partition, 0 if committed is None else committed.offset, is_strict=is_strict)
        stream.epoch = None if committed is None else committed.epoch
        if committed is None and self._reading.beginning == "latest":
            stream.position = stream.find_readable_end(stream.read_bounds())
        if committed is None and self._reading.beginning == "none":
            message = f"{log.full_name}, partition {partition}: group {self._reading.group} never committed an offset"
            raise UserError(message, hint="Commit or reset its offsets first, or begin at 'earliest' or 'latest'.")
        return stream

    def _get_stream(self, topic: str, partition: int) -> PartitionStream:
        for (_, number), stream in self._streams.items():
            if number == partition and stream.log.full_name == topic:
                return stream
        raise UserError(
            f"{topic}, partition {partition}, is not assigned to this consumer",
            hint="List the assigned partitions: assignment().",
        )

    def _require_group(self) -> str:
        if self._reading.group is None:
            raise UserError("a consumer without a group cannot commit offsets", hint="Name one: consumer(group=…).")
        return self._reading.group

    def _key_by_name(self, places: Mapping[Place, T]) -> dict[tuple[str, int], T]:
        return {(self._streams[place].log.full_name, place[1]): places[place] for place in places}


@dataclass(frozen=True, slots=True)
class Subscription:
    """Topic names, or a regular expression (KIP-37).

    The expression must match the whole full name: `shop:.*` matches all topics below `shop`.
    """

    names: tuple[str, ...] = ()
    pattern: str | None = None

    @classmethod
    def of(cls, topics: Iterable[str] | None, pattern: str | None) -> Subscription:
        """Create a subscription to either topics or a pattern."""
        if isinstance(topics, str):
            raise UserError(f"{topics!r} is one topic, not several", hint=f"Write it as topics=[{topics!r}].")
        names = tuple(dict.fromkeys(topics or ()))
        if bool(names) == (pattern is not None):
            raise UserError(
                "topics and pattern are both missing, or both set", hint="Give topics, or a pattern over full names."
            )
        if pattern is not None:
            match_names(pattern, [])
        return cls(names, pattern)

    def find_topics(self, catalog: Catalog) -> dict[str, TopicEntry]:
        """Return matching topics by full name, sorted."""
        if self.pattern is None:
            return {name: get_topic(catalog, name) for name in sorted(self.names)}
        return {name: catalog.topics[name] for name in match_names(self.pattern, sorted(catalog.topics))}
