"""Many calls side by side, with a bounded number of them waiting: a million keys are not a million futures."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

A = TypeVar("A")
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
