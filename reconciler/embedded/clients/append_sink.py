"""New records from many tasks: each stages parts under fresh names, and one transaction makes all of them readable."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.embedded.acl import Permissions, check_writing, topic_shown
from reconciler.embedded.catalog.tables import topic_with_id
from reconciler.embedded.clients.producer import FLUSH_BYTES, Append, Course, route, written
from reconciler.embedded.clients.topic_sink import staged_parts
from reconciler.embedded.clients.transactional_producer import TransactionalProducer
from reconciler.embedded.clients.transactions import Batch, appends_id, finish, read_transaction
from reconciler.embedded.context import ClusterContext
from reconciler.embedded.keys import transaction_key
from reconciler.embedded.objects import check_arrived, check_there
from reconciler.embedded.segments.admission import conformed
from reconciler.embedded.segments.entries import Entry
from reconciler.embedded.segments.gate import Gate, check_writer
from reconciler.embedded.segments.head import PRODUCERS
from reconciler.errors import UserError
from reconciler.records.hashes import RUN, Spread, digest_of
from reconciler.records.log import Digest, NumberedBatch, StagedAppend

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.objectstore.base import ObjectStore


_CONTENT: Final = ("key", "value", "headers")
_TIMEOUT_MS: Final = 300_000
"""A transaction is open only while its publisher swaps heads, and shuts readers out of what comes after it."""


@dataclass(frozen=True, slots=True)
class EmbeddedAppends:
    """New records of one topic as an `AppendSink`. Picklable, so it holds what a `ClusterContext` is made of."""

    store: ObjectStore
    catalog: CatalogRegister
    permissions: Permissions
    now_ms: Callable[[], int]
    cluster_id: str
    full_name: str
    topic_id: str

    @classmethod
    def of(cls, cluster: ClusterContext, full_name: str) -> Self:
        """Return where new records of a topic go.

        Raises:
            NotAuthorizedError: It may not be written to.
            UserError: It does not exist, is a mirror, or takes no records now.
        """
        catalog = cluster.catalog.read()
        check_writing(cluster.permissions, catalog, full_name)
        topic = topic_shown(cluster.permissions, catalog, full_name)
        check_writer(full_name, topic, PRODUCERS)
        return cls(
            cluster.store,
            cluster.catalog,
            cluster.permissions,
            cluster.now_ms,
            cluster.cluster_id,
            full_name,
            topic.id,
        )

    def check_shared(self) -> None:
        """Refuse a topic that is gone, and a machine that does not see the cluster.

        Raises:
            UserError: The topic is not found from here.
        """
        found = topic_with_id(self.catalog.read(), self.topic_id, self.full_name)
        check_there(self.store, self.full_name, is_found=found is not None)

    def stage(self, records: Iterable[pa.RecordBatch], *, task: int) -> StagedAppend:
        """Write the records of one task as parts that nothing names yet; a part of each partition per 128 MiB."""
        put_ms, course, given = self.now_ms(), Course(Spread(task * RUN)), Digest()
        parts: defaultdict[int, list[Entry]] = defaultdict(list)
        for batches in _gathered(conformed(self.full_name, each) for each in records):
            given = sum(map(_digest_given, batches), given)
            for append in written([route(self._cluster, self.full_name, batches, course)], put_ms):
                parts[append.partition] += append.parts
        runs = {partition: _joined(parts[partition]) for partition in sorted(parts)}
        parts_of_all = tuple(staged_parts(partition, None, run) for partition, run in runs.items())
        return StagedAppend(put_ms, parts_of_all, given)

    def publish(self, staged: Sequence[StagedAppend], batch: NumberedBatch | None = None) -> bool:
        """Append all of it in one transaction, whose register keeps the number of the batch and a sum of its rows."""
        name = appends_id(self.topic_id, None if batch is None else batch.stream)
        rows = _rows(staged)
        if batch is not None and self._is_published(name, batch, rows):
            return False
        appends = self._appends(staged)
        if not appends:  # It needs no number: where another batch has one, this is compared with that.
            return True
        producer = TransactionalProducer(
            self._cluster, name, transaction_timeout_ms=_TIMEOUT_MS, is_lasting=batch is not None
        )
        producer.init_transactions()
        if batch is not None and _is_there(batch, rows, producer.last_batch()):
            return False
        with producer.transaction(None if batch is None else Batch(batch.number, rows)):
            producer.append_parts(appends)
        if batch is None:  # No stream repeats it.
            self.store.delete([transaction_key(name)])
        return True

    def _is_published(self, name: str, batch: NumberedBatch, rows: str) -> bool:
        """Tell whether a batch was published before; who only repeats one shuts out nobody who goes on."""
        found = read_transaction(self.store, name)
        if found is None or not _is_there(batch, rows, found[0].batch):
            return False
        finish(self.store, self.catalog, name, now_ms=self.now_ms())
        return True

    def _appends(self, staged: Sequence[StagedAppend]) -> list[Append]:
        """Return one append for each partition, in the order of the tasks."""
        gate = Gate(self.store, self.catalog, self.full_name, self.topic_id, PRODUCERS)
        put_ms = min((each.put_ms for each in staged), default=0)
        parts: defaultdict[int, list[Entry]] = defaultdict(list)
        for each in staged:
            for one in each.parts:
                entries = [Entry.from_json(kept) for kept in orjson.loads(one.entries)]
                check_arrived(self.store, (entry.key for entry in entries), by=one.by)
                parts[one.partition] += entries
        return [Append(gate, partition, _joined(parts[partition]), put_ms) for partition in sorted(parts)]

    @property
    def _cluster(self) -> ClusterContext:
        return ClusterContext(self.store, self.catalog, self.permissions, self.now_ms, self.cluster_id)


def _is_there(batch: NumberedBatch, rows: str, last: Batch | None) -> bool:
    """Tell whether the last batch of a stream is this one.

    Raises:
        UserError: It is a later one, so this one may have other rows than what was written under its number; or it has.
    """
    if last is None or batch.number > last.number:
        return False
    if batch.number < last.number:
        message = f"batch {batch.number} of stream {batch.stream} comes after its batch {last.number}, which is written"
        hint = (
            "The checkpoint was set back, or another run of the query goes on from it. If none does: find where to go "
            "on in the topic, and begin there with another checkpointLocation."
        )
        raise UserError(message, hint=hint)
    if last.rows not in {None, rows}:
        message = f"batch {batch.number} of stream {batch.stream} is written, and its rows were others than these"
        hint = (
            "The checkpoint was set back, or the query gives other rows when it runs again, as with uuid(). Find where "
            "to go on in the topic, and begin there with another checkpointLocation."
        )
        raise UserError(message, hint=hint)
    return True


def _rows(staged: Iterable[StagedAppend]) -> str:
    """Return what tells the rows of a batch from others, in whatever tasks and order they come."""
    given = sum((each.given for each in staged), Digest())
    return f"{given.records}-{given.total:032x}"


def _digest_given(batch: pa.RecordBatch) -> Digest:
    """Return the digest of rows as they were given; all count as offset 0, for their order may change."""
    times = pc.fill_null(batch.column("timestamp_ms"), 0)
    zeros = pa.array(np.zeros(batch.num_rows, np.int64))
    columns = {"timestamp_ms": times, "offset": zeros} | {name: batch.column(name) for name in _CONTENT}
    return digest_of(pa.RecordBatch.from_pydict(columns), base=0)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield batches, as many at a time as a producer writes at once."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= FLUSH_BYTES:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def _joined(parts: Iterable[Entry]) -> list[Entry]:
    """Return parts without gaps between them as one run, numbered from 0."""
    joined: list[Entry] = []
    at = 0
    for part in parts:
        joined.append(part.placed(at - part.base, 0))
        at = joined[-1].last + 1
    return joined
