"""Conditional writes to S3 whose answer may be lost, late, or about an earlier try.

Nothing conditional is repeated blindly: after every answer that is not a plain yes the object is read back. Ours is
there: success. What we expected is there: it was not written (or will be refused when it arrives late, for every body
is unique), so it may be tried again. Anything else: somebody was faster.

What a holder of a lease writes must not outlast the lease. Nothing is begun again once `PATIENCE_SECONDS` are over,
and each request has a time-out (`client.py`): of a swap the last write ends within 15 s, and the swap within 27 s. A
lease of 90 s is given up 15 s before its end, and nothing new is begun 30 s before it. Longer patience is for who can
be asked whether they may go on: `Register.update`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from reconciler.errors import RetryableError, UnansweredError
from reconciler.objectstore.answers import mine_or_lost
from reconciler.objectstore.base import Version
from reconciler.objectstore.nonces import jitter
from reconciler.objectstore.s3.faults import code_of, s3_faults, status_of, told

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.exceptions import BotoCoreError, ClientError

    from reconciler.objectstore.base import Stored

PATIENCE_SECONDS: Final = 3.0
"""After this long nothing is tried again."""
TRIES: Final = 10
_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0

_LOST_STATUS: Final = 412
_CONFLICT_STATUS: Final = 409
_BUSY_STATUS: Final = 429
_SERVER_ERROR: Final = 500


class _Answer(StrEnum):
    REFUSED = "the condition does not hold"
    UNKNOWN = "it may have been written or not"


@dataclass(frozen=True, slots=True)
class ConditionalWrite:
    """How to write one object once under a condition, and how to read it back."""

    put: Callable[[], Version]
    read: Callable[[], Stored | None]
    url: str

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Write `body` if the object is at `expected`, as often as it takes to know how that ended.

        Raises:
            LostRaceError: Somebody else's write is there.
            UnansweredError: The store gave no answer that says which; reading it did not help either.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        attempt = 0
        while True:
            answer, failure = self._tried()
            if failure is None:
                return Version(answer)
            found = self._read_back()
            current = None if found is None else found.version
            if answer is _Answer.REFUSED or current != expected:
                return mine_or_lost(key, body, found)
            attempt += 1
            pause = _pause_s(attempt)
            if attempt == TRIES or time.monotonic() + pause > deadline:
                error = told(failure, "write", self.url)
                raise UnansweredError(error.message, hint=error.hint) from failure
            time.sleep(pause)  # noqa: TID251 - a blocking call below Effects; correctness never rests on it

    def _read_back(self) -> Stored | None:
        try:
            return self.read()
        except RetryableError as error:
            raise UnansweredError(error.message, hint=error.hint) from error

    def _tried(self) -> tuple[str, ClientError | BotoCoreError | None]:
        """Write once and return the version; with the failure where it was refused, or nobody knows."""
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - only users of S3 pay

        with s3_faults("write", self.url):
            try:
                return self.put(), None
            except (BotoCoreError, ClientError) as error:
                answer = _answer_of(error)
                if answer is None:
                    raise
                return answer, error


def _answer_of(error: Exception) -> _Answer | None:
    """Tell what a failure says about the write; `None`: it was not written, and the user must do something."""
    from botocore.exceptions import ClientError, ConnectionError, HTTPClientError, SSLError  # noqa: A004, PLC0415

    match error:
        case ClientError():
            return _said(code_of(error), status_of(error))
        case SSLError():
            return None
        case HTTPClientError() | ConnectionError():
            return _Answer.UNKNOWN
        case _:
            return None


def _said(code: str, status: int) -> _Answer | None:
    if status == _LOST_STATUS or code == "NoSuchKey":
        return _Answer.REFUSED
    if status in {_CONFLICT_STATUS, _BUSY_STATUS} or status >= _SERVER_ERROR or code in {"SlowDown", "RequestTimeout"}:
        return _Answer.UNKNOWN
    return None


def _pause_s(attempt: int) -> float:
    """Return how long to let the store recover; writers of one object come back at different moments."""
    return min(_PAUSE_SECONDS * 2.0**attempt, _LONGEST_PAUSE_SECONDS) * (0.5 + jitter() / 2)
