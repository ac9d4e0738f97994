"""Effects in production: a thread pool for blocking calls, and a clock that runs while the machine sleeps."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from reconciler.effects import Effects

T = TypeVar("T")

# Leases must age while a laptop's lid is closed; not every system has such a clock.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class ThreadEffects:
    """The real world, for one event loop."""

    def __init__(self, parallelism: int = 8) -> None:
        """Allow `parallelism` blocking calls at once."""
        self._parallelism = parallelism
        self._pool = ThreadPoolExecutor(parallelism, thread_name_prefix="effects")

    async def call(self, function: Callable[[], T]) -> T:
        """Run a blocking function off the loop and return what it returns."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def now(self) -> float:
        """Seconds on a monotonic clock that also runs while the machine sleeps."""
        return time.clock_gettime(_CLOCK)

    def utc(self) -> datetime:
        """Wall-clock time, aware."""
        return datetime.now(UTC)  # noqa: TID251 - this is the port through which time enters

    def spawn(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Start work that goes on beside the caller."""
        return asyncio.get_running_loop().create_task(work)

    def close(self) -> None:
        """Take no more calls; one that is under way is not waited for."""
        self._pool.shutdown(wait=False)

    def apart(self, work: Callable[[Effects], Coroutine[object, object, None]]) -> Callable[[], None]:
        """Start work on a thread with a loop and pool of its own; return how to end it."""
        apart = _Apart(work)
        apart.start()
        return apart.end


class _Apart(threading.Thread):
    """A loop that nothing in the main one can hold up; dies with the program."""

    def __init__(self, work: Callable[[Effects], Coroutine[object, object, None]]) -> None:
        super().__init__(name="apart", daemon=True)
        self._work = work
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._has_task = threading.Event()

    def run(self) -> None:
        """Run the work to its end or until it is ended."""
        effects = ThreadEffects(1)
        self._task = self._loop.create_task(self._work(effects))
        self._has_task.set()
        try:
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._task)
        finally:
            effects.close()
            self._loop.close()

    def end(self) -> None:
        """Cancel the work; once or often, early or late."""
        self._has_task.wait()
        task = self._task
        if task is not None:
            with suppress(RuntimeError):  # the loop is closed: it has ended by itself
                self._loop.call_soon_threadsafe(task.cancel)
