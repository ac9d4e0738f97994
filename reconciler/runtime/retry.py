"""Pauses between retries, and limits of attempts and time.

Blocking calls use `Tries.wait`; asynchronous code awaits `Effects.sleep`.
"""

from __future__ import annotations

import secrets
import threading
import time
from typing import Final, Self

from reconciler.runtime.dataclass import dataclass

_DOUBLINGS: Final = 60


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff: `first_s`, doubled after each attempt, at most `longest_s`.

    `spread` is the random fraction of each pause, which separates concurrent retries.
    """

    first_s: float
    longest_s: float
    spread: float = 1.0

    def compute_pause(self, tries: int, *, least_s: float = 0.0) -> float:
        """Return the pause in seconds after `tries` failed attempts; `least_s` is the minimum of the first pause."""
        pause = max(self.first_s, least_s) * 2.0 ** min(tries - 1, _DOUBLINGS)
        return shorten_randomly(min(pause, self.longest_s), self.spread)


class Tries:
    """Counts and times the attempts of one call: at most `attempts`, none after `within_s`."""

    def __init__(self, backoff: Backoff, *, attempts: int | None = None, within_s: float | None = None) -> None:
        self.failed = 0
        self._backoff = backoff
        self._attempts = attempts
        self._within_s = within_s
        self._began = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first attempt."""
        return time.monotonic() - self._began

    @property
    def has_ended(self) -> bool:
        """Whether the failed attempt was the last."""
        return self.would_end_after(0.0)

    def would_end_after(self, pause_s: float) -> bool:
        """Return whether no attempt is allowed after a pause of `pause_s`."""
        is_last = self._attempts is not None and self.failed + 1 >= self._attempts
        return is_last or (self._within_s is not None and self.elapsed_s + pause_s >= self._within_s)

    def wait(self, pause_s: float | None = None, *, least_s: float = 0.0) -> None:
        """Count a failed attempt, and pause before the next."""
        self.failed += 1
        pause(self._backoff.compute_pause(self.failed, least_s=least_s) if pause_s is None else pause_s)


class RateLimit:
    """At most `per_second` calls a second, evenly spaced. Thread-safe."""

    def __init__(self, per_second: float) -> None:
        self._interval_s = 1 / per_second
        self._free_s = 0.0
        self._lock = threading.Lock()

    @classmethod
    def create(cls, per_second: float | None) -> Self | None:
        """Return a limit, or `None` without one."""
        return None if per_second is None else cls(per_second)

    def wait(self) -> None:
        """Block until the next call is allowed."""
        with self._lock:
            now_s = time.monotonic()
            turn_s = max(now_s, self._free_s)
            self._free_s = turn_s + self._interval_s
        if turn_s > now_s:
            pause(turn_s - now_s)


def pause(seconds: float) -> None:
    """Block for `seconds`."""
    time.sleep(seconds)  # noqa: TID251 - a blocking call below Effects; correctness never depends on it


def shorten_randomly(seconds: float, part: float) -> float:
    """Return `seconds` shortened by a random fraction of at most `part`."""
    return seconds * (1 - part * secrets.randbits(32) / (1 << 32))


def skip_check() -> None:
    """Do nothing; replaces the lease check for callers without a lease."""
