"""Conditional writes that may get no response, or a response to an earlier attempt.

After an error, the object is read. If it has our body, the write succeeded. If it has the expected version, the write
is retried. Otherwise another writer came first.

A write must end before its lease. No attempt begins after `PATIENCE_SECONDS`, and requests have timeouts, so the last
write ends within 15 s, and the swap within 27 s. The holder of a lease of 90 s begins no write in the last 30 s, and
gives the lease up 15 s before its end.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from reconciler.errors import ReconcilerError, RetryableError, UnansweredError
from reconciler.objectstore.base import StoredObject, Version, verify_own_write
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.retry import Backoff, Tries

PATIENCE_SECONDS: Final = 3.0
"""Seconds after which no attempt begins."""
TRIES: Final = 10
_BACKOFF: Final = Backoff(first_s=0.1, longest_s=1.0, spread=0.5)


class WriteOutcome(StrEnum):
    """Outcome of a failed write."""

    REFUSED = "the condition does not hold"
    UNKNOWN = "it may have been written or not"


@dataclass(frozen=True, slots=True)
class WriteFailure:
    """A refused or unanswered write, with its error."""

    outcome: WriteOutcome
    error: ReconcilerError


@dataclass(frozen=True, slots=True)
class ConditionalWrite:
    """A conditional write, and a read that verifies it."""

    put: Callable[[], Version | WriteFailure]
    read: Callable[[], StoredObject | None]

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Write `body` if the object has the version `expected`; retry until the outcome is known.

        Raises:
            LostRaceError: Another writer came first.
            UnansweredError: The outcome is unknown, and reading the object failed.
        """
        tries = Tries(_BACKOFF, attempts=TRIES, within_s=PATIENCE_SECONDS)
        while True:
            written = self.put()
            if not isinstance(written, WriteFailure):
                return written
            stored = self._read_back()
            current = None if stored is None else stored.version
            if written.outcome is WriteOutcome.REFUSED or current != expected:
                return verify_own_write(key, body, stored)
            pause_s = _BACKOFF.compute_pause(tries.failed + 1)
            if tries.would_end_after(pause_s):
                error = written.error
                raise UnansweredError(error.message, hint=error.hint) from error
            tries.wait(pause_s)

    def _read_back(self) -> StoredObject | None:
        try:
            return self.read()
        except RetryableError as error:
            raise UnansweredError(error.message, hint=error.hint) from error
