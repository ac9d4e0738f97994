"""An embedded topic as a `TopicLog`, and as the sink of another: staged by many tasks, published by one swap."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa

from reconciler.archives.entries import Entry
from reconciler.archives.pages import entries_within
from reconciler.archives.storage import check_storage_shared
from reconciler.embedded.acl import SUPER_USER, Kind, Operation, Permissions, check_writing
from reconciler.embedded.catalog.mirror_tables import complete_first_copy
from reconciler.embedded.catalog.tables import SEAL, Draft, check_served, name_with_id, topic_with_id
from reconciler.embedded.keys import part_key
from reconciler.embedded.objects import check_arrived, check_there
from reconciler.embedded.segments.gate import Gate, gone
from reconciler.embedded.segments.head import (
    NEVER_WRITTEN,
    PRODUCERS,
    Head,
    epochs_in,
    read_borders,
    read_bounds,
    read_head,
)
from reconciler.embedded.segments.parts import EVERYTHING, PartWriter, within
from reconciler.embedded.tiered.remote_reads import Piece, Tiers, first_since_of, read_pieces
from reconciler.embedded.tiered.remote_tier import RemoteTier, unbounded
from reconciler.errors import DamagedObjectError, MissingObjectError, UserError
from reconciler.objectstore.register import fresh_mark
from reconciler.records.hashes import digest_of
from reconciler.records.log import (
    MAX_OFFSET,
    Bounds,
    Digest,
    Extent,
    Isolation,
    LostOffsets,
    OffsetRange,
    Selection,
    SinkPosition,
    SourceSeen,
    Staged,
    TopicLog,
    check_current,
    check_followed,
)

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.model import TopicEntry
    from reconciler.embedded.segments.admission import Rules
    from reconciler.objectstore.base import ObjectStore


_LOOKS: Final = 3
"""How often head and manifest are read again that name an object which is not there, before that is believed."""


@dataclass(frozen=True, slots=True)
class EmbeddedLog:
    """One topic. It keeps to the topic's id: a topic of the same name made later is another log."""

    store: ObjectStore
    catalog: CatalogRegister
    full_name: str
    topic_id: str
    permissions: Permissions = SUPER_USER
    """Whose reads these are: held to the rules as they were when this process last read the catalog."""
    isolation: Isolation = "read_committed"
    remote: RemoteTier | None = None
    """Where what is not local any more lies."""
    on_missing: Callable[[LostOffsets], None] | None = None
    """Told of offsets whose object is gone or damaged, and reading goes on after them; `None`: that is an error."""

    def check_shared(self) -> None:
        """Refuse a topic that is gone, and a machine that does not see the cluster.

        Raises:
            UserError: The topic is not found from here.
        """
        catalog = self.catalog.read()
        found = topic_with_id(catalog, self.topic_id, self.full_name)
        check_there(self.store, self.full_name, is_found=found is not None)
        is_remote = found is not None and (found.tiering is not None or found.replica is not None)
        if self.remote is not None and is_remote and not self._tiers().is_hiding:
            check_storage_shared(self.remote.storage, catalog.cluster.storage_id)

    def bounds(self, only: Collection[int] | None = None) -> Mapping[int, Bounds]:
        """Return every partition's bounds: the catalog, one listing, one GET for each partition ever written.

        Of `only` some: without the listing.

        Raises:
            UserError: The topic is gone, or is being mounted or unmounted.
            NotAuthorizedError: It may not be described.
        """
        topic = topic_with_id(self.catalog.read(), self.topic_id, self.full_name)
        self._check(Operation.DESCRIBE)
        if topic is None:
            raise _gone(self.full_name)
        check_served(self.full_name, topic)
        found, tiers = read_bounds(self.store, self.topic_id, topic.partitions, only), self._tiers()
        return {partition: tiers.shown(bounds) for partition, bounds in found.items()}

    def bounds_of(self, partition: int) -> Bounds:
        """Return the bounds of one partition: one GET, and the catalog where it has no head.

        Raises:
            UserError: The topic is gone, or is being mounted or unmounted.
        """
        head = self.head(partition)
        if head is None:
            self._check_open(head)
            return NEVER_WRITTEN
        return self._tiers().shown(head.bounds)

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield what is readable in `offsets`, in offset order, as batches of `RECORD_SCHEMA`, from both tiers.

        Raises:
            MissingObjectError: A part or page is not there; the message says which offsets lay in it.
            DamagedObjectError: It is damaged; as above.
            NotAuthorizedError: It may not be read.
        """
        return self.select(partition, offsets, EVERYTHING)

    def select(self, partition: int, offsets: OffsetRange, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield the same, but only `offset` and the wanted columns; parts of other times are not opened."""
        self._check(Operation.READ)
        looks = _Looks(self, partition, offsets)
        while looks.again():
            pieces = (
                piece
                for piece in looks.pieces(since_ms=selection.since_ms)
                if selection.may_hold(piece.entry.min_ts, piece.entry.max_ts)
            )
            with looks, closing(read_pieces(self.remote, pieces, partition, selection)) as batches:
                for batch in batches:
                    yield batch
                    looks.reached(batch.column("offset")[-1].as_py() + 1)

    def extents(self, partition: int, offsets: OffsetRange) -> Iterator[Extent]:
        """Yield how `offsets` is stored: one extent a part, cut at both ends; reads no records."""
        self._check(Operation.DESCRIBE)
        for piece in self.stretches(partition, offsets):
            entry, cut = piece.entry, piece.offsets
            length = entry.last + 1 - entry.base
            yield Extent(cut, entry.digest.records * cut.length // length, entry.bytes * cut.length // length)

    def digests(self, partition: int, offsets: OffsetRange) -> Iterator[Digest]:
        """Yield digests that together cover `offsets`, absolute: kept ones for whole parts, read ones at the ends."""
        self._check(Operation.READ)
        for piece in self.stretches(partition, offsets):
            if piece.entry.is_within(piece.offsets):
                yield piece.entry.digest.shifted(piece.entry.base)
            else:
                for batch in self.read(partition, piece.offsets):
                    yield digest_of(batch, base=0)

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        """Return the first offset whose record is at or after a time; `None` where all are older."""
        self._check(Operation.DESCRIBE)
        looks = _Looks(self, partition, OffsetRange(0, MAX_OFFSET))
        while looks.again():
            with looks:
                for piece in looks.pieces(since_ms=timestamp_ms):
                    found = first_since_of(self.remote, piece, timestamp_ms)
                    if found is not None:
                        return found
                    looks.reached(piece.offsets.stop)
        return None

    def entries(self, head: Head, offsets: OffsetRange) -> Iterator[Entry]:
        """Yield the parts a head has for what is readable of a range, oldest first: those that are local."""
        stop = min(offsets.stop, head.bounds.readable_end(self.isolation))
        return entries_within(self.store, head, OffsetRange(max(offsets.start, head.local_start), stop))

    def stretches(self, partition: int, offsets: OffsetRange) -> Iterator[Piece]:
        """Yield the parts that hold what is readable of a range, oldest first, and which offsets of each lie in it.

        No offset comes twice, also where upkeep puts other parts in their place meanwhile, or in the other tier.

        Raises:
            MissingObjectError: A page is not there.
        """
        looks = _Looks(self, partition, offsets)
        while looks.again():
            with looks:
                for piece in looks.pieces():
                    yield piece
                    looks.reached(piece.offsets.stop)

    def head(self, partition: int) -> Head | None:
        """Return a partition's head; `None` where nothing was ever written.

        Raises:
            UserError: The topic is being mounted or unmounted.
        """
        head = read_head(self.store, self.topic_id, partition)
        if head is not None:
            self._check_open(head)
        return head

    def _tiers(self) -> Tiers:
        topic = (self.full_name, self.topic_id)
        return Tiers.of(self.store, self.catalog.known(), topic, self.remote, self._check_open)

    def _check_open(self, head: Head | None) -> None:
        """Refuse to read what a migration has sealed, or what has gone: a reader must not take that for the end.

        A seal that was left behind closes nothing, and what was never written to has no head either.
        """
        if head is not None and not head.writer.startswith(SEAL):
            return
        topic = topic_with_id(self.catalog.read(), self.topic_id, self.full_name)
        if topic is None:
            raise _gone(self.full_name)
        check_served(self.full_name, topic)

    def _check(self, operation: Operation) -> None:
        if not self.permissions.is_super_user:
            catalog = self.catalog.known()
            name = name_with_id(catalog, self.topic_id, self.full_name)
            self.permissions.check(catalog, operation, Kind.TOPIC, name)


class _Looks:
    """Looks at head and manifest of one partition until all of a range is read; a `with` block is one look.

    A running job may have put another object in the place of one that is missed, and deleted that: who reads head and
    manifest again finds it. What is missed again and again is lost.
    """

    def __init__(self, log: EmbeddedLog, partition: int, offsets: OffsetRange) -> None:
        self._log = log
        self._partition = partition
        self._rest = offsets
        self._missed = 0
        self._is_done = False

    def again(self) -> bool:
        """Tell whether there is more to look for."""
        return not self._is_done

    def pieces(self, *, since_ms: int | None = None) -> Iterator[Piece]:
        """Yield what lies in the rest of the range, as head and manifest have it now."""
        log = self._log
        return log._tiers().pieces(self._partition, self._rest, log.isolation, since_ms=since_ms)  # noqa: SLF001 - part of it

    def reached(self, offset: int) -> None:
        """Say that everything below an offset is read."""
        self._rest, self._missed = OffsetRange(offset, self._rest.stop), 0

    def __enter__(self) -> None:
        """Begin a look."""

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        """End it: without an error everything is read; what is missed for the first time is looked for again."""
        match error:
            case None:
                self._is_done = True
                return False
            case MissingObjectError():
                self._miss(error)
                return True
            case DamagedObjectError():
                self._skip(error)
                return True
            case UserError():
                raise UserError(self._said(error), hint=error.hint) from error
            case _:
                return False

    def _miss(self, error: MissingObjectError) -> None:
        self._missed += 1
        if self._missed == _LOOKS:
            self._skip(error)

    def _skip(self, error: MissingObjectError | DamagedObjectError) -> None:
        """Go on after what cannot be read, where somebody wants to be told; else fail, and say how to go on."""
        lost = self._lost(error)
        if lost is None or self._log.on_missing is None:
            after = "" if lost is None else f", or --from {lost.last + 1}"
            hint = f"{error.hint} To read what lies after it: topic consume --skip-missing{after}."
            raise type(error)(self._said(error), hint=hint) from error
        self._log.on_missing(lost)
        self.reached(lost.last + 1)

    def _lost(self, error: MissingObjectError | DamagedObjectError) -> LostOffsets | None:
        """Return which of the offsets that are wanted the error is about."""
        if error.offsets is None or error.key is None:
            return None
        first, last = max(error.offsets[0], self._rest.start), min(error.offsets[1], self._rest.stop - 1)
        damage = error.why if isinstance(error, DamagedObjectError) else ""
        return LostOffsets(self._log.full_name, self._partition, first, last, error.key, error.url, damage)

    def _said(self, error: UserError) -> str:
        return f"{self._log.full_name}, partition {self._partition}: {error.message}"


def _gone(full_name: str) -> UserError:
    message = f"topic {full_name} was deleted or unmounted"
    return UserError(message, hint="See whether it lies detached: reconciler mount list")


_AT_ONCE: Final = 16
"""Partitions published side by side: a swap waits for the store, not for us."""


@dataclass(frozen=True, slots=True)
class EmbeddedSink:
    """One topic as a `StagedSink`: a mirror for its link, any other topic for producers. Picklable."""

    gate: Gate
    rules: Rules
    permissions: Permissions = SUPER_USER
    """Whose writes these are."""
    source: SourceSeen | None = None
    """What a mirror follows, for one round: its heads keep it. `None`: nobody says."""

    def check_shared(self) -> None:
        """Refuse a topic that is gone, and a machine that does not see the cluster.

        Raises:
            UserError: The topic is not found from here.
        """
        found = topic_with_id(self.gate.catalog.read(), self.gate.topic_id, self.gate.full_name)
        check_there(self.gate.store, self.gate.full_name, is_found=found is not None)

    def following(self, source: SourceSeen) -> EmbeddedSink:
        """Return the same sink for one round over a source; what is no mirror keeps nothing of where it came from."""
        return self if self.gate.writer == PRODUCERS else replace(self, source=source)

    def ends(self) -> Mapping[int, int]:
        """Return each partition's end."""
        return {partition: reached.end for partition, reached in self.reached().items()}

    def reached(self, only: Collection[int] | None = None) -> Mapping[int, SinkPosition]:
        """Return where partitions end and what they were copied from; of `only` some, without a listing.

        Raises:
            UserError: The topic is gone.
        """
        partitions = range(self._topic().partitions)
        heads = read_borders(self.gate.store, self.gate.topic_id, only)
        wanted = partitions if only is None else [partition for partition in sorted(only) if partition in partitions]
        return {
            partition: _reached(heads[partition]) if partition in heads else SinkPosition(0) for partition in wanted
        }

    def stage(self, partition: int, batches: Iterable[pa.RecordBatch], *, at: OffsetRange | None) -> Staged:
        """Write batches of `RECORD_SCHEMA`, in offset order, under fresh names; `at=None`: they are numbered anew."""
        fitting = _numbered(batches) if at is None else (within(batch, at) for batch in batches)
        return staged_parts(partition, at, list(self._writer(partition).write(fitting)))

    def stage_copy(self, partition: int, source: TopicLog, offsets: OffsetRange) -> Staged:
        """Stage a range of another log at the same offsets: whole parts of an embedded log verbatim, the rest read.

        Raises:
            UserError: The source does not reach that far.
        """
        if not isinstance(source, EmbeddedLog):
            return self.stage(partition, source.read(partition, offsets), at=offsets)
        head = source.head(partition)
        if head is None or head.bounds.stable < offsets.stop:
            # Staged as it is, it would be published as a gap.
            message = f"{source.full_name}, partition {partition} does not reach offset {offsets.stop} on this machine"
            raise UserError(message, hint="Let every executor see the same store, and copy again.")
        entries: list[Entry] = []
        for piece in source.stretches(partition, offsets):
            copy = self._copied(partition, piece) if piece.entry.is_within(piece.offsets) else None
            if copy is not None:
                entries.append(copy)
            else:
                entries.extend(self._writer(partition).write(source.read(partition, piece.offsets)))
        return staged_parts(partition, offsets, entries)

    def publish(self, staged: Sequence[Staged]) -> Mapping[int, OffsetRange]:
        """Make staged ranges readable, one swap a partition, and return what each partition gained.

        A range goes in only where its `at.start` is the end, which becomes `at.stop`; what does not fit stays
        unpublished. Publishing the same twice does it once, and both times it is among what was gained, as long as the
        head names its parts itself: the newest. After that a range gains nothing, and what is numbered anew goes in a
        second time, so repeat that at once or not at all.

        Raises:
            UserError: The topic is gone, has no such partition, or belongs to another writer.
            SourceChangedError: What a mirror has is no copy of what was staged; other partitions got theirs.
        """
        topic, by_partition = self._topic(), _by_partition(staged)
        for partition in by_partition:
            if partition >= topic.partitions:
                message = f"{self.gate.full_name} has {topic.partitions} partitions, none numbered {partition}"
                raise UserError(message, hint="Let the mirror follow its source first.")

        def publish(partition: int) -> OffsetRange | None:
            found = _Publication(by_partition[partition])
            found.check_arrived(self.gate.store)

            def extend(head: Head, epoch: int) -> Head | None:
                after = found.extend(head, epoch)
                if after is None or self.source is None:
                    return after
                # What fits was seen to end there before the source was looked at: whoever was faster moved the end.
                check_current(self.gate.full_name, partition, _reached(head), self.source)
                check_followed(self.gate.full_name, partition, _reached(head), self.source)
                return replace(after, source=_kept(self.source, partition, after.end))

            self.gate.swap(partition, extend, mark=fresh_mark())
            return found.gained

        if len(by_partition) == 1:
            gained = {partition: publish(partition) for partition in by_partition}
        else:
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="publish") as threads:
                gained = dict(zip(by_partition, threads.map(publish, by_partition), strict=True))
        return {partition: offsets for partition, offsets in gained.items() if offsets is not None}

    def complete(self) -> None:
        """Record that the first copy is done; a topic that is no mirror has none, and once is enough."""
        topic = topic_with_id(self.gate.catalog.known(), self.gate.topic_id, self.gate.full_name)
        if topic is not None and (topic.mirror is None or topic.mirror.first_copy_done):
            return

        def decide(draft: Draft) -> None:
            complete_first_copy(draft, self.gate.topic_id)

        self.gate.catalog.commit(decide)

    def _copied(self, partition: int, piece: Piece) -> Entry | None:
        """Copy a part of either tier as it is; `None`: another has taken its place meanwhile, and is read instead."""
        key = part_key(self.gate.full_name, partition)
        kms_key_id = self.rules.kms_key_id
        try:
            self.gate.store.copy_in(key, unbounded(piece.store), piece.entry.key, kms_key_id=kms_key_id)
        except MissingObjectError:
            return None
        return replace(piece.entry, key=key, producer=None, txn=None, kms_key_id=kms_key_id)

    def _writer(self, partition: int) -> PartWriter:
        return PartWriter.of(self.gate.store, self.rules, partition)

    def _topic(self) -> TopicEntry:
        catalog = self.gate.catalog.read()
        topic = topic_with_id(catalog, self.gate.topic_id, self.gate.full_name)
        if not self.permissions.is_super_user:
            name = name_with_id(catalog, self.gate.topic_id, self.gate.full_name)
            check_writing(self.permissions, catalog, name)
        if topic is None:
            raise gone(self.gate.full_name)
        return topic


