"""Write a topic anew in another number of partitions.

One task writes one partition of the target, in one transaction after the other. Each leaves in the ledger how far it
came in every partition of the source, and which stretches of it begin where: so the next task goes on there, and groups
find their places.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import RetryableError, UserError
from reconciler.providers.kafka.ledger import REKEYED, Entries, Key, Ledger, Tail, Value, entry_of, message
from reconciler.providers.kafka.records.copy_progress import Followed
from reconciler.providers.kafka.records.copy_sink import Target, Way, Writer, transactions_of
from reconciler.providers.kafka.records.copy_transaction import rows_of, slices_of
from reconciler.records.hashes import digest_of
from reconciler.records.log import (
    Bounds,
    Digest,
    SinkPosition,
    SourceSeen,
    Written,
    check_current,
    check_followed,
)

if TYPE_CHECKING:
    import pyarrow as pa


def rekeyed_key(topic: str, partition: int, serial: int) -> Key:
    """Return the key of what a transaction wrote: the first one into a partition of the target has the number 0."""
    return (REKEYED, topic, partition, serial)


def check_form(document: Value, topic: str) -> None:
    """Refuse what an earlier version wrote: it did not keep how far each partition of the target came.

    Raises:
        UserError: The entry is of that kind.
    """
    if "through" not in document:
        message = f"topic {topic} was begun by an earlier version of reconciler, which kept progress in another form"
        hint = "Nothing was deleted. Give the new topic another name: it is copied from the beginning."
        raise UserError(message, hint=hint)


def is_of(document: Value, ids: tuple[str | None, str | None], topic: str) -> bool:
    """Tell whether an entry is about the source and the copy with these ids; the copy's name was another's before.

    Raises:
        UserError: An earlier version wrote it, which did not keep the ids.
    """
    if "source_id" in document and (document["source_id"], document["copy_id"]) != ids:
        return False
    check_form(document, topic)
    return True


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a partition of the target has come in each of the source, and under which epochs of that."""

    serial: int = 0
    """The number of the next transaction."""
    through: Mapping[int, int] = field(default_factory=dict)
    epochs: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    def after(self, document: Value) -> Reached:
        """Return it after a transaction, by what that left in the ledger."""
        through = {int(number): int(to) for number, to in document["through"].items()}
        epochs = {
            int(number): tuple((int(epoch), int(start)) for epoch, start in found)
            for number, found in document["epochs"].items()
        }
        return Reached(self.serial + 1, {**self.through, **through}, {**self.epochs, **epochs})


_NOTHING: Final = Reached()
_STRETCHES: Final = 100
"""A transaction keeps about so many: a group that lags reads less than one of each source again."""


