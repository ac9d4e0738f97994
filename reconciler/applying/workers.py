"""Threads for blocking calls, which nobody has to wait for: one that hangs does not keep the program alive."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


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
