"""Copy a topic into another number of partitions.

Each transaction stores in the ledger the offset to resume at in every source partition. It also stores stretches,
ranges of source offsets with their first target offset, to translate group offsets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import RetryableError, UserError
from reconciler.providers.brokers.ledger import (
    REKEYED,
    Entries,
    Key,
    Ledger,
    LedgerReader,
    Value,
    encode_entry,
    parse_key,
    parse_value,
)
from reconciler.providers.brokers.records.copy_progress import SourceSnapshot
from reconciler.providers.brokers.records.copy_sink import CopyMethod, CopyTarget, Writer, open_writer
from reconciler.providers.brokers.records.copy_transaction import split_batch, to_rows
from reconciler.records.hashes import compute_digest
from reconciler.records.log import (
    Bounds,
    Digest,
    ObservedSource,
    SinkPosition,
    Written,
    check_copy_current,
    check_source_unchanged,
)
from reconciler.runtime.dataclass import dataclass, field, replace

if TYPE_CHECKING:
    import pyarrow as pa


def rekeyed_key(topic: str, partition: int, serial: int) -> Key:
    """Return the ledger key of a transaction; `serial` counts a target partition's transactions."""
    return (REKEYED, topic, partition, serial)


def check_entry_version(document: Value, topic: str) -> None:
    """Reject an entry of an earlier version, which lacks progress by target partition."""
    if "through" not in document:
        message = f"topic {topic} was begun by an earlier version of reconciler, which kept progress in another form"
        hint = "Nothing was deleted. Give the new topic another name: it is copied from the beginning."
        raise UserError(message, hint=hint)


def belongs_to_copy(document: Value, ids: tuple[str | None, str | None], topic: str) -> bool:
    """Return whether an entry belongs to the topics with these ids, not to deleted ones."""
    if "source_id" in document and (document["source_id"], document["copy_id"]) != ids:
        return False
    check_entry_version(document, topic)
    return True


@dataclass(frozen=True, slots=True)
class RekeyProgress:
    """Offsets that a target partition has reached in each source partition, and their leader epochs."""

    serial: int = 0
    through: Mapping[int, int] = field(default_factory=dict)
    epochs: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    def add_transaction(self, document: Value) -> RekeyProgress:
        """Return the progress after the transaction that wrote this entry."""
        through = {int(number): int(to) for number, to in document["through"].items()}
        epochs = {
            int(number): tuple((int(epoch), int(start)) for epoch, start in starts)
            for number, starts in document["epochs"].items()
        }
        return RekeyProgress(self.serial + 1, {**self.through, **through}, {**self.epochs, **epochs})


_NO_PROGRESS: Final = RekeyProgress()
_MAX_STRETCHES: Final = 100
"""Maximum stretches per transaction. A moved group rereads less than one."""


