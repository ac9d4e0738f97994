"""Metrics in the text format of Prometheus, version 0.0.4: HELP, TYPE and one line a number, without timestamps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reconciler.workflow.measuring.metric import Metric, Sample

PREFIX: Final = "reconciler_"


def prometheus_text(metrics: Iterable[Metric]) -> str:
    """Return all of them; a metric without numbers is left out."""
    return "".join(f"{line}\n" for metric in metrics if metric.samples for line in _lines(metric))


def _lines(metric: Metric) -> Iterator[str]:
    name = PREFIX + metric.name
    yield f"# HELP {name} {_escaped(metric.help)}"
    yield f"# TYPE {name} {metric.kind}"
    for sample in metric.samples:
        yield f"{name}{_labels(sample)} {_number(sample.value)}"


def _labels(sample: Sample) -> str:
    if not sample.labels:
        return ""
    quoted = ",".join(f'{name}="{_quoted(value)}"' for name, value in sample.labels)
    return f"{{{quoted}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    # Halves of characters cannot be written as UTF-8, which the format asks for.
    whole = text.encode("utf-8", "replace").decode()
    return _escaped(whole).replace('"', '\\"')


def _number(value: float) -> str:
    """Return a number exactly; a whole one without its point."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))
