"""Transactions: registers, commit and abort decisions, and their completion."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from reconciler.archives.objects import decode_object
from reconciler.archives.topic_manifest import CommittedOffset
from reconciler.embedded.catalog.tables import find_topic_by_id
from reconciler.embedded.clients.sequences import Delivery, ProducerIdentity, update_producers
from reconciler.embedded.keys import TRANSACTIONS, fresh_producer_id, parse_transaction_key, transaction_key
from reconciler.embedded.segments.gate import AppendGate, find_writer
from reconciler.embedded.segments.groups import Place, commit_decided_offsets
from reconciler.embedded.segments.head import Head, Partition, swap_head
from reconciler.errors import ProducerFencedError, ReconcilerError, UserError
from reconciler.objectstore.base import ListedObject, ObjectStore, check_numbers, check_texts
from reconciler.objectstore.register import Register, RegisterSnapshot, create_mark
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.archives.entries import Entry
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.model import TopicEntry


Json = dict[str, Any]


class TransactionState(StrEnum):
    """States of a transaction; `committing` and `aborting` are decided but not complete."""

    EMPTY = "empty"
    ONGOING = "ongoing"
    COMMITTING = "committing"
    ABORTING = "aborting"


SHAPE: Final = {
    "producer_id": str,
    "state": str,
    "partitions": [list],
    "offsets": {str: [list]},
    "timeout_ms": int,
    "began_ms": int,
    "batch?": int,
    "batch_rows?": str,
}

DECIDED: Final = frozenset({TransactionState.COMMITTING, TransactionState.ABORTING})


class WrittenPartition(NamedTuple):
    """A partition that a transaction may have written, with its topic's name at that time."""

    topic_id: str
    full_name: str
    partition: int

    @classmethod
    def from_json(cls, document: list[Any]) -> WrittenPartition:
        """Parse JSON."""
        written = cls(*document)
        check_texts(written.topic_id, written.full_name)
        check_numbers(written.partition)
        return written


class CommittedBatch(NamedTuple):
    """The caller's number of a committed batch, and its rows' fingerprint, if known."""

    number: int
    rows: str | None = None


OffsetsByGroup = dict[str, dict["Place", CommittedOffset]]


@dataclass(frozen=True, slots=True)
class Transaction:
    """State of a transactional id; its register's epoch is the producer's."""

    producer_id: str
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: tuple[WrittenPartition, ...] = ()
    offsets: OffsetsByGroup = field(default_factory=dict)
    began_ms: int = 0
    batch: CommittedBatch | None = None

    def without_open_transaction(self) -> Transaction:
        """Return the state after the transaction's end."""
        return Transaction(self.producer_id, self.timeout_ms, batch=self.batch)

    def with_partitions(self, partitions: Iterable[WrittenPartition]) -> Transaction:
        """Return the transaction with more partitions."""
        return replace(self, partitions=tuple(dict.fromkeys((*self.partitions, *partitions))))

    def is_overdue(self, now_ms: int) -> bool:
        """Whether the transaction is open beyond its timeout."""
        return self.state is TransactionState.ONGOING and now_ms - self.began_ms > self.timeout_ms

    def to_json(self) -> Json:
        """Convert to JSON."""
        document: Json = {
            "producer_id": self.producer_id,
            "state": self.state,
            "partitions": [list(one) for one in self.partitions],
            "offsets": {group: _offsets_to_rows(offsets) for group, offsets in self.offsets.items()},
            "timeout_ms": self.timeout_ms,
            "began_ms": self.began_ms,
        }
        if self.batch is not None:
            document["batch"] = self.batch.number
            if self.batch.rows is not None:
                document["batch_rows"] = self.batch.rows
        return document

    @classmethod
    def from_json(cls, document: Json) -> Transaction:
        """Parse JSON."""
        return cls(
            producer_id=document["producer_id"],
            timeout_ms=document["timeout_ms"],
            state=TransactionState(document["state"]),
            partitions=tuple(map(WrittenPartition.from_json, document["partitions"])),
            offsets={group: _offsets_from_rows(rows) for group, rows in document["offsets"].items()},
            began_ms=document["began_ms"],
            batch=CommittedBatch(document["batch"], document.get("batch_rows")) if "batch" in document else None,
        )


def _offsets_to_rows(offsets: Mapping[Place, CommittedOffset]) -> list[list[Any]]:
    return [
        [*place, one.offset, one.metadata, one.at_ms, *([] if one.epoch is None else [one.epoch])]
        for place, one in sorted(offsets.items())
    ]


