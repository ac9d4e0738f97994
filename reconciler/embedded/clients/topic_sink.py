"""Write ranges of another log: staged by many tasks, published by one swap a partition."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa

from reconciler.embedded.acl import SUPER_USER, Permissions, check_writing
from reconciler.embedded.catalog.mirror_tables import complete_first_copy
from reconciler.embedded.catalog.tables import Draft, name_with_id, topic_with_id
from reconciler.embedded.clients.topic_log import EmbeddedLog
from reconciler.embedded.keys import fresh_mark, part_key
from reconciler.embedded.objects import check_arrived, check_there
from reconciler.embedded.segments.entries import Entry
from reconciler.embedded.segments.gate import Gate
from reconciler.embedded.segments.head import PRODUCERS, Head, epochs_in, read_borders
from reconciler.embedded.segments.parts import PartWriter, within
from reconciler.embedded.tiered.remote_tier import unbounded
from reconciler.errors import MissingObjectError, UserError
from reconciler.records.log import (
    Digest,
    OffsetRange,
    SinkPosition,
    SourceSeen,
    Staged,
    TopicLog,
    check_current,
    check_followed,
)

if TYPE_CHECKING:
    from reconciler.embedded.catalog.model import TopicEntry
    from reconciler.embedded.segments.admission import Rules
    from reconciler.embedded.tiered.remote_reads import Piece
    from reconciler.objectstore.base import ObjectStore


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
        unpublished. Publishing the same twice does it once, and both times it is among what was gained.

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
            raise UserError(f"topic {self.gate.full_name} was deleted", hint="Nothing was written; create it again.")
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
