"""What a head becomes once a transaction is committed or aborted. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reconciler.embedded.producing.sequences import Identity, remembering
from reconciler.embedded.transactions.state import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.transactions.state import Transaction


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
        who = Identity(self.transaction.producer_id, self.epoch, is_lasting=True)
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
