"""The transactional producer, and a sink for records that many tasks stage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.archives.entries import STALE_MS, Entry
from reconciler.archives.topic_manifest import CommittedOffset
from reconciler.embedded.acl import Kind, Operation, Permissions, check_may_append, find_visible_topic
from reconciler.embedded.catalog.tables import Catalog, check_namespace_exists, find_topic_by_id
from reconciler.embedded.clients.producer import (
    FLUSH_BYTES,
    Gained,
    PartitionAppend,
    Producer,
    RoundRobinState,
    route_records,
    write_parts,
)
from reconciler.embedded.clients.sequences import DELIVERY_TIMEOUT_MS
from reconciler.embedded.clients.topic_log import to_staged_records
from reconciler.embedded.clients.transactions import (
    CommittedBatch,
    OffsetsByGroup,
    TransactionState,
    WrittenPartition,
    add_partitions,
    begin_transaction,
    build_stream_transactional_id,
    claim_transactional_id,
    complete_decision,
    decide_transaction,
    finish_transaction,
    read_owned_transaction,
    read_transaction,
)
from reconciler.embedded.context import ClusterContext
from reconciler.embedded.keys import transaction_key
from reconciler.embedded.objects import check_topic_visible, check_writes_visible
from reconciler.embedded.segments.admission import conform_batch
from reconciler.embedded.segments.gate import AppendGate, check_writer
from reconciler.embedded.segments.groups import Place, check_commit
from reconciler.embedded.segments.head import PRODUCERS
from reconciler.errors import ProducerFencedError, UserError
from reconciler.objectstore.register import create_mark
from reconciler.records.hashes import RUN, RoundRobinPosition, compute_digest
from reconciler.records.log import Digest, NumberedBatch, StagedAppend
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.threads import run_in_parallel

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.objectstore.base import ObjectStore


T = TypeVar("T")

TRANSACTION_TIMEOUT_MS: Final = 60_000


class _Phase(Enum):
    """Phases of a producer; values complete "the producer …" in errors."""

    NEW = "has not taken over yet"
    READY = "has no open transaction"
    OPEN = "has an open transaction"
    FAILED = "failed to write something of its transaction"
    COMMITTING = "is committing"
    ABORTING = "is aborting"
    FENCED = "was fenced by a newer one"


_NEXT: Final = {
    _Phase.NEW: "Call init_transactions() first.",
    _Phase.READY: "Call begin() first.",
    _Phase.OPEN: "Commit or abort it first.",
    _Phase.FAILED: "Call abort(), then begin again.",
    _Phase.COMMITTING: "Call commit() again: it continues.",
    _Phase.ABORTING: "Call abort() again: it continues.",
    _Phase.FENCED: "Stop it; or, to take over again, call init_transactions().",
}


class TransactionalProducer(Producer):
    """A producer whose records `read_committed` readers see after the commit. Not thread-safe.

    `init_transactions` fences all earlier producers of the transactional id.
    """

    def __init__(
        self,
        cluster: ClusterContext,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS,
        is_lasting: bool = True,
    ) -> None:
        super().__init__(cluster, delivery_timeout_ms=delivery_timeout_ms)
        transaction_key(transactional_id)
        self._transactional_id = transactional_id
        self._timeout_ms = transaction_timeout_ms
        self._is_lasting = is_lasting
        self._phase = _Phase.NEW
        self._partitions: set[Place] = set()
        self._seen_ms = 0
        self._beginning: tuple[list[WrittenPartition], str, int] | None = None
        self._offsets: OffsetsByGroup = {}
        self._tiered: set[str] = set()
        self._batch: CommittedBatch | None = None
        self._mark = ""

    def init_transactions(self) -> None:
        """Become the only producer of the transactional id; abort its open transaction, or complete a decided one."""
        catalog = self._cluster.catalog.read()
        check_namespace_exists(catalog, self._transactional_id)
        self._check_allowed(catalog)
        claimed = claim_transactional_id(
            self._cluster.store,
            self._cluster.catalog,
            self._transactional_id,
            timeout_ms=self._timeout_ms,
            delivery=self._delivery,
        )
        self._identity = replace(claimed, is_lasting=self._is_lasting)
        self._enter_phase(_Phase.READY)

    def last_batch(self) -> CommittedBatch | None:
        """Return the last committed batch with a number.

        Raises:
            ProducerFencedError: Another producer took over.
        """
        self._check_phase(_Phase.READY)
        store, who = self._cluster.store, self._identity
        return self._retry_until_timeout(
            lambda: read_owned_transaction(store, who, TransactionState.EMPTY), "looking for its last batch"
        ).batch

    def begin(self, batch: CommittedBatch | None = None) -> None:
        """Begin a transaction; its timeout starts with the first write.

        After a commit, `last_batch` returns `batch` in any process.
        """
        self._check_phase(_Phase.READY)
        self._enter_phase(_Phase.OPEN)
        self._batch = batch

    def append_parts(self, appends: Sequence[PartitionAppend]) -> None:
        """Append parts that other tasks wrote, one append per partition."""
        self._check_phase(_Phase.OPEN)
        with self._mark_failure():
            self._prepare_partitions(appends)
            for one in appends:
                self._gained.setdefault(one.gate.full_name, {})  # Publishing threads only add to existing keys.
            run_in_parallel(self._publish, appends, name="append")

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int | CommittedOffset]) -> None:
        """Commit a group's offsets with the transaction.

        Raises:
            NotAuthorizedError: The principal may not read as that group, or a topic.
        """
        self._check_phase(_Phase.OPEN)
        catalog = self._cluster.catalog.read()
        who = self._cluster.permissions
        who.check_allowed(catalog, Operation.READ, Kind.GROUP, group)
        for topic in sorted({topic for topic, _ in offsets}):
            who.check_allowed(catalog, Operation.READ, Kind.TOPIC, topic)
        places: dict[Place, CommittedOffset] = {
            (find_visible_topic(who, catalog, topic).id, partition): offset
            if isinstance(offset, CommittedOffset)
            else CommittedOffset(offset)
            for (topic, partition), offset in offsets.items()
        }
        check_commit(catalog, group, places)
        self._offsets.setdefault(group, {}).update(places)
        self._tiered |= {entry.id for name, _ in offsets if (entry := catalog.topics[name]).tiering is not None}

    def commit(self) -> dict[str, Gained]:
        """Write buffered records and commit; return the offsets appended since the last flush.

        Raises:
            ProducerFencedError: Another producer took over, or the timeout has passed; nothing is committed.
            UserError: The transaction has offsets of a migrating or deleted topic; abort it.
            RetryableError: No attempt succeeded in time. Call again: it commits once.
        """
        gained: dict[str, Gained] = {}
        if self._phase is not _Phase.COMMITTING:
            self._check_phase(_Phase.OPEN)
            gained = self.flush()
            if not self._partitions and not any(self._offsets.values()):
                self._enter_phase(_Phase.READY)
                return gained
            self._phase, self._mark = _Phase.COMMITTING, create_mark()
        self._end_transaction(TransactionState.COMMITTING)
        return gained

    def abort(self) -> None:
        """Abort the transaction and discard its records.

        Raises:
            ProducerFencedError: Another producer took over, and aborted the transaction.
            RetryableError: No attempt succeeded in time. Call again.
        """
        if self._phase is not _Phase.ABORTING:
            self._check_phase(_Phase.OPEN, _Phase.FAILED)
            if self._beginning is not None:
                self._open_transaction()
            if not self._partitions:
                self._enter_phase(_Phase.READY)
                return
            self._phase, self._mark = _Phase.ABORTING, create_mark()
        self._end_transaction(TransactionState.ABORTING)

    @contextmanager
    def transaction(self, batch: CommittedBatch | None = None) -> Iterator[Self]:
        """Run the block in a transaction; commit afterwards, or abort on an error."""
        self.begin(batch)
        try:
            yield self
            self.commit()
        except BaseException:
            if self._phase in {_Phase.OPEN, _Phase.FAILED}:
                self.abort()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._phase in {_Phase.OPEN, _Phase.FAILED}:
            self.abort()

    def _end_transaction(self, state: TransactionState) -> None:
        store, catalog = self._cluster.store, self._cluster.catalog
        batch, check = self._batch if state is TransactionState.COMMITTING else None, self._check_offsets
        decided = self._retry_until_timeout(
            lambda: decide_transaction(
                store, self._identity, state, self._offsets, mark=self._mark, batch=batch, check=check
            ),
            f"{state} its transaction",
        )
        if decided is not None:
            self._retry_until_timeout(
                lambda: complete_decision(store, catalog, decided, now_ms=self._cluster.now_ms()),
                f"what is decided, {state} its transaction, is being carried out, which",
            )
        self._identity = replace(self._identity, epoch=self._identity.epoch + 1)
        self._enter_phase(_Phase.READY)

    def _check_offsets(self) -> None:
        if not self._offsets or self._phase is not _Phase.COMMITTING:
            return
        catalog = self._cluster.catalog.read()
        with self._mark_failure():
            for group, offsets in self._offsets.items():
                check_commit(catalog, group, offsets)
            if self._tiered - {topic.id for topic in catalog.topics.values()}:
                message = f"{self._transactional_id} commits offsets of a topic that was deleted or unmounted"
                raise UserError(message, hint="Abort the transaction: nothing of it is committed.")

    def _flush(self, topics: Sequence[str]) -> None:
        if topics or self._phase in {_Phase.FAILED, _Phase.FENCED}:
            self._check_phase(_Phase.OPEN)
        with self._mark_failure():
            super()._flush(topics)

    @contextmanager
    def _mark_failure(self) -> Iterator[None]:
        try:
            yield
        except ProducerFencedError:
            self._phase = _Phase.FENCED
            raise
        except BaseException:
            self._phase = _Phase.FAILED
            raise

    def _prepare_partitions(self, appends: Sequence[PartitionAppend]) -> None:
        written = {(one.gate.topic_id, one.partition): one.gate.full_name for one in appends}
        new = [
            WrittenPartition(place[0], name, place[1])
            for place, name in written.items()
            if place not in self._partitions
        ]
        if not new:
            # After a day, a head no longer fences this producer; only the register does.
            if self._cluster.now_ms() - self._seen_ms > STALE_MS:
                self._check_not_fenced()
            return
        self._check_allowed(self._cluster.catalog.get_cached())
        mark = create_mark()
        if self._partitions:
            self._retry_until_timeout(
                lambda: add_partitions(self._cluster.store, self._identity, new, mark=mark), "adding partitions"
            )
            self._partitions.update((one.topic_id, one.partition) for one in new)
            self._seen_ms = self._cluster.now_ms()
        else:
            self._beginning = new, mark, self._cluster.now_ms()
            self._open_transaction()

    def _open_transaction(self) -> None:
        if self._beginning is not None:
            new, mark, now_ms = self._beginning
            self._identity = self._retry_until_timeout(
                lambda: begin_transaction(self._cluster.store, self._identity, new, mark=mark, now_ms=now_ms),
                "beginning",
            )
            self._partitions.update((one.topic_id, one.partition) for one in new)
            self._beginning, self._seen_ms = None, now_ms

    def _handle_failure(self) -> None:
        """Keep the epoch, since the next transaction has another one."""

    def _check_not_fenced(self) -> None:
        now_ms = self._cluster.now_ms()
        self._retry_until_timeout(
            lambda: read_owned_transaction(self._cluster.store, self._identity), "looking whether it still is"
        )
        self._seen_ms = now_ms

    def _check_open(self) -> None:
        self._check_phase(_Phase.OPEN)

    def _check_allowed(self, catalog: Catalog) -> None:
        self._cluster.permissions.check_allowed(catalog, Operation.WRITE, Kind.TRANSACTIONAL_ID, self._transactional_id)

    def _check_phase(self, *phases: _Phase) -> None:
        if self._phase is _Phase.FENCED:
            message = f"the producer of {self._transactional_id} {self._phase.value}"
            raise ProducerFencedError(message, hint=_NEXT[self._phase])
        if self._phase not in phases:
            raise UserError(f"the producer of {self._transactional_id} {self._phase.value}", hint=_NEXT[self._phase])

    def _enter_phase(self, phase: _Phase) -> None:
        self._phase = phase
        self._partitions.clear()
        self._tiered.clear()
        self._beginning, self._offsets, self._batch = None, {}, None
        for gathered in (self._next, self._waiting, self._single, self._bytes, self._single_bytes, self._gained):
            gathered.clear()

    def _retry_until_timeout(self, attempt: Callable[[], T], what: str) -> T:
        try:
            return self._delivery.retry_until_timeout(attempt, f"the producer of {self._transactional_id}: {what}")
        except ProducerFencedError:
            self._phase = _Phase.FENCED
            raise


_CONTENT: Final = ("key", "value", "headers")
_TIMEOUT_MS: Final = 300_000
"""Timeout of transactions that publish. They are open only during swaps, and block readers."""


@dataclass(frozen=True, slots=True)
class EmbeddedAppends:
    """A topic as an `AppendSink`: many tasks stage records, one transaction publishes them. Picklable."""

    store: ObjectStore
    catalog: CatalogRegister
    permissions: Permissions
    now_ms: Callable[[], int]
    cluster_id: str
    full_name: str
    topic_id: str

    @classmethod
    def of(cls, cluster: ClusterContext, full_name: str) -> Self:
        """Return a topic's sink."""
        catalog = cluster.catalog.read()
        check_may_append(cluster.permissions, catalog, full_name)
        topic = find_visible_topic(cluster.permissions, catalog, full_name)
        check_writer(full_name, topic, PRODUCERS)
        return cls(
            cluster.store, cluster.catalog, cluster.permissions, cluster.now_ms, cluster.cluster_id, full_name, topic.id
        )

    def check_shared(self) -> None:
        """Reject a machine that does not see the topic."""
        topic = find_topic_by_id(self.catalog.read(), self.topic_id, self.full_name)
        check_topic_visible(self.store, self.full_name, is_found=topic is not None)

    def stage(self, records: Iterable[pa.RecordBatch], *, task: int) -> StagedAppend:
        """Write one task's records as unpublished parts."""
        put_ms, course, digest = self.now_ms(), RoundRobinState(RoundRobinPosition(task * RUN)), Digest()
        parts: defaultdict[int, list[Entry]] = defaultdict(list)
        for batches in _group_batches(conform_batch(self.full_name, batch) for batch in records):
            digest = sum(map(_digest_rows, batches), digest)
            for append in write_parts([route_records(self._context, self.full_name, batches, course)], put_ms):
                parts[append.partition] += append.parts
        runs = {partition: _number_parts(parts[partition]) for partition in sorted(parts)}
        parts_of_all = tuple(to_staged_records(partition, None, run) for partition, run in runs.items())
        return StagedAppend(put_ms, parts_of_all, digest)

    def publish(self, staged: Sequence[StagedAppend], batch: NumberedBatch | None = None) -> bool:
        """Append all staged records in one transaction."""
        name = build_stream_transactional_id(self.topic_id, None if batch is None else batch.stream)
        rows = _fingerprint_rows(staged)
        if batch is not None and self._is_published(name, batch, rows):
            return False
        appends = self._build_appends(staged)
        if not appends:  # Publishing an empty batch again changes nothing.
            return True
        producer = TransactionalProducer(
            self._context, name, transaction_timeout_ms=_TIMEOUT_MS, is_lasting=batch is not None
        )
        producer.init_transactions()
        if batch is not None and _is_repeated(batch, rows, producer.last_batch()):
            return False
        with producer.transaction(None if batch is None else CommittedBatch(batch.number, rows)):
            producer.append_parts(appends)
        if batch is None:
            self.store.delete([transaction_key(name)])
        return True

    def _is_published(self, name: str, batch: NumberedBatch, rows: str) -> bool:
        existing = read_transaction(self.store, name)
        if existing is None or not _is_repeated(batch, rows, existing[0].batch):
            return False
        finish_transaction(self.store, self.catalog, name, now_ms=self.now_ms())
        return True

    def _build_appends(self, staged: Sequence[StagedAppend]) -> list[PartitionAppend]:
        gate = AppendGate(self.store, self.catalog, self.full_name, self.topic_id, PRODUCERS)
        put_ms = min((task_result.put_ms for task_result in staged), default=0)
        parts: defaultdict[int, list[Entry]] = defaultdict(list)
        for task_result in staged:
            for one in task_result.parts:
                entries = [Entry.from_json(document) for document in orjson.loads(one.entries)]
                check_writes_visible(self.store, (entry.key for entry in entries), by=one.by)
                parts[one.partition] += entries
        return [
            PartitionAppend(gate, partition, _number_parts(parts[partition]), put_ms) for partition in sorted(parts)
        ]

    @property
    def _context(self) -> ClusterContext:
        return ClusterContext(self.store, self.catalog, self.permissions, self.now_ms, self.cluster_id)


