"""Walk the graph of a plan: batch by cluster, run jobs, and stop only what depends on a failure."""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never, cast
from zlib import crc32

from reconciler.applying.events import NOWHERE, ActionDone, ActionFailed, ActionStarted, Event, LeaseLost, Ran
from reconciler.applying.ports import DataAction, JobResult, Jobs, LeasePort, RunPorts
from reconciler.errors import (
    BrokenInvariantError,
    IncompleteError,
    LeaseError,
    MissingRecordsError,
    ReconcilerError,
    RetryableError,
    StoppedError,
    UnansweredError,
)
from reconciler.lifecycles import BY_JOBS, BY_PLATFORM, MIRROR, MOUNT, TWO_SIDED, UNMOUNT
from reconciler.planning.actions import Action, Adopt, ControlAction, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.planning.diff.mirror_changes import CATCH_UP
from reconciler.planning.record import after_action, after_refusal, learn
from reconciler.providers.protocol import Done, Failed, Outcome, Provider
from reconciler.state.journal import ActionEnded, ActionRefused, ActionSkipped, Entry, Intent, Journal

if TYPE_CHECKING:
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Record, Recorded
    from reconciler.runtime.effects import Effects
    from reconciler.state.lease import Lease


# Who does an action: one lane a cluster, taking batches, one for jobs, some for mirrors. Lanes go side by side.


JOBS = "jobs"
"""The lane of data actions, one at a time. No cluster is called so: their lanes carry a prefix."""

MIRRORS: Final = "mirrors/"
"""Lanes of mirrors that are promoted, reversed or restored: of a hundred, most time is waiting for two clusters."""
MIRRORS_AT_ONCE: Final = 4
"""So many lanes they have. Each may copy what is left to copy, and holds batches of records meanwhile."""

RECORD = "record"
"""The lane of what changes only the state: nobody is called."""

RECORD_BATCH: Final = 10_000

Lane: TypeAlias = str


def is_driven(action: Action) -> bool:
    """Tell whether an action copies between two clusters, or to or from object storage: no platform does it alone."""
    return isinstance(action, Transition) and (is_archived(action) or is_of_mirrors(action))


def is_archived(action: Transition) -> bool:
    """Tell whether an action is a mount or unmount that jobs carry out."""
    return action.machine in {MOUNT.name, UNMOUNT.name} and action.parameters.get("by") == BY_JOBS


def lane_of(action: Action) -> Lane:
    """Return the lane of an action; what is done with one mirror is in one lane."""
    if is_of_mirrors(action):
        return f"{MIRRORS}{crc32(action.address.encode()) % MIRRORS_AT_ONCE}"
    if is_driven(action):
        return JOBS
    match action:
        case Create() | Update() | Delete() | Transition():
            return f"cluster/{action.cluster}"
        case RunJob():
            return JOBS
        case Adopt() | Forget():
            return RECORD
        case _:
            assert_never(action)


def is_of_mirrors(action: Action) -> bool:
    """Tell whether jobs promote, reverse or restore a mirror by an action, or let it catch up before."""
    if isinstance(action, RunJob):
        return action.job == CATCH_UP
    if not isinstance(action, Transition) or action.parameters.get("by") == BY_PLATFORM:
        return False
    return action.machine == MIRROR.name and action.verb in TWO_SIDED


def is_job(lane: Lane) -> bool:
    """Tell whether what is in a lane is done by jobs."""
    return lane == JOBS or lane.startswith(MIRRORS)


def is_called(lane: Lane) -> bool:
    """Tell whether a platform is called for what is in a lane: so many of these at once as a run may."""
    return lane != RECORD and not is_job(lane)


