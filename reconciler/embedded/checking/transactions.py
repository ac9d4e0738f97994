"""Transactions looked at: their registers, and whether what a partition holds open is open there too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from reconciler.embedded.checking.findings import Finding, Kind, Place
from reconciler.embedded.keys import head_key, transactional_id_of_key
from reconciler.embedded.partition.head import read_head
from reconciler.embedded.transactions.finishing import read_transaction
from reconciler.embedded.transactions.state import DECIDED, State
from reconciler.errors import UserError

if TYPE_CHECKING:
    from reconciler.embedded.transactions.state import Transaction
    from reconciler.objectstore.base import ObjectStore


class Opened(NamedTuple):
    """A transaction that a partition holds open, and the producer epoch it is of."""

    transactional_id: str
    epoch: int
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class TransactionCheck:
    """Looks at transactions, from any thread. `now_ms` is the store's time."""

    store: ObjectStore
    now_ms: int

    def look(self, key: str) -> list[Finding]:
        """Look at the transactional id whose register has this key."""
        name = transactional_id_of_key(key)
        if name is None:
            return [Finding(Kind.FOREIGN, f"{key} is no transactional id's", Place(key))]
        try:
            found = read_transaction(self.store, name)
            if found is not None and found[0].state in DECIDED:
                found = read_transaction(self.store, name)  # its producer may just be carrying it out
        except UserError as error:
            return [Finding(Kind.TRANSACTION_DAMAGED, error.message, Place(key))]
        if found is None:
            return []
        if found[0].state in DECIDED:
            what = f"{name} is {found[0].state} in {len(found[0].partitions):,} partitions, and nobody goes on with it"
            return [Finding(Kind.TRANSACTION_UNFINISHED, what, Place(key))]
        if found[0].is_overdue(self.now_ms):
            age_ms = self.now_ms - found[0].began_ms
            what = f"{name} has been open for {age_ms // 1000:,} s, longer than its {found[0].timeout_ms // 1000:,} s"
            return [Finding(Kind.TRANSACTION_OVERDUE, what, Place(key), age_ms=age_ms)]
        return []

    def look_at_open(self, opened: Opened) -> list[Finding]:
        """Look at whether what a partition holds open is open; by then it may have ended."""
        try:
            found = read_transaction(self.store, opened.transactional_id)
            if _is_known(found, opened.epoch):
                return []
            head = read_head(self.store, opened.topic_id, opened.partition)
        except UserError:
            return []  # what cannot be read is a finding of its own
        still = {} if head is None else head.transactions.get(opened.transactional_id, {})
        if still.get("epoch") != opened.epoch:
            return []
        what = f"transaction {opened.transactional_id} of epoch {opened.epoch} is open here, and not by its register"
        key = head_key(opened.topic_id, opened.partition)
        return [Finding(Kind.TRANSACTION_UNKNOWN, what, Place(key, None, opened.partition))]


def _is_known(found: tuple[Transaction, int] | None, epoch: int) -> bool:
    """Tell whether a register knows of what is open in an epoch: it is going on, or decided and not carried out."""
    if found is None:
        return False
    transaction, now = found
    return now == epoch if transaction.state is State.ONGOING else transaction.state in DECIDED and now > epoch
