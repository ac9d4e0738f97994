"""What a run needs: platforms, jobs, a lease, and a listener."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from reconciler.applying.events import NOWHERE, Event, Progress, Ran
from reconciler.objectstore.base import ObjectStore
from reconciler.planning.actions import Action, RunJob, Transition
from reconciler.providers.protocol import Provider
from reconciler.resources.inventory import Record
from reconciler.runtime.effects import Effects
from reconciler.runtime.retry import go_on
from reconciler.state.journal import Entry

DataAction: TypeAlias = RunJob | Transition
"""What the jobs do: a copy, or a transition that needs two clusters and copies between them (`engine.is_driven`)."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a job moved."""

    records: int = 0
    bytes: int = 0
    incarnation: str | None = None
    """Which one a transition left at its address."""
    physical_name: str | None = None
    """What it is called there, where that is not its address: of what is mounted, its location."""
    ran: Ran = NOWHERE


class Jobs(Protocol):
    """Runs data actions. Blocking; starts its engine at the first one."""

    def check(self, actions: Iterable[Action]) -> None:
        """Return if every data action among `actions` finds what it needs here, so that nothing is begun in vain.

        Raises:
            UserError: Java or Spark are not there.
        """
        ...

    def run(
        self, action: DataAction, progress: Callable[[Progress], None], may_go_on: Callable[[], None] = go_on
    ) -> JobResult:
        """Do a job, bringing source and sink together, or drive a transition to its end; return what was moved.

        `may_go_on` is asked before each step of a transition, and may raise.

        Raises:
            IncompleteError: It was stopped; what is published stays, the rest is done by the next run.
            LeaseError: By `may_go_on`; whoever comes next goes on.
        """
        ...

    def stop(self) -> None:
        """Let the running job end soon. Safe from any thread."""
        ...


class LeasePort(Protocol):
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

    async def write(self, entries: Sequence[Entry]) -> None:
        """Return once `entries` are durable in the run's journal.

        Raises:
            LeaseError: It is lost.
            ReconcilerError: They could not be written.
        """
        ...

    async def checkpoint(self, record: Record) -> None:
        """Commit what is done so far, if the last commit is old enough to matter. Asked about once a second."""
        ...


class StopRequest(Protocol):
    """Somebody outside who may ask for the end."""

    @property
    def is_requested(self) -> bool:
        """Tell whether somebody asked."""
        ...

    def ends(self, end: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `end` when somebody asks while the block runs; at once where somebody already has."""
        ...


class Spool(Protocol):
    """Where what is known is kept on this machine while the state cannot be written."""

    def keep(self, run: str, entries: Sequence[Entry]) -> str:
        """Keep what could not be written of a run's journal, and return where, for people.

        Raises:
            UserError: It cannot be kept.
        """
        ...

    def kept(self, run: str) -> Sequence[Entry]:
        """Return what is kept of a run; nothing where nothing is that can be used."""
        ...

    def runs(self) -> Sequence[str]:
        """Return the runs of which something is kept; some may be of another state."""
        ...

    def forget(self, run: str) -> None:
        """Drop what is kept of a run: it is in its journal now."""
        ...


def _settles_nothing(_record: Record) -> None:
    """Tell no cluster who owns what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where a run happens: everything it is given before it has a lease."""

    state: ObjectStore
    providers: Mapping[str, Provider]
    jobs: Jobs
    effects: Effects
    report: Callable[[Event], None]
    stop: StopRequest
    spool: Spool
    settle: Callable[[Record], None] = _settles_nothing
    """Takes the record as a run leaves it, under the lease: clusters are told what of it is ours. Raises nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPorts:
    """Everything a run needs beside its plan."""

    providers: Mapping[str, Provider]
    jobs: Jobs
    turn: LeasePort
    effects: Effects
    report: Callable[[Event], None]
    parallelism: int = 8
    """So many calls to platforms at once."""