def _offsets_from_rows(rows: list[list[Any]]) -> dict[Place, CommittedOffset]:
    placed: dict[Place, CommittedOffset] = {}
    for topic_id, partition, offset, metadata, at_ms, *epoch in rows:
        check_texts(topic_id, metadata)
        check_numbers(partition, offset, *([] if at_ms is None else [at_ms]), *epoch)
        placed[topic_id, partition] = CommittedOffset(offset, metadata, at_ms, *epoch)
    return placed


@dataclass(frozen=True, slots=True)
class TransactionDecision:
    """A decided commit or abort; `epoch` is the producer's epoch after the decision."""

    transactional_id: str
    transaction: Transaction
    epoch: int

    def complete_head(self, head: Head, now_ms: int) -> Head | None:
        """Return a head without the open transaction that rejects earlier epochs; `None` if nothing changes."""
        name = self._find_open_mark(head)
        known = head.producers.get(self.transaction.producer_id)
        if name is None and known is not None and known["epoch"] >= self.epoch:
            return None
        is_lasting = known is None or "is_lasting" in known
        who = ProducerIdentity(self.transaction.producer_id, self.epoch, is_lasting=is_lasting)
        fenced = replace(head, producers=update_producers(head, who, -1, now_ms))
        if name is None:
            return fenced
        others = {other: opened for other, opened in head.transactions.items() if other != self.transactional_id}
        return replace(fenced, entries=tuple(self._remaining_entries(head, name)), transactions=others)

    def list_aborted_keys(self, head: Head) -> list[str]:
        """Return the keys of parts that an abort removes from a head."""
        name = self._find_open_mark(head)
        if name is None or self.transaction.state is not TransactionState.ABORTING:
            return []
        return [entry.key for entry in head.entries if entry.txn == name]

    def _remaining_entries(self, head: Head, name: str) -> Iterator[Entry]:
        for entry in head.entries:
            if entry.txn != name:
                yield entry
            elif self.transaction.state is TransactionState.COMMITTING:
                yield replace(entry, txn=None)

    def _find_open_mark(self, head: Head) -> str | None:
        opened = head.transactions.get(self.transactional_id)
        if opened is None or opened["epoch"] >= self.epoch:
            return None
        return f"{self.transactional_id}/{opened['epoch']}"


def transaction_register(store: ObjectStore, transactional_id: str) -> Register:
    """Return a transactional id's register."""
    return Register(store, transaction_key(transactional_id), format="reconciler.transaction/1", shape=SHAPE)


def read_transaction(store: ObjectStore, transactional_id: str) -> tuple[Transaction, int] | None:
    """Return state and producer epoch of a transactional id; `None` if never used."""
    register = transaction_register(store, transactional_id)
    held = register.read()
    return None if held is None else (parse_transaction(register, held), held.epoch)


def parse_transaction(register: Register, held: RegisterSnapshot) -> Transaction:
    """Parse a transactional id's register."""
    return decode_object(register.store, register.key, held.value, Transaction.from_json)


def finish_transactions(store: ObjectStore, catalog: CatalogRegister, now_ms: int) -> int:
    """Complete decided transactions and abort overdue ones; return how many.

    Errors are raised at the end.
    """
    finished, failed = 0, None
    idle: list[ListedObject] = []
    for listed in list(store.list(TRANSACTIONS)):
        transactional_id = parse_transaction_key(listed.key)
        if transactional_id is None:
            continue
        try:
            existing = read_transaction(store, transactional_id)
            if existing is not None and existing[0].is_overdue(now_ms):
                abort_transaction(store, transactional_id, existing[1])
            finished += finish_transaction(store, catalog, transactional_id, now_ms=now_ms)
            if existing is not None and existing[0].state is TransactionState.EMPTY:
                idle.append(listed)
        except ReconcilerError as error:
            failed = failed or error
    _delete_unused(store, catalog, idle)
    if failed is not None:
        raise failed
    return finished


def finish_offset_commits(
    store: ObjectStore,
    catalog: CatalogRegister,
    topic_ids: Collection[str],
    now_ms: int,
    *,
    may_go_on: Callable[[], None],
) -> None:
    """Complete decided transactions with offsets of these topics; one GET per transactional id."""
    names = [name for listed in store.list(TRANSACTIONS) if (name := parse_transaction_key(listed.key)) is not None]
    states = map_in_parallel(lambda name: read_transaction(store, name), names, name="transactions")
    for name, state in zip(names, states, strict=True):
        places = () if state is None else (place for places in state[0].offsets.values() for place in places)
        if any(topic_id in topic_ids for topic_id, _ in places):
            may_go_on()
            finish_transaction(store, catalog, name, now_ms=now_ms)


