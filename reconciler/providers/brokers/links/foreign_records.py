"""Detection of foreign records in mirrors.

The offset map contains the offsets that the link wrote. Other offsets are transaction markers, aborted records of
killed copiers, or foreign records: those of other producers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from reconciler.errors import NotAuthorizedError, ReconcilerError, RetryableError
from reconciler.providers.brokers.ledger import COPIES, Entries, progress_key
from reconciler.providers.brokers.links.link_states import parse_states
from reconciler.providers.brokers.offsets import EARLIEST, LATEST, read_offsets
from reconciler.providers.brokers.records.copy_progress import parse_offset_map
from reconciler.records.log import OffsetRange, TopicLog
from reconciler.resources.mirrors import ForeignRecords
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.providers.brokers.links.link_site import LinkSite
    from reconciler.records.offset_map import OffsetMap


_MAX_GAP_READS: Final = 50


def find_foreign_records(
    site: LinkSite,
    full_names: Collection[str],
    *,
    is_stopped: bool = False,
    on_unknown: Callable[[str, ReconcilerError], None] | None = None,
) -> dict[str, list[ForeignRecords]]:
    """Return foreign records in mirrors, in order, by full name. Other topics are ignored."""
    names = {site.naming.to_physical(name): name for name in full_names}
    topics = site.read_topics(sorted(names))
    for topic in sorted(topic for topic, seen in topics.items() if not seen.is_led):
        message = f"cluster {site.cluster}: {names[topic]} has a partition without a leader"
        error = RetryableError(message, hint="See whether its brokers are alive.")
        if on_unknown is None:
            raise error
        on_unknown(names[topic], error)
        del topics[topic]
    places = [(topic, number) for topic, seen in topics.items() for number in range(len(seen.replicas))]
    # The ledger is read after the end offsets, so it has all copies below them.
    starts, ends = (
        read_offsets(site.client, places, EARLIEST),
        read_offsets(site.client, places, LATEST, is_stable=True),
    )
    entries = site.ledger.read(*COPIES)
    live = parse_states(entries).select_live({topic: seen.id for topic, seen in topics.items()}).mirrors
    by_mirror: dict[str, list[ForeignRecords]] = {}
    for topic, mirror in sorted(live.items()):
        try:
            for number in range(len(topics[topic].replicas)) if mirror.is_mirroring or is_stopped else ():
                partition = _Partition.from_entries(entries, topic, topics[topic].id, number)
                end = ends[topic, number] if mirror.is_mirroring else min(ends[topic, number], partition.copied_end)
                suspects = partition.find_suspect_gaps(OffsetRange(min(starts[topic, number], end), end))
                if suspects:
                    log = _open_log(site, topic, topics[topic].id)
                    by_mirror.setdefault(names[topic], []).extend(partition.find_records(log, suspects))
        except NotAuthorizedError as error:
            if on_unknown is None:
                raise
            on_unknown(names[topic], error)
    return {name: of for name, of in by_mirror.items() if of}


def _open_log(site: LinkSite, topic: str, topic_id: str) -> TopicLog:
    from reconciler.providers.brokers.records.record_log import KafkaLog  # noqa: PLC0415 - imports Arrow
    from reconciler.providers.brokers.security import to_admin_settings  # noqa: PLC0415 - as above

    settings = site.ledger.settings
    return KafkaLog(topic, settings, to_admin_settings(settings), site.cluster, id=topic_id)


@dataclass(frozen=True)
class _Partition:
    number: int
    offsets: OffsetMap
    commits: int | None
    """Number of copied transactions, each of which left a marker; `None` if an earlier version copied."""

    @classmethod
    def from_entries(cls, entries: Entries, topic: str, topic_id: str, number: int) -> _Partition:
        progress: Mapping[str, object] | None = entries.get(progress_key(topic, number))
        if progress is None or progress.get("copy_id") not in {None, topic_id}:
            return cls(number, parse_offset_map({}, topic, number), 0)
        commits = progress.get("commits")
        return cls(number, parse_offset_map(entries, topic, number), commits if isinstance(commits, int) else None)

    @property
    def copied_end(self) -> int:
        return max((piece.target_end for piece in self.offsets), default=0)

    def find_suspect_gaps(self, within: OffsetRange) -> list[OffsetRange]:
        """Return the offset ranges in `within` that the map lacks and that may contain records, in order.

        A one-offset gap between copies is a marker, unless there are more gaps than transactions.
        """
        gaps = list(self._list_gaps(within.stop))
        before, between = ([gap for gap in gaps if (gap.start == 0) is is_first] for is_first in (True, False))
        if self.commits is None:
            before = []  # An earlier version may have started the copy in a topic with records.
        are_all_marked = self.commits is None or len(between) <= self.commits
        wanted = [*before, *(gap for gap in between if gap.length > 1 or not are_all_marked)]
        cut = (OffsetRange(max(gap.start, within.start), gap.stop) for gap in wanted)
        return [gap for gap in cut if gap.start < gap.stop]

    def _list_gaps(self, end: int) -> Iterator[OffsetRange]:
        at = 0
        for piece in self.offsets:
            if at < min(piece.target, end):
                yield OffsetRange(at, min(piece.target, end))
            at = max(at, piece.target_end)
        if at < end:
            yield OffsetRange(at, end)

    def find_records(self, log: TopicLog, gaps: Sequence[OffsetRange]) -> Iterator[ForeignRecords]:
        spans = gaps if len(gaps) <= _MAX_GAP_READS else [OffsetRange(gaps[0].start, gaps[-1].stop)]
        run: ForeignRecords | None = None
        for span in spans:
            for batch in log.read(self.number, span):
                offsets = batch.column("offset").to_numpy()
                for offset in offsets[self.offsets.find_sources(offsets) < 0].tolist():
                    if run is not None and not self._has_copied_between(run.end, offset):
                        run = ForeignRecords(self.number, run.start, offset + 1, run.records + 1)
                        continue
                    if run is not None:
                        yield run
                    run = ForeignRecords(self.number, offset, offset + 1, 1)
        if run is not None:
            yield run

    def _has_copied_between(self, start: int, end: int) -> bool:
        at = self.offsets.find_source(start)
        return self.offsets.find_source(end) != at