class Queue:
    """What waits in one lane, taken in batches of at most `size`."""

    def __init__(self, size: int) -> None:
        """`size` is what the platform takes in one call."""
        self._size = size
        self._waiting: deque[Action] = deque()

    def add(self, action: Action) -> None:
        """Put an action behind the others."""
        self._waiting.append(action)

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing waits."""
        return not self._waiting

    def take(self) -> list[Action]:
        """Return the next batch; empty when nothing waits."""
        return [self._waiting.popleft() for _ in range(min(self._size, len(self._waiting)))]


# Ask a platform, or a job: one outcome for each action, whatever happens on the way.


def do_batch(provider: Provider, actions: Sequence[ControlAction], turn: LeasePort) -> list[Outcome]:
    """Ask a platform for a batch and return one outcome for each action, whatever happens on the way.

    The lease is looked at once more, here: a call may have waited long for its thread.
    """
    outcomes: dict[str, Outcome] = {}
    unanswered: ReconcilerError | None = None
    try:
        turn.check()
        for outcome in provider.apply(actions, may_go_on=turn.check):
            outcomes[outcome.id] = outcome
    except ReconcilerError as error:
        unanswered = error
    except Exception as error:  # noqa: BLE001 - a bug in one platform must not lose what the others have done
        unanswered = _unforeseen(error)
        rest = [action for action in actions if action.id not in outcomes]
        if len(rest) > 1:  # Halves, so that the action with the bug fails alone: doing an action twice does it once.
            middle = len(rest) // 2
            outcomes |= {
                answer.id: answer
                for half in (rest[:middle], rest[middle:])
                for answer in do_batch(provider, half, turn)
            }
    return [outcomes.get(action.id) or Failed(action.id, unanswered or _no_answer()) for action in actions]


def do_job(job: DataAction, jobs: Jobs, turn: LeasePort, say: Callable[[Event], None]) -> tuple[Outcome, JobResult]:
    """Run a job, or drive a transition over two clusters, and return its outcome and what it moved."""
    try:
        turn.check()
        moved = jobs.run(job, say, turn.check)
        return Done(job.id, moved.incarnation, moved.physical_name), moved
    except ReconcilerError as error:
        return Failed(job.id, error), JobResult()
    except Exception as error:  # noqa: BLE001 - as in a batch
        return Failed(job.id, _unforeseen(error)), JobResult()


def _no_answer() -> BrokenInvariantError:
    return BrokenInvariantError("the platform gave no answer for it", hint="Please report this, with the run's files.")


def _unforeseen(error: Exception) -> ReconcilerError:
    if missing := MissingRecordsError.of(error):
        missing.__cause__ = error
        return missing
    broken = BrokenInvariantError(
        f"{type(error).__name__}: {error}", hint="Please report this, with the run's files; the other actions continue."
    )
    broken.__cause__ = error
    return broken


# Which actions may start: the plan's graph, worked off action by action.


class Graph:
    """The actions of a plan and what leans on what. Every action leaves it once: done, failed or skipped."""

    def __init__(self, actions: Sequence[Action]) -> None:
        """Take the plan's order as the order of what may start at the same time."""
        self._actions = {action.id: action for action in actions}
        self._position = {action.id: position for position, action in enumerate(actions)}
        self._missing: dict[str, int] = {}
        self._dependents: defaultdict[str, list[str]] = defaultdict(list)
        for action in actions:
            dependencies_of = {needed for needed in action.depends_on if needed in self._actions}
            self._missing[action.id] = len(dependencies_of)
            for needed in sorted(dependencies_of):
                self._dependents[needed].append(action.id)
        self._ready = [self._position[name] for name, missing in self._missing.items() if not missing]
        heapq.heapify(self._ready)
        self._order = [action.id for action in actions]

    def take_ready(self) -> list[Action]:
        """Return what may start now, in plan order; each is returned once."""
        taken = []
        while self._ready:
            name = self._order[heapq.heappop(self._ready)]
            if name in self._missing:
                taken.append(self._actions[name])
        return taken

    def finish(self, name: str) -> None:
        """Let what leans on `name` come nearer."""
        del self._missing[name]
        for dependent in self._dependents[name]:
            if dependent in self._missing:
                self._missing[dependent] -= 1
                if not self._missing[dependent]:
                    heapq.heappush(self._ready, self._position[dependent])

    def fail(self, name: str) -> list[str]:
        """Take out `name` and all that leans on it; return the latter, in plan order."""
        del self._missing[name]
        lost: set[str] = set()
        open_ends = [name]
        while open_ends:
            for dependent in self._dependents[open_ends.pop()]:
                if dependent in self._missing and dependent not in lost:
                    lost.add(dependent)
                    open_ends.append(dependent)
        for dependent in lost:
            del self._missing[dependent]
        return sorted(lost, key=self._position.__getitem__)

    def left(self) -> list[str]:
        """Return what has neither finished nor been taken out, in plan order."""
        return sorted(self._missing, key=self._position.__getitem__)


