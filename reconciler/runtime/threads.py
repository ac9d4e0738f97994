"""Bounded parallel calls, and the `Effects` for production."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from reconciler.errors import StoppedError
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.runtime.effects import Effects


A = TypeVar("A")
E = TypeVar("E", bound=Exception)
R = TypeVar("R")

_MAX_THREADS: Final = 16
_MAX_QUEUED: Final = 256


@dataclass(frozen=True, slots=True)
class CallPool:
    """A thread pool with a maximum number of queued calls."""

    pool: ThreadPoolExecutor
    waiting: int

    def map_calls(self, call: Callable[[A], R], items: Iterable[A]) -> Iterator[R]:
        """Yield the results of `call` in order of `items`."""
        futures: deque[Future[R]] = deque()
        for item in items:
            futures.append(self.pool.submit(call, item))
            if len(futures) >= self.waiting:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()


def run_in_parallel(call: Callable[[A], object], items: Iterable[A], *, name: str) -> None:
    """Call `call` for each item in parallel; wait for all."""
    for _ in map_in_parallel(call, items, name=name):
        pass


def map_in_parallel(call: Callable[[A], R], items: Iterable[A], *, name: str) -> Iterator[R]:
    """Yield the results of parallel calls in order of `items`; `name` prefixes thread names."""
    with ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix=name) as threads:
        yield from CallPool(threads, _MAX_QUEUED).map_calls(call, items)


def wait_for_all(futures: Mapping[str, Future[R]], *expected: type[E]) -> tuple[dict[str, R], dict[str, E]]:
    """Wait for all calls; return results and expected errors by name, raise other errors."""
    results: dict[str, R] = {}
    errors: dict[str, E] = {}
    for name, future in futures.items():
        try:
            results[name] = future.result()
        except expected as error:
            errors[name] = error
    return results, errors


class Memo:
    """A thread-safe cache; the first caller of a key computes its value, and errors reach all callers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[Hashable, Future[Any]] = {}

    def get(self, key: Hashable, ask: Callable[[], R]) -> R:
        """Return the value of `key`, computed once with `ask`."""
        with self._lock:
            answer = self._answers.get(key)
            is_first = answer is None
            if answer is None:
                answer = self._answers[key] = Future()
        if is_first:
            try:
                answer.set_result(ask())
            except BaseException as error:
                answer.set_exception(error)
                raise
        return cast("R", answer.result())


class Workers:
    """At most `most` daemon threads, started on demand; a hanging call does not prevent the exit."""

    def __init__(self, most: int, *, name: str) -> None:
        self._most = most
        self._name = name
        self._work: SimpleQueue[tuple[Callable[[], object], Future[object]] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._made = 0
        self._lock = threading.Lock()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` on one of the threads; return its future."""
        future: Future[object] = Future()
        self._work.put((function, future))
        with self._lock:
            if not self._idle.acquire(blocking=False) and self._made < self._most:
                self._start_thread()
        return cast("Future[T]", future)

    def replace_hanging(self) -> None:
        """Allow one more thread, because one is busy with a call that no caller awaits any longer."""
        with self._lock:
            self._most += 1
            if not self._work.empty():
                self._start_thread()

    def close(self) -> None:
        """End each thread after its current call, without waiting."""
        with self._lock:
            for _ in range(self._made):
                self._work.put(None)

    def _start_thread(self) -> None:
        self._made += 1
        threading.Thread(target=self._run_calls, name=f"{self._name}-{self._made}", daemon=True).start()

    def _run_calls(self) -> None:
        while (taken := self._work.get()) is not None:
            _run_call(*taken)
            del taken
            self._idle.release()


class TimedCall(Generic[R]):
    """A call for `Workers`, whose time limit counts from its start, not from its place in the queue."""

    def __init__(self, call: Callable[[], R]) -> None:
        self._call = call
        self._started_s: Future[float] = Future()

    def __call__(self) -> R:
        """Make the call."""
        self._started_s.set_result(time.monotonic())
        return self._call()

    def wait(self, future: Future[R], limit_s: float) -> R:
        """Return the result; raise `TimeoutError` if the call takes longer than `limit_s`."""
        return future.result(max(0.0, self._started_s.result() + limit_s - time.monotonic()))


def _run_call(function: Callable[[], object], future: Future[object]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
            future.set_exception(error)


T = TypeVar("T")

_EXTRA_THREADS: Final = 9

_RUNNING_CALL_S: Final = 1.3
"""Maximum seconds that calls already running at `hurry` may take."""
_ENDING_CALL_S: Final = 2.2
"""Maximum seconds after `hurry` for calls that start later."""
_HURRIED_PAUSE_S: Final = 0.05

# This clock includes the machine's sleep, so leases expire. macOS has no CLOCK_BOOTTIME.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def read_monotonic_s() -> float:
    """Return seconds on a monotonic clock."""
    return time.clock_gettime(_CLOCK)


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
