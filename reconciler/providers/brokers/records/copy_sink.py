"""Exactly-once copies into a Kafka topic, with one task per partition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from enum import Enum
from time import monotonic
from typing import Any, Final

from reconciler.errors import RetryableError, SourceChangedError, UserError
from reconciler.providers.brokers.ledger import MAP, PROGRESS, Ledger, build_copier_id, read_start_offsets
from reconciler.providers.brokers.offsets import LATEST, read_offsets
from reconciler.providers.brokers.records.copy_progress import (
    Progress,
    ProgressReader,
    SourceSnapshot,
    advance_progress,
    build_ledger_messages,
    open_progress,
    parse_offset_map,
)
from reconciler.providers.brokers.records.copy_transaction import (
    BatchLog,
    ClientTransactions,
    CopyLot,
    ProtocolTransactions,
    check_in_order,
    read_record_lots,
    read_whole_lots,
    source_changed_error,
)
from reconciler.providers.brokers.records.record_batches import open_connection
from reconciler.providers.brokers.security import to_admin_settings
from reconciler.records.log import (
    Bounds,
    CopyProgress,
    ObservedSource,
    OffsetRange,
    SinkPosition,
    Spans,
    TopicLog,
    check_copy_current,
    check_source_unchanged,
)
from reconciler.records.offset_map import make_pieces
from reconciler.resources.mirrors import MIRROR_TRUNCATED
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.retry import Backoff, Tries

Writer = ClientTransactions | ProtocolTransactions

_NO_PROGRESS: Final = Progress()
_TRUNCATION_WAIT_S: Final = 10.0
"""Seconds to wait for a log end at the written offset, because a new leader may lag."""
_TRUNCATION_BACKOFF: Final = Backoff(first_s=0.2, longest_s=2.0)


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """Limits of a transaction; reaching one commits it."""

    records: int = 100_000
    bytes: int = 64 << 20
    seconds: float = 5.0
    whole: int = 50_000
    """Minimum offsets to copy in whole batches, whose connections open slowly."""


@dataclass(frozen=True, slots=True)
class CopyTarget:
    """Target topic of a copy. Picklable."""

    settings: Mapping[str, Any]
    """Settings of confluent-kafka clients, with hidden secrets."""
    cluster: str
    topic: str
    """Name on the brokers."""
    topic_id: str | None
    partitions: int
    owner: str
    """Id of the link, or of the operation that copies."""
    link: str | None = None
    """Name of the link, if any."""
    begins: Mapping[int, int] = field(default_factory=dict)
    """First offsets of partitions that do not begin at the source's beginning."""
    limits: CopyLimits = field(default_factory=CopyLimits)
    producer_settings: Mapping[str, Any] = field(default_factory=dict)


class CopyMethod(Enum):
    """How records are read and written."""

    WHOLE = "batches as they are"
    EACH = "one by one, by librdkafka"
    ODD = "one by one, by the protocol: what librdkafka cannot write"


_NEXT: Final = {
    CopyMethod.WHOLE: CopyMethod.EACH,
    CopyMethod.EACH: CopyMethod.ODD,
    CopyMethod.ODD: CopyMethod.EACH,
}


@dataclass(frozen=True, slots=True)
class CopyRange:
    """Range of a partition, and the method to copy it."""

    partition: int
    source: TopicLog
    method: CopyMethod
    offsets: OffsetRange
    is_continuation: bool = False
    """Whether another method copied the preceding records, so records removed since then are an error."""

    def read_lots(self) -> Iterator[CopyLot]:
        """Yield the records in order. Whole batches end before the first that must be copied by record."""
        if self.method is CopyMethod.WHOLE and isinstance(self.source, BatchLog):
            lots = read_whole_lots(self.source, self.partition, self.offsets)
        else:
            lots = read_record_lots(self.source, self.partition, self.offsets)
        if self.is_continuation:
            first = next(lots, None)
            if first is None or first.first > self.offsets.start:
                self._check_not_removed()
            if first is not None:
                yield first
        yield from lots

    def check_source_end(self, stop: int) -> None:
        """Check that the expected topic has records up to `stop`, because records are read by name."""
        bounds = self.source.read_bounds([self.partition]).get(self.partition)
        if bounds is None or bounds.end < stop:
            raise source_changed_error()

    def _check_not_removed(self) -> None:
        begin = self.source.read_bounds([self.partition])[self.partition].start
        if begin > self.offsets.start:
            what = f"offsets {self.offsets.start:,} to {begin - 1:,} were removed while they were copied"
            hint = "Retention or a deletion of records ran in the meantime. Run the same command again."
            raise RetryableError(f"partition {self.partition} of the source: {what}", hint=hint)


