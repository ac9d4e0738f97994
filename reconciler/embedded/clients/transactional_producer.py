"""The transactional producer, and appends that many tasks stage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.archives.entries import STALE_MS, Entry
from reconciler.archives.topic_manifest import CommittedOffset
from reconciler.embedded.acl import Kind, Operation, Permissions, check_writing, find_visible_topic
from reconciler.embedded.catalog.tables import Catalog, check_namespace_of, topic_with_id
from reconciler.embedded.clients.producer import (
    FLUSH_BYTES,
    Append,
    Gained,
    Producer,
    RoundRobinState,
    route,
    write_parts,
)
from reconciler.embedded.clients.sequences import DELIVERY_TIMEOUT_MS
from reconciler.embedded.clients.topic_log import to_staged_records
from reconciler.embedded.clients.transactions import (
    Batch,
    Offsets,
    State,
    Written,
    appends_transactional_id,
    begin,
    carry_out,
    check_claimed,
    claim,
    decide,
    finish,
    read_transaction,
    widen_transaction,
)
from reconciler.embedded.context import ClusterContext
from reconciler.embedded.keys import transaction_key
from reconciler.embedded.objects import check_topic_visible, check_writes_visible
from reconciler.embedded.segments.admission import conform_batch
from reconciler.embedded.segments.gate import Gate, check_writer
from reconciler.embedded.segments.groups import Place, check_commit
from reconciler.embedded.segments.head import PRODUCERS
from reconciler.errors import ProducerFencedError, UserError
from reconciler.objectstore.register import fresh_mark
from reconciler.records.hashes import RUN, RoundRobinPosition, compute_digest
from reconciler.records.log import Digest, NumberedBatch, StagedAppend
from reconciler.runtime.threads import run_in_parallel

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.objectstore.base import ObjectStore


T = TypeVar("T")

TRANSACTION_TIMEOUT_MS: Final = 60_000


class _Phase(Enum):
    """The value completes "the producer … "."""

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
    """Makes records visible to `read_committed` readers on commit. Not thread-safe.

    One producer per transactional id can write: `init_transactions` fences earlier ones.
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
        """Create with `EmbeddedCluster.producer`. `is_lasting`: another process may continue under this id."""
        super().__init__(cluster, delivery_timeout_ms=delivery_timeout_ms)
        transaction_key(transactional_id)
        self._transactional_id = transactional_id
        self._timeout_ms = transaction_timeout_ms
        self._is_lasting = is_lasting
        self._phase = _Phase.NEW
        self._partitions: set[Place] = set()
        self._seen_ms = 0
        self._beginning: tuple[list[Written], str, int] | None = None
        self._offsets: Offsets = {}
        self._tiered: set[str] = set()
        """Tiered topics, which can be unmounted, whose offsets it commits."""
        self._batch: Batch | None = None
        self._mark = ""

    def init_transactions(self) -> None:
        """Become the only producer of the transactional id; abort an open transaction, finish a decided one.

        Raises:
            NotAuthorizedError: The principal may not use it.
        """
        catalog = self._cluster.catalog.read()
        check_namespace_of(catalog, self._transactional_id)
        self._check_allowed(catalog)
        claimed = claim(
            self._cluster.store,
            self._cluster.catalog,
            self._transactional_id,
            timeout_ms=self._timeout_ms,
            delivery=self._delivery,
        )
        self._identity = replace(claimed, is_lasting=self._is_lasting)
        self._start(_Phase.READY)

    def last_batch(self) -> Batch | None:
        """Return the last numbered batch committed under the transactional id.

        Raises:
            ProducerFencedError: Another producer took over.
        """
        self._check_phase(_Phase.READY)
        store, who = self._cluster.store, self._identity
        return self._deliver(lambda: check_claimed(store, who, State.EMPTY), "looking for its last batch").batch

    def begin(self, batch: Batch | None = None) -> None:
        """Begin a transaction; its timeout starts with the first written record.

        After a crash, `last_batch` returns `batch` if the transaction was committed.
        """
        self._check_phase(_Phase.READY)
        self._start(_Phase.OPEN)
        self._batch = batch

    def append_parts(self, appends: Sequence[Append]) -> None:
        """Append parts that other tasks wrote, one append per partition.

        Raises:
            ProducerFencedError: Another producer took over.
            RetryableError: It did not succeed in time.
        """
        self._check_phase(_Phase.OPEN)
        with self._mark_failure():
            self._prepare_partitions(appends)
            for one in appends:
                self._gained.setdefault(one.gate.full_name, {})  # The threads below share it.
            run_in_parallel(self._publish, appends, name="append")

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int | CommittedOffset]) -> None:
        """Commit a group's next offsets, by (topic, partition), with the transaction.

        Raises:
            NotAuthorizedError: The principal may not read as that group, or not that topic.
        """
        self._check_phase(_Phase.OPEN)
        catalog = self._cluster.catalog.read()
        who = self._cluster.permissions
        who.check(catalog, Operation.READ, Kind.GROUP, group)
        for topic in sorted({topic for topic, _ in offsets}):
            who.check(catalog, Operation.READ, Kind.TOPIC, topic)
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
        """Write buffered records and commit; return the offsets that each partition gained since the last flush.

        Raises:
            ProducerFencedError: Another producer took over, or the timeout has passed: nothing is committed.
            UserError: It has offsets of a topic that migrates or is gone: abort it.
            RetryableError: It did not finish in time. Call it again: it commits once.
        """
        gained: dict[str, Gained] = {}
        if self._phase is not _Phase.COMMITTING:
            self._check_phase(_Phase.OPEN)
            gained = self.flush()
            if not self._partitions and not any(self._offsets.values()):
                self._start(_Phase.READY)
                return gained
            self._phase, self._mark = _Phase.COMMITTING, fresh_mark()
        self._end(State.COMMITTING)
        return gained

    def abort(self) -> None:
        """Abort the transaction: its records are never read.

        Raises:
            ProducerFencedError: Another producer took over, and aborted it.
            RetryableError: It did not finish in time. Call it again.
        """
        if self._phase is not _Phase.ABORTING:
            self._check_phase(_Phase.OPEN, _Phase.FAILED)
            if self._beginning is not None:
                self._open()
            if not self._partitions:
                self._start(_Phase.READY)
                return
            self._phase, self._mark = _Phase.ABORTING, fresh_mark()
        self._end(State.ABORTING)

    @contextmanager
    def transaction(self, batch: Batch | None = None) -> Iterator[Self]:
        """Begin a transaction; commit it after the block, or abort it on an error."""
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

    def _end(self, state: State) -> None:
        store, catalog = self._cluster.store, self._cluster.catalog
        batch, check = self._batch if state is State.COMMITTING else None, self._check_offsets
        decided = self._deliver(
            lambda: decide(store, self._identity, state, self._offsets, mark=self._mark, batch=batch, check=check),
            f"{state} its transaction",
        )
        if decided is not None:
            self._deliver(
                lambda: carry_out(store, catalog, decided, now_ms=self._cluster.now_ms()),
                f"what is decided, {state} its transaction, is being carried out, which",
            )
        self._identity = replace(self._identity, epoch=self._identity.epoch + 1)
        self._start(_Phase.READY)

    def _check_offsets(self) -> None:
        """Reject offsets of a topic that is closed or unmounted: it moves without them."""
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
        """After an error the transaction can only be aborted."""
        try:
            yield
        except ProducerFencedError:
            self._phase = _Phase.FENCED
            raise
        except BaseException:
            self._phase = _Phase.FAILED
            raise

    def _prepare_partitions(self, appends: Sequence[Append]) -> None:
        """Register new partitions in one swap, before the first append to them."""
        written = {(one.gate.topic_id, one.partition): one.gate.full_name for one in appends}
        new = [Written(place[0], name, place[1]) for place, name in written.items() if place not in self._partitions]
        if not new:
            # Heads remember fenced producers for a day.
            if self._cluster.now_ms() - self._seen_ms > STALE_MS:
                self._check_still_valid()
            return
        self._check_allowed(self._cluster.catalog.known())
        mark = fresh_mark()
        if self._partitions:
            self._deliver(
                lambda: widen_transaction(self._cluster.store, self._identity, new, mark=mark), "adding partitions"
            )
            self._partitions.update((one.topic_id, one.partition) for one in new)
            self._seen_ms = self._cluster.now_ms()
        else:
            self._beginning = new, mark, self._cluster.now_ms()
            self._open()

    def _open(self) -> None:
        """Open the transaction; also retries an unanswered attempt."""
        if self._beginning is not None:
            new, mark, now_ms = self._beginning
            self._identity = self._deliver(
                lambda: begin(self._cluster.store, self._identity, new, mark=mark, now_ms=now_ms), "beginning"
            )
            self._partitions.update((one.topic_id, one.partition) for one in new)
            self._beginning, self._seen_ms = None, now_ms

    def _handle_failure(self) -> None:
        """Keep the epoch: the next transaction has another."""

    def _check_still_valid(self) -> None:
        now_ms = self._cluster.now_ms()
        self._deliver(lambda: check_claimed(self._cluster.store, self._identity), "looking whether it still is")
        self._seen_ms = now_ms

    def _check_open(self) -> None:
        self._check_phase(_Phase.OPEN)

    def _check_allowed(self, catalog: Catalog) -> None:
        self._cluster.permissions.check(catalog, Operation.WRITE, Kind.TRANSACTIONAL_ID, self._transactional_id)

    def _check_phase(self, *phases: _Phase) -> None:
        if self._phase is _Phase.FENCED:
            message = f"the producer of {self._transactional_id} {self._phase.value}"
            raise ProducerFencedError(message, hint=_NEXT[self._phase])
        if self._phase not in phases:
            raise UserError(f"the producer of {self._transactional_id} {self._phase.value}", hint=_NEXT[self._phase])

    def _start(self, phase: _Phase) -> None:
        self._phase = phase
        self._partitions.clear()
        self._tiered.clear()
        self._beginning, self._offsets, self._batch = None, {}, None
        for gathered in (self._next, self._waiting, self._single, self._bytes, self._single_bytes, self._gained):
            gathered.clear()

    def _deliver(self, attempt: Callable[[], T], what: str) -> T:
        try:
            return self._delivery.deliver(attempt, f"the producer of {self._transactional_id}: {what}")
        except ProducerFencedError:
            self._phase = _Phase.FENCED
            raise


