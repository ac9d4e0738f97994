"""Conditional writes to S3 whose answer may be lost, late, or about an earlier try.

Nothing conditional is repeated blindly: after every answer that is not a plain yes the object is read back. Ours is
there: success. What we expected is there: it was not written (or will be refused when it arrives late, for every body
is unique), so it may be tried again. Anything else: somebody was faster.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from reconciler.objectstore.answers import mine_or_lost
from reconciler.objectstore.base import Version
from reconciler.objectstore.nonces import jitter
from reconciler.objectstore.s3.faults import code_of, s3_faults, status_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.objectstore.base import Stored

_PATIENCE_SECONDS: Final = 45.0
"""After this long nothing is tried again: a lease must not be held by a call that hangs."""
TRIES: Final = 10
_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 3.0

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
            RetryableError: The store gave no answer that says which; reading it did not help either.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        attempt = 0
        while True:
            answer, failure = self._tried()
            if failure is None:
                return Version(answer)
            found = self.read()
            current = None if found is None else found.version
            if answer is _Answer.REFUSED or current != expected:
                return mine_or_lost(key, body, found)
            attempt += 1
            if attempt == TRIES or time.monotonic() > deadline:
                with s3_faults("write", self.url):
                    raise failure
            _pause(attempt)

    def _tried(self) -> tuple[str, Exception | None]:
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


def _pause(attempt: int) -> None:
    """Let the store recover, and writers of one object come back at different moments."""
    pause = min(_PAUSE_SECONDS * 2**attempt, _LONGEST_PAUSE_SECONDS) * (0.5 + jitter() / 2)
    time.sleep(pause)  # noqa: TID251 - a blocking call below Effects; correctness never rests on it
