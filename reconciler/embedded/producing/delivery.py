"""Trying again until a time-out: what stores and races refuse for the moment, a writer does not give up on at once."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from reconciler.errors import LostRaceError, RetryableError
from reconciler.objectstore.nonces import jitter
from reconciler.objectstore.register import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

DELIVERY_TIMEOUT_MS: Final = 120_000
"""As Kafka's `delivery.timeout.ms`."""
_PAUSE_MS: Final = 20
_LONGEST_PAUSE_MS: Final = 2_000


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
        began, tries = time.monotonic(), 0
        while True:
            try:
                return attempt()
            except RetryableError as error:
                spent_s = time.monotonic() - began
                if spent_s >= self.timeout_ms / 1000:
                    raise _undelivered(what, spent_s, error) from error
            tries += 1
            _pause(tries)


def _undelivered(what: str, spent_s: float, error: RetryableError) -> RetryableError:
    message = f"{what} was given up after {spent_s:,.0f} s: {error.message}"
    # Who lost a race has seen what stands there instead: nothing of the tries before can land any more.
    if isinstance(error, LostRaceError):
        return RetryableError(f"{message}; nothing of it was written", hint="Try it again: others were faster.")
    return RetryableError(f"{message}; it may have been written or not", hint=error.hint)


def _pause(tries: int) -> None:
    """Wait a little longer each time, not all writers alike."""
    pause_ms = min(_PAUSE_MS << min(tries, 10), _LONGEST_PAUSE_MS) * (0.5 + jitter() / 2)
    time.sleep(pause_ms / 1000)  # noqa: TID251 - a blocking call below Effects; correctness never rests on it