@dataclass
class KafkaRekeySink:
    """`RekeySink` for a Kafka topic. The driver reads the whole ledger, tasks only later entries. Picklable."""

    target: CopyTarget
    source_id: str | None
    source: ObservedSource = field(default_factory=lambda: ObservedSource(None, {}))
    known: Mapping[int, RekeyProgress] = field(default_factory=dict)
    read_to: int = 0

    @property
    def partitions(self) -> int:
        """Number of target partitions."""
        return self.target.partitions

    def check_shared(self) -> None:
        """Do nothing, because all processes can reach the brokers."""

    def follow_source(self, source: ObservedSource) -> KafkaRekeySink:
        """Return a sink that stores `source` with each commit."""
        return replace(self, source=source)

    def read_positions(self) -> Mapping[int, Mapping[int, int]]:
        """Return the offset reached in each source partition, by target partition."""
        self.known, self.read_to = self.read_progress()
        return {number: self.known.get(number, _NO_PROGRESS).through for number in range(self.partitions)}

    def write(self, partition: int, records: Iterable[pa.RecordBatch], through: Mapping[int, int]) -> Iterator[Written]:
        """Write the missing records, and report each transaction."""
        writer = _PartitionWriter(self, partition)
        try:
            for batch in records:
                for part in split_batch(batch):
                    yield from writer.write_batch(part)
            yield from writer.commit_rest(through)
        finally:
            writer.close()

    def read_written_digest(self) -> Digest:
        """Return the digest of all written records."""
        entries = Ledger(self.target.settings, self.target.cluster).read(REKEYED)
        return RekeyedEntries.parse(entries, self.target.topic, self._ids).digest

    def read_progress(self) -> tuple[dict[int, RekeyProgress], int]:
        """Return the progress by target partition, and the ledger's next offset to read."""
        target = self.target
        tail, progress = LedgerReader(target.settings, target.cluster, self.read_to), dict(self.known)
        try:
            for name, content in tail.read_new(progress.clear):
                key = parse_key(name)
                if key is None or content is None or key[:2] != (REKEYED, target.topic):
                    continue
                document = parse_value(key, content)
                if self.owns_entry(document):
                    progress[int(key[2])] = progress.get(int(key[2]), _NO_PROGRESS).add_transaction(document)
        finally:
            tail.close()
        return progress, tail.position

    def owns_entry(self, document: Value) -> bool:
        """Return whether an entry belongs to this source and target."""
        return belongs_to_copy(document, self._ids, self.target.topic)

    @property
    def _ids(self) -> tuple[str | None, str | None]:
        return self.source_id, self.target.topic_id


class _PartitionWriter:
    """Writer of one target partition. Opening it fences other tasks of the partition."""

    def __init__(self, sink: KafkaRekeySink, partition: int) -> None:
        self._sink, self._partition = sink, partition
        self._open(CopyMethod.EACH)

    def write_batch(self, batch: pa.RecordBatch) -> Iterator[Written]:
        number = batch.column("partition")[0].as_py()
        at = int(batch.column("offset").to_numpy().searchsorted(self._through.get(number, 0)))
        batch = batch.slice(at)
        if not batch.num_rows:
            return
        rows = to_rows(batch)
        if not self._transactions.can_write(rows):
            yield from self._commit()
            self._transactions.close()
            self._open(CopyMethod.ODD)
            yield from self.write_batch(batch)
            return
        self._transactions.write_records(rows)
        self._through[number] = rows[-1][4] + 1
        self._stretches.setdefault(number, []).append((self._through[number], self._digest.records))
        self._digest += compute_digest(batch, base=0)
        self._taken += batch.nbytes
        limits = self._sink.target.limits
        is_full = self._digest.records >= limits.records or self._taken >= limits.bytes
        if is_full or monotonic() - self._began > limits.seconds or self._transactions.should_switch:
            yield from self._commit()
        if self._transactions.should_switch:
            self._transactions.close()
            self._open(CopyMethod.EACH)

    def commit_rest(self, through: Mapping[int, int]) -> Iterator[Written]:
        for number, stop in through.items():
            self._through[number] = max(stop, self._through.get(number, 0))
        yield from self._commit()

    def close(self) -> None:
        self._transactions.close()

    def _open(self, method: CopyMethod) -> None:
        self._transactions: Writer = open_writer(self._sink.target, self._partition, method)
        try:
            known, _ = self._sink.read_progress()
            self._reached = known.get(self._partition, _NO_PROGRESS)
            self._check_same_source()
        except BaseException:
            self._transactions.close()
            raise
        self._reset()

    def _reset(self) -> None:
        self._through = dict(self._reached.through)
        self._stretches: dict[int, list[tuple[int, int]]] = {}
        self._digest, self._taken, self._began = Digest(), 0, monotonic()

    def _check_same_source(self) -> None:
        target, source, reached = self._sink.target, self._sink.source, self._reached
        for number, through in reached.through.items():
            epochs = reached.epochs.get(number, ())
            position = SinkPosition(through, self._sink.source_id, epochs, through)
            check_source_unchanged(target.topic, number, position, source)
            check_copy_current(target.topic, number, position, source)

    def _commit(self) -> Iterator[Written]:
        changed = {number: to for number, to in self._through.items() if to != self._reached.through.get(number)}
        if not changed:
            return
        document = self._build_document(changed)
        target = self._sink.target
        entry = encode_entry(rekeyed_key(target.topic, self._partition, self._reached.serial), document)
        self._transactions.commit([entry])
        done = Written(self._partition, self._digest.records, self._taken)
        self._reached = self._reached.add_transaction(document)
        self._reset()
        yield done

    def _build_document(self, changed: Mapping[int, int]) -> dict[str, Any]:
        _, targets = self._transactions.await_offsets()
        if len(targets) != self._digest.records or bool((targets[1:] <= targets[:-1]).any()):
            message = "the new topic did not take the records in their order"
            raise RetryableError(message, hint="Nothing of that was committed: run the same command again.")
        bounds = self._sink.source.bounds
        followed = {
            number: SourceSnapshot(self._sink.source_id, bounds.get(number, Bounds(0, 0, 0, 0))).list_epochs_below(to)
            for number, to in sorted(changed.items())
        }
        stretches = {
            str(number): [(to, int(targets[at])) for to, at in places]
            for number, places in sorted(join_stretches(self._stretches).items())
        }
        return {
            "source_id": self._sink.source_id,
            "copy_id": self._sink.target.topic_id,
            "through": {str(number): to for number, to in sorted(changed.items())},
            "epochs": {str(number): [list(epoch) for epoch in places] for number, places in followed.items()},
            "firsts": {number: places[0][1] for number, places in stretches.items()},
            "stretches": stretches,
            "records": self._digest.records,
            "total": f"{self._digest.total:032x}",
        }


