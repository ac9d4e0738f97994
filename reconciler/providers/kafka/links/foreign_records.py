"""Records in a mirror that its link did not copy: brokers let every producer write that access rules do not stop.

The offset map says which offsets of a mirror its link wrote. Between those lie the markers that end transactions, one
for each that copied something, what copiers that were killed have left, which nobody can read, and records of others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.errors import NotAuthorizedError, ReconcilerError, RetryableError
from reconciler.providers.kafka.ledger import COPIES, Entries, progress_key
from reconciler.providers.kafka.links.link_states import states_of
from reconciler.providers.kafka.offsets import EARLIEST, LATEST, offsets_at
from reconciler.providers.kafka.records.copy_progress import map_of
from reconciler.records.log import OffsetRange, TopicLog
from reconciler.resources.mirrors import ForeignRecords

if TYPE_CHECKING:
    from reconciler.providers.kafka.links.link_site import Site
    from reconciler.records.offset_map import OffsetMap


_READ_APART: Final = 50
"""So many gaps of a partition are read one by one; where there are more, all that lies between them is read."""


def foreign_records(
    site: Site,
    full_names: Collection[str],
    *,
    is_stopped: bool = False,
    on_unknown: Callable[[str, ReconcilerError], None] | None = None,
) -> dict[str, list[ForeignRecords]]:
    """Return the records of others in mirrors, by full name and in order; what mirrors nothing has none.

    `is_stopped`: of stopped mirrors, too. There only what lies before the last record that was copied counts.
    `on_unknown`: takes a mirror without a leader, or one that may not be read; without it that error is raised.

    Two requests to each leader and the ledger; records are read where the map does not explain all offsets.

    Raises:
        RetryableError: The cluster does not answer, or a partition has no leader.
        NotAuthorizedError: A mirror may not be read.
    """
    names = {site.naming.physical(name): name for name in full_names}
    topics = site.seen(sorted(names))
    for topic in sorted(topic for topic, seen in topics.items() if not seen.is_led):
        message = f"cluster {site.cluster}: {names[topic]} has a partition without a leader"
        error = RetryableError(message, hint="See whether its brokers are alive.")
        if on_unknown is None:
            raise error
        on_unknown(names[topic], error)
        del topics[topic]
    places = [(topic, number) for topic, seen in topics.items() for number in range(len(seen.replicas))]
    # Ends before the ledger: what is copied in between is explained, too.
    starts, ends = offsets_at(site.client, places, EARLIEST), offsets_at(site.client, places, LATEST, is_stable=True)
    entries = site.ledger.read(*COPIES)
    live = states_of(entries).live({topic: seen.id for topic, seen in topics.items()}).mirrors
    found: dict[str, list[ForeignRecords]] = {}
    for topic, kept in sorted(live.items()):
        try:
            for number in range(len(topics[topic].replicas)) if kept.follows or is_stopped else ():
                looking = _Partition.of(entries, topic, topics[topic].id, number)
                end = ends[topic, number] if kept.follows else min(ends[topic, number], looking.copied_to)
                suspects = looking.suspects(OffsetRange(min(starts[topic, number], end), end))
                if suspects:
                    log = _log(site, topic, topics[topic].id)
                    found.setdefault(names[topic], []).extend(looking.read(log, suspects))
        except NotAuthorizedError as error:
            if on_unknown is None:
                raise
            on_unknown(names[topic], error)
    return {name: of for name, of in found.items() if of}


def _log(site: Site, topic: str, topic_id: str) -> TopicLog:
    from reconciler.providers.kafka.records.record_log import KafkaLog  # noqa: PLC0415 - brings Arrow
    from reconciler.providers.kafka.security import as_admin  # noqa: PLC0415 - as above

    settings = site.ledger.settings
    return KafkaLog(topic, settings, as_admin(settings), site.cluster, id=topic_id)


@dataclass(frozen=True)
class _Partition:
    """What a link has written to one partition of a mirror."""

    number: int
    offsets: OffsetMap
    commits: int | None
    """How many transactions have left a marker; `None`: an earlier version copied, and did not count them."""

    @classmethod
    def of(cls, entries: Entries, topic: str, topic_id: str, number: int) -> _Partition:
        progress: Mapping[str, object] | None = entries.get(progress_key(topic, number))
        if progress is None or progress.get("copy_id") not in {None, topic_id}:
            return cls(number, map_of({}, topic, number), 0)
        commits = progress.get("commits")
        return cls(number, map_of(entries, topic, number), commits if isinstance(commits, int) else None)

    @property
    def copied_to(self) -> int:
        """The offset behind the last record that the link wrote."""
        return max((piece.target_end for piece in self.offsets), default=0)

    def suspects(self, within: OffsetRange) -> list[OffsetRange]:
        """Return the gaps of the map in which there may be records, in order.

        A gap of one offset is the marker of a transaction, where there are no more gaps than transactions. A gap at the
        beginning is none, for a marker comes after what was copied.
        """
        gaps = list(self._gaps(within.stop))
        before, between = ([gap for gap in gaps if (gap.start == 0) is is_first] for is_first in (True, False))
        if self.commits is None:
            before = []  # Another version began it, perhaps over what was there.
        are_all_marked = self.commits is None or len(between) <= self.commits
        wanted = [*before, *(gap for gap in between if gap.length > 1 or not are_all_marked)]
        cut = (OffsetRange(max(gap.start, within.start), gap.stop) for gap in wanted)
        return [gap for gap in cut if gap.start < gap.stop]

    def _gaps(self, end: int) -> Iterator[OffsetRange]:
        at = 0
        for piece in self.offsets:
            if at < min(piece.target, end):
                yield OffsetRange(at, min(piece.target, end))
            at = max(at, piece.target_end)
        if at < end:
            yield OffsetRange(at, end)

    def read(self, log: TopicLog, gaps: Sequence[OffsetRange]) -> Iterator[ForeignRecords]:
        """Yield what is readable in gaps, as runs of records between which the link wrote nothing."""
        spans = gaps if len(gaps) <= _READ_APART else [OffsetRange(gaps[0].start, gaps[-1].stop)]
        run: ForeignRecords | None = None
        for span in spans:
            for batch in log.read(self.number, span):
                offsets = batch.column("offset").to_numpy()
                for offset in offsets[self.offsets.sources_of(offsets) < 0].tolist():
                    if run is not None and not self._is_ours_between(run.end, offset):
                        run = ForeignRecords(self.number, run.start, offset + 1, run.records + 1)
                        continue
                    if run is not None:
                        yield run
                    run = ForeignRecords(self.number, offset, offset + 1, 1)
        if run is not None:
            yield run

    def _is_ours_between(self, start: int, end: int) -> bool:
        """Tell whether the link wrote anything from one offset up to another."""
        at = self.offsets.source_of(start)
        return self.offsets.source_of(end) != at
