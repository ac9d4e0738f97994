"""A platform, jobs and a turn for tests of the engine: small, honest, and told beforehand what goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reconciler.applying.events import ActionDone, ActionFailed, ActionStarted, Event, LeaseLost, Progress
from reconciler.applying.ports import DataAction, JobResult, RunPorts
from reconciler.errors import IncompleteError, LeaseError, ReconcilerError, UserError
from reconciler.planning.actions import Action, ControlAction, Create, Delete, Forget, RunJob
from reconciler.providers.protocol import CompletedAction, FailedAction, Outcome
from reconciler.resources.address import Address
from reconciler.resources.inventory import Capabilities, Record
from reconciler.resources.topic import Topic
from reconciler.runtime.retry import skip_check

if TYPE_CHECKING:
    from reconciler.applying.engine import Engine
    from reconciler.state.journal import Entry
    from tests.state.simulation import Simulation


def topic(name: str, cluster: str = "west") -> Topic:
    return Topic.model_validate({"metadata": {"name": name, "cluster": cluster}, "spec": {"partitions": 1}})


def create(name: str, *needs: str, cluster: str = "west") -> Create:
    after = topic(name, cluster)
    return Create(address=after.address, after=after, depends_on=tuple(f"create:topic/{need}" for need in needs))


def delete(name: str, cluster: str = "west") -> Delete:
    before = topic(name, cluster)
    return Delete(address=before.address, before=before)


def forget(name: str, *needs: str) -> Forget:
    return Forget(address=topic(name).address, depends_on=needs)


def copy(name: str, *needs: str) -> RunJob:
    source, sink = Address(f"topic/west/{name}"), Address(f"topic/east/{name}")
    return RunJob(address=Address(f"mirror/east/{name}"), job="mirror", source=source, sink=sink, depends_on=needs)


@dataclass
class Platform:
    """One cluster. `refuses` are ids it fails; `breaks` are ids at which the whole call ends with an error."""

    batch: int = 100
    refuses: Mapping[str, ReconcilerError] = field(default_factory=dict)
    breaks: Mapping[str, Exception] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()
    calls: list[list[str]] = field(default_factory=list)
    on_call: Callable[[], None] | None = None

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(platform="test", batch=self.batch)

    def apply(
        self, actions: Sequence[ControlAction], *, may_go_on: Callable[[], None] = skip_check
    ) -> Iterator[Outcome]:
        may_go_on()
        self.calls.append([action.id for action in actions])
        if self.on_call is not None:
            self.on_call()
        for action in actions:
            if action.id in self.breaks:
                raise self.breaks[action.id]
            if action.id in self.refuses:
                yield FailedAction(action.id, self.refuses[action.id])
            elif action.id not in self.silent:
                yield CompletedAction(action.id, incarnation=f"id-of-{action.address}", physical_name=action.address)


@dataclass
class Works:
    """Jobs that move ten records each."""

    fails: Mapping[str, Exception] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    stops: int = 0
    on_run: Callable[[], None] | None = None

    def check(self, actions: Iterable[Action]) -> None:
        """Nothing is needed."""

    def run(
        self, job: DataAction, progress: Callable[[Progress], None], may_go_on: Callable[[], None] = skip_check
    ) -> JobResult:
        may_go_on()
        self.ran.append(job.id)
        if self.on_run is not None:
            self.on_run()
        if self.stops:
            message = "stopped"
            raise IncompleteError(message, hint="Run it again.")
        if job.id in self.fails:
            raise self.fails[job.id]
        progress(Progress(job.id, 10, 10, 100, 100, 1.0))
        return JobResult(10, 100)

    def stop(self) -> None:
        self.stops += 1


@dataclass
class Turn:
    """A lease that is young, old or lost, as told."""

    may_start: bool = True
    lost: LeaseError | None = None
    refuses: ReconcilerError | None = None
    unwritable: ReconcilerError | None = None
    commits: list[int] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)

    def check(self) -> None:
        if self.lost is not None:
            raise self.lost

    async def write(self, entries: Sequence[Entry]) -> None:
        self.check()
        if self.unwritable is not None:
            raise self.unwritable
        self.entries += entries

    async def checkpoint(self, record: Record) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.commits.append(len(record))


def refusal(message: str = "no") -> UserError:
    return UserError(message, hint="Change it.")


def gone() -> LeaseError:
    return LeaseError("taken over", hint="Look at their run.")


@dataclass
class Stage:
    """Everything a run is given, and everything it said."""

    effects: Simulation
    platforms: dict[str, Platform] = field(default_factory=lambda: {"west": Platform(), "east": Platform()})
    jobs: Works = field(default_factory=Works)
    turn: Turn = field(default_factory=Turn)
    events: list[tuple[float, Event]] = field(default_factory=list)
    on_event: Callable[[Event], None] | None = None
    engine: Engine | None = None

    def report(self, event: Event) -> None:
        self.events.append((round(self.effects.read_clock(), 3), event))
        if self.on_event is not None:
            self.on_event(event)

    @property
    def means(self) -> RunPorts:
        # The engine asks a provider for two things; these have just those.
        providers = dict(self.platforms)
        return RunPorts(
            providers=providers,  # type: ignore[arg-type] # see above
            jobs=self.jobs,
            lease=self.turn,
            effects=self.effects,
            report=self.report,
        )

    def said(self) -> list[str]:
        return [line for _, event in self.events if (line := _line(event))]


def _line(event: Event) -> str:
    match event:
        case ActionStarted():
            return f"started {event.id}"
        case ActionDone():
            return f"done {event.id}"
        case ActionFailed():
            return f"failed {event.id}: {event.error}"
        case LeaseLost():
            return f"lease lost: {event.message}"
        case _:
            return ""
