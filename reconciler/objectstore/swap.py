"""Conditional writes whose answer may be lost, late, or about an earlier try.

After every answer but success the object is read. If it has our body, the write succeeded. If it has the expected
version, the write is retried. Otherwise another writer was first.

A lease holder's write must not outlast the lease. No try begins after `PATIENCE_SECONDS`, and requests have timeouts:
the last write ends within 15 s, the swap within 27 s. A lease of 90 s is given up 15 s before its end, and nothing new
begins 30 s before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from reconciler.errors import ReconcilerError, RetryableError, UnansweredError
from reconciler.objectstore.base import StoredObject, Version, verify_own_write
from reconciler.runtime.retry import Backoff, Tries

PATIENCE_SECONDS: Final = 3.0
"""No retry begins after this time."""
TRIES: Final = 10
_BACKOFF: Final = Backoff(first_s=0.1, longest_s=1.0, spread=0.5)


class WriteOutcome(StrEnum):
    """Outcome of a write that did not succeed."""

    REFUSED = "the condition does not hold"
    UNKNOWN = "it may have been written or not"


@dataclass(frozen=True, slots=True)
class WriteFailure:
    """A refused or unanswered write, and the error to raise if that is final."""

    outcome: WriteOutcome
    error: ReconcilerError


@dataclass(frozen=True, slots=True)
class ConditionalWrite:
    """One write under a condition, and how to read it back."""

    put: Callable[[], Version | WriteFailure]
    read: Callable[[], StoredObject | None]

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Write `body` if the object is at `expected`, retrying until the outcome is known.

        Raises:
            LostRaceError: Another writer was first.
            UnansweredError: The outcome is unknown, and reading back did not help.
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
