"""The metrics file: whole at every moment."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import orjson

from reconciler.cli.console import err
from reconciler.cli.text.lines import Span, Tone, line
from reconciler.errors import PartialError, ReconcilerError, UserError
from reconciler.objectstore.directory import write_whole
from reconciler.operations.metrics import MIRROR_BYTES, PREFIX, REMOTE, Instruments, counted, metrics_of
from reconciler.resources.measures import COUNTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from reconciler.operations.metrics import Metric, Totals
    from reconciler.operations.mirrors.mirror_rounds import Upkeep
    from reconciler.operations.steps.invocation import Invocation, Select


_COUNTER: Final = re.compile(rf'{PREFIX}(\w+)\{{cluster="([^"\\]*)"\}} (\d+(?:\.\d+)?(?:e\+\d+)?)')
"""Files of earlier versions have whole numbers without a point."""
_JSON: Final = ".json"


class MetricsFile:
    """Writes the metrics after every pass, as JSON where the file's name says so.

    Counters go on from what the file says. What goes wrong is said at once, and keeps no pass from its work.
    """

    def __init__(self, path: Path, invocation: Invocation, select: Select) -> None:
        self._path = invocation.cwd / path
        self._invocation = invocation
        self._instruments = Instruments(invocation, select)
        self.trouble: ReconcilerError | None = None
        """That not every pass was told, if so; why, was said when it happened."""
        self._totals = totals_in(self._path)

    def write(self, upkeep: Upkeep) -> None:
        """Read the clusters and write the file."""
        self._totals = counted(self._totals, upkeep)
        try:
            measured = self._instruments.read()
            for each in measured:
                if each.error is not None:
                    self._invocation.warn(f"no metrics of cluster {each.cluster}: {each.error.message}")
            metrics = metrics_of(measured, upkeep, now_ms=self._invocation.now_ms(), totals=self._totals)
            put_metrics(self._path, metrics_body(self._path, metrics))
        except ReconcilerError as error:
            self.trouble = PartialError("metrics are missing", hint="What was done stands. The reason is shown above.")
            err().show([line(Span("Error: ", Tone.DANGER), f"{error.message}. {error.hint}")])


def metrics_body(path: Path, metrics: Sequence[Metric]) -> bytes:
    """Return what the file at `path` is to hold, in the form its name asks for."""
    if path.suffix != _JSON:
        from reconciler.cli.text.prometheus import prometheus_text

        return prometheus_text(metrics).encode()
    from reconciler.cli.json.base import document_bytes
    from reconciler.cli.json.runs_json import MetricsDocument

    return document_bytes(MetricsDocument.of(metrics))


def totals_in(path: Path) -> Totals:
    """Return what a metrics file says was counted; nothing where there is none, or it is something else."""
    try:
        body = path.read_bytes()
        return dict(_from_json(body) if path.suffix == _JSON else _from_text(body))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # Counters begin at nothing, as after any restart; that it cannot be written is told by then.


def _from_text(body: bytes) -> Iterator[tuple[tuple[str, str], float]]:
    for each in body.decode().splitlines():
        found = _COUNTER.fullmatch(each)
        name = None if found is None else _counted(found[1])
        if found and name is not None:
            yield (name, found[2]), float(found[3])


def _from_json(body: bytes) -> Iterator[tuple[tuple[str, str], float]]:
    for metric in orjson.loads(body)["metrics"]:
        name = _counted(metric["name"].removeprefix(PREFIX))
        if name is not None:
            for sample in metric["samples"]:
                yield (name, sample["labels"]["cluster"]), float(sample["value"])


def _counted(name: str) -> str | None:
    """Return what a metric counts; `None`: it is no counter of ours."""
    short = name.removeprefix(REMOTE)
    is_remote = name.startswith(REMOTE) and short in COUNTED
    return short if is_remote or short == MIRROR_BYTES else None


def put_metrics(path: Path, body: bytes) -> None:
    """Put `body` in place of what the file holds, at once.

    Raises:
        UserError: It cannot be written; what was there is still there.
    """
    try:
        write_whole(path, body)
    except OSError as error:
        raise UserError(
            f"cannot write the metrics to {path}: {error.strerror or error}",
            hint="Name a file in a folder that can be written, on a disk with room.",
        ) from error
