"""Clock, sleep and threads for asynchronous code, and debug messages for `--verbose`.

`state` and `applying` await only `Effects`, so tests can use a virtual clock.
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
        """Run a blocking function on another thread; return its result."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Pause for `seconds`."""
        ...

    def read_clock(self) -> float:
        """Return seconds on a monotonic clock that includes the machine's sleep."""
        ...

    def read_utc_time(self) -> datetime:
        """Return the current time with time zone, for display only."""
        ...

    def start_task(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Start a concurrent task."""
        ...

    def run_on_thread(self, work: Callable[[Effects], Coroutine[object, object, None]]) -> Callable[[], None]:
        """Start work on a new thread; return an idempotent function that ends it."""
        ...


def read_host_name() -> str:
    """Return the name of this machine."""
    return os.uname().nodename


def build_process_id() -> str:
    """Return `HOST:PID`, unique among machines."""
    return f"{read_host_name()}:{os.getpid()}"


# Debug messages contain numbers, keys and names, but no contents of records or secrets.


now = perf_counter


def log_debug(logger: logging.Logger, message: str, /, **facts: object) -> None:
    """Log a message and facts at debug level."""
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug(message, extra={"facts": facts})


def compute_elapsed_ms(began: float) -> float:
    """Return the milliseconds since `began`, a time of `Effects.read_clock`."""
    return round((perf_counter() - began) * 1000, 3)
