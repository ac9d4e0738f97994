"""The register of a transactional id: claimed, widened and decided, each by one swap.

Its epoch is that of the producer: to claim it, to begin and to decide raise it, so that whoever held it before can do
nothing more. Nothing is appended to a partition that the register does not name yet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.embedded.keys import fresh_mark, fresh_producer_id
from reconciler.embedded.producing.sequences import Identity
from reconciler.embedded.transactions.finishing import (
    abort,
    decided_in,
    finish,
    transaction_of,
    transaction_register,
)
from reconciler.embedded.transactions.state import State, Transaction
from reconciler.errors import ProducerFencedError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.producing.delivery import Delivery
    from reconciler.embedded.transactions.decided import Decided
    from reconciler.embedded.transactions.state import Offsets, Written
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import Held, Register

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

    def change(held: Held | None) -> dict[str, Any] | None:
        nonlocal producer_id, epoch
        if held is None:
            epoch = 1
            return Transaction(producer_id, timeout_ms).to_json()
        found = transaction_of(register, held)
        if found.state is not State.EMPTY:
            return None
        producer_id, epoch = found.producer_id, held.epoch + 1
        return Transaction(producer_id, timeout_ms).to_json()

    def attempt() -> Held | None:
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

    def change(held: Held | None) -> dict[str, Any]:
        return _mine(register, held, who, {State.ONGOING}).widened(partitions).to_json()

    _check_mine(who.transactional_id, who.epoch, register.update(change, mark=mark))


def decide(store: ObjectStore, who: Identity, state: State, offsets: Offsets, *, mark: str) -> Decided | None:
    """Decide a transaction: from here on it is committed, or aborted, whatever happens. Return what is to be done.

    Doing it again with the same mark is harmless; `None`: somebody has carried it out in the meantime.

    Raises:
        ProducerFencedError: Somebody took over, or aborted it for its time-out.
    """
    register = _register_of(store, who)

    def change(held: Held | None) -> dict[str, Any]:
        found = _mine(register, held, who, {State.EMPTY, State.ONGOING})
        return replace(found, state=state, offsets=offsets).to_json()

    held = register.update(change, mark=mark, raises_epoch=True)
    found = None if held is None else decided_in(register, held)
    return found if found is not None and found.epoch == who.epoch + 1 else None


def check_claimed(store: ObjectStore, who: Identity) -> None:
    """Refuse to go on where somebody took over.

    Raises:
        ProducerFencedError: Somebody did.
    """
    register = _register_of(store, who)
    _mine(register, register.read(), who, {State.ONGOING})


def _raised(
    store: ObjectStore, who: Identity, states: set[State], change: Callable[[Transaction], Transaction], *, mark: str
) -> Identity:
    register = _register_of(store, who)

    def changed(held: Held | None) -> dict[str, Any]:
        return change(_mine(register, held, who, states)).to_json()

    held = register.update(changed, mark=mark, raises_epoch=True)
    _check_mine(who.transactional_id, who.epoch + 1, held)
    return replace(who, epoch=who.epoch + 1)


def _mine(register: Register, held: Held | None, who: Identity, states: set[State]) -> Transaction:
    """Return what the register holds, if it is still as its producer left it."""
    if held is None or held.epoch != who.epoch:
        raise _fenced(who.transactional_id)
    found = transaction_of(register, held)
    if found.producer_id != who.producer_id or found.state not in states:
        raise _fenced(who.transactional_id)
    return found


def _check_mine(transactional_id: str | None, epoch: int, held: Held | None) -> None:
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
