"""Keep a server for exactly as long as whoever started it: `python guard.py [--stay] FOLDER PROGRAM ARGUMENT…`.

Our stdin is a pipe. When it closes, or our parent is gone (killed, too), the server's process group is killed, and
its folder and what the file `leftovers` in it names are removed. Signals meant for the tests (Ctrl-C) do not reach
us: we run in a session of our own.

A server that ends by itself is an end of us, too; with `--stay` its folder stays until then all the same: it may be
started again on what it kept. The folder's file `pid` names its process; `ended` is there once it has ended.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

_LOOK_SECONDS = 0.5
_LOG_CHARACTERS = 2000
"""How much of the end of its log a server leaves that ended by itself."""


def main() -> int:
    arguments = sys.argv[1:]
    stays = arguments[0] == "--stay"
    folder, command = Path(arguments[stays]), arguments[stays + 1 :]
    parent = os.getppid()
    with (folder / "log").open("ab") as log:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, process_group=0, cwd=folder
        )
    (folder / "pid").write_text(str(server.pid))
    try:
        if _is_over(server, parent):
            (folder / "ended").write_text(str(server.returncode))
            if stays:
                _is_over(None, parent)
            else:
                sys.stderr.write((folder / "log").read_text(errors="replace")[-_LOG_CHARACTERS:])
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        _remove(folder)
    return server.returncode


def _is_over(server: subprocess.Popen[bytes] | None, parent: int) -> bool:
    """Return True when the server has ended, False when whoever started it has had enough."""
    while os.getppid() == parent:
        if server is not None and server.poll() is not None:
            return True
        is_readable, _, _ = select.select([0], [], [], _LOOK_SECONDS)
        if is_readable and not os.read(0, 1):
            return False
    return False


def _remove(folder: Path) -> None:
    leftovers = folder / "leftovers"
    if leftovers.exists():
        for name in leftovers.read_text().splitlines():
            Path(name).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