def _is_repeated(batch: NumberedBatch, rows: str, last: CommittedBatch | None) -> bool:
    if last is None or batch.number > last.number:
        return False
    if batch.number < last.number:
        message = f"batch {batch.number} of stream {batch.stream} comes after its batch {last.number}, which is written"
        hint = (
            "The checkpoint was set back, or another run of the query uses it. If none does: find the offset to "
            "continue from, and start there with another checkpointLocation."
        )
        raise UserError(message, hint=hint)
    if last.rows not in {None, rows}:
        message = f"batch {batch.number} of stream {batch.stream} is written, and its rows were different"
        hint = (
            "The checkpoint was set back, or the query gives different rows when it runs again, as with uuid(), or "
            "because its source was compacted or trimmed since. Find the offset to continue from, and start there with "
            "another checkpointLocation."
        )
        raise UserError(message, hint=hint)
    return True


def _fingerprint_rows(staged: Iterable[StagedAppend]) -> str:
    digest = sum((task_result.input_digest for task_result in staged), Digest())
    return f"{digest.records}-{digest.total:032x}"


def _digest_rows(batch: pa.RecordBatch) -> Digest:
    times = pc.fill_null(batch.column("timestamp_ms"), 0)
    zeros = pa.array(np.zeros(batch.num_rows, np.int64))
    columns = {"timestamp_ms": times, "offset": zeros} | {name: batch.column(name) for name in _CONTENT}
    return compute_digest(pa.RecordBatch.from_pydict(columns), base=0)


def _group_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
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


def _number_parts(parts: Iterable[Entry]) -> list[Entry]:
    joined: list[Entry] = []
    at = 0
    for part in parts:
        joined.append(part.shift(at - part.base, 0))
        at = joined[-1].last + 1
    return joined
