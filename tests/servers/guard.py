"""Keep a server for exactly as long as whoever started it: `python guard.py FOLDER PROGRAM ARGUMENT…`.

Our stdin is a pipe. When it closes, or our parent is gone (killed, too), the server's process group is killed, and
its folder and what the file `leftovers` in it names are removed. Signals meant for the tests (Ctrl-C) do not reach
us: we run in a session of our own.
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
    folder, command = Path(sys.argv[1]), sys.argv[2:]
    parent = os.getppid()
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, process_group=0, cwd=folder
        )
    try:
        while server.poll() is None and os.getppid() == parent:
            is_readable, _, _ = select.select([0], [], [], _LOOK_SECONDS)
            if is_readable and not os.read(0, 1):
                break
        else:
            sys.stderr.write((folder / "log").read_text(errors="replace")[-_LOG_CHARACTERS:])
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        _remove(folder)
    return server.returncode


def _remove(folder: Path) -> None:
    leftovers = folder / "leftovers"
    if leftovers.exists():
        for name in leftovers.read_text().splitlines():
            Path(name).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