def open_writer(target: CopyTarget, partition: int, method: CopyMethod) -> Writer:
    """Return a partition's writer, by librdkafka or by the protocol."""
    place = (target.topic, partition)
    settings = {
        **target.settings,
        **target.producer_settings,
        "transactional.id": build_copier_id(target.owner, *place),
    }
    if method is CopyMethod.EACH:
        return ClientTransactions(settings, place, target.cluster)
    from reconciler.providers.brokers.records.copy_transaction import ProtocolTransactions  # noqa: PLC0415 - imports another client

    return ProtocolTransactions(settings, place, target.cluster)


@dataclass
class CopySink:
    """`TransactionalSink` for a Kafka topic. The driver reads the whole ledger, tasks only later entries."""

    target: CopyTarget
    on_complete: Callable[[], None] | None = None
    source: ObservedSource | None = None
    progress_reader: ProgressReader | None = None
    known: Mapping[int, Progress] = field(default_factory=dict)
    read_to: int = 0
    ledger: Ledger | None = None
    deletes: bool = True

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.target, None, self.source, None, self.known, self.read_to)

    def check_shared(self) -> None:
        """Do nothing, because all processes can reach the brokers."""

    def read_positions(self, only: Collection[int] | None = None) -> Mapping[int, SinkPosition]:
        """Return each partition's copied position in source offsets."""
        target = self.target
        if self.progress_reader is None:
            self.progress_reader = open_progress(target.settings, target.cluster, target.topic, target.link)
        self.progress_reader.read()
        if target.link is not None and self.progress_reader.has_ended:
            message = f"{target.topic} of cluster {target.cluster} is not a mirror that records are copied to"
            raise UserError(message, hint="It was stopped in the meantime: see `reconciler mirror list`.")
        self.read_to = self.progress_reader.reader.position
        self.known = self.progress_reader.list_progress(only)
        numbers = [number for number in range(target.partitions) if only is None or number in only]
        by_partition = {number: self._discard_stale(self.known.get(number), number) for number in numbers}
        self._check_not_truncated(by_partition)
        return {number: progress.reached for number, progress in by_partition.items()}

    def find_spans(self, source: Mapping[int, Bounds]) -> Mapping[int, Spans]:
        """Return the ranges of copy and source that the offset map relates.

        A partition that the copy lacks has an empty range.
        """
        target = self.target
        ledger = self.ledger or Ledger(target.settings, target.cluster)
        entries = ledger.read(PROGRESS, MAP)
        numbers = [number for number in source if number < target.partitions]
        starts = read_start_offsets(target.settings, target.cluster, [(target.topic, number) for number in numbers])
        spans: dict[int, Spans] = {}
        for number, bounds in source.items():
            offsets = parse_offset_map(entries, target.topic, number)
            begin = starts.get((target.topic, number), 0) if self.deletes else 0
            start = max(bounds.start, offsets.find_source(begin))
            stop = max(start, min(offsets.through, bounds.stable))
            ends = offsets.find_target(start), offsets.find_target(stop)
            both = OffsetRange(0, 0) if None in ends else OffsetRange(ends[0] or 0, ends[1] or 0)
            spans[number] = Spans(both, OffsetRange(start, stop), offsets)
        return spans

    def follow_source(self, source: ObservedSource) -> CopySink:
        """Return a sink that stores `source` with each commit."""
        return replace(self, source=source)

    def mark_complete(self) -> None:
        """Record that the first copy is complete."""
        if self.on_complete is not None:
            self.on_complete()

    def copy_range(self, partition: int, source: TopicLog, offsets: OffsetRange) -> Iterator[CopyProgress]:
        """Copy the rest of a range, and yield the progress of each transaction.

        Copies nothing if the mirror's or link's entry changed.
        """
        through, method = offsets.start, self._choose_method(partition, source, offsets)
        while through < offsets.stop:
            # Opening a writer fences the previous copier, so the progress read afterwards is final.
            transactions = open_writer(self.target, partition, method)
            try:
                progress = self._read_progress(partition)
                if progress is None or progress.through >= offsets.stop:
                    return
                is_continuation = progress.through == through > offsets.start
                work = CopyRange(
                    partition, source, method, OffsetRange(progress.through, offsets.stop), is_continuation
                )
                through = yield from self._copy_lots(transactions, work, progress)
            finally:
                transactions.close()
            method = _NEXT[method]

    def _choose_method(self, partition: int, source: TopicLog, offsets: OffsetRange) -> CopyMethod:
        is_long = offsets.length >= self.target.limits.whole
        is_whole = is_long and isinstance(source, BatchLog) and source.has_whole_batches(partition, offsets)
        return CopyMethod.WHOLE if is_whole else CopyMethod.EACH

    def _read_progress(self, partition: int) -> Progress | None:
        """Return the progress after fencing; `None` if the mirror or link has changed."""
        target = self.target
        progress_reader = open_progress(target.settings, target.cluster, target.topic, target.link, self.read_to)
        progress_reader.preload({number: known for number, known in self.known.items() if number == partition})
        try:
            progress_reader.read()
        finally:
            progress_reader.reader.close()
        if progress_reader.state_changes:
            return None
        progress = self._discard_stale(progress_reader.find_progress(partition), partition)
        self._check_not_truncated({partition: progress})
        seen = self._observed_source
        check_source_unchanged(target.topic, partition, progress.reached, seen)
        check_copy_current(target.topic, partition, progress.reached, seen)
        return progress

    def _copy_lots(
        self, transactions: Writer, work: CopyRange, progress: Progress
    ) -> Generator[CopyProgress, None, int]:
        """Copy a range; return its end, or the offset from which another method continues."""
        partition, rest = work.partition, work.offsets
        followed = SourceSnapshot(
            self._observed_source.topic_id, self._observed_source.bounds.get(partition, Bounds(0, 0, 0, 0))
        )
        limits = self.target.limits
        records = taken = 0
        began = monotonic()
        reached = rest.start
        for lot in work.read_lots():
            if lot.records:
                if not transactions.can_write(lot.content):
                    rest = OffsetRange(rest.start, lot.first)
                    break
                transactions.write_records(lot.content)
                progress = replace(progress, newest_ms=max(progress.newest_ms or 0, lot.newest_ms))
            reached = lot.through
            records += lot.records
            taken += lot.bytes
            is_full = records >= limits.records or taken >= limits.bytes or monotonic() - began > limits.seconds
            if is_full or transactions.should_switch:
                progress = self._commit(transactions, (progress, followed), OffsetRange(rest.start, reached), work)
                yield CopyProgress(partition, reached, records, taken)
                if transactions.should_switch:
                    return reached
                rest, records, taken, began = OffsetRange(reached, rest.stop), 0, 0, monotonic()
        else:
            if work.method is CopyMethod.WHOLE:
                rest = OffsetRange(rest.start, reached)
        if rest.length:
            self._commit(transactions, (progress, followed), rest, work)
            yield CopyProgress(partition, rest.stop, records, taken)
        return rest.stop

    def _commit(
        self, transactions: Writer, state: tuple[Progress, SourceSnapshot], within: OffsetRange, work: CopyRange
    ) -> Progress:
        partition = work.partition
        sources, targets = transactions.await_offsets()
        check_in_order(sources, targets, within)
        if len(targets) and targets[0] < state[0].written_end:
            # A record below the written end shows that the log was truncated.
            raise self._truncation_error(partition, int(targets[0]), state[0].written_end)
        work.check_source_end(within.stop)
        progress, chunks = advance_progress(state[0], within.stop, make_pieces(sources, targets), state[1])
        transactions.commit(build_ledger_messages(self.target.topic, partition, progress, chunks))
        return progress

    def _check_not_truncated(self, reached: Mapping[int, Progress]) -> None:
        target = self.target
        written = {
            (target.topic, number): progress.written_end for number, progress in reached.items() if progress.written_end
        }
        if not written:
            return
        client, tries = (
            open_connection(to_admin_settings(target.settings), target.cluster),
            Tries(_TRUNCATION_BACKOFF, within_s=_TRUNCATION_WAIT_S),
        )
        while True:
            ends = read_offsets(client, written, LATEST)
            cut = [place for place, least in written.items() if ends[place] < least]
            if not cut:
                return
            if tries.has_ended:
                break
            tries.wait()
        if client.read_topics([target.topic])[target.topic].id != target.topic_id:
            message = f"{target.topic} of cluster {target.cluster} was deleted and created again"
            raise RetryableError(message, hint="Run the same command again.")
        raise self._truncation_error(cut[0][1], ends[cut[0]], written[cut[0]])

    def _truncation_error(self, partition: int, end: int, written: int) -> SourceChangedError:
        target = self.target
        where = f"{target.topic}, partition {partition} of cluster {target.cluster}"
        message = f"{where} ends at {end:,}, and was written up to {written:,}: its brokers lost records"
        hint = "Nothing was copied behind the hole. Delete that topic, and run the same command again."
        if target.link is not None:
            hint = "Nothing was copied behind the hole. `apply --allow delete:MIRROR` deletes it and mirrors it again."
        return SourceChangedError(message, code=MIRROR_TRUNCATED, hint=hint)

    @property
    def _observed_source(self) -> ObservedSource:
        return self.source or ObservedSource(None, {})

    def _discard_stale(self, progress: Progress | None, partition: int) -> Progress:
        target = self.target
        if progress is None or progress.copy_id not in {None, target.topic_id}:
            return replace(_NO_PROGRESS, through=target.begins.get(partition, 0), copy_id=target.topic_id, commits=0)
        return progress
