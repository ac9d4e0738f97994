"""Copy into a topic with another number of partitions.

One task reads one partition of the source and writes to all of the target, in one transaction after the other; so the
order of a key is kept where all of its records lay in one partition. What lay without a key goes on lying together.
Every transaction leaves in the ledger what it wrote, and where it began in each partition of the target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from reconciler.errors import RetryableError
from reconciler.providers.kafka.ledger import REKEYED, message
from reconciler.providers.kafka.records.copy_progress import Followed, messages_of
from reconciler.providers.kafka.records.copy_sink import CopySink
from reconciler.providers.kafka.records.copy_transaction import Transactions, rows_of
from reconciler.records.hashes import digest_of, murmur2
from reconciler.records.log import Bounds, Copied, Digest, OffsetRange, Spans

if TYPE_CHECKING:
    from collections.abc import Generator

    import pyarrow as pa

    from reconciler.providers.kafka.ledger import Entries, Key
    from reconciler.providers.kafka.records.copy_progress import Progress
    from reconciler.providers.kafka.records.copy_sink import Writer
    from reconciler.providers.kafka.records.copy_transaction import RawTransactions, Sent
    from reconciler.records.log import TopicLog


_POSITIVE: Final = np.uint32(0x7FFFFFFF)


def rekeyed_key(topic: str, partition: int, start: int) -> Key:
    """Return the key of what one transaction wrote, by the partition and offset of the source at which it began."""
    return (REKEYED, topic, partition, start)


@dataclass
class KeyedSink(CopySink):
    """A `TransactionalSink` of as many partitions as its source has; the target has `into`."""

    into: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without connections."""
        return type(self), (self.target, None, self.source, None, self.known, self.read_to, self.into)

    def spans(self, source: Mapping[int, Bounds]) -> Mapping[int, Spans]:
        """Return nothing: no range of the source is a range of the copy."""
        return {number: Spans(OffsetRange(0, 0), OffsetRange(0, 0)) for number in source}

    def _opened(self, partition: int, *, is_odd: bool) -> Writer:
        return super()._opened(partition, is_odd=True) if is_odd else _ToMany(*self._writes(partition))

    def _copied(
        self, transactions: Any, partition: int, source: TopicLog, work: tuple[Progress, OffsetRange]
    ) -> Generator[Copied, None, int]:
        progress, offsets = work
        followed = Followed(self._seen.topic_id, self._seen.bounds.get(partition, Bounds(0, 0, 0, 0)))
        limits, began = self.target.limits, monotonic()
        start, stop, taken, digest = progress.through, offsets.stop, 0, Digest()
        for batch in source.read(partition, OffsetRange(start, stop)):
            rows = rows_of(batch)
            if not transactions.takes(rows):
                stop = rows[0][4]
                break
            _spread(transactions, rows, self._partitions_of(batch, partition))
            digest += digest_of(batch, base=0)
            taken += batch.nbytes
            is_full = digest.records >= limits.records or taken >= limits.bytes or monotonic() - began > limits.seconds
            if is_full or transactions.is_calm:
                through = rows[-1][4] + 1
                progress = self._end(transactions, (progress, followed, digest), OffsetRange(start, through), partition)
                yield Copied(partition, through, digest.records, taken)
                if transactions.is_calm:
                    return through
                start, taken, digest, began = through, 0, Digest(), monotonic()
        if start < stop:
            self._end(transactions, (progress, followed, digest), OffsetRange(start, stop), partition)
            yield Copied(partition, stop, digest.records, taken)
        return stop

    def _partitions_of(self, batch: pa.RecordBatch, partition: int) -> list[int]:
        keys = batch.column("key")
        chosen = ((murmur2(keys) & _POSITIVE) % np.uint32(self.into)).astype(np.int64)
        if keys.null_count:
            chosen[keys.is_null().to_numpy(zero_copy_only=False)] = partition % self.into
        found: list[int] = chosen.tolist()
        return found

    def _end(
        self,
        transactions: Any,
        state: tuple[Progress, Followed, Digest],
        within: OffsetRange,
        partition: int,
    ) -> Progress:
        before, followed, digest = state
        firsts, written = _settled(transactions)
        if written != digest.records:
            said = "the source changed while it was read"
            raise RetryableError(said, hint="Nothing of that was committed: run the same command again.")
        epochs = followed.epochs_below(within.stop)
        progress = replace(before, through=within.stop, topic_id=followed.topic_id, epochs=epochs)
        topic = self.target.topic
        document = {
            "to": within.stop,
            "firsts": {str(number): first for number, first in sorted(firsts.items())},
            "records": digest.records,
            "total": f"{digest.total:032x}",
        }
        entry = message(rekeyed_key(topic, partition, within.start), document)
        transactions.commit([entry, *messages_of(topic, partition, progress, ())])
        return progress


class _ToMany(Transactions):
    """Transactions that know to which partition each record went."""

    def __init__(self, settings: Mapping[str, Any], place: tuple[str, int], cluster: str) -> None:
        """Fence whoever else copies this partition of the source."""
        self._places: list[tuple[int, int]] = []
        super().__init__(settings, place, cluster)

    def places(self) -> list[tuple[int, int]]:
        """Return partition and offset of each record of this transaction, once it is settled."""
        found, self._places = self._places, []
        return found

    def _delivered(self, error: Any, message: Any) -> None:
        super()._delivered(error, message)
        if error is None:
            self._places.append((message.partition(), message.offset()))


def _spread(transactions: _ToMany | RawTransactions, rows: list[Sent], partitions: list[int]) -> None:
    """Write records, each to its partition, in their order."""
    by_partition: dict[int, list[Sent]] = {}
    for row, number in zip(rows, partitions, strict=True):
        by_partition.setdefault(number, type(rows)()).append(row)
    for number, some in sorted(by_partition.items()):
        transactions.take(some, into=number)


def _settled(transactions: _ToMany | RawTransactions) -> tuple[dict[int, int], int]:
    """Return where a transaction began in each partition it wrote to, and how many records it wrote."""
    transactions.settle()
    places = transactions.places()
    firsts: dict[int, int] = {}
    for number, offset in places:
        firsts[number] = min(offset, firsts.get(number, offset))
    return firsts, len(places)


@dataclass(frozen=True)
class Rekeyed:
    """What was written by key into one topic, as the ledger has it."""

    rows: Mapping[int, list[tuple[int, Mapping[int, int]]]] = field(default_factory=dict)
    """By partition of the source: where each transaction ended there, and where it began in the target."""
    digest: Digest = field(default_factory=Digest)

    @classmethod
    def of(cls, entries: Entries, topic: str) -> Rekeyed:
        """Read it from entries of the kind `REKEYED`."""
        rows: dict[int, list[tuple[int, Mapping[int, int]]]] = {}
        digest = Digest()
        for key in sorted(key for key in entries if key[:2] == (REKEYED, topic)):
            found = entries[key]
            firsts = {int(number): int(first) for number, first in found["firsts"].items()}
            rows.setdefault(int(key[2]), []).append((int(found["to"]), firsts))
            digest += Digest(int(found["records"]), int(found["total"], 16))
        return cls(rows, digest)

    def place(self, committed: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
        """Return where a group goes on that nothing is skipped: at the earliest record that it may not have read.

        What it never committed it has not read. Where it has read all, it goes on at the end of the target.
        """
        found = dict(ends)
        for partition, rows in self.rows.items():
            for end, firsts in rows:
                if end > committed.get(partition, 0):
                    for number, first in firsts.items():
                        found[number] = min(first, found.get(number, first))
        return found