@dataclass
class KafkaRekeySink:
    """A `RekeySink`. The driver reads the ledger once and on; tasks read only what was written since. Picklable."""

    target: Target
    """Its owner is what tells one copier from another."""
    source_id: str | None
    """The topic that is copied: what was written of another one counts for nothing."""
    source: SourceSeen = field(default_factory=lambda: SourceSeen(None, {}))
    known: Mapping[int, Reached] = field(default_factory=dict)
    read_to: int = 0

    @property
    def partitions(self) -> int:
        """How many the target has."""
        return self.target.partitions

    def check_shared(self) -> None:
        """Return: brokers are seen from everywhere, or say so themselves."""

    def following(self, source: SourceSeen) -> KafkaRekeySink:
        """Return the same sink for a round over a source: what it commits keeps which log that was copied from."""
        return replace(self, source=source)

    def reached(self) -> Mapping[int, Mapping[int, int]]:
        """Return for each partition how far it has come in each of the source."""
        self.known, self.read_to = self.looked()
        return {number: self.known.get(number, _NOTHING).through for number in range(self.partitions)}

    def write(self, partition: int, records: Iterable[pa.RecordBatch], through: Mapping[int, int]) -> Iterator[Written]:
        """Write what is not there of records, in transactions, and say so after each.

        Raises:
            LostRaceError: Another process writes this partition now; what was committed stays.
            SourceChangedError: What is there is no copy of the log that is followed.
            RetryableError: Brokers do not answer; what is committed stays.
        """
        writing = _Writing(self, partition)
        try:
            for batch in records:
                for some in slices_of(batch):
                    yield from writing.take(some)
            yield from writing.end(through)
        finally:
            writing.close()

    def written(self) -> Digest:
        """Return the digest of all that was ever written."""
        entries = Ledger(self.target.settings, self.target.cluster).read(REKEYED)
        return Rekeyed.of(entries, self.target.topic, self._ids).digest

    def looked(self) -> tuple[dict[int, Reached], int]:
        """Return what the ledger says now, and up to where it was read."""
        target = self.target
        tail, found = Tail(target.settings, target.cluster, self.read_to), dict(self.known)
        try:
            for name, content in tail.news(found.clear):
                key, document = entry_of(name, content)
                if key[:2] == (REKEYED, target.topic) and document is not None and self.is_own(document):
                    found[int(key[2])] = found.get(int(key[2]), _NOTHING).after(document)
        finally:
            tail.close()
        return found, tail.position

    def is_own(self, document: Value) -> bool:
        """Tell whether an entry is about these very topics."""
        return is_of(document, self._ids, self.target.topic)

    @property
    def _ids(self) -> tuple[str | None, str | None]:
        return self.source_id, self.target.topic_id


class _Writing:
    """One partition of the target while a task writes it: from here on, other tasks that do are fenced."""

    def __init__(self, sink: KafkaRekeySink, partition: int) -> None:
        self._sink, self._partition = sink, partition
        self._open(Way.EACH)

    def take(self, batch: pa.RecordBatch) -> Iterator[Written]:
        """Write records of one partition of the source, without those that are there."""
        number = batch.column("partition")[0].as_py()
        at = int(batch.column("offset").to_numpy().searchsorted(self._through.get(number, 0)))
        batch = batch.slice(at)
        if not batch.num_rows:
            return
        rows = rows_of(batch)
        if not self._transactions.takes(rows):
            yield from self._commit()
            self._transactions.close()
            self._open(Way.ODD)
            yield from self.take(batch)
            return
        self._transactions.take(rows)
        self._through[number] = rows[-1][4] + 1
        self._taken_from.setdefault(number, []).append((self._through[number], self._digest.records))
        self._digest += digest_of(batch, base=0)
        self._taken += batch.nbytes
        limits = self._sink.target.limits
        is_full = self._digest.records >= limits.records or self._taken >= limits.bytes
        if is_full or monotonic() - self._began > limits.seconds or self._transactions.is_calm:
            yield from self._commit()
        if self._transactions.is_calm:
            self._transactions.close()
            self._open(Way.EACH)

    def end(self, through: Mapping[int, int]) -> Iterator[Written]:
        """Commit the rest, and that all of some partitions of the source is there up to these offsets."""
        for number, stop in through.items():
            self._through[number] = max(stop, self._through.get(number, 0))
        yield from self._commit()

    def close(self) -> None:
        """Abort what is open."""
        self._transactions.close()

    def _open(self, way: Way) -> None:
        """Fence all others, and then look how far they came."""
        self._transactions: Writer = transactions_of(self._sink.target, self._partition, way)
        try:
            known, _ = self._sink.looked()
            self._reached = known.get(self._partition, _NOTHING)
            self._check()
        except BaseException:
            self._transactions.close()
            raise
        self._begin()

    def _begin(self) -> None:
        self._through = dict(self._reached.through)
        self._taken_from: dict[int, list[tuple[int, int]]] = {}
        self._digest, self._taken, self._began = Digest(), 0, monotonic()

    def _check(self) -> None:
        """Return if the source is the one that was copied so far."""
        target, source, reached = self._sink.target, self._sink.source, self._reached
        for number, through in reached.through.items():
            epochs = reached.epochs.get(number, ())
            position = SinkPosition(through, self._sink.source_id, epochs, through)
            check_followed(target.topic, number, position, source)
            check_current(target.topic, number, position, source)

    def _commit(self) -> Iterator[Written]:
        changed = {number: to for number, to in self._through.items() if to != self._reached.through.get(number)}
        if not changed:
            return
        document = self._document(changed)
        target = self._sink.target
        entry = message(rekeyed_key(target.topic, self._partition, self._reached.serial), document)
        self._transactions.commit([entry])
        done = Written(self._partition, self._digest.records, self._taken)
        self._reached = self._reached.after(document)
        self._begin()
        yield done

    def _document(self, changed: Mapping[int, int]) -> dict[str, Any]:
        """Return what the ledger is to say once all is written."""
        _, targets = self._transactions.settle()
        if len(targets) != self._digest.records or bool((targets[1:] <= targets[:-1]).any()):
            message = "the new topic did not take the records in their order"
            raise RetryableError(message, hint="Nothing of that was committed: run the same command again.")
        bounds = self._sink.source.bounds
        followed = {
            number: Followed(self._sink.source_id, bounds.get(number, Bounds(0, 0, 0, 0))).epochs_below(to)
            for number, to in sorted(changed.items())
        }
        stretches = {
            str(number): [(to, int(targets[at])) for to, at in found]
            for number, found in sorted(thinned(self._taken_from).items())
        }
        return {
            "source_id": self._sink.source_id,
            "copy_id": self._sink.target.topic_id,
            "through": {str(number): to for number, to in sorted(changed.items())},
            "epochs": {str(number): [list(epoch) for epoch in found] for number, found in followed.items()},
            "firsts": {number: found[0][1] for number, found in stretches.items()},
            "stretches": stretches,
            "records": self._digest.records,
            "total": f"{self._digest.total:032x}",
        }