_APPENDS: Final = "topic-log-"
_ONCE: Final = "once-"
_TOPIC_ID: Final = 36
_UNUSED_AFTER_MS: Final = 24 * 60 * 60 * 1000
"""Age by the store's clock after which an empty register is deleted."""


def build_stream_transactional_id(topic_id: str, stream: str | None) -> str:
    """Return the transactional id of a stream into a topic, or of a single write."""
    return f"{_APPENDS}{topic_id}-{_ONCE}{create_mark()}" if stream is None else f"{_APPENDS}{topic_id}-{stream}"


def read_stream_batches(store: ObjectStore, topic_id: str) -> dict[str, CommittedBatch]:
    """Return the last batch of every stream into a topic."""
    prefix, batches = f"{_APPENDS}{topic_id}-", {}
    for listed in store.list(transaction_key(prefix).removesuffix(".json")):
        name = parse_transaction_key(listed.key)
        state = None if name is None else read_transaction(store, name)
        if name is not None and state is not None and state[0].batch is not None:
            batches[name.removeprefix(prefix)] = state[0].batch
    return batches


def record_stream_batch(store: ObjectStore, topic_id: str, stream: str, batch: CommittedBatch, *, mark: str) -> None:
    """Set the last batch of a stream that another cluster wrote."""
    fresh = Transaction(fresh_producer_id(), MAX_TIMEOUT_MS, batch=batch).to_json()
    register = transaction_register(store, build_stream_transactional_id(topic_id, stream))
    register.update(lambda held: fresh if held is None else None, mark=mark)


def _delete_unused(store: ObjectStore, catalog: CatalogRegister, idle: Sequence[ListedObject]) -> None:
    old_ms = store.read_clock_ms() - _UNUSED_AFTER_MS
    ids = {listed.key: parse_transaction_key(listed.key) or "" for listed in idle if listed.modified_ms < old_ms}
    appends = {key: name.removeprefix(_APPENDS) for key, name in ids.items() if name.startswith(_APPENDS)}
    if not appends:
        return
    topics = {topic.id for topic in catalog.read().topics.values()}
    store.delete(
        key
        for key, name in appends.items()
        if name[:_TOPIC_ID] not in topics or name[_TOPIC_ID + 1 :].startswith(_ONCE)
    )


def abort_transaction(store: ObjectStore, transactional_id: str, epoch: int) -> None:
    """Decide to abort the open transaction of an epoch, unless a later epoch exists."""
    register = transaction_register(store, transactional_id)

    def change(held: RegisterSnapshot | None) -> dict[str, Any] | None:
        if held is None or held.epoch != epoch:
            return None
        transaction = parse_transaction(register, held)
        return (
            replace(transaction, state=TransactionState.ABORTING).to_json()
            if transaction.state is TransactionState.ONGOING
            else None
        )

    register.update(change, mark=create_mark(), raises_epoch=True)


def finish_transaction(store: ObjectStore, catalog: CatalogRegister, transactional_id: str, *, now_ms: int) -> bool:
    """Complete a transactional id's decided transaction; return whether it had one."""
    register = transaction_register(store, transactional_id)
    held = register.read()
    decided = None if held is None else find_decision(register, held)
    if decided is None:
        return False
    complete_decision(store, catalog, decided, now_ms=now_ms)
    return True


def find_decision(register: Register, held: RegisterSnapshot) -> TransactionDecision | None:
    """Return a register's decision; `None` if there is none or it is complete."""
    transaction = parse_transaction(register, held)
    transactional_id = parse_transaction_key(register.key) or ""
    return TransactionDecision(transactional_id, transaction, held.epoch) if transaction.state in DECIDED else None


def complete_decision(
    store: ObjectStore, catalog: CatalogRegister, decided: TransactionDecision, *, now_ms: int
) -> None:
    """Complete a commit or an abort. Repeatable.

    A commit removes the transaction's marks from each head. An abort removes entries and objects, which leaves a gap.
    Every head stores the new epoch, and so rejects appends of earlier ones.
    """
    for written in decided.transaction.partitions:
        _DecidedPartition(store, catalog, decided, written, now_ms).complete()
    _commit_offsets(store, catalog, decided, now_ms)
    register = transaction_register(store, decided.transactional_id)

    def empty(held: RegisterSnapshot | None) -> dict[str, Any] | None:
        if held is None or held.epoch != decided.epoch:
            return None
        transaction = parse_transaction(register, held)
        return None if transaction.state is TransactionState.EMPTY else transaction.without_open_transaction().to_json()

    register.update(empty, mark=create_mark())


