"""The metrics file: whole at every moment, for whoever collects it reads it when they like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.console import err
from reconciler.cli.render.lines import Span, Tone, line
from reconciler.cli.render.prometheus import prometheus_text
from reconciler.errors import PartialError, ReconcilerError, UserError
from reconciler.objectstore.files import write_whole
from reconciler.workflow.metrics import Instruments, metrics_of

if TYPE_CHECKING:
    from pathlib import Path

    from reconciler.workflow.beginning.invocation import Invocation, Select
    from reconciler.workflow.upkeep.outcomes import Upkeep


class MetricsFile:
    """Writes the metrics after every pass. What goes wrong is said at once, and keeps no pass from its work."""

    def __init__(self, path: Path, invocation: Invocation, select: Select) -> None:
        self._path = invocation.cwd / path
        self._invocation = invocation
        self._instruments = Instruments(invocation, select)
        self.trouble: ReconcilerError | None = None
        """That not every pass was told, if so; why, was said when it happened."""

    def write(self, upkeep: Upkeep) -> None:
        """Read the clusters and write the file."""
        try:
            measured = self._instruments.read()
            for each in measured:
                if each.error is not None:
                    self._invocation.warn(f"no metrics of cluster {each.cluster}: {each.error.message}")
            metrics = metrics_of(measured, upkeep, now_ms=self._invocation.now_ms())
            put_metrics(self._path, prometheus_text(metrics))
        except ReconcilerError as error:
            self.trouble = PartialError("metrics are missing", hint="What was done stands; why they are is said above.")
            err().show([line(Span("Error: ", Tone.DANGER), f"{error.message}. {error.hint}")])


def put_metrics(path: Path, text: str) -> None:
    """Put `text` in place of what the file holds, at once.

    Raises:
        UserError: It cannot be written; what was there is still there.
    """
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise UserError(
            f"cannot write the metrics to {path}: {error.strerror or error}",
            hint="Name a file in a folder that can be written, on a disk with room.",
        ) from error