_CONTENT: Final = ("key", "value", "headers")
_TIMEOUT_MS: Final = 300_000
"""Transactions are open only during the swaps, and hide later records."""


@dataclass(frozen=True, slots=True)
class EmbeddedAppends:
    """New records of one topic as an `AppendSink`: many tasks stage, one transaction publishes. Picklable."""

    store: ObjectStore
    catalog: CatalogRegister
    permissions: Permissions
    now_ms: Callable[[], int]
    cluster_id: str
    full_name: str
    topic_id: str

    @classmethod
    def of(cls, cluster: ClusterContext, full_name: str) -> Self:
        """Return the sink of a topic.

        Raises:
            NotAuthorizedError: The caller may not write to it.
        """
        catalog = cluster.catalog.read()
        check_writing(cluster.permissions, catalog, full_name)
        topic = find_visible_topic(cluster.permissions, catalog, full_name)
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
        """Reject a topic or cluster that this machine does not see."""
        topic = topic_with_id(self.catalog.read(), self.topic_id, self.full_name)
        check_topic_visible(self.store, self.full_name, is_found=topic is not None)

    def stage(self, records: Iterable[pa.RecordBatch], *, task: int) -> StagedAppend:
        """Write one task's records as unnamed parts."""
        put_ms, course, digest = self.now_ms(), RoundRobinState(RoundRobinPosition(task * RUN)), Digest()
        parts: defaultdict[int, list[Entry]] = defaultdict(list)
        for batches in _group_batches(conform_batch(self.full_name, batch) for batch in records):
            digest = sum(map(_input_digest, batches), digest)
            for append in write_parts([route(self._cluster, self.full_name, batches, course)], put_ms):
                parts[append.partition] += append.parts
        runs = {partition: _join_parts(parts[partition]) for partition in sorted(parts)}
        parts_of_all = tuple(to_staged_records(partition, None, run) for partition, run in runs.items())
        return StagedAppend(put_ms, parts_of_all, digest)

    def publish(self, staged: Sequence[StagedAppend], batch: NumberedBatch | None = None) -> bool:
        """Append everything in one transaction; `False`: the batch was published before."""
        name = appends_transactional_id(self.topic_id, None if batch is None else batch.stream)
        rows = _rows_fingerprint(staged)
        if batch is not None and self._is_published(name, batch, rows):
            return False
        appends = self._appends(staged)
        if not appends:  # It needs no number: a repeated batch is compared with the stored one.
            return True
        producer = TransactionalProducer(
            self._cluster, name, transaction_timeout_ms=_TIMEOUT_MS, is_lasting=batch is not None
        )
        producer.init_transactions()
        if batch is not None and _is_written(batch, rows, producer.last_batch()):
            return False
        with producer.transaction(None if batch is None else Batch(batch.number, rows)):
            producer.append_parts(appends)
        if batch is None:
            self.store.delete([transaction_key(name)])
        return True

    def _is_published(self, name: str, batch: NumberedBatch, rows: str) -> bool:
        """Whether a batch was published before; checking fences no running producer."""
        existing = read_transaction(self.store, name)
        if existing is None or not _is_written(batch, rows, existing[0].batch):
            return False
        finish(self.store, self.catalog, name, now_ms=self.now_ms())
        return True

    def _appends(self, staged: Sequence[StagedAppend]) -> list[Append]:
        gate = Gate(self.store, self.catalog, self.full_name, self.topic_id, PRODUCERS)
        put_ms = min((task_result.put_ms for task_result in staged), default=0)
        parts: defaultdict[int, list[Entry]] = defaultdict(list)
        for task_result in staged:
            for one in task_result.parts:
                entries = [Entry.from_json(document) for document in orjson.loads(one.entries)]
                check_writes_visible(self.store, (entry.key for entry in entries), by=one.by)
                parts[one.partition] += entries
        return [Append(gate, partition, _join_parts(parts[partition]), put_ms) for partition in sorted(parts)]

    @property
    def _cluster(self) -> ClusterContext:
        return ClusterContext(self.store, self.catalog, self.permissions, self.now_ms, self.cluster_id)


def _is_written(batch: NumberedBatch, rows: str, last: Batch | None) -> bool:
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


def _rows_fingerprint(staged: Iterable[StagedAppend]) -> str:
    digest = sum((task_result.input_digest for task_result in staged), Digest())
    return f"{digest.records}-{digest.total:032x}"


def _input_digest(batch: pa.RecordBatch) -> Digest:
    """Return the digest of a task's rows. All count as offset 0, since their order may change."""
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


def _join_parts(parts: Iterable[Entry]) -> list[Entry]:
    joined: list[Entry] = []
    at = 0
    for part in parts:
        joined.append(part.shift(at - part.base, 0))
        at = joined[-1].last + 1
    return joined
