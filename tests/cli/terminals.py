"""A terminal for a test: a pseudo-terminal whose other end is read, and typed into when something shows."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pyte

DEADLINE_S = 60.0

Typed: TypeAlias = "bytes | Callable[[], bytes]"
"""What is typed, or a function that does something first and returns it."""


class Size(NamedTuple):
    """How large a screen is."""

    columns: int
    lines: int


WIDE = Size(120, 40)


def on_terminal(
    command: Sequence[str],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    types: Sequence[tuple[str, Typed]] = (),
    size: Size = WIDE,
) -> tuple[int, str]:
    """Run `command` on a terminal; when each text of `types` shows, type what belongs to it."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    _resize(theirs, size)
    process = subprocess.Popen(
        list(command),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env=dict(environ),
        start_new_session=True,
        preexec_fn=lambda: _own_terminal(theirs),  # noqa: PLW1509 - a controlling terminal is what makes Ctrl-C a signal
    )
    os.close(theirs)
    try:
        return _talk(process, ours, list(types))
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _talk(process: subprocess.Popen[bytes], ours: int, types: list[tuple[str, Typed]]) -> tuple[int, str]:
    shown = ""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        select.select([ours], [], [], 0.1)
        try:
            shown += os.read(ours, 65536).decode()
        except BlockingIOError:
            pass
        except OSError:  # the other end is closed: that is how Linux says so
            return process.wait(timeout=DEADLINE_S), shown
        if types and types[0][0] in shown:
            _, answer = types.pop(0)
            os.write(ours, answer() if callable(answer) else answer)
    raise AssertionError(f"still running after {DEADLINE_S} s, having shown:\n{shown}")


def _resize(terminal: int, size: Size) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.lines, size.columns, 0, 0))


def _own_terminal(terminal: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


# What a person sees of it.


_UP = "\x1b[1A"
"""How a line that was drawn is reached again: what stands before it has been a picture of its own."""


def pictures(shown: str, size: Size) -> list[list[str]]:
    """Return what was on a screen before each time that something was drawn over, and at the end."""
    screen = pyte.Screen(size.columns, size.lines)
    stream = pyte.Stream(screen)
    found = []
    for piece in shown.split(_UP):
        stream.feed(piece)
        found.append([line.rstrip() for line in screen.display if line.strip()])
        stream.feed(_UP)
    return found


def hides_cursor(shown: str) -> bool:
    """Tell whether the cursor is hidden at the end."""
    return shown.rfind("\x1b[?25l") > shown.rfind("\x1b[?25h")