@dataclass(frozen=True, slots=True)
class _DecidedPartition:
    store: ObjectStore
    catalog: CatalogRegister
    decided: TransactionDecision
    written: WrittenPartition
    now_ms: int

    def complete(self) -> None:
        was_there, dropped = False, list[str]()

        def change(head: Head) -> Head | None:
            nonlocal was_there
            was_there = True
            dropped[:] = self.decided.list_aborted_keys(head)
            return self.decided.complete_head(head, self.now_ms)

        swap_head(self.store, Partition(self.written.full_name, self.written.topic_id, self.written.partition), change)
        if not was_there:
            self._fence_first_append()
        self.store.delete(dropped)

    def _fence_first_append(self) -> None:
        """Create the head with the new epoch, so a late append fails."""
        topic = self._find_topic()
        if topic is None:
            return
        gate = AppendGate(self.store, self.catalog, self.written.full_name, self.written.topic_id, find_writer(topic))
        try:
            gate.append_to_head(
                self.written.partition,
                lambda head, _epoch: self.decided.complete_head(head, self.now_ms),
                mark=create_mark(),
            )
        except UserError:
            after = self._find_topic()
            if after is not None and find_writer(after) == gate.writer:
                raise
            if after is not None:
                self.complete()

    def _find_topic(self) -> TopicEntry | None:
        return find_topic_by_id(self.catalog.read(), self.written.topic_id, self.written.full_name)


def _commit_offsets(store: ObjectStore, catalog: CatalogRegister, decided: TransactionDecision, now_ms: int) -> None:
    if decided.transaction.state is not TransactionState.COMMITTING or not decided.transaction.offsets:
        return
    # If another process completed the commit, the group may have newer offsets.
    current = read_transaction(store, decided.transactional_id)
    if current is None or current[1] != decided.epoch or current[0].state is not TransactionState.COMMITTING:
        return
    mark = f"{decided.transaction.producer_id}-{decided.epoch}"
    for group, offsets in decided.transaction.offsets.items():
        commit_decided_offsets(store, catalog, group, offsets, mark=mark, now_ms=now_ms)


MAX_TIMEOUT_MS: Final = 900_000
"""Default of Kafka's `transaction.max.timeout.ms`."""


def claim_transactional_id(
    store: ObjectStore, catalog: CatalogRegister, transactional_id: str, *, timeout_ms: int, delivery: Delivery
) -> ProducerIdentity:
    """Become the only producer of a transactional id; abort its open transaction, or complete a decided one.

    Each claim, begin and decision increases the epoch, which fences earlier producers.

    Raises:
        ProducerFencedError: Another producer claimed the id, too.
    """
    _check_timeout(timeout_ms)
    register, mark = transaction_register(store, transactional_id), create_mark()
    producer_id, epoch = fresh_producer_id(), 0

    def change(held: RegisterSnapshot | None) -> dict[str, Any] | None:
        nonlocal producer_id, epoch
        if held is None:
            epoch = 1
            return Transaction(producer_id, timeout_ms).to_json()
        transaction = parse_transaction(register, held)
        if transaction.state is not TransactionState.EMPTY:
            return None
        producer_id, epoch = transaction.producer_id, held.epoch + 1
        return replace(transaction.without_open_transaction(), timeout_ms=timeout_ms).to_json()

    def attempt() -> RegisterSnapshot | None:
        while True:
            held = register.update(change, mark=mark, raises_epoch=True)
            if held is None or mark in held.marks:
                return held
            if parse_transaction(register, held).state is TransactionState.ONGOING:
                abort_transaction(store, transactional_id, held.epoch)
            finish_transaction(store, catalog, transactional_id, now_ms=delivery.now_ms())

    held = delivery.retry_until_timeout(attempt, f"taking over transactional id {transactional_id}")
    _check_owner(transactional_id, epoch, held)
    return ProducerIdentity(producer_id, epoch, transactional_id, is_lasting=True)


