"""Publishing: parts that are durable become readable at the end of their partition, once, by one swap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reconciler.embedded.keys import fresh_mark, part_key
from reconciler.embedded.partition.entries import STALE_MS
from reconciler.embedded.producing.sequences import Identity, Numbered, is_there, offsets_of, remembering
from reconciler.errors import BrokenInvariantError, MissingObjectError, UserError
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.partition.gate import Gate
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.producing.delivery import Delivery


class _StaleError(Exception):
    """The parts have waited too long."""


@dataclass(slots=True)
class Append:
    """Parts of one partition, numbered from 0, durable and named by nobody yet. `put_ms`: since when."""

    gate: Gate
    partition: int
    parts: list[Entry]
    put_ms: int

    @property
    def records(self) -> int:
        """How many records they hold."""
        return self.parts[-1].last + 1

    @property
    def where(self) -> str:
        """The partition, in sentences."""
        return f"{self.gate.full_name}, partition {self.partition}"


def publish(
    append: Append, batch: Numbered, delivery: Delivery, still_wanted: Callable[[], None] = lambda: None
) -> OffsetRange | None:
    """Make an append readable and return its offsets, also where it was readable already; `None`: nobody can tell.

    A lost race repeats only the swap. `still_wanted` raises where a writer that slept for long may not go on.

    Raises:
        UserError: The topic is gone, or the partition belongs to another writer.
        ProducerFencedError: The partition knows a later epoch of the producer.
        OutOfOrderSequenceError: The batch is neither the next nor wholly there.
        RetryableError: It was not possible in time; says whether it may be there.
    """
    mark = fresh_mark()
    offsets: OffsetRange | None = None

    def extend(head: Head, epoch: int) -> Head | None:
        nonlocal offsets
        if is_there(head, batch, append.where):
            offsets = offsets_of(head, batch)
            return None
        now_ms = delivery.now_ms()
        if now_ms - append.put_ms > STALE_MS:
            raise _StaleError
        offsets = OffsetRange(head.end, head.end + batch.count)
        return _extended(head, append.parts, batch, epoch, now_ms)

    def attempt() -> OffsetRange | None:
        while True:
            try:
                append.gate.swap(append.partition, extend, mark=mark, patience_s=delivery.patience_s)
            except _StaleError:
                still_wanted()
                _put_again(append, delivery.now_ms())
            else:
                return offsets

    return delivery.deliver(attempt, f"the append to {append.where}")


def _extended(head: Head, parts: list[Entry], batch: Numbered, epoch: int, now_ms: int) -> Head:
    return replace(
        head,
        entries=(*head.entries, *[part.placed(head.end, epoch) for part in batch.signed(parts)]),
        end=head.end + batch.count,
        producers=remembering(head, batch.identity, batch.last, now_ms),
        transactions=_with_opened(head, batch.identity),
    )


def _with_opened(head: Head, who: Identity) -> dict[str, object]:
    if who.transactional_id is None:
        return head.transactions
    opened = head.transactions.get(who.transactional_id)
    if opened is None:
        return {**head.transactions, who.transactional_id: {"epoch": who.epoch, "base": head.end}}
    if opened["epoch"] != who.epoch:
        message = f"transaction {who.transactional_id}/{opened['epoch']} is open beneath {who.transaction}"
        raise BrokenInvariantError(message, hint="Please report this, with what `cluster check` says.")
    return head.transactions


def _put_again(append: Append, now_ms: int) -> None:
    """Put parts under new names: the old ones may be swept at any moment."""
    store = append.gate.store
    try:
        for position, part in enumerate(append.parts):
            key = part_key(append.gate.full_name, append.partition)
            store.copy_in(key, store, part.key, kms_key_id=part.kms_key_id)
            append.parts[position] = replace(part, key=key)
    except MissingObjectError as error:
        message = f"the append to {append.where} waited so long that its parts were swept; nothing of it was written"
        raise UserError(message, hint="Append the records again.") from error
    append.put_ms = now_ms
