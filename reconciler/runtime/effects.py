"""Effects: the clock, sleep and threads that asynchronous code may use; debug notes for `--verbose`.

`state` and `applying` await only `Effects`, so tests run the same code on a seeded loop with a virtual clock.
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
    """Clock, pauses and calls for asynchronous code."""

    async def run_blocking(self, function: Callable[[], T]) -> T:
        """Run a blocking function off the loop and return its result."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds."""
        ...

    def read_clock(self) -> float:
        """Return seconds on a monotonic clock that also runs while the machine sleeps."""
        ...

    def read_utc_time(self) -> datetime:
        """Return the aware wall-clock time, for display only."""
        ...

    def start_task(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Start work concurrent with the caller."""
        ...

    def run_on_thread(self, work: Callable[[Effects], Coroutine[object, object, None]]) -> Callable[[], None]:
        """Start work on a thread of its own, with other effects; return an idempotent function that ends the work."""
        ...


def read_host_name() -> str:
    """Return the name of this machine."""
    return os.uname().nodename


def build_process_id() -> str:
    """Return an id of this process, unique among machines: `HOST:PID`."""
    return f"{read_host_name()}:{os.getpid()}"


# Facts are numbers, keys and names; never contents or secrets.


now = perf_counter


def log_debug(logger: logging.Logger, message: str, /, **facts: object) -> None:
    """Log a message and its facts at debug level. Costs one comparison without listeners."""
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug(message, extra={"facts": facts})


def compute_elapsed_ms(began: float) -> float:
    """Return the milliseconds since `began`, a result of `Effects.read_clock`."""
    return round((perf_counter() - began) * 1000, 3)
