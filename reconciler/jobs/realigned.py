"""A copy that numbers its records anew, read by the offsets of its source: so both are compared offset by offset.

What its map does not know was written by somebody else, and no compaction explains it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from reconciler.jobs.comparison import Pair
from reconciler.jobs.superseding import Explained, explained
from reconciler.records.log import MAX_OFFSET, Bounds, Compacting, OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.records.log import Spans, TopicLog
    from reconciler.records.offsetmap import OffsetMap


def compacted_to(log: TopicLog, partition: int) -> int:
    """Return below which offset a log may lack what later records supersede; brokers do not say how far they came."""
    if isinstance(log, Compacting):
        return MAX_OFFSET if log.compacts() else 0
    return log.bounds([partition])[partition].compacted_to


def explained_renumbered(copy: TopicLog, source: TopicLog, number: int, spans: Spans) -> Explained | None:
    """Compare a copy and its source along the map of both; `None`: there is none, or neither is ever compacted.

    Where they begin to differ is told by the numbers of the copy.
    """
    offsets, whole = spans.offsets, spans.right
    if offsets is None:
        return None
    reaches = compacted_to(copy, number), compacted_to(source, number)
    if not any(reaches):
        return None
    end = source.bounds([number])[number].stable
    # How far an embedded copy was compacted is said in offsets of its own; only Kafka numbers anew.
    ours = Bounds(whole.start, whole.start, whole.stop, whole.stop, compacted_to=reaches[0])
    theirs = Bounds(whole.start, whole.start, end, end, compacted_to=reaches[1])
    view = _Realigned(copy, spans.left, offsets)
    found = explained(view, source, Pair(number, ours, theirs))
    at = None if found.first_difference is None else offsets.target_of(found.first_difference)
    first = min((each for each in (at, view.foreign) if each is not None), default=None)
    return Explained(found.superseded, first)


@dataclass
class _Realigned:
    """What `explained` reads of a log: records of the copy at the offsets that the source gave them."""

    copy: TopicLog
    within: OffsetRange
    offsets: OffsetMap
    foreign: int | None = None
    """The first record, by the copy's number, that was not copied from the source."""

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield what was copied of a range of the source."""
        start, stop = (self.offsets.target_of(at) for at in (offsets.start, min(offsets.stop, self.offsets.through)))
        if start is None or stop is None:
            return
        within = OffsetRange(max(start, self.within.start), min(stop, self.within.stop))
        if not within.length:
            return
        for batch in self.copy.read(partition, within):
            yield from self._moved(batch)

    def _moved(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        targets = batch.column("offset").to_numpy()
        sources = self.offsets.sources_of(targets)
        is_known = sources >= 0
        if not is_known.all():
            at = int(targets[~is_known][0])
            self.foreign = at if self.foreign is None else min(at, self.foreign)
        if is_known.any():
            kept = batch.filter(pa.array(is_known))
            column = kept.schema.get_field_index("offset")
            numbers = pa.array(sources[is_known].astype(np.int64))
            yield kept.set_column(column, kept.schema.field(column), numbers)
