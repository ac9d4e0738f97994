"""The `Effects` for production: threads and an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from reconciler.errors import StoppedError
from reconciler.runtime.threads import Workers, read_monotonic_s

if TYPE_CHECKING:
    from reconciler.runtime.effects import Effects


T = TypeVar("T")

_EXTRA_THREADS: Final = 9

_RUNNING_CALL_S: Final = 1.3
"""Maximum seconds that calls already running at `hurry` may take."""
_ENDING_CALL_S: Final = 2.2
"""Maximum seconds after `hurry` for calls that start later."""
_HURRIED_PAUSE_S: Final = 0.05


class ThreadEffects:
    """`Effects` for production, for one event loop.

    After `hurry`, a late call raises `StoppedError` and continues on a daemon thread.
    """

    def __init__(self, parallelism: int = 8) -> None:
        self._workers = Workers(parallelism + _EXTRA_THREADS, name="effects")
        self._hurried_at: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bell: asyncio.Future[None] | None = None

    async def run_blocking(self, function: Callable[[], T]) -> T:
        """Run a blocking function.

        Raises:
            StoppedError: The function ran too long after `hurry`; its outcome is unknown.
        """
        began = self.read_clock()
        bell = self._create_stop_future()
        if self._remaining_s(began) == 0:
            raise _stopped_error()
        answer = asyncio.wrap_future(self._workers.submit(function))
        try:
            if self._hurried_at is None:
                waited: set[asyncio.Future[Any]] = {answer, bell}
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                await asyncio.wait({answer}, timeout=self._remaining_s(began))
            if not answer.done():
                raise _stopped_error()
            return answer.result()
        finally:
            answer.cancel()  # A queued call must not start.

    async def sleep(self, seconds: float) -> None:
        """Pause for `seconds`, but only briefly after `hurry`."""
        if self._hurried_at is None:
            await asyncio.wait({self._create_stop_future()}, timeout=seconds)
        else:
            await asyncio.sleep(min(seconds, _HURRIED_PAUSE_S))

    def hurry(self) -> None:
        """Shorten all calls and pauses from now on. Thread-safe, signal-safe, idempotent."""
        if self._hurried_at is None:
            self._hurried_at = self.read_clock()
        if self._loop is not None:
            with suppress(RuntimeError):  # A closed loop raises it.
                self._loop.call_soon_threadsafe(self._signal_stop)

    def read_clock(self) -> float:
        """Return seconds on a monotonic clock."""
        return read_monotonic_s()

    def read_utc_time(self) -> datetime:
        """Return the current time with time zone."""
        return datetime.now(UTC)  # noqa: TID251 - this is the port through which time enters

    def start_task(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Start a concurrent task."""
        return asyncio.get_running_loop().create_task(work)

    def close(self) -> None:
        """Accept no more calls; do not wait for running ones."""
        self._workers.close()

    def run_on_thread(self, work: Callable[[Effects], Coroutine[object, object, None]]) -> Callable[[], None]:
        """Start work on a thread with its own loop; return a function that ends it."""
        apart = _LoopThread(work)
        apart.start()
        return apart.end

    def _remaining_s(self, began: float) -> float | None:
        if self._hurried_at is None:
            return None
        allowed = _RUNNING_CALL_S if began <= self._hurried_at else _ENDING_CALL_S
        return max(0.0, self._hurried_at + allowed - self.read_clock())

    def _create_stop_future(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        if self._bell is None or self._loop is not loop:
            self._bell, self._loop = loop.create_future(), loop
        return self._bell

    def _signal_stop(self) -> None:
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)


def _stopped_error() -> StoppedError:
    return StoppedError(
        "stopped, and an operation in progress did not finish in time",
        hint="The state store or a cluster is slow to answer.",
    )


class _LoopThread(threading.Thread):
    def __init__(self, work: Callable[[Effects], Coroutine[object, object, None]]) -> None:
        super().__init__(name="apart", daemon=True)
        self._work = work
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._has_task = threading.Event()

    def run(self) -> None:
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
        self._has_task.wait()
        task = self._task
        if task is not None:
            with suppress(RuntimeError):  # A closed loop raises it.
                self._loop.call_soon_threadsafe(task.cancel)
