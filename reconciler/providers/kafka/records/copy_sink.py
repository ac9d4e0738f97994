"""The sink of a copy into a Kafka topic: exactly once, one task a partition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from time import monotonic
from typing import Any, Final

from reconciler.errors import RetryableError, SourceChangedError, UserError
from reconciler.providers.kafka.ledger import MAP, PROGRESS, Ledger, copier_of, starts_of
from reconciler.providers.kafka.offsets import LATEST, offsets_at
from reconciler.providers.kafka.records.copy_progress import (
    Followed,
    Ledgers,
    Progress,
    advanced,
    map_of,
    messages_of,
    opened,
)
from reconciler.providers.kafka.records.copy_transaction import (
    BatchLog,
    Lot,
    RawTransactions,
    Transactions,
    check_in_order,
    lots_each,
    lots_whole,
    source_changed,
)
from reconciler.providers.kafka.records.record_batches import asking
from reconciler.providers.kafka.security import as_admin
from reconciler.records.log import (
    Bounds,
    Copied,
    OffsetRange,
    SinkPosition,
    SourceSeen,
    Spans,
    TopicLog,
    check_current,
    check_followed,
)
from reconciler.records.offset_map import pieces_of
from reconciler.resources.mirrors import MIRROR_TRUNCATED
from reconciler.runtime.retry import Backoff, Tries

Writer = Transactions | RawTransactions

_NOTHING: Final = Progress()
_CUT_S: Final = 10.0
"""For so long an end that lies below what was written is asked for again: its leader may have just been elected."""
_CUT: Final = Backoff(first_s=0.2, longest_s=2.0)


@dataclass(frozen=True, slots=True)
class Limits:
    """When a transaction is committed: whatever comes first; and from how many records on batches are copied whole."""

    records: int = 100_000
    bytes: int = 64 << 20
    seconds: float = 5.0
    whole: int = 50_000
    """Fewer are copied one by one: the connections that batches come over take longer to open."""


@dataclass(frozen=True, slots=True)
class Target:
    """The topic that is copied into. Picklable."""

    settings: Mapping[str, Any]
    """Of confluent-kafka clients, secrets hidden."""
    cluster: str
    topic: str
    """As its brokers call it."""
    topic_id: str | None
    partitions: int
    owner: str
    """Id of the link, or of whatever else copies: it tells one copier from another of the same topic."""
    link: str | None = None
    """Name of the link; `None`: no state says whether it is to be copied."""
    begins: Mapping[int, int] = field(default_factory=dict)
    """Where its partitions begin that do not begin where the source does."""
    limits: Limits = field(default_factory=Limits)
    writing: Mapping[str, Any] = field(default_factory=dict)
    """More settings of the producer: how batches are packed."""


class Way(Enum):
    """How records are read and written."""

    WHOLE = "batches as they are"
    EACH = "one by one, by librdkafka"
    ODD = "one by one, by the protocol: what librdkafka cannot write"


_NEXT: Final = {Way.WHOLE: Way.EACH, Way.EACH: Way.ODD, Way.ODD: Way.EACH}
"""The way to go on where one ends."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is copied of a partition, and how."""

    partition: int
    source: TopicLog
    way: Way
    offsets: OffsetRange
    goes_on: bool = False
    """Records before these were just copied another way: what is removed from here on is missed aloud."""

    def lots(self) -> Iterator[Lot]:
        """Yield the records, in order; whole batches up to the first that cannot be had whole.

        Raises:
            RetryableError: The first records were removed since those before them were read.
        """
        if self.way is Way.WHOLE and isinstance(self.source, BatchLog):
            found = lots_whole(self.source, self.partition, self.offsets)
        else:
            found = lots_each(self.source, self.partition, self.offsets)
        if self.goes_on:
            first = next(found, None)
            if first is None or first.first > self.offsets.start:
                self._check_begin()
            if first is not None:
                yield first
        yield from found

    def check_read(self, stop: int) -> None:
        """Return if what was read up to an offset is of the very log that was looked at: it is read by its name.

        Raises:
            SourceChangedError: The source was deleted and created again.
            RetryableError: It ends before that by now: its brokers have lost records.
        """
        found = self.source.bounds([self.partition]).get(self.partition)
        if found is None or found.end < stop:
            raise source_changed()

    def _check_begin(self) -> None:
        begin = self.source.bounds([self.partition])[self.partition].start
        if begin > self.offsets.start:
            what = f"offsets {self.offsets.start:,} to {begin - 1:,} were removed while they were copied"
            hint = "Retention or a deletion of records went on meanwhile. Run the same command again."
            raise RetryableError(f"partition {self.partition} of the source: {what}", hint=hint)


