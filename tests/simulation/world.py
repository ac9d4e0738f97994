"""The world a simulation runs in: a state, two clusters, a ledger, and machines that visit it one beside the other."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Literal
from unittest.mock import patch

from reconciler.applying.events import Event, RunRecovered
from reconciler.applying.ports import DataAction, RunContext
from reconciler.applying.run import Caller, DecisionBasis, Run, RunOptions, RunRequest, RunWork
from reconciler.errors import ReconcilerError
from reconciler.objectstore import base
from reconciler.objectstore.base import ObjectStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.operations.steps.approval import ResumeFacts, find_rest_of_plan, limit_plan
from reconciler.planning.saved_plan import read_action
from reconciler.providers.protocol import Outcome as Came
from reconciler.resources.cluster import Cluster
from reconciler.runtime.retry import skip_check
from reconciler.state.journal import Entry, require_run
from reconciler.state.lease import Claim
from reconciler.state.lockfile import LeaseTerms, Owner
from reconciler.state.snapshots import Snapshot, read_snapshot
from tests.simulation.clusters import PieceByPiece
from tests.simulation.history import History
from tests.simulation.machine import Fault, Machine, Step
from tests.simulation.manifests import AFTER, CLUSTERS, PlanResult, decide
from tests.simulation.stores import Nobody, SeenFrom
from tests.simulation.works import LedgerJobs, ranges_of
from tests.state.simulation import simulate

if TYPE_CHECKING:
    from reconciler.planning.actions import Action, ControlAction

SHOP = Owner("shop")
LEASE_S = 9.0
"""Everything of a lease follows from its length; a short one is waited for quickly."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One command typed on one machine."""

    machine: str
    faults: tuple[Fault, ...] = ()
    resumes: bool = False
    starts_s: float = 0.0
    after: str | None = None
    """Begins when this one has ended, in whatever way."""
    offset_s: float = 0.0
    """How far its clock is ahead."""
    files: str = "after"
    batch: int = 100
    leaves_jobs: bool = False
    call_s: float = 0.01
    is_clock_standing: bool = False
    """While it is frozen its clock stands still, as some do: then only the stores can tell it that it is too late."""


Outcome = Literal["done", "nothing", "died"] | type[ReconcilerError]


@dataclass
class RunOutcome:
    """How a visit ended, and what it went through."""

    visit: Visit
    outcome: Outcome = "died"
    error: ReconcilerError | None = None
    trace: list[tuple[Step, str]] = field(default_factory=list)
    at: float = 0.0
    landed_late: list[str] = field(default_factory=list)


class KeptHere:
    """What one machine keeps for itself."""

    def __init__(self, machine: Machine, kept: dict[str, list[Entry]]) -> None:
        self._machine, self._kept = machine, kept

    def store_entries(self, run: str, entries: Sequence[Entry]) -> str:
        if not self._machine.is_dead:
            self._kept.setdefault(run, []).extend(entries)
        return f"memory of {self._machine.name}"

    def read_entries(self, run: str) -> Sequence[Entry]:
        return tuple(self._kept.get(run, ()))

    def list_runs(self) -> Sequence[str]:
        return sorted(self._kept)

    def delete_entries(self, run: str) -> None:
        self._kept.pop(run, None)


