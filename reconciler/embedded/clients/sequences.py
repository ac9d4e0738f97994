"""Producer sequences, and retries until the delivery timeout.

Each record of a producer has a number in its partition, from 0 in each epoch; after 2^31 - 1 comes 0 again. Heads keep
each producer's epoch and last number for 24 hours; of a producer they do not know they take any number, as Kafka does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from reconciler.errors import LostRaceError, OutOfOrderSequenceError, ProducerFencedError, RetryableError
from reconciler.objectstore.register import PATIENCE_S
from reconciler.records.log import OffsetRange
from reconciler.runtime.retry import Backoff, Tries

if TYPE_CHECKING:
    from reconciler.archives.entries import Entry
    from reconciler.embedded.segments.head import Head


Json = dict[str, Any]

SEQUENCES: Final = 1 << 31
KEPT_MS: Final = 24 * 60 * 60 * 1000
PASSING_KEPT: Final = 500
"""How many producers a head knows at most that took a fresh id: each is done with it when its process ends."""

_AGAIN = (
    "Nothing was appended. Ask the partition for the last sequence number it has of this producer, and go on there."
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who appends: a producer in one of its epochs, in a transaction where it has a `transactional_id`.

    `is_lasting`: another process may come back under this id.
    """

    producer_id: str
    epoch: int = 0
    transactional_id: str | None = None
    is_lasting: bool = False

    @property
    def transaction(self) -> str | None:
        """The transaction as entries name it while it is open."""
        return None if self.transactional_id is None else f"{self.transactional_id}/{self.epoch}"


@dataclass(frozen=True, slots=True)
class Numbered:
    """What one producer wants at the end of one partition: `count` records, the first of them numbered `first`."""

    identity: Identity
    first: int
    count: int

    @property
    def last(self) -> int:
        """The number of its last record."""
        return advanced(self.first, self.count - 1)

    def signed(self, parts: Iterable[Entry]) -> list[Entry]:
        """Return its parts, numbered from offset 0, with who wrote them and in which transaction."""
        return [
            replace(
                part,
                producer={
                    "id": self.identity.producer_id,
                    "epoch": self.identity.epoch,
                    "first": advanced(self.first, part.base),
                    "last": advanced(self.first, part.last),
                },
                txn=self.identity.transaction,
            )
            for part in parts
        ]


def advanced(sequence: int, count: int) -> int:
    """Return the number `count` records after another."""
    return (sequence + count) % SEQUENCES


def is_there(head: Head, batch: Numbered, where: str, now_ms: int) -> bool:
    """Tell whether a partition has a batch already; `where` names the partition.

    A producer that it has not heard of for 24 hours is forgotten, whether others have appended since or not.

    Raises:
        ProducerFencedError: The partition knows a later epoch of the producer.
        OutOfOrderSequenceError: The batch is neither the next nor wholly there.
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
    # What is numbered above the last is of before the numbers began again, if anything: only its place proves that.
    if is_behind and (batch.first <= batch.last <= known["last"] or offsets_of(head, batch) is not None):
        return True
    raise OutOfOrderSequenceError(
        f"Out of order sequence number for producer {batch.identity.producer_id} in {where}: "
        f"{batch.first} (incoming seq. number), {known['last']} (current end sequence number)",
        hint=_AGAIN,
    )


def offsets_of(head: Head, batch: Numbered) -> OffsetRange | None:
    """Return where a batch lies that is there; `None` where the head no longer tells."""
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


def remembering(head: Head, identity: Identity, last: int, now_ms: int) -> Json:
    """Return what a head knows of producers once it has one's record numbered `last`; what is too old goes."""
    known = {
        producer_id: state
        for producer_id, state in head.producers.items()
        if producer_id != identity.producer_id and now_ms - state["at_ms"] <= KEPT_MS
    }
    passing = [producer_id for producer_id, state in known.items() if "is_lasting" not in state]
    for producer_id in passing[: max(0, len(passing) - PASSING_KEPT + 1)]:
        del known[producer_id]
    state: Json = {"epoch": identity.epoch, "last": last, "at_ms": now_ms}
    known[identity.producer_id] = state | {"is_lasting": True} if identity.is_lasting else state
    return known


def check_sequence(sequence: int) -> None:
    """Refuse what is not a sequence number.

    Raises:
        OutOfOrderSequenceError: It is negative, or too large.
    """
    if not 0 <= sequence < SEQUENCES:
        message = f"{sequence} is not a sequence number"
        raise OutOfOrderSequenceError(message, hint=f"They go from 0 to {SEQUENCES - 1:,} and then begin at 0 again.")


def _check_epoch(known: Json, batch: Numbered, where: str) -> None:
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


# Trying again until a time-out: what stores and races refuse for the moment, a writer does not give up on at once.


T = TypeVar("T")

DELIVERY_TIMEOUT_MS: Final = 120_000
"""As Kafka's `delivery.timeout.ms`."""
_BACKOFF: Final = Backoff(first_s=0.04, longest_s=2.0, spread=0.5)


@dataclass(frozen=True, slots=True)
class Delivery:
    """How long a writer goes on. `now_ms` is the clock of records; the time-out goes by none that can be set."""

    now_ms: Callable[[], int]
    timeout_ms: int = DELIVERY_TIMEOUT_MS

    @property
    def patience_s(self) -> float:
        """How long one swap may be tried: not longer than all of it."""
        return min(self.timeout_ms / 1000, PATIENCE_S)

    def deliver(self, attempt: Callable[[], T], what: str) -> T:
        """Return what an attempt returns, which may be made many times; `what` begins the sentence that it failed.

        Raises:
            RetryableError: None succeeded in time; says whether one may have, unseen.
        """
        tries = Tries(_BACKOFF, within_s=self.timeout_ms / 1000)
        while True:
            try:
                return attempt()
            except RetryableError as error:
                if tries.is_over:
                    raise _undelivered(what, tries.spent_s, error) from error
            tries.wait()


def _undelivered(what: str, spent_s: float, error: RetryableError) -> RetryableError:
    message = f"{what} was given up after {spent_s:,.0f} s: {error.message}"
    # Who lost a race has seen what stands there instead: nothing of the tries before can land any more.
    if isinstance(error, LostRaceError):
        return RetryableError(f"{message}; nothing of it was written", hint="Try it again: others were faster.")
    return RetryableError(f"{message}; it may have been written or not", hint=error.hint)
