"""Counting on standard error: one line that renews itself on a terminal, a line now and then in a pipe."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from reconciler.cli.console import err
from reconciler.cli.logs import note, speaks
from reconciler.cli.render.amounts import bytes_text, counted
from reconciler.cli.render.lines import line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TERMINAL_S: Final = 0.1
_PIPE_S: Final = 5.0


@contextmanager
def counting(word: str) -> Iterator[Callable[[int, int], None]]:
    """Give a function that takes records and bytes so far."""
    screen = err()
    every = _TERMINAL_S if screen.is_terminal else _PIPE_S
    said_at = time.monotonic()
    widest = 0

    def report(records: int, size: int) -> None:
        nonlocal said_at, widest
        now = time.monotonic()
        if now - said_at < every:
            return
        said_at = now
        if speaks():
            note(word, records=records, bytes=size)
            return
        text = f"{word}: {counted(records, 'record')}, {bytes_text(size)}"
        if screen.is_terminal:
            widest = max(widest, len(text))
            screen.write(f"\r{text.ljust(widest)}")
        else:
            screen.show([line(text)])

    try:
        yield report
    finally:
        if widest:
            screen.write(f"\r{' ' * widest}\r")