class World:
    """Stores that outlive every machine."""

    def __init__(self) -> None:
        self.state = MemoryStore()
        self.ledger = MemoryStore()
        self.clusters = {name: MemoryStore() for name in CLUSTERS}
        self.history = History(lambda: 0.0)
        self.ended: dict[str, RunOutcome] = {}
        self._ids = itertools.count(1)
        self._kept: dict[str, dict[str, list[Entry]]] = {}
        self._plays = 0
        self._planned: dict[tuple[int, str], PlanResult] = {}

    def fork(self) -> World:
        """Return another world that is as this one is."""
        other = World()
        pairs = [(self.state, other.state), (self.ledger, other.ledger)]
        pairs += [(self.clusters[name], other.clusters[name]) for name in CLUSTERS]
        for mine, theirs in pairs:
            for listed in mine.list(""):
                found = mine.get(listed.key)
                assert found is not None
                theirs.put(listed.key, found.body)
                if theirs is other.state:
                    other.history.changed("before", listed.key, found.body)
        other.history.published_before = {
            listed.key: ranges_of(self.ledger.get(listed.key)) for listed in self.ledger.list("")
        }
        other.history.lockfiles.clear()
        other.history.pages.clear()
        other._ids = itertools.count(1000)
        other._plays = self._plays
        return other

    def new_id(self) -> str:
        """Return the next id of a cluster or topic."""
        return f"00000000-0000-4000-8000-{next(self._ids):012d}"

    # -- what happens in it

    def play(self, visits: Sequence[Visit], *, seed: int = 0) -> World:
        """Let machines come and go until all have ended; return what has become of it."""
        self._plays += 1
        with seeded(f"{seed} {self._plays}"):
            simulate(self._play(visits, seed))
        return self

    def plan(self, files: str = "after") -> PlanResult:
        """Return what would be planned now, seen by nobody."""
        if (self._plays, files) not in self._planned:
            self._planned[self._plays, files] = decide(files, self.providers(None), self.snapshot())
        return self._planned[self._plays, files]

    def snapshot(self) -> Snapshot:
        return read_snapshot(self.state) or Snapshot("none", 0)

    def actions_of(self, run: str) -> list[Action]:
        """Return what a run set out to do."""
        return [read_action(stored) for stored in require_run(self.state, run).actions]

    def providers(self, machine: Machine | None, *, batch: int = 100) -> dict[str, PieceByPiece]:
        """Return the clusters as a machine sees them; `None`: as they are."""
        found = {}
        for name, store in self.clusters.items():
            declared = AFTER[f"cluster/{name}"].resource  # type: ignore[index] # it is an address
            assert isinstance(declared, Cluster)
            seen: ObjectStore = SeenFrom(store, machine, name, Nobody()) if machine else store
            kind = PieceByPiece if machine is None else _Watched.by(self, machine)
            found[name] = kind(declared, seen, self.new_id, batch)
        return found

    async def _play(self, visits: Sequence[Visit], seed: int) -> None:
        loop, began = asyncio.get_running_loop(), self.history.clock()
        self.history.clock = lambda: began + loop.time()
        ends = {visit.machine: asyncio.Event() for visit in visits}
        await asyncio.gather(*(self._visit(visit, ends, seed * 31 + place) for place, visit in enumerate(visits)))
        ended = self.history.clock()
        self.history.clock = lambda: ended

    async def _visit(self, visit: Visit, ends: Mapping[str, asyncio.Event], seed: int) -> None:
        if visit.after is not None:
            await ends[visit.after].wait()
        await asyncio.sleep(visit.starts_s)
        machine = Machine(visit.machine, visit.faults, seed=seed, call_s=visit.call_s, offset=visit.offset_s)
        machine.is_clock_standing = visit.is_clock_standing
        ended = self.ended[visit.machine] = RunOutcome(visit)
        work = machine.start_task(self._run(visit, machine, ended))
        await asyncio.wait([work])
        if not work.cancelled() and (error := work.exception()) is not None:
            self.history.crashes.append(f"{visit.machine}: {type(error).__name__}: {error}")
        ended.trace, ended.landed_late = machine.trace, machine.landed_late
        ended.at = asyncio.get_running_loop().time()
        ends[visit.machine].set()

    async def _run(self, visit: Visit, machine: Machine, ended: RunOutcome) -> None:
        try:
            came = await Run(self._setting(visit, machine), _caller(visit), _wish(visit)).run(
                lambda basis: self._decide(visit, machine, basis)
            )
            ended.outcome = "done" if came.result is not None else "nothing"
        except ReconcilerError as error:
            ended.outcome, ended.error = type(error), error

    def _setting(self, visit: Visit, machine: Machine) -> RunContext:
        providers = self.providers(machine, batch=visit.batch)
        host = visit.machine.partition(".")[0]

        def report(event: Event) -> None:
            if isinstance(event, RunRecovered) and not machine.is_dead:
                self.history.settles(machine.name, event.run)

        return RunContext(
            state=SeenFrom(self.state, machine, "state", self.history),
            providers=providers,
            jobs=LedgerJobs(SeenFrom(self.ledger, machine, "ledger", self.history), providers, _Foreman(self, machine)),
            effects=machine,
            report=report,
            stop=machine.stop,
            spool=KeptHere(machine, self._kept.setdefault(host, {})),
        )

    def _decide(self, visit: Visit, machine: Machine, basis: DecisionBasis) -> RunWork:
        decided = decide(visit.files, self.providers(machine), basis.snapshot)
        planned = decided.plan
        if visit.resumes and basis.settled is not None and basis.is_second_round:
            planned = limit_plan(planned, basis.settled.run.actions)
        elif visit.resumes and basis.settled is not None:
            known = {name: provider.capabilities for name, provider in self.providers(machine).items()}
            planned = find_rest_of_plan(
                basis.settled, planned, ResumeFacts(decided.observed, known, basis.snapshot.record)
            ).plan
        return RunWork(planned.actions, planned.digest, planned, {})


