"""How far a job is: counts, rates, and the time left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class JobProgress:
    """What is done of what there is to do; totals are estimates. Bytes are stored bytes."""

    records: int
    records_total: int
    bytes: int
    bytes_total: int
    seconds: float
    """Since the job began to move records."""
    ends: Mapping[int, int] = field(default_factory=dict)
    """Where each partition that gained last now ends."""

    @property
    def records_per_second(self) -> float:
        """How fast it goes, over all the job; 0 until anything is done."""
        return self.records / self.seconds if self.seconds > 0 else 0.0

    @property
    def bytes_per_second(self) -> float:
        """As `records_per_second`."""
        return self.bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """How long it will take at this rate; `None` until a rate is known.

        Stored bytes are estimates; where every record is there, they say nothing any more.
        """
        if 0 < self.records_total <= self.records:
            return 0.0
        if self.bytes == 0 or self.bytes_total == 0:
            return None
        return max(0.0, self.seconds * (self.bytes_total - self.bytes) / self.bytes)


Report: TypeAlias = Callable[[JobProgress], None]


def unseen(progress: JobProgress) -> None:
    """Report to nobody."""
