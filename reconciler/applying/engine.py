"""Walk a plan's graph: start what may start, batch by cluster, let one failure stop only what leans on it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from reconciler.applying.events import LeaseLost
from reconciler.applying.graph import Graph
from reconciler.applying.lanes import JOBS, Queue, do_batch, do_job, lane_of
from reconciler.applying.ledger import Ledger, Skipped
from reconciler.applying.ports import Moved
from reconciler.errors import IncompleteError, LeaseError, ReconcilerError, RetryableError
from reconciler.providers.base import Done, Failed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.applying.lanes import Lane
    from reconciler.applying.ports import Means
    from reconciler.planning.actions import Action, ControlAction, RunJob
    from reconciler.providers.base import Outcome
    from reconciler.resources.inventory import Record

_LOOK_S: Final = 1.0
"""Between two looks at the lease, and at what is to be committed, while long work goes on."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended. `record` is what to commit; ids are in the order they ended."""

    record: Record
    done: tuple[str, ...] = ()
    failed: tuple[Failed, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    not_started: tuple[str, ...] = ()
    """Left when the run was asked to stop."""
    is_changed: bool = False
    """Whether `record` differs from the one the run began with."""
    trouble: Exception | None = None
    """What ended the run beside all plans: a bug, a closed pipe. To be raised once `record` is committed."""


class Engine:
    """One run of one plan."""

    def __init__(self, actions: Sequence[Action], means: Means, *, record: Record, run: str) -> None:
        """Take the actions of a plan, none of them blocked, and the record they start from."""
        self._graph = Graph(actions)
        self._means = means
        self._ledger = Ledger(record, run, means.report)
        self._queues: dict[Lane, Queue] = {}
        self._under_way: dict[Lane, asyncio.Task[None]] = {}
        self._is_stopping = False
        self._ended_by: ReconcilerError | None = None

    def stop(self) -> None:
        """Start nothing new and let what runs end soon. Safe from any thread and from a signal handler."""
        self._is_stopping = True
        self._means.jobs.stop()

    async def run(self) -> RunResult:
        """Do the plan and return what became of every action.

        Raises:
            LeaseError: Someone else took over; what was done is on the platforms and recorded by them, not by us.
            UserError: The state cannot be written any more; as above.
        """
        try:
            await self._walk()
        except Exception as error:  # noqa: BLE001 - returned, so that what was done before is committed
            self._ledger.trouble = error
        finally:
            await self._drain()
        if self._ended_by is not None:
            raise self._ended_by from self._ledger.trouble
        ledger = self._ledger
        return RunResult(
            ledger.record,
            tuple(ledger.done),
            tuple(ledger.failed),
            tuple(ledger.skipped),
            tuple(self._graph.left()),
            is_changed=ledger.is_changed,
            trouble=ledger.trouble,
        )

    async def _walk(self) -> None:
        while True:
            self._check_lease()
            self._start_ready()
            if not self._under_way and (self._is_stopping or not self._has_waiting()):
                return
            await self._something_to_end()
            await self._checkpoint()
            if self._ledger.trouble is not None:
                self.stop()

    async def _drain(self) -> None:
        """Wait for what is under way, whatever ended the walk: nobody may act when the lease is let go."""
        if self._under_way:
            self.stop()
            await asyncio.wait(self._under_way.values())
            for task in self._under_way.values():
                error = None if task.cancelled() else task.exception()
                if isinstance(error, Exception):
                    self._ledger.trouble = error

    def _has_waiting(self) -> bool:
        return any(not queue.is_empty for queue in self._queues.values())

    def _start_ready(self) -> None:
        # What only changes the state is over at once and may make more ready, so this goes on until nothing is.
        while not self._is_stopping and (ready := self._graph.take_ready()):
            for action in ready:
                lane = lane_of(action)
                if lane is None:
                    self._settle(action, Done(action.id), Moved())
                else:
                    self._queue(lane, action).add(action)
        for lane, queue in self._queues.items():
            if not self._is_stopping and self._means.turn.may_start and lane not in self._under_way:
                batch = queue.take()
                if batch:
                    self._under_way[lane] = self._means.effects.spawn(self._do(lane, batch))

    def _queue(self, lane: Lane, action: Action) -> Queue:
        if lane not in self._queues:
            size = 1 if lane == JOBS else self._means.providers[cast("str", action.cluster)].capabilities.batch
            self._queues[lane] = Queue(size)
        return self._queues[lane]

    async def _something_to_end(self) -> None:
        """Wait until a lane is free again, though no longer than the lease may go unwatched."""
        look = self._means.effects.spawn(self._means.effects.sleep(_LOOK_S))
        await asyncio.wait({*self._under_way.values(), look}, return_when=asyncio.FIRST_COMPLETED)
        look.cancel()
        for lane in [lane for lane, task in self._under_way.items() if task.done()]:
            self._under_way.pop(lane).result()

    async def _do(self, lane: Lane, batch: list[Action]) -> None:
        effects, turn = self._means.effects, self._means.turn
        self._ledger.start(batch, effects.now())
        if lane == JOBS:
            job = cast("RunJob", batch[0])
            outcome, moved = await effects.call(partial(do_job, job, self._means.jobs, turn, self._ledger.say))
            self._settle(job, outcome, moved)
            return
        provider = self._means.providers[cast("str", batch[0].cluster)]
        outcomes = await effects.call(partial(do_batch, provider, cast("list[ControlAction]", batch), turn))
        for action, result in zip(batch, outcomes, strict=True):
            self._settle(action, result, Moved())

    def _settle(self, action: Action, outcome: Outcome, moved: Moved) -> None:
        match outcome:
            case Done():
                self._graph.finish(action.id)
                self._ledger.finish(action, outcome, moved, self._means.effects.now())
            case Failed(error=LeaseError()):
                return  # not called: the run ends by the same error
            case Failed(error=IncompleteError()) if self._is_stopping:
                return  # stopped, not failed: it stays among what is left
            case Failed():
                self._ledger.fail(action, outcome, self._graph.fail(action.id))

    # -- the lease

    def _check_lease(self) -> None:
        if self._ended_by is None:
            try:
                self._means.turn.check()
            except LeaseError as error:
                self._end_by(error)

    async def _checkpoint(self) -> None:
        if self._ended_by is not None or not self._ledger.is_changed:
            return
        try:
            await self._means.turn.checkpoint(self._ledger.record)
        except RetryableError:
            return  # the next one, or the closing commit, tries again and is the one that counts
        except ReconcilerError as error:
            self._end_by(error)

    def _end_by(self, error: ReconcilerError) -> None:
        """Start nothing more; what is under way is let end, and `error` is raised then."""
        self._ended_by = error
        self.stop()
        if isinstance(error, LeaseError):
            self._ledger.say(LeaseLost(error.message))
