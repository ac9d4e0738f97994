"""Bounded parallel calls, and the monotonic clock. Without asyncio, which a plan does not need."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar, cast

from reconciler.runtime.dataclass import dataclass

A = TypeVar("A")
E = TypeVar("E", bound=Exception)
R = TypeVar("R")
T = TypeVar("T")

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


# This clock includes the machine's sleep, so leases expire. macOS has no CLOCK_BOOTTIME.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def read_monotonic_s() -> float:
    """Return seconds on a monotonic clock."""
    return time.clock_gettime(_CLOCK)
