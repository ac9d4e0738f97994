"""What a run needs: platforms, jobs, a lease, and a listener."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from reconciler.applying.events import NOWHERE, Event, Execution, Progress
from reconciler.objectstore.base import ObjectStore
from reconciler.planning.actions import Action, RunJob, Transition
from reconciler.providers.protocol import Provider
from reconciler.resources.inventory import Record
from reconciler.runtime.effects import Effects
from reconciler.runtime.retry import go_on
from reconciler.state.journal import Entry

DataAction: TypeAlias = RunJob | Transition
"""What jobs execute: a copy, or a transition over two clusters (`engine.is_driven`)."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a job moved."""

    records: int = 0
    bytes: int = 0
    incarnation: str | None = None
    """Incarnation that a transition left at its address."""
    physical_name: str | None = None
    """Physical name, if it differs from the address: for a mount, its location."""
    ran: Execution = NOWHERE


class Jobs(Protocol):
    """Executes data actions. Methods block; the engine starts with the first action."""

    def check(self, actions: Iterable[Action]) -> None:
        """Return if this machine can run every data action among `actions`.

        Raises:
            UserError: Java or Spark is missing.
        """
        ...

    def run(
        self, action: DataAction, progress: Callable[[Progress], None], may_go_on: Callable[[], None] = go_on
    ) -> JobResult:
        """Run a job or drive a transition until it ends; return what was moved.

        `may_go_on` is called before each step of a transition.

        Raises:
            IncompleteError: It was stopped; the next run does the rest.
            LeaseError: From `may_go_on`; the next holder of the lease continues.
        """
        ...

    def stop(self) -> None:
        """Ask the running job to end soon. Safe from any thread."""
        ...


class LeasePort(Protocol):
    """The lease under which a run acts."""

    @property
    def may_start(self) -> bool:
        """Return whether a new call may start; if not, the run waits until one may, or until `check` fails."""
        ...

    def check(self) -> None:
        """Return if the lease is certainly held.

        Raises:
            LeaseError: It is lost.
        """
        ...

    async def write(self, entries: Sequence[Entry]) -> None:
        """Return once `entries` are durable in the run's journal.

        Raises:
            LeaseError: The lease is lost.
            ReconcilerError: The entries could not be written.
        """
        ...

    async def checkpoint(self, record: Record) -> None:
        """Commit the record if the last commit is old enough. Called about once a second."""
        ...


class StopRequest(Protocol):
    """A request from outside to stop, such as a signal."""

    @property
    def is_requested(self) -> bool:
        """Return whether a stop was requested."""
        ...

    def call_on_stop(self, end: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `end` if a stop is requested during the `with` block, or was requested before."""
        ...


class Spool(Protocol):
    """Local storage for journal entries while the state cannot be written."""

    def keep(self, run: str, entries: Sequence[Entry]) -> str:
        """Store the unwritten journal entries of a run and return the location, for messages.

        Raises:
            UserError: They cannot be stored.
        """
        ...

    def read(self, run: str) -> Sequence[Entry]:
        """Return the usable stored entries of a run."""
        ...

    def runs(self) -> Sequence[str]:
        """Return the runs with stored entries; some may belong to another state."""
        ...

    def forget(self, run: str) -> None:
        """Delete the stored entries of a run once its journal has them."""
        ...


def _settles_nothing(_record: Record) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a run uses before it has a lease."""

    state: ObjectStore
    providers: Mapping[str, Provider]
    jobs: Jobs
    effects: Effects
    report: Callable[[Event], None]
    stop: StopRequest
    spool: Spool
    settle: Callable[[Record], None] = _settles_nothing
    """Called under the lease with the record that a run leaves, to mark ownership on the clusters. Raises nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPorts:
    """What a run uses, apart from its plan."""

    providers: Mapping[str, Provider]
    jobs: Jobs
    turn: LeasePort
    effects: Effects
    report: Callable[[Event], None]
    parallelism: int = 8
    """Limit of concurrent calls to platforms."""
