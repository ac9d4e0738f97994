"""Stopping a run from outside: a signal asks, the run ends by itself at the next safe point."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Stop:
    """One request to stop, for one process; safe to call from a signal handler and from any thread."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._enders: list[Callable[[], None]] = []

    @property
    def is_requested(self) -> bool:
        """Tell whether somebody asked."""
        return self._asked.is_set()

    def request(self) -> bool:
        """Ask; return whether a run is under way that now ends by itself."""
        self._asked.set()
        for end in tuple(self._enders):
            end()
        return bool(self._enders)

    def wait(self, seconds: float) -> bool:
        """Wait until somebody asks, at most this long; return whether somebody did."""
        return self._asked.wait(seconds)

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