def begin_transaction(
    store: ObjectStore, who: ProducerIdentity, partitions: Sequence[WrittenPartition], *, mark: str, now_ms: int
) -> ProducerIdentity:
    """Open a transaction with its first partitions; return the producer in its next epoch."""

    def open_transaction(transaction: Transaction) -> Transaction:
        return replace(
            transaction.without_open_transaction(),
            state=TransactionState.ONGOING,
            partitions=tuple(partitions),
            began_ms=now_ms,
        )

    return _raise_epoch(store, who, {TransactionState.EMPTY}, open_transaction, mark=mark)


def add_partitions(
    store: ObjectStore, who: ProducerIdentity, partitions: Sequence[WrittenPartition], *, mark: str
) -> None:
    """Add partitions to an open transaction, before their first append."""
    register = _get_register(store, who)

    def change(held: RegisterSnapshot | None) -> dict[str, Any]:
        return (
            _parse_owned_transaction(register, held, who, {TransactionState.ONGOING})
            .with_partitions(partitions)
            .to_json()
        )

    _check_owner(who.transactional_id, who.epoch, register.update(change, mark=mark))


def decide_transaction(  # noqa: PLR0913 - all of it is one decision, and what may refuse it
    store: ObjectStore,
    who: ProducerIdentity,
    state: TransactionState,
    offsets: OffsetsByGroup,
    *,
    mark: str,
    batch: CommittedBatch | None = None,
    check: Callable[[], None] = lambda: None,
) -> TransactionDecision | None:
    """Decide to commit or abort; return the decision to complete, or `None` if that was done.

    `check` runs before each swap and may raise. A call may be repeated with the same mark.

    Raises:
        ProducerFencedError: Another producer took over, or the timeout aborted the transaction.
    """
    register = _get_register(store, who)

    def change(held: RegisterSnapshot | None) -> dict[str, Any]:
        transaction = _parse_owned_transaction(register, held, who, {TransactionState.EMPTY, TransactionState.ONGOING})
        check()
        numbered = transaction if batch is None else replace(transaction, batch=batch)
        return replace(numbered, state=state, offsets=offsets).to_json()

    held = register.update(change, mark=mark, raises_epoch=True)
    transaction = None if held is None else find_decision(register, held)
    return transaction if transaction is not None and transaction.epoch == who.epoch + 1 else None


def read_owned_transaction(
    store: ObjectStore, who: ProducerIdentity, state: TransactionState = TransactionState.ONGOING
) -> Transaction:
    """Return the state of the producer's transactional id."""
    register = _get_register(store, who)
    return _parse_owned_transaction(register, register.read(), who, {state})


def _raise_epoch(
    store: ObjectStore,
    who: ProducerIdentity,
    states: set[TransactionState],
    change: Callable[[Transaction], Transaction],
    *,
    mark: str,
) -> ProducerIdentity:
    register = _get_register(store, who)

    def apply_change(held: RegisterSnapshot | None) -> dict[str, Any]:
        return change(_parse_owned_transaction(register, held, who, states)).to_json()

    held = register.update(apply_change, mark=mark, raises_epoch=True)
    _check_owner(who.transactional_id, who.epoch + 1, held)
    return replace(who, epoch=who.epoch + 1)


def _parse_owned_transaction(
    register: Register, held: RegisterSnapshot | None, who: ProducerIdentity, states: set[TransactionState]
) -> Transaction:
    if held is None or held.epoch != who.epoch:
        raise _fenced_error(who.transactional_id)
    transaction = parse_transaction(register, held)
    if transaction.producer_id != who.producer_id or transaction.state not in states:
        raise _fenced_error(who.transactional_id)
    return transaction


def _check_owner(transactional_id: str | None, epoch: int, held: RegisterSnapshot | None) -> None:
    if held is None or held.epoch != epoch:
        raise _fenced_error(transactional_id)


def _fenced_error(transactional_id: str | None) -> ProducerFencedError:
    return ProducerFencedError(
        f"There is a newer producer with the same transactionalId which fences the current one: {transactional_id} "
        "was taken over, or its transaction was aborted for its time-out",
        hint="Nothing of the transaction will be readable. Stop this producer; init_transactions() takes over again.",
    )


def _get_register(store: ObjectStore, who: ProducerIdentity) -> Register:
    return transaction_register(store, who.transactional_id or "")


def _check_timeout(timeout_ms: int) -> None:
    if not 0 < timeout_ms <= MAX_TIMEOUT_MS:
        raise UserError(
            f"a transaction time-out of {timeout_ms:,} ms: The transaction timeout is larger than the maximum value "
            "allowed, or not positive",
            hint=f"It is 1 to {MAX_TIMEOUT_MS:,} ms.",
        )
