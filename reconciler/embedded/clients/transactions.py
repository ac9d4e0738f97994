"""Transactions: registers of transactional ids, decisions, and finishing them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from reconciler.archives.objects import decoded
from reconciler.archives.topic_manifest import Committed
from reconciler.embedded.catalog.tables import topic_with_id
from reconciler.embedded.clients.sequences import Delivery, Identity, remembering
from reconciler.embedded.keys import TRANSACTIONS, fresh_producer_id, transaction_key, transactional_id_of_key
from reconciler.embedded.segments.gate import Gate, writer_of
from reconciler.embedded.segments.groups import Place, put_offsets
from reconciler.embedded.segments.head import Head, Partition, swap_head
from reconciler.errors import ProducerFencedError, ReconcilerError, UserError
from reconciler.objectstore.base import Listed, ObjectStore, check_numbers, check_texts
from reconciler.objectstore.register import ReadRegister, Register, fresh_mark
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.archives.entries import Entry
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.model import TopicEntry


Json = dict[str, Any]


class State(StrEnum):
    """How far a transaction has come. With `committing` and `aborting` it is decided: what is left is carrying out."""

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

DECIDED: Final = frozenset({State.COMMITTING, State.ABORTING})


class Written(NamedTuple):
    """A partition that a transaction may have written to; `full_name` is what its topic was called then."""

    topic_id: str
    full_name: str
    partition: int

    @classmethod
    def from_json(cls, kept: list[Any]) -> Written:
        """Read it back."""
        written = cls(*kept)
        check_texts(written.topic_id, written.full_name)
        check_numbers(written.partition)
        return written


class Batch(NamedTuple):
    """A batch that was committed: the number its user gave it, and what tells its rows from others.

    `rows` is `None` where it was written before that was kept.
    """

    number: int
    rows: str | None = None


Offsets = dict[str, dict["Place", Committed]]
"""By group: the offsets that are committed with the transaction."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is known of a transactional id. The epoch of its producer is that of the register."""

    producer_id: str
    timeout_ms: int
    state: State = State.EMPTY
    partitions: tuple[Written, ...] = ()
    offsets: Offsets = field(default_factory=dict)
    began_ms: int = 0
    batch: Batch | None = None
    """The last batch that was committed, where its user numbers them: for as long as the register is there."""

    def emptied(self) -> Transaction:
        """Return it with nothing open."""
        return Transaction(self.producer_id, self.timeout_ms, batch=self.batch)

    def widened(self, partitions: Iterable[Written]) -> Transaction:
        """Return it with more partitions."""
        return replace(self, partitions=tuple(dict.fromkeys((*self.partitions, *partitions))))

    def is_overdue(self, now_ms: int) -> bool:
        """Tell whether it has been open for too long."""
        return self.state is State.ONGOING and now_ms - self.began_ms > self.timeout_ms

    def to_json(self) -> Json:
        """Return what the register keeps."""
        kept: Json = {
            "producer_id": self.producer_id,
            "state": self.state,
            "partitions": [list(one) for one in self.partitions],
            "offsets": {group: _rows(offsets) for group, offsets in self.offsets.items()},
            "timeout_ms": self.timeout_ms,
            "began_ms": self.began_ms,
        }
        if self.batch is not None:
            kept["batch"] = self.batch.number
            if self.batch.rows is not None:
                kept["batch_rows"] = self.batch.rows
        return kept

    @classmethod
    def from_json(cls, kept: Json) -> Transaction:
        """Read it back."""
        return cls(
            producer_id=kept["producer_id"],
            timeout_ms=kept["timeout_ms"],
            state=State(kept["state"]),
            partitions=tuple(map(Written.from_json, kept["partitions"])),
            offsets={group: _placed(rows) for group, rows in kept["offsets"].items()},
            began_ms=kept["began_ms"],
            batch=Batch(kept["batch"], kept.get("batch_rows")) if "batch" in kept else None,
        )


def _rows(offsets: Mapping[Place, Committed]) -> list[list[Any]]:
    return [
        [*place, one.offset, one.metadata, one.at_ms, *([] if one.epoch is None else [one.epoch])]
        for place, one in sorted(offsets.items())
    ]


def _placed(rows: list[list[Any]]) -> dict[Place, Committed]:
    placed: dict[Place, Committed] = {}
    for topic_id, partition, offset, metadata, at_ms, *epoch in rows:
        check_texts(topic_id, metadata)
        check_numbers(partition, offset, *([] if at_ms is None else [at_ms]), *epoch)
        placed[topic_id, partition] = Committed(offset, metadata, at_ms, *epoch)
    return placed


