"""Copying into a topic of another number of partitions: each record goes where its key says, exactly once.

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
from reconciler.providers.kafka.copying.messages import rows_of
from reconciler.providers.kafka.copying.progress import Followed, messages_of
from reconciler.providers.kafka.copying.sink import CopySink
from reconciler.providers.kafka.copying.transaction import Transactions
from reconciler.providers.kafka.ledger import REKEYED, copier_of, message
from reconciler.records.digest import Digest
from reconciler.records.hashing import digest_of
from reconciler.records.log import Bounds, Copied, OffsetRange, Spans
from reconciler.records.partitioner import murmur2

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from reconciler.providers.kafka.copying.messages import Sent
    from reconciler.providers.kafka.copying.progress import Progress
    from reconciler.providers.kafka.ledger import Entries, Key
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

    def copy_range(self, partition: int, source: TopicLog, offsets: OffsetRange) -> Iterator[Copied]:
        """Copy a range, and say so after each transaction; goes on where a copier before this one stopped."""
        target = self.target
        settings = {
            **target.settings,
            **target.writing,
            "transactional.id": copier_of(target.owner, target.topic, partition),
        }
        transactions = _Spread(settings, (target.topic, partition), target.cluster)
        try:
            progress = self._progress(partition)
            if progress is not None and progress.through < offsets.stop:
                yield from self._spread(transactions, partition, source, (progress, offsets))
        finally:
            transactions.close()

    def _spread(
        self, transactions: _Spread, partition: int, source: TopicLog, work: tuple[Progress, OffsetRange]
    ) -> Iterator[Copied]:
        progress, offsets = work
        followed = Followed(self._seen.topic_id, self._seen.bounds.get(partition, Bounds(0, 0, 0, 0)))
        limits, began = self.target.limits, monotonic()
        start, taken, digest = progress.through, 0, Digest()
        for batch in source.read(partition, OffsetRange(start, offsets.stop)):
            transactions.spread(rows_of(batch), self._partitions_of(batch, partition))
            digest += digest_of(batch, base=0)
            taken += batch.nbytes
            if digest.records >= limits.records or taken >= limits.bytes or monotonic() - began > limits.seconds:
                through = int(batch.column("offset")[-1].as_py()) + 1
                progress = self._end(transactions, (progress, followed, digest), OffsetRange(start, through), partition)
                yield Copied(partition, through, digest.records, taken)
                start, taken, digest, began = through, 0, Digest(), monotonic()
        if start < offsets.stop:
            self._end(transactions, (progress, followed, digest), OffsetRange(start, offsets.stop), partition)
            yield Copied(partition, offsets.stop, digest.records, taken)

    def _partitions_of(self, batch: pa.RecordBatch, partition: int) -> list[int]:
        keys = batch.column("key")
        chosen = ((murmur2(keys) & _POSITIVE) % np.uint32(self.into)).astype(np.int64)
        if keys.null_count:
            chosen[keys.is_null().to_numpy(zero_copy_only=False)] = partition % self.into
        found: list[int] = chosen.tolist()
        return found

    def _end(
        self,
        transactions: _Spread,
        state: tuple[Progress, Followed, Digest],
        within: OffsetRange,
        partition: int,
    ) -> Progress:
        before, followed, digest = state
        firsts, written = transactions.settled()
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


class _Spread(Transactions):
    """A transaction into many partitions of one topic."""

    def __init__(self, settings: Mapping[str, Any], place: tuple[str, int], cluster: str) -> None:
        """Fence whoever else copies this partition of the source."""
        self._places: list[tuple[int, int]] = []
        super().__init__(settings, place, cluster)

    def spread(self, rows: list[Sent], partitions: list[int]) -> None:
        """Write records, each to its partition, in their order."""
        by_partition: dict[int, list[Sent]] = {}
        for row, number in zip(rows, partitions, strict=True):
            by_partition.setdefault(number, []).append(row)
        for number, some in sorted(by_partition.items()):
            self._partition = number
            self.take(some)

    def settled(self) -> tuple[dict[int, int], int]:
        """Return where this transaction began in each partition it wrote to, and how many records it wrote."""
        self.settle()
        firsts: dict[int, int] = {}
        for number, offset in self._places:
            firsts[number] = min(offset, firsts.get(number, offset))
        written = len(self._places)
        self._places = []
        return firsts, written

    def _delivered(self, error: Any, message: Any) -> None:
        super()._delivered(error, message)
        if error is None:
            self._places.append((message.partition(), message.offset()))


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
