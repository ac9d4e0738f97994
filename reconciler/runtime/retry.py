"""Trying again: how long to pause after a try that failed, and when to give up.

Nothing rests on a pause but that others get their turn: what is true is read after it. The calls below `Effects` block,
so they pause by `Tries.wait`; asynchronous code awaits `Effects.sleep` for as long as `Backoff.after` says.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Final

_DOUBLINGS: Final = 60
"""More of them make no pause longer, and a number too large for a float."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to pause: `first_s`, then twice as long each time, up to `longest_s`.

    `spread` is the part of a pause that chance takes away, so that those who lost the same race come back at different
    moments: 1 leaves anything from nothing to all of it, 0 leaves it as it is.
    """

    first_s: float
    longest_s: float
    spread: float = 1.0

    def after(self, tries: int, *, least_s: float = 0.0) -> float:
        """Return the seconds to pause after so many tries that failed; `least_s` is a longer first pause."""
        pause = max(self.first_s, least_s) * 2.0 ** min(tries - 1, _DOUBLINGS)
        return spread_out(min(pause, self.longest_s), self.spread)


class Tries:
    """The tries of one call, counted and timed: at most `attempts`, and none after `within_s`."""

    def __init__(self, backoff: Backoff, *, attempts: int | None = None, within_s: float | None = None) -> None:
        """Begin with the first try."""
        self.failed = 0
        self._backoff = backoff
        self._attempts = attempts
        self._within_s = within_s
        self._began = time.monotonic()

    @property
    def spent_s(self) -> float:
        """How long all of it has taken so far."""
        return time.monotonic() - self._began

    @property
    def is_over(self) -> bool:
        """Whether the try that just failed was the last."""
        return self.is_over_after(0.0)

    def is_over_after(self, pause_s: float) -> bool:
        """Tell whether the try that just failed was the last, where a pause must end in time too."""
        is_last = self._attempts is not None and self.failed + 1 >= self._attempts
        return is_last or (self._within_s is not None and self.spent_s + pause_s >= self._within_s)

    def wait(self, pause_s: float | None = None, *, least_s: float = 0.0) -> None:
        """Count a try that failed, and pause before the next."""
        self.failed += 1
        pause(self._backoff.after(self.failed, least_s=least_s) if pause_s is None else pause_s)


def pause(seconds: float) -> None:
    """Wait before something is tried or looked at again."""
    time.sleep(seconds)  # noqa: TID251 - a blocking call below Effects; correctness never rests on it


def spread_out(seconds: float, part: float) -> float:
    """Return a pause of which chance takes away up to `part`."""
    return seconds * (1 - part * secrets.randbits(32) / (1 << 32))


def go_on() -> None:
    """Let a call continue: the caller holds no lease that could be lost."""