# What a head becomes once a transaction is committed or aborted. Pure.


@dataclass(frozen=True, slots=True)
class Decided:
    """A transaction that is committed or aborted. `epoch` is the producer's since then: the transaction was before."""

    transactional_id: str
    transaction: Transaction
    epoch: int

    def settled(self, head: Head, now_ms: int) -> Head | None:
        """Return a head without the open transaction, closed to the producer's epochs before; `None`: it is so."""
        name = self._open_in(head)
        known = head.producers.get(self.transaction.producer_id)
        if name is None and known is not None and known["epoch"] >= self.epoch:
            return None
        is_lasting = known is None or "is_lasting" in known
        who = Identity(self.transaction.producer_id, self.epoch, is_lasting=is_lasting)
        fenced = replace(head, producers=remembering(head, who, -1, now_ms))
        if name is None:
            return fenced
        others = {other: opened for other, opened in head.transactions.items() if other != self.transactional_id}
        return replace(fenced, entries=tuple(self._kept(head, name)), transactions=others)

    def dropped(self, head: Head) -> list[str]:
        """Return the keys of the parts that nobody will read."""
        name = self._open_in(head)
        if name is None or self.transaction.state is not State.ABORTING:
            return []
        return [entry.key for entry in head.entries if entry.txn == name]

    def _kept(self, head: Head, name: str) -> Iterator[Entry]:
        for entry in head.entries:
            if entry.txn != name:
                yield entry
            elif self.transaction.state is State.COMMITTING:
                yield replace(entry, txn=None)

    def _open_in(self, head: Head) -> str | None:
        """Return what entries of this transaction are marked with, where it is open in a partition."""
        opened = head.transactions.get(self.transactional_id)
        if opened is None or opened["epoch"] >= self.epoch:
            return None
        return f"{self.transactional_id}/{opened['epoch']}"


# Carrying out what is decided of transactions: by their producer, by who takes over, by `run`, or by all at once.
#
# Commit: each head drops the marks, then group offsets are committed, then the register is empty. Abort: each head
# drops the transaction's entries, whose offsets stay a gap, then their objects are deleted. Both write the new epoch
# into every head, so that a late append of the old one is refused. Every step may be done again.


def transaction_register(store: ObjectStore, transactional_id: str) -> Register:
    """Return the register of a transactional id.

    Raises:
        UserError: No transactional id can have that name.
    """
    return Register(store, transaction_key(transactional_id), format="reconciler.transaction/1", shape=SHAPE)


def read_transaction(store: ObjectStore, transactional_id: str) -> tuple[Transaction, int] | None:
    """Return what is known of a transactional id, and its epoch; `None` where nobody ever claimed it.

    Raises:
        UserError: It is damaged.
    """
    register = transaction_register(store, transactional_id)
    held = register.read()
    return None if held is None else (transaction_of(register, held), held.epoch)


def transaction_of(register: Register, held: ReadRegister) -> Transaction:
    """Read a transaction back.

    Raises:
        UserError: It is damaged.
    """
    return decoded(register.store, register.key, held.value, Transaction.from_json)


def finish_transactions(store: ObjectStore, catalog: CatalogRegister, now_ms: int) -> int:
    """Finish what is decided and abort what has been open for too long; return how many transactions it was.

    Raises:
        ReconcilerError: One of them could not be finished; the others are.
    """
    finished, failed = 0, None
    idle: list[Listed] = []
    for listed in list(store.list(TRANSACTIONS)):
        transactional_id = transactional_id_of_key(listed.key)
        if transactional_id is None:
            continue
        try:
            found = read_transaction(store, transactional_id)
            if found is not None and found[0].is_overdue(now_ms):
                abort(store, transactional_id, found[1])
            finished += finish(store, catalog, transactional_id, now_ms=now_ms)
            if found is not None and found[0].state is State.EMPTY:
                idle.append(listed)
        except ReconcilerError as error:
            failed = failed or error
    _delete_left(store, catalog, idle)
    if failed is not None:
        raise failed
    return finished


def finish_offsets(
    store: ObjectStore,
    catalog: CatalogRegister,
    topic_ids: Collection[str],
    now_ms: int,
    *,
    may_go_on: Callable[[], None],
) -> None:
    """Carry out what is decided of transactions that commit offsets of these topics: a GET for each transactional id.

    `may_go_on` is asked before each of them.

    Raises:
        ReconcilerError: One of them could not be finished.
    """
    names = [name for each in store.list(TRANSACTIONS) if (name := transactional_id_of_key(each.key)) is not None]
    found = side_by_side(lambda name: read_transaction(store, name), names, name="transactions")
    for name, kept in zip(names, found, strict=True):
        places = () if kept is None else (place for places in kept[0].offsets.values() for place in places)
        if any(topic_id in topic_ids for topic_id, _ in places):
            may_go_on()
            finish(store, catalog, name, now_ms=now_ms)


