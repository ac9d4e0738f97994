"""Walk a plan's graph: start what may start, batch by cluster, let one failure stop only what leans on it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from reconciler.applying.events import ActionDone, ActionFailed, ActionStarted, LeaseLost
from reconciler.applying.graph import Graph
from reconciler.applying.lanes import JOBS, Queue, do_batch, done, lane_of
from reconciler.applying.ports import Moved
from reconciler.errors import IncompleteError, LeaseError, ReconcilerError
from reconciler.planning.recording import after_action
from reconciler.providers.base import Done, Failed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.applying.lanes import Lane
    from reconciler.applying.ports import Means
    from reconciler.planning.actions import Action, ControlAction, RunJob
    from reconciler.providers.base import Outcome
    from reconciler.resources.inventory import Record


@dataclass(frozen=True, slots=True)
class Skipped:
    """An action that was not tried, because what it leans on failed."""

    id: str
    because: str


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended. `record` is what to commit; ids are in the order they ended."""

    record: Record
    done: tuple[str, ...] = ()
    failed: tuple[Failed, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    not_started: tuple[str, ...] = ()
    """Left when the run was asked to stop."""


class Engine:
    """One run of one plan."""

    def __init__(self, actions: Sequence[Action], means: Means, *, record: Record, run: str) -> None:
        """Take the actions of a plan, none of them blocked, and the record they start from."""
        self._graph = Graph(actions)
        self._means = means
        self._run = run
        self._record = dict(record)
        self._queues: dict[Lane, Queue] = {}
        self._under_way: dict[Lane, asyncio.Task[None]] = {}
        self._started_at: dict[str, float] = {}
        self._moved: defaultdict[str, Moved] = defaultdict(Moved)
        self._done: list[str] = []
        self._failed: list[Failed] = []
        self._skipped: list[Skipped] = []
        self._is_stopping = False
        self._lost: LeaseError | None = None

    def stop(self) -> None:
        """Start nothing new and let what runs end soon. Safe from any thread and from a signal handler."""
        self._is_stopping = True
        self._means.jobs.stop()

    async def run(self) -> RunResult:
        """Do the plan and return what became of every action.

        Raises:
            LeaseError: Someone else took over; what was done is on the platforms and recorded by them, not by us.
        """
        while True:
            self._start_ready()
            if not self._under_way:
                break
            await asyncio.wait(self._under_way.values(), return_when=asyncio.FIRST_COMPLETED)
            for lane in [lane for lane, task in self._under_way.items() if task.done()]:
                self._under_way.pop(lane).result()
            if self._lost is None:
                await self._means.turn.checkpoint(self._record)
        if self._lost is not None:
            raise self._lost
        return RunResult(
            self._record, tuple(self._done), tuple(self._failed), tuple(self._skipped), tuple(self._graph.left())
        )

    def _start_ready(self) -> None:
        # What only changes the state is over at once and may make more ready, so this goes on until nothing is.
        while ready := self._graph.take_ready():
            for action in ready:
                lane = lane_of(action)
                if lane is None and not self._is_stopping:
                    self._finish(action, done(action))
                elif lane is not None:
                    self._queue(lane, action).add(action)
        for lane, queue in self._queues.items():
            if lane not in self._under_way and self._may_start() and (batch := queue.take()):
                self._under_way[lane] = self._means.effects.spawn(self._do(lane, batch))

    def _queue(self, lane: Lane, action: Action) -> Queue:
        if lane not in self._queues:
            size = 1 if lane == JOBS else self._means.providers[cast("str", action.cluster)].capabilities.batch
            self._queues[lane] = Queue(size)
        return self._queues[lane]

    def _may_start(self) -> bool:
        if self._is_stopping:
            return False
        try:
            self._means.turn.check()
        except LeaseError as error:
            self._is_stopping = True
            self._lost = error
            self._means.jobs.stop()
            self._means.report(LeaseLost(error.message))
            return False
        return True

    async def _do(self, lane: Lane, batch: list[Action]) -> None:
        for action in batch:
            self._started_at[action.id] = self._means.effects.now()
            self._means.report(ActionStarted(action.id, action.address))
        if lane == JOBS:
            outcomes = [await self._means.effects.call(partial(self._run_job, cast("RunJob", batch[0])))]
        else:
            provider = self._means.providers[cast("str", batch[0].cluster)]
            control = cast("list[ControlAction]", batch)
            outcomes = await self._means.effects.call(partial(do_batch, provider, control))
        for action, outcome in zip(batch, outcomes, strict=True):
            self._settle(action, outcome)

    def _run_job(self, job: RunJob) -> Outcome:
        try:
            self._moved[job.id] = self._means.jobs.run(job, self._means.report)
        except ReconcilerError as error:
            return Failed(job.id, error)
        return Done(job.id)

    def _settle(self, action: Action, outcome: Outcome) -> None:
        match outcome:
            case Done():
                self._finish(action, outcome)
            case Failed(error=IncompleteError()) if self._is_stopping:
                return  # stopped, not failed: it stays among what is left
            case Failed():
                self._fail(action, outcome)

    def _finish(self, action: Action, outcome: Done) -> None:
        for address, recorded in after_action(action, outcome, self._record, self._run).items():
            if recorded is None:
                self._record.pop(address, None)
            else:
                self._record[address] = recorded
        self._graph.finish(action.id)
        self._done.append(action.id)
        moved = self._moved[action.id]
        now = self._means.effects.now()
        seconds = now - self._started_at.get(action.id, now)
        self._means.report(ActionDone(action.id, action.address, seconds, moved.records, moved.bytes))

    def _fail(self, action: Action, outcome: Failed) -> None:
        lost = self._graph.fail(action.id)
        self._failed.append(outcome)
        self._skipped += [Skipped(name, action.id) for name in lost]
        self._means.report(ActionFailed(action.id, action.address, outcome.error.message, outcome.error.hint))
