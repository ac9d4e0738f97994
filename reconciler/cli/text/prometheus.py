"""Metrics in the text format of Prometheus, version 0.0.4, as its own library writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from reconciler.operations.metrics import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric as Family

    from reconciler.operations.metrics import Metric


_TOTAL: Final = "_total"


class _Collected:
    """Our metrics, as the library asks a collector for them."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Family]:
        """Return one family for each."""
        return [_family(metric) for metric in self._metrics]


def prometheus_text(metrics: Iterable[Metric]) -> str:
    """Return all of them; a metric without numbers is left out."""
    told = [metric for metric in metrics if metric.samples]
    text = generate_latest(_Collected(told)).decode()
    for metric in told:
        if metric.kind == "counter" and not metric.name.endswith(_TOTAL):
            text = _named(text, PREFIX + metric.name)
    return text


def _family(metric: Metric) -> Family:
    name = PREFIX + metric.name
    family = (CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily)(name, metric.help)
    for sample in metric.samples:
        family.add_sample(name, {label: _whole(value) for label, value in sample.labels}, sample.value)
    return family


def _named(text: str, name: str) -> str:
    """Undo the suffix that the library puts on a counter's head: our names are Redpanda's and Confluent's."""
    for word in ("HELP", "TYPE"):
        text = text.replace(f"# {word} {name}{_TOTAL} ", f"# {word} {name} ", 1)
    return text


def _whole(value: str) -> str:
    """Replace halves of characters: they cannot be written as UTF-8, which the format asks for."""
    return value.encode("utf-8", "replace").decode()