# Ids of appends that many tasks stage (`EmbeddedAppends`): one for each stream into a topic, one for each other write.


_APPENDS: Final = "topic-log-"
_ONCE: Final = "once-"
_TOPIC_ID: Final = 36
_LEFT_MS: Final = 24 * 60 * 60 * 1000
"""By the store's own clock. No producer waits for so long between taking a register over and using it."""


def appends_id(topic_id: str, stream: str | None) -> str:
    """Return the transactional id of a stream into a topic; of a write that nobody repeats it is a fresh one."""
    return f"{_APPENDS}{topic_id}-{_ONCE}{fresh_mark()}" if stream is None else f"{_APPENDS}{topic_id}-{stream}"


def stream_batches(store: ObjectStore, topic_id: str) -> dict[str, Batch]:
    """Return the last batch of every stream into a topic.

    Raises:
        UserError: The register of one is damaged.
    """
    prefix, found = f"{_APPENDS}{topic_id}-", {}
    for listed in store.list(transaction_key(prefix).removesuffix(".json")):
        name = transactional_id_of_key(listed.key)
        kept = None if name is None else read_transaction(store, name)
        if name is not None and kept is not None and kept[0].batch is not None:
            found[name.removeprefix(prefix)] = kept[0].batch
    return found


def bring_batch(store: ObjectStore, topic_id: str, stream: str, batch: Batch, *, mark: str) -> None:
    """Let a stream into a topic go on after the batch that was its last one elsewhere, unless it has gone on here."""
    fresh = Transaction(fresh_producer_id(), MAX_TIMEOUT_MS, batch=batch).to_json()
    register = transaction_register(store, appends_id(topic_id, stream))
    register.update(lambda held: fresh if held is None else None, mark=mark)


def _delete_left(store: ObjectStore, catalog: CatalogRegister, idle: Sequence[Listed]) -> None:
    """Delete registers of appends that nobody comes back to: the topic is gone, or the write was one that failed."""
    old_ms = store.clock_ms() - _LEFT_MS
    ids = {listed.key: transactional_id_of_key(listed.key) or "" for listed in idle if listed.modified_ms < old_ms}
    appends = {key: name.removeprefix(_APPENDS) for key, name in ids.items() if name.startswith(_APPENDS)}
    if not appends:
        return
    topics = {topic.id for topic in catalog.read().topics.values()}
    store.delete(
        key
        for key, name in appends.items()
        if name[:_TOPIC_ID] not in topics or name[_TOPIC_ID + 1 :].startswith(_ONCE)
    )


def abort(store: ObjectStore, transactional_id: str, epoch: int) -> None:
    """Decide that what is open in an epoch is aborted; nothing is done where that epoch is over."""
    register = transaction_register(store, transactional_id)

    def change(held: ReadRegister | None) -> dict[str, Any] | None:
        if held is None or held.epoch != epoch:
            return None
        found = transaction_of(register, held)
        return replace(found, state=State.ABORTING).to_json() if found.state is State.ONGOING else None

    register.update(change, mark=fresh_mark(), raises_epoch=True)


def finish(store: ObjectStore, catalog: CatalogRegister, transactional_id: str, *, now_ms: int) -> bool:
    """Carry out what is decided of a transactional id, if anything is; say whether it was.

    Raises:
        LostRaceError: Others were faster every time.
    """
    register = transaction_register(store, transactional_id)
    held = register.read()
    decided = None if held is None else decided_in(register, held)
    if decided is None:
        return False
    carry_out(store, catalog, decided, now_ms=now_ms)
    return True


def decided_in(register: Register, held: ReadRegister) -> Decided | None:
    """Return what is to be carried out, where something is."""
    found = transaction_of(register, held)
    transactional_id = transactional_id_of_key(register.key) or ""
    return Decided(transactional_id, found, held.epoch) if found.state in DECIDED else None