def _by_partition(staged: Sequence[Staged]) -> dict[int, list[Staged]]:
    """Return what was staged of each partition, lowest first, in the order in which it may be published."""
    found: dict[int, list[Staged]] = {partition: [] for partition in sorted({one.partition for one in staged})}
    for one in sorted(staged, key=lambda one: (one.at is None, one.at or OffsetRange(0, 0))):
        found[one.partition].append(one)
    return found


class _Publication:
    """What of some staged ranges of one partition fits onto its head; decided anew for every head that is found."""

    def __init__(self, staged: Sequence[Staged]) -> None:
        self._staged = [(one, [Entry.from_json(kept) for kept in orjson.loads(one.entries)]) for one in staged]
        self.gained: OffsetRange | None = None

    def check_arrived(self, store: ObjectStore) -> None:
        """Refuse what was staged in another place than this store."""
        for one, entries in self._staged:
            check_arrived(store, (entry.key for entry in entries), by=one.by)

    def extend(self, head: Head, epoch: int) -> Head | None:
        """Return the head with all that fits."""
        self.gained = None
        published = {entry.key: entry for entry in head.entries}
        added: list[Entry] = []
        end = head.end
        for one, entries in self._staged:
            there = [published[entry.key] for entry in entries if entry.key in published]
            if there:
                self._gain(one.at or OffsetRange(there[0].base, there[-1].last + 1))
            elif one.at is None:
                added += [entry.placed(end, epoch) for entry in entries]
                self._gain(OffsetRange(end, end := end + one.records))
            elif one.at.start == end:
                added += [entry.placed(0, epoch) for entry in entries]
                self._gain(one.at)
                end = one.at.stop
        return None if end == head.end else head.extended(added, end=end)

    def _gain(self, offsets: OffsetRange) -> None:
        before = self.gained or offsets
        self.gained = OffsetRange(min(before.start, offsets.start), max(before.stop, offsets.stop))


