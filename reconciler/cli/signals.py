"""Handle SIGINT and SIGTERM: stop a run cleanly, interrupt other code.

A second signal, or an alarm if the process hangs, ends it at once. Locks are avoided: a handler may interrupt their
holder.
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

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_INTERRUPTED: Final = 130
_INCOMPLETE: Final = 4
_TWICE_MESSAGE: Final = (
    b"\nInterrupted twice, so the process ended at once. The next run continues unfinished actions.\n"
)
_HANGING_MESSAGE: Final = (
    b"\nInterrupted, but some work did not stop in time, so the process ended. The next run continues.\n"
)
_IDLE_PATIENCE_S: Final = 2.5
"""Seconds to clean up if no run is in progress."""
RUN_PATIENCE_S: Final = 6.0
"""Seconds for a run to stop; cancelled pipelines send a second signal after 7 s."""
_RESTORE_LINE: Final = b"\r\x1b[K\x1b[?25h"


class Stoppable(Protocol):
    """A run that can be stopped."""

    def request(self) -> bool:
        """Request a stop; return false if nothing is running."""
        ...


class _SignalWatch:
    stoppable: Stoppable | None = None
    patience_s: float | None = None
    is_asking: bool = False
    is_signalled: bool = False
    has_begun: bool = False


_WATCH: Final = _SignalWatch()


def install_handlers() -> None:
    """Install the handlers; call this before slow imports."""
    _WATCH.is_signalled = _WATCH.has_begun = False
    for number in _SIGNALS:
        signal.signal(number, _on_signal)
    signal.signal(signal.SIGALRM, _on_alarm)
    # At exit, Python restores default handlers: a signal would kill a finished run.
    atexit.unregister(_ignore_signals)
    atexit.register(_ignore_signals)


@contextmanager
def forward_signals(stoppable: Stoppable, *, patience_s: float | None = None) -> Iterator[None]:
    """Forward signals to `stoppable`; exit if it still runs `patience_s` seconds after a signal."""
    _WATCH.stoppable, _WATCH.patience_s = stoppable, patience_s
    try:
        yield
    finally:
        _WATCH.stoppable = None


def exit_if_hanging(code: int) -> None:
    """End the process if a signal was received and another thread still runs."""
    if _WATCH.is_signalled and threading.active_count() > 1:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def allow_prompt_interrupts() -> Iterator[None]:
    """Let signals interrupt a prompt, since no run has started."""
    _WATCH.is_asking = True
    try:
        yield
    finally:
        _WATCH.is_asking = False


@contextmanager
def leave_interrupts_to_child() -> Iterator[None]:
    """Ignore Ctrl-C while a child process, such as a pager, handles it."""
    # An empty handler, because a child would inherit SIG_IGN.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    if _WATCH.is_signalled:
        _exit_now(_TWICE_MESSAGE, _INTERRUPTED)
    _WATCH.is_signalled = True
    if not _WATCH.is_asking and _WATCH.stoppable is not None and _WATCH.stoppable.request():
        _WATCH.has_begun = True
        signal.setitimer(signal.ITIMER_REAL, _WATCH.patience_s or 0)
        return
    signal.setitimer(signal.ITIMER_REAL, _IDLE_PATIENCE_S)
    raise KeyboardInterrupt


def _on_alarm(_number: int, _frame: FrameType | None) -> None:
    _exit_now(_HANGING_MESSAGE, _INCOMPLETE if _WATCH.has_begun else _INTERRUPTED)


def _exit_now(message: bytes, code: int) -> NoReturn:
    error = sys.__stderr__
    try:
        if error is not None and select.select([], [error], [], 0)[1]:
            os.write(error.fileno(), (_RESTORE_LINE if error.isatty() else b"") + message)
    except (OSError, ValueError):
        pass
    finally:
        os._exit(code)
