"""An embedded topic as a `TopicLog` and as a `StagedSink`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa

from reconciler.archives.entries import Entry
from reconciler.archives.pages import iter_entries_within
from reconciler.archives.storage import check_storage_shared
from reconciler.embedded.acl import SUPER_USER, Kind, Operation, Permissions, check_may_append
from reconciler.embedded.catalog.mirror_tables import mark_first_copy_complete
from reconciler.embedded.catalog.tables import SEAL, Draft, check_served, find_current_name, find_topic_by_id
from reconciler.embedded.keys import part_key
from reconciler.embedded.objects import check_topic_visible, check_writes_visible
from reconciler.embedded.segments.gate import AppendGate, missing_topic_error
from reconciler.embedded.segments.head import (
    PRODUCERS,
    UNWRITTEN_BOUNDS,
    Head,
    parse_epochs,
    read_bounds,
    read_head,
    read_trimmed_heads,
)
from reconciler.embedded.segments.parts import EVERYTHING, PartWriter, select_range
from reconciler.embedded.tiered.remote_reads import PartRange, TopicTiers, find_offset_in_part_since, read_part_ranges
from reconciler.embedded.tiered.remote_tier import RemoteTier, unwrap_store
from reconciler.errors import DamagedObjectError, MissingObjectError, UserError
from reconciler.objectstore.register import create_mark
from reconciler.records.hashes import compute_digest
from reconciler.records.log import (
    MAX_OFFSET,
    Bounds,
    Digest,
    Extent,
    Isolation,
    LostOffsets,
    ObservedSource,
    OffsetRange,
    Selection,
    SinkPosition,
    StagedRecords,
    TopicLog,
    check_copy_current,
    check_source_unchanged,
)
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.model import TopicEntry
    from reconciler.embedded.segments.admission import AppendRules
    from reconciler.objectstore.base import ObjectStore


_MAX_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class EmbeddedLog:
    """The log of a topic id. A recreated topic has another log."""

    store: ObjectStore
    catalog: CatalogRegister
    full_name: str
    topic_id: str
    permissions: Permissions = SUPER_USER
    isolation: Isolation = "read_committed"
    remote: RemoteTier | None = None
    on_missing: Callable[[LostOffsets], None] | None = None

    def check_shared(self) -> None:
        """Reject a machine that does not see the topic."""
        catalog = self.catalog.read()
        topic = find_topic_by_id(catalog, self.topic_id, self.full_name)
        check_topic_visible(self.store, self.full_name, is_found=topic is not None)
        is_remote = topic is not None and (topic.tiering is not None or topic.replica is not None)
        if self.remote is not None and is_remote and not self._find_tiers().is_hiding:
            check_storage_shared(self.remote.storage, catalog.cluster.storage_id)

    def read_bounds(self, only: Collection[int] | None = None) -> Mapping[int, Bounds]:
        """Return partitions' bounds."""
        topic = find_topic_by_id(self.catalog.read(), self.topic_id, self.full_name)
        self._check_allowed(Operation.DESCRIBE)
        if topic is None:
            raise _missing_topic_error(self.full_name)
        check_served(self.full_name, topic)
        bounds_by_partition, tiers = read_bounds(self.store, self.topic_id, topic.partitions, only), self._find_tiers()
        return {partition: tiers.limit_bounds(bounds) for partition, bounds in bounds_by_partition.items()}

    def bounds_of(self, partition: int) -> Bounds:
        """Return a partition's bounds."""
        head = self.read_head(partition)
        if head is None:
            self._check_open(head)
            return UNWRITTEN_BOUNDS
        return self._find_tiers().limit_bounds(head.bounds)

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield the readable records of `offsets` from both tiers."""
        return self.read_selected(partition, offsets, EVERYTHING)

    def read_selected(self, partition: int, offsets: OffsetRange, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield `offset` and the selected columns; skip parts outside the selected times."""
        self._check_allowed(Operation.READ)
        reads = _RepeatedReads(self, partition, offsets)
        while reads.is_incomplete():
            part_ranges = (
                part_range
                for part_range in reads.find_part_ranges(since_ms=selection.since_ms)
                if selection.may_contain(part_range.entry.min_ts, part_range.entry.max_ts)
            )
            with reads, closing(read_part_ranges(self.remote, part_ranges, partition, selection)) as batches:
                for batch in batches:
                    yield batch
                    reads.advance_to(batch.column("offset")[-1].as_py() + 1)

    def list_extents(self, partition: int, offsets: OffsetRange) -> Iterator[Extent]:
        """Yield an extent per part, limited to `offsets`."""
        self._check_allowed(Operation.DESCRIBE)
        for part_range in self.iter_part_ranges(partition, offsets):
            entry, cut = part_range.entry, part_range.offsets
            length = entry.last + 1 - entry.base
            yield Extent(cut, entry.digest.records * cut.length // length, entry.bytes * cut.length // length)

    def read_digests(self, partition: int, offsets: OffsetRange) -> Iterator[Digest]:
        """Yield digests of `offsets`; only parts at its limits are read."""
        self._check_allowed(Operation.READ)
        for part_range in self.iter_part_ranges(partition, offsets):
            if part_range.entry.is_within(part_range.offsets):
                yield part_range.entry.digest.shift(part_range.entry.base)
            else:
                for batch in self.read(partition, part_range.offsets):
                    yield compute_digest(batch, base=0)

    def find_offset_at(self, partition: int, timestamp_ms: int) -> int | None:
        """Return the first offset at or after a time."""
        self._check_allowed(Operation.DESCRIBE)
        reads = _RepeatedReads(self, partition, OffsetRange(0, MAX_OFFSET))
        while reads.is_incomplete():
            with reads:
                for part_range in reads.find_part_ranges(since_ms=timestamp_ms):
                    offset = find_offset_in_part_since(self.remote, part_range, timestamp_ms)
                    if offset is not None:
                        return offset
                    reads.advance_to(part_range.offsets.stop)
        return None

    def iter_local_entries(self, head: Head, offsets: OffsetRange) -> Iterator[Entry]:
        """Yield a head's local parts with readable records of a range, oldest first."""
        stop = min(offsets.stop, head.bounds.find_readable_end(self.isolation))
        return iter_entries_within(self.store, head, OffsetRange(max(offsets.start, head.local_start), stop))

    def iter_part_ranges(self, partition: int, offsets: OffsetRange) -> Iterator[PartRange]:
        """Yield the parts of both tiers with readable records of a range, oldest first.

        No offset is repeated, even if maintenance replaces parts.
        """
        reads = _RepeatedReads(self, partition, offsets)
        while reads.is_incomplete():
            with reads:
                for part_range in reads.find_part_ranges():
                    yield part_range
                    reads.advance_to(part_range.offsets.stop)

    def read_head(self, partition: int) -> Head | None:
        """Return a partition's head; `None` if never written."""
        head = read_head(self.store, self.topic_id, partition)
        if head is not None:
            self._check_open(head)
        return head

    def _find_tiers(self) -> TopicTiers:
        topic = (self.full_name, self.topic_id)
        return TopicTiers.of(self.store, self.catalog.get_cached(), topic, self.remote, self._check_open)

    def _check_open(self, head: Head | None) -> None:
        """Reject a sealed or deleted topic; ignore a seal without a migration."""
        if head is not None and not head.writer.startswith(SEAL):
            return
        topic = find_topic_by_id(self.catalog.read(), self.topic_id, self.full_name)
        if topic is None:
            raise _missing_topic_error(self.full_name)
        check_served(self.full_name, topic)

    def _check_allowed(self, operation: Operation) -> None:
        if not self.permissions.is_super_user:
            catalog = self.catalog.get_cached()
            name = find_current_name(catalog, self.topic_id, self.full_name)
            self.permissions.check_allowed(catalog, operation, Kind.TOPIC, name)


class _RepeatedReads:
    """Reads a range until it is complete; each `with` block is one attempt.

    Each attempt reads head and manifest again, to find replacements of deleted objects.
    """

    def __init__(self, log: EmbeddedLog, partition: int, offsets: OffsetRange) -> None:
        self._log = log
        self._partition = partition
        self._rest = offsets
        self._missed = 0
        self._is_done = False

    def is_incomplete(self) -> bool:
        return not self._is_done

    def find_part_ranges(self, *, since_ms: int | None = None) -> Iterator[PartRange]:
        log = self._log
        return log._find_tiers().iter_part_ranges(self._partition, self._rest, log.isolation, since_ms=since_ms)  # noqa: SLF001 - part of it

    def advance_to(self, offset: int) -> None:
        self._rest, self._missed = OffsetRange(offset, self._rest.stop), 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        match error:
            case None:
                self._is_done = True
                return False
            case MissingObjectError():
                self._count_missing(error)
                return True
            case DamagedObjectError():
                self._skip_or_raise(error)
                return True
            case UserError():
                raise UserError(self._message(error), hint=error.hint) from error
            case _:
                return False

    def _count_missing(self, error: MissingObjectError) -> None:
        self._missed += 1
        if self._missed == _MAX_ATTEMPTS:
            self._skip_or_raise(error)

    def _skip_or_raise(self, error: MissingObjectError | DamagedObjectError) -> None:
        lost = self._build_lost_offsets(error)
        if lost is None or self._log.on_missing is None:
            after = "" if lost is None else f", or --from {lost.last + 1}"
            hint = f"{error.hint} To read the records after it: topic consume --skip-missing{after}."
            raise type(error)(self._message(error), hint=hint) from error
        self._log.on_missing(lost)
        self.advance_to(lost.last + 1)

    def _build_lost_offsets(self, error: MissingObjectError | DamagedObjectError) -> LostOffsets | None:
        if error.offsets is None or error.key is None:
            return None
        first, last = max(error.offsets[0], self._rest.start), min(error.offsets[1], self._rest.stop - 1)
        damage = error.why if isinstance(error, DamagedObjectError) else ""
        return LostOffsets(self._log.full_name, self._partition, first, last, error.key, error.url, damage)

    def _message(self, error: UserError) -> str:
        return f"{self._log.full_name}, partition {self._partition}: {error.message}"


def _missing_topic_error(full_name: str) -> UserError:
    message = f"topic {full_name} was deleted or unmounted"
    return UserError(message, hint="See whether it is unmounted: reconciler mount list")


_PUBLISH_THREADS: Final = 16


@dataclass(frozen=True, slots=True)
class EmbeddedSink:
    """A topic as a `StagedSink`, written as a mirror's link or as a producer. Picklable."""

    gate: AppendGate
    rules: AppendRules
    permissions: Permissions = SUPER_USER
    source: ObservedSource | None = None
    """Source of a mirror, stored in its heads; `None` if unknown."""

    def check_shared(self) -> None:
        """Reject a machine that does not see the topic."""
        topic = find_topic_by_id(self.gate.catalog.read(), self.gate.topic_id, self.gate.full_name)
        check_topic_visible(self.gate.store, self.gate.full_name, is_found=topic is not None)

    def follow_source(self, source: ObservedSource) -> EmbeddedSink:
        """Return the sink for one round of copying; only mirrors store the source."""
        return self if self.gate.writer == PRODUCERS else replace(self, source=source)

    def read_ends(self) -> Mapping[int, int]:
        """Return each partition's end."""
        return {partition: reached.end for partition, reached in self.read_positions().items()}

    def read_positions(self, only: Collection[int] | None = None) -> Mapping[int, SinkPosition]:
        """Return the end and the source of every partition."""
        partitions = range(self._read_topic().partitions)
        heads = read_trimmed_heads(self.gate.store, self.gate.topic_id, only)
        wanted = partitions if only is None else [partition for partition in sorted(only) if partition in partitions]
        return {
            partition: _get_position(heads[partition]) if partition in heads else SinkPosition(0)
            for partition in wanted
        }

    def stage(self, partition: int, batches: Iterable[pa.RecordBatch], *, at: OffsetRange | None) -> StagedRecords:
        """Write batches of `RECORD_SCHEMA`."""
        fitting = _number_from_zero(batches) if at is None else (select_range(batch, at) for batch in batches)
        return to_staged_records(partition, at, list(self._make_writer(partition).write(fitting)))

    def stage_copy(self, partition: int, source: TopicLog, offsets: OffsetRange) -> StagedRecords:
        """Stage a range of another log."""
        if not isinstance(source, EmbeddedLog):
            return self.stage(partition, source.read(partition, offsets), at=offsets)
        head = source.read_head(partition)
        if head is None or head.bounds.stable < offsets.stop:
            # If records are missing here, the published range would be a gap.
            message = f"{source.full_name}, partition {partition} ends before offset {offsets.stop} on this machine"
            raise UserError(message, hint="Put the store where every executor can read it, and copy again.")
        entries: list[Entry] = []
        for part_range in source.iter_part_ranges(partition, offsets):
            copy = self._copy_part(partition, part_range) if part_range.entry.is_within(part_range.offsets) else None
            if copy is not None:
                entries.append(copy)
            else:
                entries.extend(self._make_writer(partition).write(source.read(partition, part_range.offsets)))
        return to_staged_records(partition, offsets, entries)

    def publish(self, staged: Sequence[StagedRecords]) -> Mapping[int, OffsetRange]:
        """Publish staged ranges, one swap per partition; return the appended offsets.

        A repetition returns the same offsets while the head references the range's parts; later, a range without
        offsets is appended again.

        Raises:
            SourceChangedError: The mirror is no copy of the source; other partitions are published.
        """
        topic, by_partition = self._read_topic(), _group_by_partition(staged)
        for partition in by_partition:
            if partition >= topic.partitions:
                message = f"{self.gate.full_name} has {topic.partitions} partitions, none numbered {partition}"
                raise UserError(
                    message,
                    hint="Let the mirror get the partitions of its source first: reconciler run --once --only mirror",
                )

        def publish(partition: int) -> OffsetRange | None:
            publication = _Publication(by_partition[partition])
            publication.check_writes_visible(self.gate.store)

            def extend(head: Head, epoch: int) -> Head | None:
                after = publication.extend(head, epoch)
                if after is None or self.source is None:
                    return after
                check_copy_current(self.gate.full_name, partition, _get_position(head), self.source)
                check_source_unchanged(self.gate.full_name, partition, _get_position(head), self.source)
                return replace(after, source=_build_source_document(self.source, partition, after.end))

            self.gate.append_to_head(partition, extend, mark=create_mark())
            return publication.gained

        if len(by_partition) == 1:
            gained = {partition: publish(partition) for partition in by_partition}
        else:
            with ThreadPoolExecutor(_PUBLISH_THREADS, thread_name_prefix="publish") as threads:
                gained = dict(zip(by_partition, threads.map(publish, by_partition), strict=True))
        return {partition: offsets for partition, offsets in gained.items() if offsets is not None}

    def mark_complete(self) -> None:
        """Record that a mirror's first copy is complete."""
        topic = find_topic_by_id(self.gate.catalog.get_cached(), self.gate.topic_id, self.gate.full_name)
        if topic is not None and (topic.mirror is None or topic.mirror.first_copy_done):
            return

        def decide(draft: Draft) -> None:
            mark_first_copy_complete(draft, self.gate.topic_id)

        self.gate.catalog.commit(decide)

    def _copy_part(self, partition: int, part_range: PartRange) -> Entry | None:
        key = part_key(self.gate.full_name, partition)
        kms_key_id = self.rules.kms_key_id
        try:
            self.gate.store.copy_from(key, unwrap_store(part_range.store), part_range.entry.key, kms_key_id=kms_key_id)
        except MissingObjectError:
            return None
        return replace(part_range.entry, key=key, producer=None, txn=None, kms_key_id=kms_key_id)

    def _make_writer(self, partition: int) -> PartWriter:
        return PartWriter.of(self.gate.store, self.rules, partition)

    def _read_topic(self) -> TopicEntry:
        catalog = self.gate.catalog.read()
        topic = find_topic_by_id(catalog, self.gate.topic_id, self.gate.full_name)
        if not self.permissions.is_super_user:
            name = find_current_name(catalog, self.gate.topic_id, self.gate.full_name)
            check_may_append(self.permissions, catalog, name)
        if topic is None:
            raise missing_topic_error(self.gate.full_name)
        return topic


def _group_by_partition(staged: Sequence[StagedRecords]) -> dict[int, list[StagedRecords]]:
    grouped: dict[int, list[StagedRecords]] = {partition: [] for partition in sorted({one.partition for one in staged})}
    for one in sorted(staged, key=lambda one: (one.at is None, one.at or OffsetRange(0, 0))):
        grouped[one.partition].append(one)
    return grouped


class _Publication:
    def __init__(self, staged: Sequence[StagedRecords]) -> None:
        self._staged = [(one, [Entry.from_json(document) for document in orjson.loads(one.entries)]) for one in staged]
        self.gained: OffsetRange | None = None

    def check_writes_visible(self, store: ObjectStore) -> None:
        for one, entries in self._staged:
            check_writes_visible(store, (entry.key for entry in entries), by=one.by)

    def extend(self, head: Head, epoch: int) -> Head | None:
        self.gained = None
        published = {entry.key: entry for entry in head.entries}
        added: list[Entry] = []
        end = head.end
        for one, entries in self._staged:
            stored = [published[entry.key] for entry in entries if entry.key in published]
            if stored:
                self._add_gained(one.at or OffsetRange(stored[0].base, stored[-1].last + 1))
            elif one.at is None:
                added += [entry.shift(end, epoch) for entry in entries]
                self._add_gained(OffsetRange(end, end := end + one.records))
            elif one.at.start == end:
                added += [entry.shift(0, epoch) for entry in entries]
                self._add_gained(one.at)
                end = one.at.stop
        return None if end == head.end else head.with_appended(added, end=end)

    def _add_gained(self, offsets: OffsetRange) -> None:
        before = self.gained or offsets
        self.gained = OffsetRange(min(before.start, offsets.start), max(before.stop, offsets.stop))


def _get_position(head: Head) -> SinkPosition:
    if head.source is None:
        return SinkPosition(head.end, None, (), 0)
    return SinkPosition(head.end, head.source["topic_id"], parse_epochs(head.source), head.source.get("fetched", 0))


def _build_source_document(source: ObservedSource, partition: int, end: int) -> dict[str, Any]:
    bounds = source.bounds.get(partition)
    epochs = () if bounds is None else bounds.epochs
    return {"topic_id": source.topic_id, "epochs": [list(epoch) for epoch in epochs], "fetched": end}


def to_staged_records(partition: int, at: OffsetRange | None, entries: list[Entry]) -> StagedRecords:
    """Describe stored parts as a task returns them to the driver."""
    documents: list[dict[str, Any]] = [entry.to_json() for entry in entries]
    return StagedRecords(
        partition,
        at,
        records=sum(entry.digest.records for entry in entries),
        stored_bytes=sum(entry.bytes for entry in entries),
        digest=sum((entry.digest.shift(entry.base) for entry in entries), Digest()),
        entries=orjson.dumps(documents),
    )


def _number_from_zero(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in batches:
        offsets = pa.array(np.arange(first, first + batch.num_rows))
        index = batch.schema.get_field_index("offset")
        yield batch.set_column(index, batch.schema.field(index), offsets)
        first += batch.num_rows
