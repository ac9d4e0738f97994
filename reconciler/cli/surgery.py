"""The run of a command that changes only what is recorded."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from reconciler.cli import signals
from reconciler.cli.options import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.cli.options import Files, Place
    from reconciler.workflow.stating.surgery import Surgery


@contextmanager
def surgery(files: Files, place: Place, command: str, lock_timeout: str) -> Iterator[Surgery]:
    """Give the run, which a signal stops before it starts."""
    lock_timeout_s = seconds("--lock-timeout", lock_timeout)
    from reconciler.workflow.running.stopping import Stop
    from reconciler.workflow.stating.surgery import Surgery

    stop = Stop()
    with signals.stopping(stop):
        yield Surgery(
            invocation=place.invocation(),
            select=files.select(),
            command=command,
            lock_timeout_s=lock_timeout_s,
            stop=stop,
        )