def carry_out(store: ObjectStore, catalog: CatalogRegister, decided: Decided, *, now_ms: int) -> None:
    """Bring every partition in line with what is decided, commit the offsets, and empty the register."""
    for written in decided.transaction.partitions:
        _Partition(store, catalog, decided, written, now_ms).carry_out()
    _commit_offsets(store, catalog, decided, now_ms)
    register = transaction_register(store, decided.transactional_id)

    def empty(held: ReadRegister | None) -> dict[str, Any] | None:
        if held is None or held.epoch != decided.epoch:
            return None
        found = transaction_of(register, held)
        return None if found.state is State.EMPTY else found.emptied().to_json()

    register.update(empty, mark=fresh_mark())


@dataclass(frozen=True, slots=True)
class _Partition:
    """One partition that a decided transaction may have written to."""

    store: ObjectStore
    catalog: CatalogRegister
    decided: Decided
    written: Written
    now_ms: int

    def carry_out(self) -> None:
        """Bring it in line, be it never written, or gone with its topic."""
        was_there, dropped = False, list[str]()

        def change(head: Head) -> Head | None:
            nonlocal was_there
            was_there = True
            dropped[:] = self.decided.dropped(head)
            return self.decided.settled(head, self.now_ms)

        swap_head(self.store, Partition(self.written.full_name, self.written.topic_id, self.written.partition), change)
        if not was_there:
            self._fence()
        self.store.delete(dropped)

    def _fence(self) -> None:
        """Make the head of what was never written, so that nobody late makes it; not where the topic is gone."""
        topic = self._topic()
        if topic is None:
            return
        gate = Gate(self.store, self.catalog, self.written.full_name, self.written.topic_id, writer_of(topic))
        try:
            gate.swap(
                self.written.partition,
                lambda head, _epoch: self.decided.settled(head, self.now_ms),
                mark=fresh_mark(),
            )
        except UserError:
            after = self._topic()
            if after is not None and writer_of(after) == gate.writer:
                raise
            if after is not None:  # A migration took it, or let go of it, meanwhile: the head is there all the same.
                self.carry_out()

    def _topic(self) -> TopicEntry | None:
        return topic_with_id(self.catalog.read(), self.written.topic_id, self.written.full_name)


def _commit_offsets(store: ObjectStore, catalog: CatalogRegister, decided: Decided, now_ms: int) -> None:
    if decided.transaction.state is not State.COMMITTING or not decided.transaction.offsets:
        return
    # Whoever is slow must not set back what the group committed since: the register says whether it is still to do.
    found = read_transaction(store, decided.transactional_id)
    if found is None or found[1] != decided.epoch or found[0].state is not State.COMMITTING:
        return
    mark = f"{decided.transaction.producer_id}-{decided.epoch}"
    for group, offsets in decided.transaction.offsets.items():
        put_offsets(store, catalog, group, offsets, mark=mark, now_ms=now_ms)


# The register of a transactional id: claimed, widened and decided, each by one swap.
#
# Its epoch is that of the producer: to claim it, to begin and to decide raise it, so that whoever held it before can do
# nothing more. Nothing is appended to a partition that the register does not name yet.


MAX_TIMEOUT_MS: Final = 900_000
"""As Kafka's `transaction.max.timeout.ms`."""


def claim(
    store: ObjectStore, catalog: CatalogRegister, transactional_id: str, *, timeout_ms: int, delivery: Delivery
) -> Identity:
    """Become the one producer of a transactional id: what was open is aborted, what was decided is finished.

    Raises:
        UserError: The id or the time-out cannot be, or its register is damaged.
        ProducerFencedError: Another one claimed it at the same time.
        RetryableError: It was not possible in time.
    """
    _check_timeout(timeout_ms)
    register, mark = transaction_register(store, transactional_id), fresh_mark()
    producer_id, epoch = fresh_producer_id(), 0

    def change(held: ReadRegister | None) -> dict[str, Any] | None:
        nonlocal producer_id, epoch
        if held is None:
            epoch = 1
            return Transaction(producer_id, timeout_ms).to_json()
        found = transaction_of(register, held)
        if found.state is not State.EMPTY:
            return None
        producer_id, epoch = found.producer_id, held.epoch + 1
        return replace(found.emptied(), timeout_ms=timeout_ms).to_json()

    def attempt() -> ReadRegister | None:
        while True:
            held = register.update(change, mark=mark, raises_epoch=True)
            if held is None or mark in held.marks:
                return held
            if transaction_of(register, held).state is State.ONGOING:
                abort(store, transactional_id, held.epoch)
            finish(store, catalog, transactional_id, now_ms=delivery.now_ms())

    held = delivery.deliver(attempt, f"taking over transactional id {transactional_id}")
    _check_mine(transactional_id, epoch, held)
    return Identity(producer_id, epoch, transactional_id, is_lasting=True)


