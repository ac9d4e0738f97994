"""Walk a plan's graph: start what may start, batch by cluster, let one failure stop only what leans on it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never, cast

from reconciler.applying.calls import do_batch, do_job
from reconciler.applying.events import LeaseLost
from reconciler.applying.graph import Graph
from reconciler.applying.lanes import JOBS, RECORD, RECORD_BATCH, Queue, is_called, lane_of
from reconciler.applying.ledger import Ledger
from reconciler.applying.outcomes import entries_of
from reconciler.applying.ports import Moved
from reconciler.errors import IncompleteError, LeaseError, ReconcilerError, RetryableError, StoppedError
from reconciler.providers.base import Done, Failed
from reconciler.state.entries import Intent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.applying.lanes import Lane
    from reconciler.applying.ports import DataAction, Means
    from reconciler.planning.actions import Action, ControlAction
    from reconciler.providers.base import Outcome
    from reconciler.resources.inventory import Record
    from reconciler.state.entries import ActionSkipped, Entry

_LOOK_S: Final = 1.0
"""Between two looks at the lease, and at what is to be committed, while long work goes on."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended. `record` is what to commit; ids are in the order they ended."""

    record: Record
    done: tuple[str, ...] = ()
    failed: tuple[Failed, ...] = ()
    skipped: tuple[ActionSkipped, ...] = ()
    not_started: tuple[str, ...] = ()
    """Left when the run was asked to stop, or told to leave them to another."""
    in_doubt: tuple[Action, ...] = ()
    """Begun, and whether they happened is not known: the platform did not answer. They are among `failed` too."""
    unknown: IncompleteError | None = None
    """Why nobody knows what became of what is in doubt; then the run stays open."""
    unanswered: tuple[str, ...] = ()
    """Of those `not_started`: begun when the run was stopped, and no platform has said what became of them."""
    is_stopped: bool = False
    """Whether somebody asked for the end; else what is `not_started` was left to another on purpose."""
    is_changed: bool = False
    """Whether `record` differs from the one the run began with."""
    ended_by: ReconcilerError | None = None
    """Why nothing can be written any more; then `record` must not be committed by this run."""
    unwritten: tuple[Entry, ...] = ()
    """What is known and could not be written to the journal."""
    trouble: Exception | None = None
    """What ended the run beside all plans: a bug, a closed pipe. To be raised once `record` is committed."""

    @property
    def is_whole(self) -> bool:
        """Tell whether every action has come to its end, be it a failure."""
        return not (self.not_started or self.unknown or self.ended_by or self.trouble)


