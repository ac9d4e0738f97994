"""Sequence numbers of producers, and retries until the delivery timeout.

A head stores each producer's epoch and last sequence number for 24 hours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from reconciler.errors import LostRaceError, OutOfOrderSequenceError, ProducerFencedError, RetryableError
from reconciler.objectstore.register import PATIENCE_S
from reconciler.records.log import OffsetRange
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.retry import Backoff, Tries

if TYPE_CHECKING:
    from reconciler.archives.entries import Entry
    from reconciler.embedded.segments.head import Head


Json = dict[str, Any]

SEQUENCES: Final = 1 << 31
KEPT_MS: Final = 24 * 60 * 60 * 1000
MAX_PASSING_PRODUCERS: Final = 500
"""Maximum producers in a head whose id only one process uses."""

_AGAIN = "Nothing was appended. Ask the partition for the producer's last sequence number, and continue from it."


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """A producer in one epoch. If `is_lasting`, other processes may continue under its id."""

    producer_id: str
    epoch: int = 0
    transactional_id: str | None = None
    is_lasting: bool = False

    @property
    def transaction_mark(self) -> str | None:
        """Mark of entries in the open transaction; `None` without a transactional id."""
        return None if self.transactional_id is None else f"{self.transactional_id}/{self.epoch}"


@dataclass(frozen=True, slots=True)
class SequencedBatch:
    """A batch of `count` records for one partition, from sequence number `first`."""

    identity: ProducerIdentity
    first: int
    count: int

    @property
    def last(self) -> int:
        """Sequence number of the last record."""
        return advance_sequence(self.first, self.count - 1)

    def mark_entries(self, parts: Iterable[Entry]) -> list[Entry]:
        """Return parts as entries with the batch's producer and transaction."""
        return [
            replace(
                part,
                producer={
                    "id": self.identity.producer_id,
                    "epoch": self.identity.epoch,
                    "first": advance_sequence(self.first, part.base),
                    "last": advance_sequence(self.first, part.last),
                },
                txn=self.identity.transaction_mark,
            )
            for part in parts
        ]


def advance_sequence(sequence: int, count: int) -> int:
    """Return the sequence number `count` records later."""
    return (sequence + count) % SEQUENCES


def is_batch_stored(head: Head, batch: SequencedBatch, where: str, now_ms: int) -> bool:
    """Whether a partition already has a batch; `where` names the partition in errors.

    Raises:
        ProducerFencedError: The partition has a later epoch.
        OutOfOrderSequenceError: The batch does not follow the last one, and is not completely stored.
    """
    known = head.producers.get(batch.identity.producer_id)
    if known is None or now_ms - known["at_ms"] > KEPT_MS:
        return False
    _check_epoch(known, batch, where)
    if batch.identity.epoch > known["epoch"]:
        return False
    ahead = (batch.first - known["last"] - 1) % SEQUENCES
    if ahead == 0:
        return False
    is_behind = ahead >= SEQUENCES // 2 and (known["last"] - batch.last) % SEQUENCES < SEQUENCES // 2
    # A batch behind the last one with higher numbers precedes the wrap to 0.
    if is_behind and (batch.first <= batch.last <= known["last"] or find_batch_offsets(head, batch) is not None):
        return True
    raise OutOfOrderSequenceError(
        f"Out of order sequence number for producer {batch.identity.producer_id} in {where}: "
        f"{batch.first} (incoming seq. number), {known['last']} (current end sequence number)",
        hint=_AGAIN,
    )


def find_batch_offsets(head: Head, batch: SequencedBatch) -> OffsetRange | None:
    """Return a stored batch's offsets; `None` if the head no longer has them."""
    first = last = None
    for entry in head.entries:
        who = entry.producer
        if who is None or (who["id"], who["epoch"]) != (batch.identity.producer_id, batch.identity.epoch):
            continue
        from_first, to_last = (batch.first - who["first"]) % SEQUENCES, (batch.last - who["first"]) % SEQUENCES
        length = entry.last - entry.base
        first = entry.base + from_first if from_first <= length else first
        last = entry.base + to_last if to_last <= length else last
    return None if first is None or last is None else OffsetRange(first, last + 1)


