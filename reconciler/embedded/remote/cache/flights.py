"""One at a time: who wants what another thread is fetching waits for it, and finds it there."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Flights:
    """Locks by name, each there for as long as somebody wants it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._wanted: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Be the only thread of this process that is about something."""
        with self._guard:
            lock, count = self._wanted.get(name, (threading.Lock(), 0))
            self._wanted[name] = lock, count + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, count = self._wanted[name]
                if count == 1:
                    del self._wanted[name]
                else:
                    self._wanted[name] = lock, count - 1
