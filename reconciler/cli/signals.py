"""SIGINT and SIGTERM: a run that is under way stops by itself; anything else is interrupted on the spot.

The second signal leaves at once. Nothing here takes a lock: a handler may interrupt whoever holds it.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)
_INTERRUPTED: Final = 130
_SAID: Final = b"\nInterrupted twice: left at once. What was under way is as after a crash: the next run goes on.\n"
_SHOW_CURSOR: Final = b"\x1b[?25h"


class Stoppable(Protocol):
    """What can be asked to end by itself."""

    def request(self) -> bool:
        """Ask. False: nothing is under way."""
        ...


class _Watch:
    """Whom a signal goes to. One per process, because signals are."""

    stoppable: Stoppable | None = None
    is_asking: bool = False
    is_signalled: bool = False


_WATCH: Final = _Watch()


def install() -> None:
    """Take over both signals; called before anything heavy is imported."""
    _WATCH.is_signalled = False
    for number in _NUMBERS:
        signal.signal(number, _on_signal)
    # The interpreter gives signals back while it ends: one that comes then would turn a finished run into a killed one.
    atexit.unregister(_ignore)
    atexit.register(_ignore)


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


def _ignore() -> None:
    for number in _NUMBERS:
        signal.signal(number, signal.SIG_IGN)


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    if _WATCH.is_signalled:
        _leave()
    _WATCH.is_signalled = True
    if not _WATCH.is_asking and _WATCH.stoppable is not None and _WATCH.stoppable.request():
        return
    raise KeyboardInterrupt


def _leave() -> None:
    """End the process without waiting for anybody, not even for a reader of what is said."""
    error = sys.__stderr__
    try:
        if error is not None and select.select([], [error], [], 0)[1]:
            os.write(error.fileno(), (_SHOW_CURSOR if error.isatty() else b"") + _SAID)
    except (OSError, ValueError):
        pass  # Standard error is closed: the exit code says it.
    finally:
        os._exit(_INTERRUPTED)
