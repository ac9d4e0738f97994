"""Who will come to which chunk: the readers of this process say it, and `predictive` eviction asks."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Needs:
    """Counts readers by segment and chunk. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[str, Counter[int]] = defaultdict(Counter)

    def add(self, segment: str, starts: Iterable[int]) -> None:
        """Say that a reader will come to these chunks."""
        with self._lock:
            self._counts[segment].update(starts)

    def remove(self, segment: str, starts: Iterable[int]) -> None:
        """Say that a reader has been there, or will not come."""
        with self._lock:
            counts = self._counts[segment]
            counts.subtract(starts)
            for start in [start for start, count in counts.items() if count <= 0]:
                del counts[start]
            if not counts:
                del self._counts[segment]

    def of(self, segment: str) -> Mapping[int, int]:
        """Return how many readers will come to each chunk of a segment."""
        with self._lock:
            return dict(self._counts[segment]) if segment in self._counts else {}
