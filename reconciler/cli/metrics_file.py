"""The metrics file of `run` and `drift`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from reconciler.cli.console import open_stderr
from reconciler.cli.text.lines import Span, Tone, make_line
from reconciler.errors import PartialError, ReconcilerError, UserError
from reconciler.objectstore.directory import write_atomically
from reconciler.operations.metrics import (
    MIRROR_BYTES,
    PREFIX,
    REMOTE,
    Metric,
    MetricsReader,
    Totals,
    add_totals,
    build_metrics,
)
from reconciler.resources.measures import COUNTER_HELP

if TYPE_CHECKING:
    from reconciler.operations.mirrors.mirror_rounds import PassResult
    from reconciler.operations.steps.runner import SiteOptions


_COUNTER: Final = re.compile(rf'{PREFIX}(\w+)\{{cluster="([^"\\]*)"\}} (\d+(?:\.\d+)?(?:e\+\d+)?)')
_JSON: Final = ".json"


class MetricsFile:
    """Writes the metrics after every pass; errors are printed and do not stop the pass.

    Counters continue from the values in the file.
    """

    def __init__(self, path: Path, reach: SiteOptions) -> None:
        self._path = reach.invocation.cwd / path
        self._invocation = reach.invocation
        self._instruments = MetricsReader(reach)
        self.trouble: ReconcilerError | None = None
        """The last error, already printed."""
        self._totals = read_totals(self._path)

    def write(self, upkeep: PassResult) -> None:
        """Read the clusters and write the file."""
        self._totals = add_totals(self._totals, upkeep)
        try:
            measured = self._instruments.read_clusters()
            for instrument in measured:
                if instrument.error is not None:
                    self._invocation.warn(f"no metrics of cluster {instrument.cluster}: {instrument.error.message}")
            metrics = build_metrics(measured, upkeep, now_ms=self._invocation.now_ms(), totals=self._totals)
            write_metrics_file(self._path, format_metrics(self._path, metrics))
        except ReconcilerError as error:
            self.trouble = PartialError(
                "metrics are missing", hint="The run itself is complete. The reason is shown above."
            )
            open_stderr().show([make_line(Span("Error: ", Tone.DANGER), f"{error.message}. {error.hint}")])


def format_metrics(path: Path, metrics: Sequence[Metric]) -> bytes:
    """Format metrics as JSON if `path` ends in `.json`, else for Prometheus."""
    if path.suffix != _JSON:
        return format_prometheus(metrics).encode()
    from reconciler.cli.json.base import format_document
    from reconciler.cli.json.runs_json import METRICS

    return format_document(METRICS.build_row(metrics))


def read_totals(path: Path) -> Totals:
    """Read the counters of a metrics file; empty if it is missing or invalid."""
    try:
        body = path.read_bytes()
        return dict(_parse_json(body) if path.suffix == _JSON else _parse_text(body))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # Writing will report the error.


def _parse_text(body: bytes) -> Iterator[tuple[tuple[str, str], float]]:
    for text in body.decode().splitlines():
        match = _COUNTER.fullmatch(text)
        name = None if match is None else _find_counter_name(match[1])
        if match and name is not None:
            yield (name, match[2]), float(match[3])


def _parse_json(body: bytes) -> Iterator[tuple[tuple[str, str], float]]:
    for metric in orjson.loads(body)["metrics"]:
        name = _find_counter_name(metric["name"].removeprefix(PREFIX))
        if name is not None:
            for sample in metric["samples"]:
                yield (name, sample["labels"]["cluster"]), float(sample["value"])


def _find_counter_name(name: str) -> str | None:
    short = name.removeprefix(REMOTE)
    is_remote = name.startswith(REMOTE) and short in COUNTER_HELP
    return short if is_remote or short == MIRROR_BYTES else None


def write_metrics_file(path: Path, body: bytes) -> None:
    """Replace the metrics file atomically.

    Raises:
        UserError: It cannot be written, and is unchanged.
    """
    try:
        write_atomically(path, body)
    except OSError as error:
        raise UserError(
            f"cannot write the metrics to {path}: {error.strerror or error}",
            hint="Name a file in a folder that can be written, on a disk with room.",
        ) from error


_TOTAL: Final = "_total"


class _MetricsCollector:
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Family]:
        return [_build_family(metric) for metric in self._metrics]


def format_prometheus(metrics: Iterable[Metric]) -> str:
    """Format metrics for Prometheus, without metrics that have no values."""
    sampled = [metric for metric in metrics if metric.samples]
    text = generate_latest(_MetricsCollector(sampled)).decode()
    for metric in sampled:
        if metric.kind == "counter" and not metric.name.endswith(_TOTAL):
            text = _rename_counter(text, PREFIX + metric.name)
    return text


def _build_family(metric: Metric) -> Family:
    name = PREFIX + metric.name
    family = (CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily)(name, metric.help)
    for sample in metric.samples:
        family.add_sample(name, {label: _replace_surrogates(value) for label, value in sample.labels}, sample.value)
    return family


def _rename_counter(text: str, name: str) -> str:
    """Remove `_total`, which the library appends, but Redpanda and Confluent do not."""
    for word in ("HELP", "TYPE"):
        text = text.replace(f"# {word} {name}{_TOTAL} ", f"# {word} {name} ", 1)
    return text


def _replace_surrogates(value: str) -> str:
    return value.encode("utf-8", "replace").decode()