# What an outcome means: what the journal says of it, and whether anybody knows what happened.


def entries_of(action: Action, outcome: Outcome, lost: Mapping[str, Sequence[str]]) -> Iterator[Entry]:
    """Yield what the journal says of an outcome; `lost` are the actions that cannot be tried after a failure.

    Where a platform did not answer, nobody knows what happened: the intent stays open, to be settled by looking.
    """
    match outcome:
        case Done():
            yield ActionEnded(id=action.id, incarnation=outcome.incarnation, physical_name=outcome.physical_name)
        case Failed():
            if not is_in_doubt(action, outcome):
                made = outcome.made
                yield ActionRefused(
                    id=action.id,
                    error=outcome.error.message,
                    hint=outcome.error.hint,
                    is_made=made is not None,
                    incarnation=made.incarnation if made else None,
                    physical_name=made.physical_name if made else None,
                )
            for name in lost[action.id]:
                yield ActionSkipped(id=name, because=action.id)
        case _:
            assert_never(outcome)


def is_in_doubt(action: Action, outcome: Failed) -> bool:
    """Tell whether a failure leaves open what happened.

    A job finds what it published by itself, and a transition over two clusters the step at which it stands.
    """
    is_unknown = isinstance(outcome.error, RetryableError | BrokenInvariantError)
    return is_unknown and not is_job(lane_of(action))


def may_yet_happen(outcome: Failed) -> bool:
    """Tell whether what was asked may be on its way still; what could not be asked, or was refused, is not."""
    return isinstance(outcome.error, UnansweredError)


# What became of every action of a run, and of the record: folded in as outcomes arrive, said as it happens.


class Ledger:
    """The books of one run. Each action is folded once; everything it costs is a look-up."""

    def __init__(self, record: Record, run: str, report: Callable[[Event], None]) -> None:
        """Start from a record, which stays as it is; `report` is called by one thread at a time."""
        self.record: dict[Address, Recorded] = dict(record)
        self.is_changed = False
        self.done: list[str] = []
        self.failed: list[Failed] = []
        self.skipped: list[ActionSkipped] = []
        self.in_doubt: list[Action] = []
        self.unwritten: list[Entry] = []
        self.unanswered: list[str] = []
        self.ran = NOWHERE
        self.trouble: Exception | None = None
        self._run = run
        self._report = report
        self._reporting = threading.Lock()
        self._started: dict[str, float] = {}

    def say(self, event: Event) -> None:
        """Report an event, from any thread. Where nobody can be told any more, `trouble` says why."""
        with self._reporting:
            if self.trouble is None:
                try:
                    self._report(event)
                except Exception as error:  # noqa: BLE001 - kept, and raised once what was done is recorded
                    self.trouble = error

    def start(self, actions: Sequence[Action], now: float) -> None:
        """Note that actions were handed over."""
        for action in actions:
            self._started[action.id] = now
            self.say(ActionStarted(action.id, action.address))

    def finish(self, action: Action, outcome: Done, moved: JobResult, now: float) -> None:
        """Fold a complete action into the record."""
        changes = after_action(action, outcome, self.record, self._run)
        learn(self.record, changes)
        self.is_changed |= bool(changes)
        self.done.append(action.id)
        seconds = now - self._started.pop(action.id, now)
        self.ran += moved.ran
        self.say(ActionDone(action.id, action.address, seconds, moved.records, moved.bytes, moved.ran))

    def book_failure(self, action: Action, outcome: Failed, lost: Sequence[str]) -> None:
        """Note a failure and the actions that cannot be tried because of it."""
        self.failed.append(outcome)
        if is_in_doubt(action, outcome):
            self.in_doubt.append(action)
        self.skipped += [ActionSkipped(id=name, because=action.id) for name in lost]

    def say_failure(self, action: Action, outcome: Failed) -> None:
        """Tell a failure, once it is durable; what was made before it is recorded."""
        if outcome.made is not None and not is_in_doubt(action, outcome):
            learn(self.record, after_refusal(action, outcome.made, self.record, self._run))
            self.is_changed = True
        self.say(ActionFailed(action.id, action.address, outcome.error.message, outcome.error.hint))


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
    ran: Ran = NOWHERE
    """Where its jobs ran."""
    trouble: Exception | None = None
    """What ended the run beside all plans: a bug, a closed pipe. To be raised once `record` is committed."""

    @property
    def is_whole(self) -> bool:
        """Tell whether every action has come to its end, be it a failure."""
        return not (self.not_started or self.unknown or self.ended_by or self.trouble)


