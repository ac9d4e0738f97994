"""Effects: the clock, sleep and threads that asynchronous code may use; and notes for `--verbose`.

`state` and `applying` are written against `Effects` and await nothing else, so the same code runs in
production on a thread pool and in tests on a seeded, single-threaded loop with a virtual clock.
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
    """Everything asynchronous code may do to the world."""

    async def call(self, function: Callable[[], T]) -> T:
        """Run a blocking function off the loop and return what it returns."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; used only between observations of something that others change."""
        ...

    def now(self) -> float:
        """Seconds on a monotonic clock that also runs while the machine sleeps."""
        ...

    def utc(self) -> datetime:
        """Wall-clock time, aware, for people to read; never compared between machines."""
        ...

    def spawn(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Start work that goes on beside the caller."""
        ...

    def apart(self, work: Callable[[Effects], Coroutine[object, object, None]]) -> Callable[[], None]:
        """Start work on a thread of its own, which nothing done here can hold up; return how to end it.

        The work is handed effects of its own and must await no others. Ending it twice, or late, is no error.
        """
        ...


def this_host() -> str:
    """Return the name of this machine."""
    return os.uname().nodename


def this_process() -> str:
    """Return what tells this process from others, also of other machines."""
    return f"{this_host()}:{os.getpid()}"


# Notes for the process that looks at a run from outside: what was asked, how long it took, who won a race.
#
# Each layer has a logger of its name and notes facts: numbers, keys, names. Never contents, never secrets. Where nobody
# listens (`--verbose`) a note costs one comparison.


now = perf_counter


def note(logger: logging.Logger, message: str, /, **facts: object) -> None:
    """Note that something happened, and the facts of it."""
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug(message, extra={"facts": facts})


def ms_since(began: float) -> float:
    """Return how many ms have passed since a reading of `now`."""
    return round((perf_counter() - began) * 1000, 3)
