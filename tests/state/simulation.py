"""Effects on a single-threaded loop with a virtual clock: what takes minutes happens at once, the same way each time.

The seed decides how long every call takes, so another seed is another interleaving.
"""

from __future__ import annotations

import asyncio
import functools
import random
import selectors
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from reconciler.runtime.effects import Effects

T = TypeVar("T")
P = ParamSpec("P")
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class _NoWaiting(selectors.SelectSelector):
    """Never waits: the time it would have waited is added to the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            message = "everything waits for something that will never happen"
            raise RuntimeError(message)
        self.clock += max(0.0, timeout)
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _NoWaiting()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.clock


class Simulation:
    """`Effects` whose time is virtual. `offset` is this machine's own clock; `frozen` stops everything it does."""

    def __init__(self, seed: int = 0, *, call_s: float = 0.01, offset: float = 0.0) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a repeatable interleaving, no secret
        self.call_s = call_s
        self._offset = offset
        self._frozen_until = 0.0

    def freeze(self, seconds: float) -> None:
        """Suspend this machine, as a closed laptop or a stopped container is."""
        self._frozen_until = asyncio.get_running_loop().time() + seconds

    async def run_blocking(self, function: Callable[[], T]) -> T:
        await self._pause(self._random.uniform(0, self.call_s))
        result = function()
        await self._pause(self._random.uniform(0, self.call_s))
        return result

    async def sleep(self, seconds: float) -> None:
        await self._pause(seconds)

    def read_clock(self) -> float:
        return asyncio.get_running_loop().time() + self._offset

    def read_utc_time(self) -> datetime:
        return EPOCH + timedelta(seconds=self.read_clock())

    def start_task(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        return asyncio.get_running_loop().create_task(work)

    def run_on_thread(self, work: Callable[[Effects], Coroutine[object, object, None]]) -> Callable[[], None]:
        return self.start_task(work(self)).cancel

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        while (left := self._frozen_until - asyncio.get_running_loop().time()) > 0:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(left)


def simulate(work: Coroutine[object, object, T]) -> T:
    """Run `work` to its end in virtual time."""
    loop = _VirtualLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        _end(loop)


def simulated(test: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """Run a test that is a coroutine in virtual time."""

    @functools.wraps(test)
    def run(*given: P.args, **named: P.kwargs) -> None:
        simulate(test(*given, **named))

    return run


def _end(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.close()