def _caller(visit: Visit) -> Caller:
    more = itertools.count(2)
    return Caller(
        claim=Claim(
            owner=SHOP,
            run=f"{visit.machine}#1",
            who=f"{visit.machine}@host",
            lineage="lineage",
            terms=LeaseTerms(LEASE_S),
        ),
        new_run=lambda: f"{visit.machine}#{next(more)}",
    )


def _wish(visit: Visit) -> RunRequest:
    options = RunOptions(resumes=visit.resumes, leaves_jobs=visit.leaves_jobs, lock_timeout_s=3600.0)
    return RunRequest(command="apply", options=options)


class _Watched(PieceByPiece):
    """A cluster whose every change is written down right before it is made."""

    _world: World
    _machine: Machine

    @classmethod
    def by(cls, world: World, machine: Machine) -> type[_Watched]:
        return type("_Watched", (cls,), {"_world": world, "_machine": machine})

    def apply(self, actions: Sequence[ControlAction], *, may_go_on: Callable[[], None] = skip_check) -> Iterator[Came]:
        for action in actions:
            yield from super().apply([action], may_go_on=partial(self._asked, action, may_go_on))

    def _asked(self, action: ControlAction, may_go_on: Callable[[], None]) -> None:
        may_go_on()
        self._world.history.acts_on(self._machine.name, action)


class _Foreman:
    """Writes down that a job begins."""

    def __init__(self, world: World, machine: Machine) -> None:
        self._world, self._machine = world, machine

    def begins(self, job: DataAction) -> None:
        self._world.history.acts_on(self._machine.name, job)


@contextmanager
def seeded(seed: str) -> Iterator[None]:
    """Let nonces be the same each time the seed is, and no other time."""
    random = Random(seed)  # noqa: S311 - repeatable, no secret

    class Repeated:
        token_hex = staticmethod(lambda size: random.randbytes(size).hex())
        randbits = staticmethod(random.getrandbits)

    with patch.object(base, "secrets", Repeated):
        yield


def prepared() -> World:
    """Return the world in which the plan is made: applied once, and changed by others since."""
    world = World().play([Visit("setup", files="before")])
    assert world.ended["setup"].outcome == "done", world.ended["setup"].error
    with seeded("others"):
        west = world.providers(None)["west"]._open_cluster()
        west.delete_topic("shop:ghost")
        west.create_topic("shop:found")
    return world