def join_stretches(
    stretches: Mapping[int, list[tuple[int, int]]], most: int = _MAX_STRETCHES
) -> dict[int, list[tuple[int, int]]]:
    """Join neighbouring stretches (source end, target begin) until about `most` remain."""
    step = max(1, -(-sum(map(len, stretches.values())) // most))
    return {
        number: [(pairs[min(at + step, len(pairs)) - 1][0], pairs[at][1]) for at in range(0, len(pairs), step)]
        for number, pairs in stretches.items()
    }


@dataclass(frozen=True)
class RekeyedEntries:
    """Progress of a copy into another number of partitions."""

    stretches: Mapping[tuple[int, int], tuple[list[int], list[int]]] = field(default_factory=dict)
    """Ends in the source and beginnings in the target, by source and target partition."""
    digest: Digest = field(default_factory=Digest)

    @classmethod
    def parse(cls, entries: Entries, topic: str, ids: tuple[str | None, str | None]) -> RekeyedEntries:
        """Parse entries of kind `REKEYED`; `ids` are the source's and the target's topic ids."""
        stretches: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        digest = Digest()
        for key in sorted(key for key in entries if key[:2] == (REKEYED, topic)):
            entry = entries[key]
            if not belongs_to_copy(entry, ids, topic):
                continue
            for number, first in entry["firsts"].items():
                ends, begins = stretches.setdefault((int(number), int(key[2])), ([], []))
                # An earlier version stored one stretch per transaction.
                for to, begin in entry.get("stretches", {}).get(number, [(entry["through"][number], first)]):
                    ends.append(int(to))
                    begins.append(int(begin))
            digest += Digest(int(entry["records"]), int(entry["total"], 16))
        return cls(stretches, digest)

    def translate_offsets(self, committed: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
        """Return target offsets at which a group skips no record: the first stretch that it may not have read.

        A partition without a commit counts as unread.
        """
        offsets = dict(ends)
        for (source, number), (stops, begins) in self.stretches.items():
            at = bisect_right(stops, committed.get(source, 0))
            if at < len(stops):
                offsets[number] = min(begins[at], offsets.get(number, begins[at]))
        return offsets
