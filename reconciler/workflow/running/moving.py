"""Copies of one action: told as they go on, and counted together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.applying.events import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reconciler.jobs.progress import JobProgress
    from reconciler.resources.mirroring import MirrorSeen
    from reconciler.workflow.linking.copying import Copier


@dataclass
class Brought:
    """Copies for one action, and what they have moved."""

    copier: Copier
    name: str
    progress: Callable[[Progress], None]
    records: int = 0
    bytes: int = 0
    offsets: int = 0
    """Those without records counted too."""

    def copy(self, mirror: MirrorSeen, ends: Mapping[int, int] | None = None) -> None:
        """Bring a mirror to these ends, or to those its source has now.

        Raises:
            IncompleteError: It was stopped; what is published stays.
        """
        done = self.copier.copy(mirror, ends, lambda found: self.progress(progress_event(self.name, found)))
        self.records += done.records
        self.bytes += done.bytes
        self.offsets += done.offsets


def progress_event(name: str, found: JobProgress) -> Progress:
    """Return how far a job is as an event."""
    return Progress(
        name,
        found.records,
        found.records_total,
        found.bytes,
        found.bytes_total,
        found.seconds,
        found.seconds_left,
    )
