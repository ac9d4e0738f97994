"""Threads: parallel calls with a bound, and the Effects of production."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from reconciler.errors import StoppedError

if TYPE_CHECKING:
    from reconciler.runtime.effects import Effects


A = TypeVar("A")
E = TypeVar("E", bound=Exception)
R = TypeVar("R")

_AT_ONCE: Final = 16
_WAITING: Final = 256


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Threads, and how many calls may wait for them."""

    pool: ThreadPoolExecutor
    waiting: int

    def over(self, call: Callable[[A], R], given: Iterable[A]) -> Iterator[R]:
        """Yield what `call` returns of each, in their order."""
        asked: deque[Future[R]] = deque()
        for each in given:
            asked.append(self.pool.submit(call, each))
            if len(asked) >= self.waiting:
                yield asked.popleft().result()
        while asked:
            yield asked.popleft().result()


def all_side_by_side(call: Callable[[A], object], given: Iterable[A], *, name: str) -> None:
    """Call with each, and return once all are done; as `side_by_side`."""
    for _ in side_by_side(call, given, name=name):
        pass


def side_by_side(call: Callable[[A], R], given: Iterable[A], *, name: str) -> Iterator[R]:
    """Yield what `call` returns of each, in their order, from a pool of its own; threads are called `name`."""
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=name) as threads:
        yield from SideBySide(threads, _WAITING).over(call, given)


def settled(asked: Mapping[str, Future[R]], *expected: type[E]) -> tuple[dict[str, R], dict[str, E]]:
    """Wait for each call; return by name what it returned, and the errors of those that raised what is expected."""
    found: dict[str, R] = {}
    lost: dict[str, E] = {}
    for name, future in asked.items():
        try:
            found[name] = future.result()
        except expected as error:
            lost[name] = error
    return found, lost


class Memo:
    """Answers that threads share: each is asked for once, by whoever needs it first, and its error is everyone's."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self._lock = threading.Lock()
        self._answers: dict[Hashable, Future[Any]] = {}

    def get(self, key: Hashable, ask: Callable[[], R]) -> R:
        """Return what `ask` returned the first time that `key` was asked for."""
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


# Threads for blocking calls, which nobody has to wait for: one that hangs does not keep the program alive.


class Workers:
    """At most so many threads, each made when there is work and none is idle.

    The standard library's pools join their threads when the program ends, however long one of them still waits.
    """

    def __init__(self, most: int, *, name: str) -> None:
        """Make no thread yet."""
        self._most = most
        self._name = name
        self._work: SimpleQueue[tuple[Callable[[], object], Future[object]] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._made = 0
        self._lock = threading.Lock()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` on one of the threads."""
        future: Future[object] = Future()
        self._work.put((function, future))
        with self._lock:
            if not self._idle.acquire(blocking=False) and self._made < self._most:
                self._made += 1
                threading.Thread(target=self._serve, name=f"{self._name}-{self._made}", daemon=True).start()
        return cast("Future[T]", future)

    def close(self) -> None:
        """End every thread when it has done what it does; none is waited for."""
        with self._lock:
            for _ in range(self._made):
                self._work.put(None)

    def _serve(self) -> None:
        while (taken := self._work.get()) is not None:
            _do(*taken)
            del taken  # nothing a call holds is kept until the next one
            self._idle.release()


def _do(function: Callable[[], object], future: Future[object]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            future.set_exception(error)


# Effects in production: threads for blocking calls, and a clock that runs while the machine sleeps.


T = TypeVar("T")

_BESIDE: Final = 9
"""Threads beside those for calls to platforms: five for jobs, the others for writes of the state, which never wait."""

_UNDER_WAY_S: Final = 1.3
"""What was under way when somebody asked for the end is waited for this long: most calls take a tenth of it."""
_ENDING_S: Final = 2.2
"""What ends a run must itself have ended then; a pipeline that was cancelled is killed after a few seconds more."""
_HURRIED_PAUSE_S: Final = 0.05

# Leases must age while a laptop's lid is closed; not every system has such a clock.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def seconds() -> float:
    """Return seconds on a monotonic clock that also runs while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


class ThreadEffects:
    """The real world, for one event loop.

    After `hurry` nobody waits for what hangs: a call that does not answer in time ends with `StoppedError`, and goes
    on by itself on a thread that dies with the program.
    """

    def __init__(self, parallelism: int = 8) -> None:
        """Have a thread for each of `parallelism` calls to platforms, and some for what goes on beside them.

        A process that makes the calls makes no more of them at once.
        """
        self._workers = Workers(parallelism + _BESIDE, name="effects")
        self._hurried_at: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bell: asyncio.Future[None] | None = None

    async def call(self, function: Callable[[], T]) -> T:
        """Run a blocking function off the loop and return what it returns.

        Raises:
            StoppedError: Somebody asked for the end, and it did not answer in time: what it does is not known.
        """
        began = self.now()
        bell = self._bell_here()
        if self._left_s(began) == 0:
            raise _stopped()
        answer = asyncio.wrap_future(self._workers.submit(function))
        try:
            if self._hurried_at is None:
                waited: set[asyncio.Future[Any]] = {answer, bell}
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                await asyncio.wait({answer}, timeout=self._left_s(began))
            if not answer.done():
                raise _stopped()
            return answer.result()
        finally:
            answer.cancel()  # where nobody waits for it any more: one that has not begun never does

    async def sleep(self, seconds: float) -> None:
        """Wait; not for long once somebody is in a hurry."""
        if self._hurried_at is None:
            await asyncio.wait({self._bell_here()}, timeout=seconds)
        else:
            await asyncio.sleep(min(seconds, _HURRIED_PAUSE_S))

    def hurry(self) -> None:
        """Let nothing be waited for much longer. Safe from any thread and from a signal handler; twice is once."""
        if self._hurried_at is None:
            self._hurried_at = self.now()
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._ring)

    def now(self) -> float:
        """Seconds on a monotonic clock that also runs while the machine sleeps."""
        return seconds()

    def utc(self) -> datetime:
        """Wall-clock time, aware."""
        return datetime.now(UTC)  # noqa: TID251 - this is the port through which time enters

    def spawn(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Start work that goes on beside the caller."""
        return asyncio.get_running_loop().create_task(work)

    def close(self) -> None:
        """Take no more calls; one that is under way is not waited for."""
        self._workers.close()

    def apart(self, work: Callable[[Effects], Coroutine[object, object, None]]) -> Callable[[], None]:
        """Start work on a thread with a loop and threads of its own; return how to end it."""
        apart = _Apart(work)
        apart.start()
        return apart.end

    # -- being in a hurry

    def _left_s(self, began: float) -> float | None:
        """Return how long what began then may still take; `None`: as long as it takes."""
        if self._hurried_at is None:
            return None
        allowed = _UNDER_WAY_S if began <= self._hurried_at else _ENDING_S
        return max(0.0, self._hurried_at + allowed - self.now())

    def _bell_here(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        if self._bell is None or self._loop is not loop:
            self._bell, self._loop = loop.create_future(), loop
        return self._bell

    def _ring(self) -> None:
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)


def _stopped() -> StoppedError:
    return StoppedError(
        "stopped, and something that was under way gave no answer in time",
        hint="The state store or a cluster is slow to answer.",
    )


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
