"""Waiting for what a server does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(holds: Callable[[], object], why: object = "", seconds: float = 30) -> None:
    """Wait until something holds. At most so many seconds; then `why`, or what it returns, is the failure."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, why() if callable(why) else why
        time.sleep(0.01)
