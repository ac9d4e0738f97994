"""What a check found: of one of the kinds there are, at a place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.embedded.checking.kinds import Kind, Severity
from reconciler.embedded.checking.rules import RULES, Rule

if TYPE_CHECKING:
    from reconciler.records.log import OffsetRange

__all__ = ["Finding", "Kind", "Place", "Severity"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a finding is: an object's key, and the topic and partition it belongs to, as far as there are any."""

    key: str
    topic: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be. `gone`: the offsets whose records cannot be read any more."""

    kind: Kind
    what: str
    place: Place
    gone: tuple[OffsetRange, ...] = ()
    objects: int = 1
    bytes: int = 0
    age_ms: int | None = None
    """Of the oldest object, by the store's clock, where age matters."""

    @property
    def rule(self) -> Rule:
        """What is true of all of its kind."""
        return RULES[self.kind]

    @property
    def severity(self) -> Severity:
        """How grave it is."""
        return self.rule.severity
