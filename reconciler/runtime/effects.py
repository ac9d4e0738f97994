"""Effects: the clock, sleep and threads that asynchronous code may use; and debug notes for `--verbose`.

`state` and `applying` await only `Effects`, so tests run the same code on a seeded, single-threaded loop with a
virtual clock.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio
    from datetime import datetime


T = TypeVar("T")


class Effects(Protocol):
    """The clock, the pauses and the calls that asynchronous code may use."""

    async def call(self, function: Callable[[], T]) -> T:
        """Run a blocking function off the loop and return its result."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait between two observations of something that others change."""
        ...

    def now(self) -> float:
        """Return seconds on a monotonic clock that also runs while the machine sleeps."""
        ...

    def utc(self) -> datetime:
        """Return the aware wall-clock time, for display only; never compared between machines."""
        ...

    def spawn(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Start work concurrent with the caller."""
        ...

    def apart(self, work: Callable[[Effects], Coroutine[object, object, None]]) -> Callable[[], None]:
        """Start work on its own thread, which no other work can block; return a function that ends it.

        The work gets its own effects and must await no others. Ending it twice or late is no error.
        """
        ...


def this_host() -> str:
    """Return the name of this machine."""
    return os.uname().nodename


def this_process() -> str:
    """Return an id of this process that is unique among machines: `HOST:PID`."""
    return f"{this_host()}:{os.getpid()}"


# Each layer notes facts (numbers, keys, names) on a logger of its name. Never contents, never secrets.


now = perf_counter


def note(logger: logging.Logger, message: str, /, **facts: object) -> None:
    """Log an event and its facts at debug level. Costs one comparison if no one listens."""
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug(message, extra={"facts": facts})


def ms_since(began: float) -> float:
    """Return the milliseconds since a reading of `now`."""
    return round((perf_counter() - began) * 1000, 3)