def _reached(head: Head) -> SinkPosition:
    if head.source is None:
        return SinkPosition(head.end, None, (), 0)
    return SinkPosition(head.end, head.source["topic_id"], epochs_in(head.source), head.source.get("fetched", 0))


def _kept(source: SourceSeen, partition: int, end: int) -> dict[str, Any]:
    bounds = source.bounds.get(partition)
    epochs = () if bounds is None else bounds.epochs
    return {"topic_id": source.topic_id, "epochs": [list(epoch) for epoch in epochs], "fetched": end}


def staged_parts(partition: int, at: OffsetRange | None, entries: list[Entry]) -> Staged:
    """Return parts that are durable as what a task hands to the driver."""
    kept: list[dict[str, Any]] = [entry.to_json() for entry in entries]
    return Staged(
        partition,
        at,
        records=sum(entry.digest.records for entry in entries),
        stored_bytes=sum(entry.bytes for entry in entries),
        digest=sum((entry.digest.shifted(entry.base) for entry in entries), Digest()),
        entries=orjson.dumps(kept),
    )


def _numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches with offsets from 0: their place is known when they are published."""
    first = 0
    for batch in batches:
        offsets = pa.array(np.arange(first, first + batch.num_rows))
        index = batch.schema.get_field_index("offset")
        yield batch.set_column(index, batch.schema.field(index), offsets)
        first += batch.num_rows
