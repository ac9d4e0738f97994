"""Carrying out what is decided of transactions: by their producer, by who takes over, by `run`, or by all at once.

Commit: each head drops the marks, then group offsets are committed, then the register is empty. Abort: each head drops
the transaction's entries, whose offsets stay a gap, then their objects are deleted. Both write the new epoch into every
head, so that a late append of the old one is refused. Every step may be done again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from reconciler.embedded.catalog.lookups import topic_with_id
from reconciler.embedded.consuming.groups import put_offsets
from reconciler.embedded.jsonobjects import damaged
from reconciler.embedded.keys import TRANSACTIONS, fresh_mark, transaction_key, transactional_id_of_key
from reconciler.embedded.partition.gate import Gate, writer_of
from reconciler.embedded.partition.headswaps import Partition, swap_head
from reconciler.embedded.transactions.decided import Decided
from reconciler.embedded.transactions.state import DECIDED, SHAPE, State, Transaction
from reconciler.errors import ReconcilerError, UserError
from reconciler.objectstore.register import Register

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.entries import TopicEntry
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.transactions.state import Written
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import Held


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


def transaction_of(register: Register, held: Held) -> Transaction:
    """Read a transaction back.

    Raises:
        UserError: It is damaged.
    """
    try:
        return Transaction.from_json(held.value)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise damaged(register.store, register.key, f"{type(error).__name__}: {error}") from error


def finish_transactions(store: ObjectStore, catalog: CatalogRegister, now_ms: int) -> int:
    """Finish what is decided and abort what has been open for too long; return how many transactions it was.

    Raises:
        ReconcilerError: One of them could not be finished; the others are.
    """
    finished, failed = 0, None
    for listed in list(store.list(TRANSACTIONS)):
        transactional_id = transactional_id_of_key(listed.key)
        if transactional_id is None:
            continue
        try:
            found = read_transaction(store, transactional_id)
            if found is not None and found[0].is_overdue(now_ms):
                abort(store, transactional_id, found[1])
            finished += finish(store, catalog, transactional_id, now_ms=now_ms)
        except ReconcilerError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return finished


def abort(store: ObjectStore, transactional_id: str, epoch: int) -> None:
    """Decide that what is open in an epoch is aborted; nothing is done where that epoch is over."""
    register = transaction_register(store, transactional_id)

    def change(held: Held | None) -> dict[str, Any] | None:
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


def decided_in(register: Register, held: Held) -> Decided | None:
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

    def empty(held: Held | None) -> dict[str, Any] | None:
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
