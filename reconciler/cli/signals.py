"""SIGINT and SIGTERM: a run that is under way stops by itself; anything else is interrupted on the spot."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class Stoppable(Protocol):
    """What can be asked to end by itself."""

    def request(self) -> bool:
        """Ask. False: nothing is under way."""
        ...


class _Watch:
    """Whom a signal goes to. One per process, because signals are."""

    stoppable: Stoppable | None = None
    is_asking: bool = False


_WATCH: Final = _Watch()


def install() -> None:
    """Take over both signals; called before anything heavy is imported."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _on_signal)


@contextmanager
def stopping(stoppable: Stoppable) -> Iterator[None]:
    """Send signals to `stoppable` for as long as the block runs."""
    _WATCH.stoppable = stoppable
    try:
        yield
    finally:
        _WATCH.stoppable = None


@contextmanager
def asking() -> Iterator[None]:
    """Let signals interrupt a prompt: while we ask, nothing has started."""
    _WATCH.is_asking = True
    try:
        yield
    finally:
        _WATCH.is_asking = False


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    if not _WATCH.is_asking and _WATCH.stoppable is not None and _WATCH.stoppable.request():
        return
    raise KeyboardInterrupt
