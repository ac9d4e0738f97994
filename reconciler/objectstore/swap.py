"""Conditional writes whose answer may be lost, late, or about an earlier try.

Nothing conditional is repeated blindly: after every answer that is not a plain yes the object is read back. Ours is
there: success. What we expected is there: it was not written (or will be refused when it arrives late, for every body
is unique), so it may be tried again. Anything else: somebody was faster.

What a holder of a lease writes must not outlast the lease. Nothing is begun again once `PATIENCE_SECONDS` are over,
and each request has a time-out (`s3_client.py`, `cloud_client.py`): of a swap the last write ends within 15 s, and the
swap within 27 s. A lease of 90 s is given up 15 s before its end, and nothing new is begun 30 s before it. Longer
patience is for who can be asked whether they may go on: `Register.update`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from reconciler.errors import ReconcilerError, RetryableError, UnansweredError
from reconciler.objectstore.base import Stored, Version, mine_or_lost
from reconciler.runtime.retry import Backoff, Tries

PATIENCE_SECONDS: Final = 3.0
"""After this long nothing is tried again."""
TRIES: Final = 10
_BACKOFF: Final = Backoff(first_s=0.1, longest_s=1.0, spread=0.5)


class Answer(StrEnum):
    """What an answer that is not a plain yes says about a write."""

    REFUSED = "the condition does not hold"
    UNKNOWN = "it may have been written or not"


@dataclass(frozen=True, slots=True)
class Failed:
    """A write that was refused or may have failed, and what a user is told if that stays so."""

    answer: Answer
    error: ReconcilerError


@dataclass(frozen=True, slots=True)
class ConditionalWrite:
    """How to write one object once under a condition, and how to read it back."""

    put: Callable[[], Version | Failed]
    read: Callable[[], Stored | None]

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Write `body` if the object is at `expected`, as often as it takes to know how that ended.

        Raises:
            LostRaceError: Somebody else's write is there.
            UnansweredError: The store gave no answer that says which; reading it did not help either.
        """
        tries = Tries(_BACKOFF, attempts=TRIES, within_s=PATIENCE_SECONDS)
        while True:
            written = self.put()
            if not isinstance(written, Failed):
                return written
            found = self._read_back()
            current = None if found is None else found.version
            if written.answer is Answer.REFUSED or current != expected:
                return mine_or_lost(key, body, found)
            pause_s = _BACKOFF.after(tries.failed + 1)
            if tries.is_over_after(pause_s):
                error = written.error
                raise UnansweredError(error.message, hint=error.hint) from error
            tries.wait(pause_s)

    def _read_back(self) -> Stored | None:
        try:
            return self.read()
        except RetryableError as error:
            raise UnansweredError(error.message, hint=error.hint) from error
