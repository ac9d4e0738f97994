"""What a command is doing before it has a result: one line on a terminal.

It is imported by every plan, so it needs nothing of what draws tables.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.cli.console import Screen, err
from reconciler.cli.environment import speaks
from reconciler.cli.text.lines import cut
from reconciler.runtime.text import took, visible

if TYPE_CHECKING:
    from reconciler.applying.events import Event
    from reconciler.operations.steps.invocation import Invocation


_SOON_S: Final = 0.5
"""What is done sooner shows nothing: it would only flicker."""
_REDRAW_S: Final = 0.25


class Phases:
    """One line that says what is being done, and for how long; gone before anything else is written."""

    def __init__(self, screen: Screen) -> None:
        """Draw nothing yet, and never where lines cannot be drawn over."""
        self._screen = screen
        self._text = ""
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._is_drawn = False
        # A daemon: the process can end while a cluster hangs.
        self._thread = threading.Thread(target=self._draw_on, name="phases", daemon=True)

    def seen_by(self, invocation: Invocation) -> Invocation:
        """Return the invocation with this line in it: it is told what is being done, and gives way to warnings."""
        if speaks() or not self._screen.can_redraw:
            return invocation
        self._thread.start()

        def warn(text: str) -> None:
            with self._lock:
                self._erase()
                invocation.warn(text)

        return replace(invocation, tell=self._tell, warn=warn)

    def end(self) -> None:
        """Take the line away, for good."""
        self._is_over.set()
        with self._lock:
            self._erase()

    def ended_by(self, report: Callable[[Event], None]) -> Callable[[Event], None]:
        """Return where a run's events go, of which the first ends this line."""

        def tell(event: Event) -> None:
            self.end()
            report(event)

        return tell

    def _tell(self, text: str) -> None:
        self._text = text

    def _draw_on(self) -> None:
        pause = _SOON_S
        while not self._is_over.wait(pause):
            pause = _REDRAW_S
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        if not self._is_over.is_set():
            text = f"{visible(self._text)} ({took(float(int(time.monotonic() - self._began)))})"
            self._screen.write(f"\r{cut(text, (self._screen.width or _NARROWEST) - _CTRL_C)}{_TO_THE_END}")
            self._is_drawn = True

    def _erase(self) -> None:
        if self._is_drawn:
            self._screen.write(f"\r{_TO_THE_END}")
            self._is_drawn = False


_NARROWEST: Final = 20
_CTRL_C: Final = 3
"""Cells that a terminal may need behind the line, to show a key that was pressed, and the cursor."""
_TO_THE_END: Final = "\x1b[K"
"""Erases what is left of a line."""


@contextmanager
def phases() -> Iterator[Phases]:
    """Give the line of a command's phases, which is gone after the block."""
    line_of_phases = Phases(err())
    try:
        yield line_of_phases
    finally:
        line_of_phases.end()
