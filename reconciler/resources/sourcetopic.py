"""What a mirror follows of its source, on any platform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopic:
    """A source topic: `configs` are those it sets or inherits; defaults are left out, each cluster has its own.

    `incarnation` tells it from a later topic of the same name; `None` where the platform cannot.
    """

    partitions: int
    incarnation: str | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
