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
from collections.abc import Mapping, Sequence
from pathlib import Path

DEADLINE_S = 60.0


def on_terminal(
    command: Sequence[str], *, cwd: Path, environ: Mapping[str, str], types: Sequence[tuple[str, bytes]] = ()
) -> tuple[int, str]:
    """Run `command` on a terminal of 120 columns; when each text of `types` shows, type what belongs to it."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    _resize(theirs)
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


def _talk(process: subprocess.Popen[bytes], ours: int, types: list[tuple[str, bytes]]) -> tuple[int, str]:
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
            os.write(ours, types.pop(0)[1])
    raise AssertionError(f"still running after {DEADLINE_S} s, having shown:\n{shown}")


def _resize(terminal: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))


def _own_terminal(terminal: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
