"""Interfaces of a run: jobs, lease, stop request and local storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from reconciler.applying.events import NO_EXECUTION, Event, JobExecution, Progress
from reconciler.objectstore.base import ObjectStore
from reconciler.planning.actions import Action, RunJob, Transition
from reconciler.providers.protocol import Provider
from reconciler.resources.inventory import Record
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.effects import Effects
from reconciler.runtime.retry import skip_check
from reconciler.state.journal import Entry

DataAction: TypeAlias = RunJob | Transition
"""A job, or a transition for which `is_done_by_jobs` is true."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """Records and bytes that a job moved, and the resulting resource."""

    records: int = 0
    bytes: int = 0
    incarnation: str | None = None
    physical_name: str | None = None
    ran: JobExecution = NO_EXECUTION


class Jobs(Protocol):
    """Executes jobs and transitions; methods block. The first job that needs Spark starts it."""

    def check(self, actions: Iterable[Action]) -> None:
        """Raise `UserError` if Java or Spark is missing for an action."""
        ...

    def run(
        self, action: DataAction, progress: Callable[[Progress], None], may_go_on: Callable[[], None] = skip_check
    ) -> JobResult:
        """Run a job or transition to its end.

        A transition calls `may_go_on` before each step.

        Raises:
            IncompleteError: The action was stopped; the next run continues it.
            LeaseError: `may_go_on` found that the lease is lost.
        """
        ...

    def stop(self) -> None:
        """Stop running jobs soon. Thread-safe."""
        ...


class LeasePort(Protocol):
    """The run's lease."""

    @property
    def may_start(self) -> bool:
        """Whether a new call may start."""
        ...

    def check(self) -> None:
        """Raise `LeaseError` if the lease is lost."""
        ...

    async def write(self, entries: Sequence[Entry]) -> None:
        """Write `entries` to the run's journal.

        Raises:
            LeaseError: The lease is lost.
            ReconcilerError: The entries could not be written.
        """
        ...

    async def checkpoint(self, record: Record) -> None:
        """Commit the record if the last commit is old enough."""
        ...


class StopRequest(Protocol):
    """A request to stop from outside the run, such as a signal."""

    @property
    def is_requested(self) -> bool:
        """Whether a stop was requested."""
        ...

    def call_on_stop(self, end: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `end` if a stop is requested before or during the `with` block."""
        ...


class Spool(Protocol):
    """Local storage for journal entries while the state cannot be written."""

    def store_entries(self, run: str, entries: Sequence[Entry]) -> str:
        """Store a run's entries; return their location for messages.

        Raises:
            UserError: The entries cannot be stored.
        """
        ...

    def read_entries(self, run: str) -> Sequence[Entry]:
        """Return a run's stored entries, without damaged ones."""
        ...

    def list_runs(self) -> Sequence[str]:
        """Return ids of runs with stored entries, including runs of other states."""
        ...

    def delete_entries(self, run: str) -> None:
        """Delete a run's stored entries."""
        ...


def _mark_nothing(_record: Record) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Interfaces of a run, without the lease."""

    state: ObjectStore
    providers: Mapping[str, Provider]
    jobs: Jobs
    effects: Effects
    report: Callable[[Event], None]
    stop: StopRequest
    spool: Spool
    mark_ownership: Callable[[Record], None] = _mark_nothing
    """Marks ownership on the clusters after a run, under the lease. Never raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPorts:
    """Interfaces of the engine, with the lease."""

    providers: Mapping[str, Provider]
    jobs: Jobs
    lease: LeasePort
    effects: Effects
    report: Callable[[Event], None]
    parallelism: int = 8
