"""JSON of `run --metrics FILE.json`: the same numbers as the text file has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from reconciler.cli.documents.base import Document, Part
from reconciler.workflow.measuring.metric import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.workflow.measuring.metric import Metric


class SamplePart(Part):
    """One number."""

    labels: dict[str, str]
    value: float


class MetricPart(Part):
    """One metric."""

    name: str
    kind: Literal["gauge", "counter"] = Field(description="A counter only rises, from one file to the next.")
    help: str
    samples: tuple[SamplePart, ...]


class MetricsDocument(Document):
    """Every metric after a pass; one without numbers is left out."""

    format: Literal["reconciler.metrics/1"] = "reconciler.metrics/1"
    metrics: tuple[MetricPart, ...]

    @classmethod
    def of(cls, metrics: Iterable[Metric]) -> MetricsDocument:
        """Say all of them."""
        return cls(
            metrics=tuple(
                MetricPart(
                    name=PREFIX + metric.name,
                    kind=metric.kind,
                    help=metric.help,
                    samples=tuple(SamplePart(labels=dict(each.labels), value=each.value) for each in metric.samples),
                )
                for metric in metrics
                if metric.samples
            )
        )