class Engine:
    """One run of one plan."""

    def __init__(
        self, actions: Sequence[Action], means: RunPorts, *, record: Record, run: str, leaves_jobs: bool = False
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
            ran=ledger.ran,
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
        return not (is_job(lane) and self._leaves_jobs)

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
            case "record":
                return RECORD_BATCH
            case _ if is_job(lane):
                return 1
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

    async def _outcomes(self, lane: Lane, batch: list[Action]) -> list[tuple[Action, Outcome, JobResult]]:
        try:
            return await self._called(lane, batch)
        except StoppedError as error:
            self._ledger.unanswered += [action.id for action in batch if not is_job(lane)]
            return [(action, Failed(action.id, error), JobResult()) for action in batch]

    async def _called(self, lane: Lane, batch: list[Action]) -> list[tuple[Action, Outcome, JobResult]]:
        effects, turn = self._means.effects, self._means.turn
        match lane:
            case "record":
                return [(action, Done(action.id), JobResult()) for action in batch]
            case _ if is_job(lane):
                job = cast("DataAction", batch[0])
                outcome, moved = await effects.call(partial(do_job, job, self._means.jobs, turn, self._ledger.say))
                return [(job, outcome, moved)]
            case _:
                provider = self._means.providers[cast("str", batch[0].cluster)]
                outcomes = await effects.call(partial(do_batch, provider, cast("list[ControlAction]", batch), turn))
                return [(action, outcome, JobResult()) for action, outcome in zip(batch, outcomes, strict=True)]

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


# The lease as a run sees it: may something be started, and is it time to commit what is done.


_BETWEEN_COMMITS_S: Final = 60.0


class LeaseTurn:
    """A run's turn under one lease."""

    def __init__(self, lease: Lease, journal: Journal, effects: Effects) -> None:
        """Write what happens to `journal`, and commit under `lease`."""
        self._lease = lease
        self._journal = journal
        self._effects = effects
        self._committed_at = effects.now()
        self._committed: Record | None = None

    @property
    def may_start(self) -> bool:
        """Tell whether a new call may be started: the lease is young enough that it cannot outlive it."""
        return self._lease.may_start

    def check(self) -> None:
        """Return while the lease is surely ours.

        Raises:
            LeaseError: It is lost.
        """
        self._lease.check()

    async def write(self, entries: Sequence[Entry]) -> None:
        """Return once `entries` are durable; what follows them may then begin."""
        await self._journal.append(entries)
        if not self._lease.may_start:  # the state was away for long: a call that begins now must not outlive the lease
            await self._lease.renew()

    async def checkpoint(self, record: Record) -> None:
        """Commit what is done so far, once a minute, where that is more than the last commit has."""
        if self._effects.now() - self._committed_at < _BETWEEN_COMMITS_S:
            return
        if record == self._committed:
            return
        committed = dict(record)
        await self._lease.commit(committed)
        self._committed, self._committed_at = committed, self._effects.now()
