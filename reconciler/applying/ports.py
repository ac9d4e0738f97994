"""What a run is given: platforms, jobs, the lease it acts under, and someone to tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from reconciler.applying.events import Event, Progress
from reconciler.effects import Effects
from reconciler.planning.actions import RunJob
from reconciler.providers.base import Provider
from reconciler.resources.inventory import Record


@dataclass(frozen=True, slots=True)
class Moved:
    """What a job moved."""

    records: int = 0
    bytes: int = 0


class Jobs(Protocol):
    """Runs data actions. Blocking; starts its engine at the first one."""

    def run(self, job: RunJob, progress: Callable[[Progress], None]) -> Moved:
        """Do the job, bringing source and sink together, and return what it moved.

        Raises:
            IncompleteError: It was stopped; what is published stays, the rest is done by the next run.
        """
        ...

    def stop(self) -> None:
        """Let the running job end soon. Safe from any thread."""
        ...


class Turn(Protocol):
    """The lease a run acts under."""

    @property
    def may_start(self) -> bool:
        """Tell whether a new call may be started; if not, it is waited until one may, or `check` fails."""
        ...

    def check(self) -> None:
        """Return while the lease is surely ours.

        Raises:
            LeaseError: It is lost.
        """
        ...

    async def checkpoint(self, record: Record) -> None:
        """Commit what is done so far, if the last commit is old enough to matter. Asked about once a second."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """Everything a run needs beside its plan."""

    providers: Mapping[str, Provider]
    jobs: Jobs
    turn: Turn
    effects: Effects
    report: Callable[[Event], None]