def begin(store: ObjectStore, who: Identity, partitions: Sequence[Written], *, mark: str, now_ms: int) -> Identity:
    """Open a transaction that may write to some partitions, and return who writes there: the next epoch.

    Raises:
        ProducerFencedError: Somebody took over.
    """

    def opened(found: Transaction) -> Transaction:
        return replace(found.emptied(), state=State.ONGOING, partitions=tuple(partitions), began_ms=now_ms)

    return _raised(store, who, {State.EMPTY}, opened, mark=mark)


def widen(store: ObjectStore, who: Identity, partitions: Sequence[Written], *, mark: str) -> None:
    """Let an open transaction write to more partitions.

    Raises:
        ProducerFencedError: Somebody took over, or aborted it for its time-out.
    """
    register = _register_of(store, who)

    def change(held: ReadRegister | None) -> dict[str, Any]:
        return _mine(register, held, who, {State.ONGOING}).widened(partitions).to_json()

    _check_mine(who.transactional_id, who.epoch, register.update(change, mark=mark))


def decide(  # noqa: PLR0913 - all of it is one decision, and what may refuse it
    store: ObjectStore,
    who: Identity,
    state: State,
    offsets: Offsets,
    *,
    mark: str,
    batch: Batch | None = None,
    check: Callable[[], None] = lambda: None,
) -> Decided | None:
    """Decide a transaction: from here on it is committed, or aborted, whatever happens. Return what is to be done.

    `batch` says which batch of its user's is committed; the register keeps it. `check` may refuse to decide: it is
    asked before each swap.

    Doing it again with the same mark is harmless; `None`: somebody has carried it out in the meantime.

    Raises:
        ProducerFencedError: Somebody took over, or aborted it for its time-out.
    """
    register = _register_of(store, who)

    def change(held: ReadRegister | None) -> dict[str, Any]:
        found = _mine(register, held, who, {State.EMPTY, State.ONGOING})
        check()
        numbered = found if batch is None else replace(found, batch=batch)
        return replace(numbered, state=state, offsets=offsets).to_json()

    held = register.update(change, mark=mark, raises_epoch=True)
    found = None if held is None else decided_in(register, held)
    return found if found is not None and found.epoch == who.epoch + 1 else None


def check_claimed(store: ObjectStore, who: Identity, state: State = State.ONGOING) -> Transaction:
    """Return what is known of a transactional id; refuse to go on where another producer took over.

    Raises:
        ProducerFencedError: Somebody did.
    """
    register = _register_of(store, who)
    return _mine(register, register.read(), who, {state})


def _raised(
    store: ObjectStore, who: Identity, states: set[State], change: Callable[[Transaction], Transaction], *, mark: str
) -> Identity:
    register = _register_of(store, who)

    def changed(held: ReadRegister | None) -> dict[str, Any]:
        return change(_mine(register, held, who, states)).to_json()

    held = register.update(changed, mark=mark, raises_epoch=True)
    _check_mine(who.transactional_id, who.epoch + 1, held)
    return replace(who, epoch=who.epoch + 1)


def _mine(register: Register, held: ReadRegister | None, who: Identity, states: set[State]) -> Transaction:
    """Return what the register holds, if it is still as its producer left it."""
    if held is None or held.epoch != who.epoch:
        raise _fenced(who.transactional_id)
    found = transaction_of(register, held)
    if found.producer_id != who.producer_id or found.state not in states:
        raise _fenced(who.transactional_id)
    return found


def _check_mine(transactional_id: str | None, epoch: int, held: ReadRegister | None) -> None:
    # A swap that landed without an answer is known by its mark; by then somebody may have taken over.
    if held is None or held.epoch != epoch:
        raise _fenced(transactional_id)


def _fenced(transactional_id: str | None) -> ProducerFencedError:
    return ProducerFencedError(
        f"There is a newer producer with the same transactionalId which fences the current one: {transactional_id} "
        "was taken over, or its transaction was aborted for its time-out",
        hint="Nothing of the transaction will be readable. Stop this producer; init_transactions() takes over again.",
    )


def _register_of(store: ObjectStore, who: Identity) -> Register:
    return transaction_register(store, who.transactional_id or "")


def _check_timeout(timeout_ms: int) -> None:
    if not 0 < timeout_ms <= MAX_TIMEOUT_MS:
        raise UserError(
            f"a transaction time-out of {timeout_ms:,} ms: The transaction timeout is larger than the maximum value "
            "allowed, or not positive",
            hint=f"It is 1 to {MAX_TIMEOUT_MS:,} ms.",
        )