def transactions_of(target: Target, partition: int, way: Way) -> Writer:
    """Return who writes a partition: librdkafka, or the protocol itself."""
    place = (target.topic, partition)
    settings = {**target.settings, **target.writing, "transactional.id": copier_of(target.owner, *place)}
    if way is Way.EACH:
        return Transactions(settings, place, target.cluster)
    from reconciler.providers.kafka.records.copy_transaction import RawTransactions  # noqa: PLC0415 - as its records

    return RawTransactions(settings, place, target.cluster)


@dataclass
class CopySink:
    """A `TransactionalSink`. The driver reads the ledger once and on; tasks read only what was written since."""

    target: Target
    on_complete: Callable[[], None] | None = None
    source: SourceSeen | None = None
    ledgers: Ledgers | None = None
    known: Mapping[int, Progress] = field(default_factory=dict)
    read_to: int = 0
    ledger: Ledger | None = None
    """Shared by several sinks, so that it is read once; `None`: it is read whole for each question."""
    deletes: bool = True
    """Whether brokers delete old records of the topic by themselves."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without connections."""
        return type(self), (self.target, None, self.source, None, self.known, self.read_to)

    def check_shared(self) -> None:
        """Return: brokers are seen from everywhere, or say so themselves."""

    def reached(self, only: Collection[int] | None = None) -> Mapping[int, SinkPosition]:
        """Return how far each partition was copied, in offsets of its source.

        Raises:
            SourceChangedError: The copy has lost records that were written to it.
        """
        target = self.target
        if self.ledgers is None:
            self.ledgers = opened(target.settings, target.cluster, target.topic, target.link)
        self.ledgers.read()
        if target.link is not None and self.ledgers.is_over:
            message = f"{target.topic} of cluster {target.cluster} is not a mirror that records are copied to"
            raise UserError(message, hint="It was stopped meanwhile: see `reconciler mirror list`.")
        self.read_to = self.ledgers.tail.position
        self.known = self.ledgers.all(only)
        numbers = [number for number in range(target.partitions) if only is None or number in only]
        found = {number: self._valid(self.known.get(number), number) for number in numbers}
        self._check_uncut(found)
        return {number: progress.reached for number, progress in found.items()}

    def spans(self, source: Mapping[int, Bounds]) -> Mapping[int, Spans]:
        """Return what both have by the offset map, the copy's range first.

        What the source let go of counts for none, nor what the retention of the copy did. Of a partition that the copy
        does not have yet nothing was copied.
        """
        target = self.target
        ledger = self.ledger or Ledger(target.settings, target.cluster)
        entries = ledger.read(PROGRESS, MAP)
        there = [number for number in source if number < target.partitions]
        starts = starts_of(target.settings, target.cluster, [(target.topic, number) for number in there])
        found: dict[int, Spans] = {}
        for number, bounds in source.items():
            offsets = map_of(entries, target.topic, number)
            begin = starts.get((target.topic, number), 0) if self.deletes else 0
            start = max(bounds.start, offsets.source_of(begin))
            stop = max(start, min(offsets.through, bounds.stable))
            ends = offsets.target_of(start), offsets.target_of(stop)
            both = OffsetRange(0, 0) if None in ends else OffsetRange(ends[0] or 0, ends[1] or 0)
            found[number] = Spans(both, OffsetRange(start, stop), offsets)
        return found

    def following(self, source: SourceSeen) -> CopySink:
        """Return the same sink for a round over a source: what it commits keeps which log that was copied from."""
        return replace(self, source=source)

    def complete(self) -> None:
        """Record that the first copy has reached the end its source had at the start."""
        if self.on_complete is not None:
            self.on_complete()

    def copy_range(self, partition: int, source: TopicLog, offsets: OffsetRange) -> Iterator[Copied]:
        """Copy a range, and say so after each transaction; goes on where a copier before this one stopped.

        Nothing is copied where the state of the mirror or its link was written since the driver looked.

        Raises:
            LostRaceError: Somebody else copies this partition now.
            SourceChangedError: What is there is no copy of that log, or has lost records that were written to it.
            RetryableError: Brokers do not answer; what is committed stays.
        """
        through, way = offsets.start, self._first_way(partition, source, offsets)
        while through < offsets.stop:
            # Each fences the one before it, and then looks how far that came: nobody else copied in between unnoticed.
            transactions = transactions_of(self.target, partition, way)
            try:
                progress = self._progress(partition)
                if progress is None or progress.through >= offsets.stop:
                    return
                goes_on = progress.through == through > offsets.start
                work = Work(partition, source, way, OffsetRange(progress.through, offsets.stop), goes_on)
                through = yield from self._copied(transactions, work, progress)
            finally:
                transactions.close()
            way = _NEXT[way]

    def _first_way(self, partition: int, source: TopicLog, offsets: OffsetRange) -> Way:
        is_long = offsets.length >= self.target.limits.whole
        is_whole = is_long and isinstance(source, BatchLog) and source.has_whole_batches(partition, offsets)
        return Way.WHOLE if is_whole else Way.EACH

    def _progress(self, partition: int) -> Progress | None:
        """Return how far it is under the fence; `None`: states were written meanwhile, so somebody must look again."""
        target = self.target
        ledgers = opened(target.settings, target.cluster, target.topic, target.link, self.read_to)
        ledgers.put({number: known for number, known in self.known.items() if number == partition})
        try:
            ledgers.read()
        finally:
            ledgers.tail.close()
        if ledgers.changes:
            return None
        progress = self._valid(ledgers.of(partition), partition)
        self._check_uncut({partition: progress})
        seen = self._seen
        check_followed(target.topic, partition, progress.reached, seen)
        check_current(target.topic, partition, progress.reached, seen)
        return progress

    def _copied(self, transactions: Writer, work: Work, progress: Progress) -> Generator[Copied, None, int]:
        """Copy, and return how far: up to records that another way of writing is for."""
        partition, rest = work.partition, work.offsets
        followed = Followed(self._seen.topic_id, self._seen.bounds.get(partition, Bounds(0, 0, 0, 0)))
        limits = self.target.limits
        records = taken = 0
        began = monotonic()
        reached = rest.start
        for lot in work.lots():
            if lot.records:
                if not transactions.takes(lot.content):
                    rest = OffsetRange(rest.start, lot.first)
                    break
                transactions.take(lot.content)
                progress = replace(progress, newest_ms=max(progress.newest_ms or 0, lot.newest_ms))
            reached = lot.through
            records += lot.records
            taken += lot.bytes
            is_full = records >= limits.records or taken >= limits.bytes or monotonic() - began > limits.seconds
            if is_full or transactions.is_calm:
                progress = self._commit(transactions, (progress, followed), OffsetRange(rest.start, reached), work)
                yield Copied(partition, reached, records, taken)
                if transactions.is_calm:
                    return reached
                rest, records, taken, began = OffsetRange(reached, rest.stop), 0, 0, monotonic()
        else:
            if work.way is Way.WHOLE:  # What follows must be read record by record.
                rest = OffsetRange(rest.start, reached)
        if rest.length:
            self._commit(transactions, (progress, followed), rest, work)
            yield Copied(partition, rest.stop, records, taken)
        return rest.stop

    def _commit(
        self, transactions: Writer, state: tuple[Progress, Followed], within: OffsetRange, work: Work
    ) -> Progress:
        partition = work.partition
        sources, targets = transactions.settle()
        check_in_order(sources, targets, within)
        if len(targets) and targets[0] < state[0].written:  # It was cut while it was copied.
            raise self._lost(partition, int(targets[0]), state[0].written)
        work.check_read(within.stop)
        progress, chunks = advanced(state[0], within.stop, pieces_of(sources, targets), state[1])
        transactions.commit(messages_of(self.target.topic, partition, progress, chunks))
        return progress

    def _check_uncut(self, reached: Mapping[int, Progress]) -> None:
        """Return if no partition ends below what the ledger, which was read before, says was written to it.

        Only its beginning moves by retention and by deletions of records.

        Raises:
            SourceChangedError: One does: its brokers have lost the end of its log.
            RetryableError: It is another topic by now.
        """
        target = self.target
        written = {(target.topic, number): one.written for number, one in reached.items() if one.written}
        if not written:
            return
        client, tries = asking(as_admin(target.settings), target.cluster), Tries(_CUT, within_s=_CUT_S)
        while True:
            ends = offsets_at(client, written, LATEST)
            cut = [place for place, least in written.items() if ends[place] < least]
            if not cut:
                return
            if tries.is_over:
                break
            tries.wait()
        if client.topics([target.topic])[target.topic].id != target.topic_id:
            message = f"{target.topic} of cluster {target.cluster} was deleted and created again"
            raise RetryableError(message, hint="Run the same command again.")
        raise self._lost(cut[0][1], ends[cut[0]], written[cut[0]])

    def _lost(self, partition: int, end: int, written: int) -> SourceChangedError:
        target = self.target
        where = f"{target.topic}, partition {partition} of cluster {target.cluster}"
        message = f"{where} ends at {end:,}, and was written up to {written:,}: its brokers lost records"
        hint = "Nothing was copied behind the hole. Delete that topic, and run the same command again."
        if target.link is not None:
            hint = "Nothing was copied behind the hole. `apply --allow delete:MIRROR` deletes it and mirrors it afresh."
        return SourceChangedError(message, code=MIRROR_TRUNCATED, hint=hint)

    @property
    def _seen(self) -> SourceSeen:
        return self.source or SourceSeen(None, {})

    def _valid(self, progress: Progress | None, partition: int) -> Progress:
        """Return what the ledger says of this very topic; of one that was deleted it says nothing."""
        target = self.target
        if progress is None or progress.copy_id not in {None, target.topic_id}:
            return replace(_NOTHING, through=target.begins.get(partition, 0), copy_id=target.topic_id, commits=0)
        return progress