class Engine:
    """One run of one plan."""

    def __init__(
        self, actions: Sequence[Action], means: Means, *, record: Record, run: str, leaves_jobs: bool = False
    ) -> None:
        """Take the actions of a plan, none of them blocked, and the record they start from."""
        self._graph = Graph(actions)
        self._means = means
        self._ledger = Ledger(record, run, means.report)
        self._queues: dict[Lane, Queue] = {}
        self._under_way: dict[Lane, asyncio.Task[None]] = {}
        self._leaves_jobs = leaves_jobs
        self._is_stopping = False
        self._ended_by: ReconcilerError | None = None

    def stop(self) -> None:
        """Start nothing new and let what runs end soon. Safe from any thread and from a signal handler."""
        self._is_stopping = True
        self._means.jobs.stop()

    async def run(self) -> RunResult:
        """Do the plan and return what became of every action; raises nothing of its own."""
        try:
            await self._walk()
        except Exception as error:  # noqa: BLE001 - returned, so that what was done before is committed
            self._ledger.trouble = error
        finally:
            await self._drain()
        ledger = self._ledger
        return RunResult(
            ledger.record,
            tuple(ledger.done),
            tuple(ledger.failed),
            tuple(ledger.skipped),
            tuple(self._graph.left()),
            tuple(ledger.in_doubt),
            unanswered=tuple(ledger.unanswered),
            is_stopped=self._is_stopping,
            is_changed=ledger.is_changed,
            ended_by=self._ended_by,
            unwritten=tuple(ledger.unwritten),
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
        return any(not queue.is_empty for lane, queue in self._queues.items() if self._is_served(lane))

    def _is_served(self, lane: Lane) -> bool:
        return not (lane == JOBS and self._leaves_jobs)

    def _start_ready(self) -> None:
        if self._is_stopping:
            return
        for action in self._graph.take_ready():
            self._queue(lane_of(action), action).add(action)
        free = self._means.parallelism - sum(is_called(lane) for lane in self._under_way)
        for lane in list(self._queues):
            if not self._may_start(lane) or (is_called(lane) and free <= 0):
                continue
            if batch := self._queues[lane].take():
                self._under_way[lane] = self._means.effects.spawn(self._do(lane, batch))
                self._queues[lane] = self._queues.pop(lane)  # behind the others, so that none waits for ever
                free -= is_called(lane)

    def _may_start(self, lane: Lane) -> bool:
        return self._means.turn.may_start and lane not in self._under_way and self._is_served(lane)

    def _queue(self, lane: Lane, action: Action) -> Queue:
        if lane not in self._queues:
            self._queues[lane] = Queue(self._size_of(lane, action))
        return self._queues[lane]

    def _size_of(self, lane: Lane, action: Action) -> int:
        match lane:
            case "jobs":
                return 1
            case "record":
                return RECORD_BATCH
            case _:
                return self._means.providers[cast("str", action.cluster)].capabilities.batch

    async def _something_to_end(self) -> None:
        """Wait until a lane is free again, though no longer than the lease may go unwatched."""
        look = self._means.effects.spawn(self._means.effects.sleep(_LOOK_S))
        await asyncio.wait({*self._under_way.values(), look}, return_when=asyncio.FIRST_COMPLETED)
        look.cancel()
        for lane in [lane for lane, task in self._under_way.items() if task.done()]:
            self._under_way.pop(lane).result()

    async def _do(self, lane: Lane, batch: list[Action]) -> None:
        """Say what is about to be done, do it, say what came of it: each before the next, and each durable."""
        if lane != RECORD and not await self._write([Intent(id=action.id) for action in batch]):
            return
        if self._is_stopping:
            return  # asked to stop while it was written: whoever looks finds that nothing happened
        self._ledger.start(batch, self._means.effects.now())
        ended = [
            (action, outcome, moved)
            for action, outcome, moved in await self._outcomes(lane, batch)
            if not self._is_left(outcome)
        ]
        lost = {outcome.id: self._graph.fail(outcome.id) for _, outcome, _ in ended if isinstance(outcome, Failed)}
        entries = [entry for action, outcome, _ in ended for entry in entries_of(action, outcome, lost)]
        is_written = await self._write(entries)
        if not is_written:
            self._ledger.unwritten += entries
        for action, outcome, moved in ended:
            match outcome:
                case Done():
                    if is_written:
                        self._graph.finish(action.id)
                        self._ledger.finish(action, outcome, moved, self._means.effects.now())
                case Failed():
                    self._ledger.book_failure(action, outcome, lost[action.id])
                    if is_written:
                        self._ledger.say_failure(action, outcome)
                case _:
                    assert_never(outcome)

    async def _outcomes(self, lane: Lane, batch: list[Action]) -> list[tuple[Action, Outcome, Moved]]:
        try:
            return await self._called(lane, batch)
        except StoppedError as error:
            self._ledger.unanswered += [action.id for action in batch if lane != JOBS]
            return [(action, Failed(action.id, error), Moved()) for action in batch]

    async def _called(self, lane: Lane, batch: list[Action]) -> list[tuple[Action, Outcome, Moved]]:
        effects, turn = self._means.effects, self._means.turn
        match lane:
            case "record":
                return [(action, Done(action.id), Moved()) for action in batch]
            case "jobs":
                job = cast("DataAction", batch[0])
                outcome, moved = await effects.call(partial(do_job, job, self._means.jobs, turn, self._ledger.say))
                return [(job, outcome, moved)]
            case _:
                provider = self._means.providers[cast("str", batch[0].cluster)]
                outcomes = await effects.call(partial(do_batch, provider, cast("list[ControlAction]", batch), turn))
                return [(action, outcome, Moved()) for action, outcome in zip(batch, outcomes, strict=True)]

    def _is_left(self, outcome: Outcome) -> bool:
        """Tell whether an action has not ended: it was not called, for the lease is lost, or was stopped half-way."""
        match outcome:
            case Failed(error=LeaseError()):
                return True
            case Failed(error=IncompleteError()):
                return self._is_stopping
            case _:
                return False

    async def _write(self, entries: Sequence[Entry]) -> bool:
        """Return whether `entries` are durable; if not, the run ends."""
        try:
            await self._means.turn.write(entries)
        except ReconcilerError as error:
            self._end_by(error)
            return False
        return True

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
        """Start nothing more; what is under way is let end."""
        if self._ended_by is not None:
            return
        self._ended_by = error
        self.stop()
        if isinstance(error, LeaseError):
            self._ledger.say(LeaseLost(error.message))
