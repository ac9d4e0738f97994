"""SIGINT and SIGTERM: stop a run cleanly, interrupt anything else.

The second signal leaves at once, and so does an alarm some seconds after the first, where something hangs that cannot
be interrupted. Nothing here takes a lock: a handler may interrupt whoever holds it.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, NoReturn, Protocol

_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)
_INTERRUPTED: Final = 130
_INCOMPLETE: Final = 4
_SAID: Final = b"\nInterrupted twice: left at once. What was under way is as after a crash: the next run goes on.\n"
_LATE: Final = b"\nInterrupted, and something still gave no answer: left. Whatever it did, the next run goes on.\n"
_IDLE_S: Final = 2.5
"""What was interrupted before anything began has this long to clean up."""
RUN_S: Final = 6.0
"""A run ends by itself well before; a pipeline that was cancelled signals again after 7 s."""
_CLEAN: Final = b"\r\x1b[K\x1b[?25h"
"""Ends what a terminal may be shown while a command works: a line of its own, and a cursor that is hidden."""


class Stoppable(Protocol):
    """What can be asked to end by itself."""

    def request(self) -> bool:
        """Ask. False: nothing is under way."""
        ...


class _Watch:
    """Whom a signal goes to. One per process, because signals are."""

    stoppable: Stoppable | None = None
    patience_s: float | None = None
    is_asking: bool = False
    is_signalled: bool = False
    has_begun: bool = False


_WATCH: Final = _Watch()


def install() -> None:
    """Take over both signals; called before anything heavy is imported."""
    _WATCH.is_signalled = _WATCH.has_begun = False
    for number in _NUMBERS:
        signal.signal(number, _on_signal)
    signal.signal(signal.SIGALRM, _on_alarm)
    # The interpreter gives signals back while it ends: one that comes then would turn a finished run into a killed one.
    atexit.unregister(_ignore)
    atexit.register(_ignore)


@contextmanager
def stopping(stoppable: Stoppable, *, patience_s: float | None = None) -> Iterator[None]:
    """Send signals to `stoppable` for as long as the block runs; it has `patience_s` to end (`None`: all the time)."""
    _WATCH.stoppable, _WATCH.patience_s = stoppable, patience_s
    try:
        yield
    finally:
        _WATCH.stoppable = None


def leave_if_held_up(code: int) -> None:
    """End the process here if a signal asked for that and a thread is left: one that hangs would keep it alive."""
    if _WATCH.is_signalled and threading.active_count() > 1:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # Nobody reads it any more: the exit code says it.
                stream.flush()
        os._exit(code)
    signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def asking() -> Iterator[None]:
    """Let signals interrupt a prompt: while we ask, nothing has started."""
    _WATCH.is_asking = True
    try:
        yield
    finally:
        _WATCH.is_asking = False


@contextmanager
def left_to_another() -> Iterator[None]:
    """Leave Ctrl-C to the program that has the terminal meanwhile, such as a pager."""
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)  # ignored it would be there, too
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _ignore() -> None:
    for number in _NUMBERS:
        signal.signal(number, signal.SIG_IGN)


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    if _WATCH.is_signalled:
        _leave(_SAID, _INTERRUPTED)
    _WATCH.is_signalled = True
    if not _WATCH.is_asking and _WATCH.stoppable is not None and _WATCH.stoppable.request():
        _WATCH.has_begun = True
        signal.setitimer(signal.ITIMER_REAL, _WATCH.patience_s or 0)
        return
    signal.setitimer(signal.ITIMER_REAL, _IDLE_S)
    raise KeyboardInterrupt


def _on_alarm(_number: int, _frame: FrameType | None) -> None:
    _leave(_LATE, _INCOMPLETE if _WATCH.has_begun else _INTERRUPTED)


def _leave(message: bytes, code: int) -> NoReturn:
    """End the process without waiting for anybody, not even for a reader of what is said."""
    error = sys.__stderr__
    try:
        if error is not None and select.select([], [error], [], 0)[1]:
            os.write(error.fileno(), (_CLEAN if error.isatty() else b"") + message)
    except (OSError, ValueError):
        pass  # Standard error is closed: the exit code says it.
    finally:
        os._exit(code)
