"""Processes of their own, to be killed or to be sent a signal, which begin with everything imported.

Importing takes a second of a core, and hundreds of tests let somebody die: each is forked from one process that has
imported what they need and has done nothing else.
"""

from __future__ import annotations

import os
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path
from subprocess import CompletedProcess

_PATIENCE_SECONDS = 120
_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "pyarrow.compute",
        "pyarrow.parquet",
        "reconciler.cli.app",
        "reconciler.cli.commands.plan_apply",
        "reconciler.cli.commands.mirror",
        "reconciler.cli.commands.plan_apply",
        "reconciler.embedded.clients.producer",
        "reconciler.objectstore.directory",
        "reconciler.providers.embedded.translate",
        "reconciler.providers.embedded.provider",
        "reconciler.operations.apply",
        "reconciler.operations.run",
        "typer.main",
    ]
)  # one that is not there is passed over in silence


def ran(program: str, *arguments: str, cwd: Path | None = None) -> CompletedProcess[str]:
    """Return how a program ended that ran as `python -c` would run it, with this environment."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        given = (program, arguments, cwd or Path.cwd(), dict(os.environ), out, err)
        process = _CONTEXT.Process(target=_run, args=given)
        process.start()
        process.join(_PATIENCE_SECONDS)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
        process.close()
        assert code is not None, f"it still ran after {_PATIENCE_SECONDS} s: {err.read_text()}"
        return CompletedProcess(["-c", *arguments], code, out.read_text(), err.read_text())


def _run(program: str, arguments: tuple[str, ...], cwd: Path, environ: dict[str, str], out: Path, err: Path) -> None:
    for path, stream in ((out, sys.stdout), (err, sys.stderr)):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["-c", *arguments]
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})  # noqa: S102 - a test's own program