def update_producers(head: Head, identity: ProducerIdentity, last: int, now_ms: int) -> Json:
    """Return a head's producers after `identity` wrote the sequence number `last`."""
    known = {
        producer_id: state
        for producer_id, state in head.producers.items()
        if producer_id != identity.producer_id and now_ms - state["at_ms"] <= KEPT_MS
    }
    passing = [producer_id for producer_id, state in known.items() if "is_lasting" not in state]
    for producer_id in passing[: max(0, len(passing) - MAX_PASSING_PRODUCERS + 1)]:
        del known[producer_id]
    state: Json = {"epoch": identity.epoch, "last": last, "at_ms": now_ms}
    known[identity.producer_id] = state | {"is_lasting": True} if identity.is_lasting else state
    return known


def check_sequence(sequence: int) -> None:
    """Reject a negative or too large sequence number."""
    if not 0 <= sequence < SEQUENCES:
        message = f"{sequence} is not a sequence number"
        raise OutOfOrderSequenceError(
            message, hint=f"Sequence numbers go from 0 to {SEQUENCES - 1:,} and then begin at 0 again."
        )


def _check_epoch(known: Json, batch: SequencedBatch, where: str) -> None:
    who, epoch = batch.identity.producer_id, batch.identity.epoch
    if epoch < known["epoch"]:
        raise ProducerFencedError(
            f"Epoch of producer {who} in {where} is {epoch}, which is smaller than the last seen epoch "
            f"{known['epoch']}",
            hint="Another producer took its id over; nothing was appended. Stop this producer, or create a new one.",
        )
    if epoch > known["epoch"] and batch.first != 0:
        raise OutOfOrderSequenceError(
            f"Invalid sequence number for new epoch of producer {who} in {where}: {epoch} (request epoch), "
            f"{batch.first} (seq. number), {known['epoch']} (current producer epoch)",
            hint="Every epoch begins at 0 in every partition. Nothing was appended.",
        )


T = TypeVar("T")

DELIVERY_TIMEOUT_MS: Final = 120_000
"""Default of Kafka's `delivery.timeout.ms`."""
_BACKOFF: Final = Backoff(first_s=0.04, longest_s=2.0, spread=0.5)


@dataclass(frozen=True, slots=True)
class Delivery:
    """Retries until a timeout on the monotonic clock; `now_ms` returns timestamps."""

    now_ms: Callable[[], int]
    timeout_ms: int = DELIVERY_TIMEOUT_MS

    @property
    def patience_s(self) -> float:
        """Maximum seconds for a swap."""
        return min(self.timeout_ms / 1000, PATIENCE_S)

    def retry_until_timeout(self, attempt: Callable[[], T], what: str) -> T:
        """Return the result of `attempt`, called until it succeeds. `what` begins the error message.

        Raises:
            RetryableError: No attempt succeeded in time; the error tells whether records may be stored.
        """
        tries = Tries(_BACKOFF, within_s=self.timeout_ms / 1000)
        while True:
            try:
                return attempt()
            except RetryableError as error:
                if tries.has_ended:
                    raise _undelivered_error(what, tries.elapsed_s, error) from error
            tries.wait()


def _undelivered_error(what: str, spent_s: float, error: RetryableError) -> RetryableError:
    message = f"{what} was abandoned after {spent_s:,.0f} s: {error.message}"
    # A lost race proves that no attempt has succeeded.
    if isinstance(error, LostRaceError):
        return RetryableError(f"{message}; nothing of it was written", hint="Try again: another process wrote first.")
    return RetryableError(f"{message}; it may have been written or not", hint=error.hint)
