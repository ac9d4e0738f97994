"""Rolling: a closed segment becomes one file, with the same records, offsets, times and digest.

What is one part already only gets the mark that it is a whole segment. Gaps (aborted transactions, compaction) stay.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from reconciler.embedded.partition.partfiles import read_part
from reconciler.embedded.partition.parts import PartWriter
from reconciler.embedded.partition.rebuilding import Replacement
from reconciler.embedded.partition.replacing import Rewritten, whole_or_gone
from reconciler.embedded.upkeep.retention import live_entries
from reconciler.embedded.upkeep.segments import segments_of
from reconciler.errors import UserError
from reconciler.records.digest import Digest
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.partition.headswaps import Partition
    from reconciler.embedded.producing.admission import Rules
    from reconciler.embedded.upkeep.cleanup import CleanupPolicy
    from reconciler.embedded.upkeep.segments import Segment
    from reconciler.objectstore.base import ObjectStore


def to_roll(segments: Iterable[Segment], *, stable: int) -> Iterator[Segment]:
    """Yield the closed segments below the last stable offset that are not one file yet. Pure."""
    for segment in takewhile(lambda segment: segment.is_closed and segment.last < stable, segments):
        if not segment.is_one_file:
            yield segment


def bytes_to_roll(store: ObjectStore, head: Head, policy: CleanupPolicy) -> int | None:
    """Return how many bytes a roll would write anew; `None`: there is nothing to roll."""
    waiting = list(to_roll(segments_of(live_entries(store, head), policy.limits), stable=head.bounds.stable))
    return sum(segment.bytes for segment in waiting if len(segment.entries) > 1) if waiting else None


def rolled(store: ObjectStore, head: Head, partition: Partition, policy: CleanupPolicy, rules: Rules) -> Rewritten:
    """Write one file for each segment that is to be rolled; nothing of it is named yet.

    Raises:
        MissingObjectError: A part or page is not there.
        UserError: A part is damaged.
    """
    waiting = to_roll(segments_of(live_entries(store, head), policy.limits), stable=head.bounds.stable)
    writer = PartWriter.of(store, rules, partition.number)
    with whole_or_gone(store) as done:
        for segment in waiting:
            done.append(Replacement.of(segment.entries, [_one_file(store, segment, partition, writer)]))
    return Rewritten(partition, tuple(done))


def _one_file(store: ObjectStore, segment: Segment, partition: Partition, writer: PartWriter) -> Entry:
    if len(segment.entries) == 1:
        return replace(segment.entries[0], is_segment=True)
    written = writer.write_one(records_of(store, segment.entries, partition.number))
    if written is None or written.digest != merged_digest(segment.entries):
        store.delete([] if written is None else [written.key])
        offsets = f"{partition}, offsets {segment.base} to {segment.last}"
        message = f"{store.url}: {offsets}: its records are not those whose digest the head keeps"
        raise UserError(message, hint="Restore its parts from a copy of the store; nothing was changed.")
    horizons = [entry.horizon_ms for entry in segment.entries if entry.horizon_ms is not None]
    return replace(written, epoch=segment.epoch, is_segment=True, horizon_ms=max(horizons) if horizons else None)


def records_of(store: ObjectStore, entries: Iterable[Entry], partition: int) -> Iterator[pa.RecordBatch]:
    """Yield the records of parts, one after the other."""
    for entry in entries:
        yield from read_part(store, entry, partition, OffsetRange(entry.base, entry.last + 1))


def merged_digest(entries: tuple[Entry, ...]) -> Digest:
    """Return the digest of neighbouring parts, its offsets counted from the first one's base."""
    base = entries[0].base
    return sum((entry.digest.shifted(entry.base - base) for entry in entries), Digest())
