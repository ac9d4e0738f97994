"""Stopping a run from outside: a signal asks, the run ends by itself at the next safe point."""

from __future__ import annotations

from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOOK_S: Final = 0.2
"""A signal that comes just before a wait begins does not end it: Python runs its handler when the wait is over."""


class Stop:
    """One request to stop, for one process; safe to call from a signal handler and from any thread.

    A flag and a queue, whose `put` may interrupt its own `get`; an event may not: its lock would be waited for forever.
    """

    def __init__(self) -> None:
        self._is_requested = False
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._enders: list[Callable[[], None]] = []

    @property
    def is_requested(self) -> bool:
        """Tell whether somebody asked."""
        return self._is_requested

    def request(self) -> bool:
        """Ask; return whether a run is under way that now ends by itself."""
        self._is_requested = True
        self._bell.put(None)
        for end in tuple(self._enders):
            end()
        return bool(self._enders)

    def wait(self, seconds: float) -> bool:
        """Wait until somebody asks, at most this long; return whether somebody did."""
        left = seconds
        while left > 0 and not self._is_requested:
            try:
                self._bell.get(timeout=min(left, _LOOK_S))
            except Empty:
                left -= _LOOK_S
            else:
                self._bell.put(None)  # for whoever else waits
        return self._is_requested

    @contextmanager
    def ends(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` when somebody asks while the block runs; at once where somebody already has."""
        self._enders.append(end)
        try:
            if self.is_requested:
                end()
            yield
        finally:
            self._enders.remove(end)