def thinned(found: Mapping[int, list[tuple[int, int]]], most: int = _STRETCHES) -> dict[int, list[tuple[int, int]]]:
    """Join neighbouring stretches of each source, so that about so many are left; each is its end and its beginning."""
    step = max(1, -(-sum(map(len, found.values())) // most))
    return {
        number: [(some[min(at + step, len(some)) - 1][0], some[at][1]) for at in range(0, len(some), step)]
        for number, some in found.items()
    }


@dataclass(frozen=True)
class Rekeyed:
    """What was written by key into one topic, as the ledger has it."""

    stretches: Mapping[tuple[int, int], tuple[list[int], list[int]]] = field(default_factory=dict)
    """By partition of the source and of the target: where stretches of the one end, and where they begin in the other.

    Both only grow.
    """
    digest: Digest = field(default_factory=Digest)

    @classmethod
    def of(cls, entries: Entries, topic: str, ids: tuple[str | None, str | None]) -> Rekeyed:
        """Read it from entries of the kind `REKEYED`; `ids` are those of the source and of the topic."""
        stretches: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        digest = Digest()
        for key in sorted(key for key in entries if key[:2] == (REKEYED, topic)):
            found = entries[key]
            if not is_of(found, ids, topic):
                continue
            for number, first in found["firsts"].items():
                ends, begins = stretches.setdefault((int(number), int(key[2])), ([], []))
                # Earlier versions kept one of a transaction.
                for to, begin in found.get("stretches", {}).get(number, [(found["through"][number], first)]):
                    ends.append(int(to))
                    begins.append(int(begin))
            digest += Digest(int(found["records"]), int(found["total"], 16))
        return cls(stretches, digest)

    def place(self, committed: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
        """Return where a group goes on that nothing is skipped: at the earliest stretch that it may not have read.

        What it never committed it has not read. Where it has read all, it goes on at the end of the target.
        """
        found = dict(ends)
        for (source, number), (stops, begins) in self.stretches.items():
            at = bisect_right(stops, committed.get(source, 0))
            if at < len(stops):
                found[number] = min(begins[at], found.get(number, begins[at]))
        return found
