"""Execute a plan in batches per cluster. Only dependents of a failed action are skipped."""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never, cast
from zlib import crc32

from reconciler.applying.events import (
    NO_EXECUTION,
    ActionDone,
    ActionFailed,
    ActionStarted,
    Event,
    JobExecution,
    LeaseLost,
)
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
from reconciler.lifecycles import BY_JOBS, BY_PLATFORM, MIRROR, MOUNT, TWO_SIDED_VERBS, UNMOUNT
from reconciler.planning.actions import Action, Adopt, ControlAction, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.planning.diff.mirror_changes import CATCH_UP
from reconciler.planning.record import apply_record_changes, record_action, record_refusal
from reconciler.providers.protocol import CompletedAction, FailedAction, Outcome, Provider
from reconciler.runtime.dataclass import dataclass
from reconciler.state.journal import ActionEnded, ActionRefused, ActionSkipped, Entry, Intent, Journal

if TYPE_CHECKING:
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Record, Recorded
    from reconciler.runtime.effects import Effects
    from reconciler.state.lease import Lease


JOBS = "jobs"

MIRRORS: Final = "mirrors/"
MIRRORS_AT_ONCE: Final = 4
"""Limit of concurrent mirror lanes, because each may hold record batches in memory."""

RECORD = "record"

RECORD_BATCH: Final = 10_000

Lane: TypeAlias = str


def is_done_by_jobs(action: Action) -> bool:
    """Return whether jobs execute the action: it copies records or needs both clusters of a link."""
    return isinstance(action, Transition) and (is_mount_by_jobs(action) or is_mirror_action(action))


def is_mount_by_jobs(action: Transition) -> bool:
    """Return whether the transition is a mount or unmount for which jobs copy records."""
    return action.machine in {MOUNT.name, UNMOUNT.name} and action.parameters.get("by") == BY_JOBS


def choose_lane(action: Action) -> Lane:
    """Return the queue for an action. All actions of a mirror share one."""
    if is_mirror_action(action):
        return f"{MIRRORS}{crc32(action.address.encode()) % MIRRORS_AT_ONCE}"
    if is_done_by_jobs(action):
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


def is_mirror_action(action: Action) -> bool:
    """Return whether the action promotes, reverses, restores or catches up a mirror by jobs."""
    if isinstance(action, RunJob):
        return action.job == CATCH_UP
    if not isinstance(action, Transition) or action.parameters.get("by") == BY_PLATFORM:
        return False
    return action.machine == MIRROR.name and action.verb in TWO_SIDED_VERBS


def is_job_lane(lane: Lane) -> bool:
    """Return whether jobs, not platform calls, execute the lane's actions."""
    return lane == JOBS or lane.startswith(MIRRORS)


def is_platform_lane(lane: Lane) -> bool:
    """Return whether the lane's actions call a platform, which `parallelism` limits."""
    return lane != RECORD and not is_job_lane(lane)


class LaneQueue:
    """Waiting actions of one lane, whose batches run one after another."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._waiting: deque[Action] = deque()

    def add(self, action: Action) -> None:
        """Append an action."""
        self._waiting.append(action)

    @property
    def is_empty(self) -> bool:
        """Whether the lane has no waiting actions."""
        return not self._waiting

    def take_batch(self) -> list[Action]:
        """Remove and return the next batch; empty if no action waits."""
        return [self._waiting.popleft() for _ in range(min(self._size, len(self._waiting)))]


def apply_batch(provider: Provider, actions: Sequence[ControlAction], lease: LeasePort) -> list[Outcome]:
    """Check the lease, then call a platform with a batch. Return one outcome per action."""
    outcomes: dict[str, Outcome] = {}
    unanswered: ReconcilerError | None = None
    try:
        lease.check()
        for outcome in provider.apply(actions, may_go_on=lease.check):
            outcomes[outcome.id] = outcome
    except ReconcilerError as error:
        unanswered = error
    except Exception as error:  # noqa: BLE001 - a bug in one platform must not lose the results of others
        unanswered = _build_bug_error(error)
        rest = [action for action in actions if action.id not in outcomes]
        if len(rest) > 1:  # Retry the batch in halves, so only the action with the bug fails.
            middle = len(rest) // 2
            outcomes |= {
                answer.id: answer
                for half in (rest[:middle], rest[middle:])
                for answer in apply_batch(provider, half, lease)
            }
    return [
        outcomes.get(action.id) or FailedAction(action.id, unanswered or _build_no_answer_error()) for action in actions
    ]


def run_job(
    job: DataAction, jobs: Jobs, lease: LeasePort, report: Callable[[Event], None]
) -> tuple[Outcome, JobResult]:
    """Run a job or transition; return its outcome, and the records and bytes moved."""
    try:
        lease.check()
        moved = jobs.run(job, report, lease.check)
        return CompletedAction(job.id, moved.incarnation, moved.physical_name), moved
    except ReconcilerError as error:
        return FailedAction(job.id, error), JobResult()
    except Exception as error:  # noqa: BLE001 - a bug in one job must not lose the results of others
        return FailedAction(job.id, _build_bug_error(error)), JobResult()


def _build_no_answer_error() -> BrokenInvariantError:
    return BrokenInvariantError("the platform gave no answer for it", hint="Please report this, with the run's files.")


def _build_bug_error(error: Exception) -> ReconcilerError:
    if missing := MissingRecordsError.from_import_error(error):
        missing.__cause__ = error
        return missing
    broken = BrokenInvariantError(
        f"{type(error).__name__}: {error}", hint="Please report this, with the run's files; the other actions continue."
    )
    broken.__cause__ = error
    return broken


class ActionGraph:
    """The unfinished actions of a plan and their dependencies."""

    def __init__(self, actions: Sequence[Action]) -> None:
        """Build the graph. `actions` are in plan order, in which ready actions start."""
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
        """Return newly ready actions in plan order."""
        taken = []
        while self._ready:
            name = self._order[heapq.heappop(self._ready)]
            if name in self._missing:
                taken.append(self._actions[name])
        return taken

    def finish_action(self, name: str) -> None:
        """Remove a finished action, so its dependents may become ready."""
        del self._missing[name]
        for dependent in self._dependents[name]:
            if dependent in self._missing:
                self._missing[dependent] -= 1
                if not self._missing[dependent]:
                    heapq.heappush(self._ready, self._position[dependent])

    def fail_action(self, name: str) -> list[str]:
        """Remove a failed action and its dependents; return the ids of dependents in plan order."""
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

    def list_unfinished(self) -> list[str]:
        """Return the ids of unfinished actions in plan order."""
        return sorted(self._missing, key=self._position.__getitem__)


def build_result_entries(action: Action, outcome: Outcome, lost: Mapping[str, Sequence[str]]) -> Iterator[Entry]:
    """Yield the journal entries for an action's outcome. `lost` maps a failed action to its skipped dependents.

    An unknown outcome gets no entry, so recovery observes the cluster.
    """
    match outcome:
        case CompletedAction():
            yield ActionEnded(id=action.id, incarnation=outcome.incarnation, physical_name=outcome.physical_name)
        case FailedAction():
            if not is_in_doubt(action, outcome):
                made = outcome.created
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


def is_in_doubt(action: Action, outcome: FailedAction) -> bool:
    """Return whether a failed action may have taken effect.

    Jobs are never in doubt, because a repeated job detects its earlier work.
    """
    is_unknown = isinstance(outcome.error, RetryableError | BrokenInvariantError)
    return is_unknown and not is_job_lane(choose_lane(action))


def may_still_happen(outcome: FailedAction) -> bool:
    """Return whether the platform may still execute the call, because it did not answer."""
    return isinstance(outcome.error, UnansweredError)


class ResultLedger:
    """Collects a run's results and updates the record."""

    def __init__(self, record: Record, run: str, report: Callable[[Event], None]) -> None:
        self.record: dict[Address, Recorded] = dict(record)
        self.is_changed = False
        self.done: list[str] = []
        self.failed: list[FailedAction] = []
        self.skipped: list[ActionSkipped] = []
        self.in_doubt: list[Action] = []
        self.unwritten: list[Entry] = []
        self.unanswered: list[str] = []
        self.ran = NO_EXECUTION
        self.trouble: Exception | None = None
        self._run = run
        self._report = report
        self._reporting = threading.Lock()
        self._started: dict[str, float] = {}

    def report_event(self, event: Event) -> None:
        """Report an event; thread-safe. A failed report sets `trouble` and drops later events."""
        with self._reporting:
            if self.trouble is None:
                try:
                    self._report(event)
                except Exception as error:  # noqa: BLE001 - raised after the results are recorded
                    self.trouble = error

    def report_start(self, actions: Sequence[Action], now: float) -> None:
        """Report that actions start at `now`."""
        for action in actions:
            self._started[action.id] = now
            self.report_event(ActionStarted(action.id, action.address))

    def record_done(self, action: Action, outcome: CompletedAction, moved: JobResult, now: float) -> None:
        """Record and report a completed action."""
        changes = record_action(action, outcome, self.record, self._run)
        apply_record_changes(self.record, changes)
        self.is_changed |= bool(changes)
        self.done.append(action.id)
        seconds = now - self._started.pop(action.id, now)
        self.ran += moved.ran
        self.report_event(ActionDone(action.id, action.address, seconds, moved.records, moved.bytes, moved.ran))

    def add_failure(self, action: Action, outcome: FailedAction, lost: Sequence[str]) -> None:
        """Add a failure and its skipped dependents."""
        self.failed.append(outcome)
        if is_in_doubt(action, outcome):
            self.in_doubt.append(action)
        self.skipped += [ActionSkipped(id=name, because=action.id) for name in lost]

    def report_failure(self, action: Action, outcome: FailedAction) -> None:
        """Report a journaled failure, and record resources that the action created before it failed."""
        if outcome.created is not None and not is_in_doubt(action, outcome):
            apply_record_changes(self.record, record_refusal(action, outcome.created, self.record, self._run))
            self.is_changed = True
        self.report_event(ActionFailed(action.id, action.address, outcome.error.message, outcome.error.hint))


_CHECK_INTERVAL_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class RunResult:
    """Results of a run. The caller must commit `record`. Ids are in order of completion."""

    record: Record
    done: tuple[str, ...] = ()
    failed: tuple[FailedAction, ...] = ()
    skipped: tuple[ActionSkipped, ...] = ()
    not_started: tuple[str, ...] = ()
    """Ids of actions not started, because the run was stopped or leaves jobs to the next run."""
    in_doubt: tuple[Action, ...] = ()
    """Failed actions whose result is unknown."""
    unknown: IncompleteError | None = None
    """Why `in_doubt` could not be settled. If set, the run stays open."""
    unanswered: tuple[str, ...] = ()
    """Ids of `not_started` actions whose calls had no answer when the run stopped."""
    is_stopped: bool = False
    is_changed: bool = False
    ended_by: ReconcilerError | None = None
    """Why the state cannot be written. If set, the caller must not commit `record`."""
    unwritten: tuple[Entry, ...] = ()
    ran: JobExecution = NO_EXECUTION
    trouble: Exception | None = None
    """Unexpected error to raise after the commit."""

    @property
    def is_whole(self) -> bool:
        """Whether every action ended, successfully or not."""
        return not (self.not_started or self.unknown or self.ended_by or self.trouble)


class Engine:
    """Executes one plan's actions."""

    def __init__(
        self, actions: Sequence[Action], ports: RunPorts, *, record: Record, run: str, leaves_jobs: bool = False
    ) -> None:
        self._graph = ActionGraph(actions)
        self._ports = ports
        self._ledger = ResultLedger(record, run, ports.report)
        self._queues: dict[Lane, LaneQueue] = {}
        self._running: dict[Lane, asyncio.Task[None]] = {}
        self._leaves_jobs = leaves_jobs
        self._is_stopping = False
        self._ended_by: ReconcilerError | None = None

    def stop(self) -> None:
        """Start no new action and stop running jobs soon. Thread-safe and signal-safe."""
        self._is_stopping = True
        self._ports.jobs.stop()

    async def run(self) -> RunResult:
        """Execute the plan. Errors are in the result, not raised."""
        try:
            await self._run_lanes()
        except Exception as error:  # noqa: BLE001 - returned, so finished actions are committed
            self._ledger.trouble = error
        finally:
            await self._await_running_tasks()
        ledger = self._ledger
        return RunResult(
            ledger.record,
            tuple(ledger.done),
            tuple(ledger.failed),
            tuple(ledger.skipped),
            tuple(self._graph.list_unfinished()),
            tuple(ledger.in_doubt),
            unanswered=tuple(ledger.unanswered),
            is_stopped=self._is_stopping,
            is_changed=ledger.is_changed,
            ended_by=self._ended_by,
            unwritten=tuple(ledger.unwritten),
            ran=ledger.ran,
            trouble=ledger.trouble,
        )

    async def _run_lanes(self) -> None:
        while True:
            self._check_lease()
            self._start_ready()
            if not self._running and (self._is_stopping or not self._has_waiting()):
                return
            await self._wait_for_lane()
            await self._checkpoint()
            if self._ledger.trouble is not None:
                self.stop()

    async def _await_running_tasks(self) -> None:
        if self._running:  # The caller releases the lease next, so all tasks must end.
            self.stop()
            await asyncio.wait(self._running.values())
            for task in self._running.values():
                error = None if task.cancelled() else task.exception()
                if isinstance(error, Exception):
                    self._ledger.trouble = error

    def _has_waiting(self) -> bool:
        return any(not queue.is_empty for lane, queue in self._queues.items() if self._is_served(lane))

    def _is_served(self, lane: Lane) -> bool:
        return not (is_job_lane(lane) and self._leaves_jobs)

    def _start_ready(self) -> None:
        if self._is_stopping:
            return
        for action in self._graph.take_ready():
            self._find_queue(choose_lane(action), action).add(action)
        free = self._ports.parallelism - sum(is_platform_lane(lane) for lane in self._running)
        for lane in list(self._queues):
            if not self._may_start(lane) or (is_platform_lane(lane) and free <= 0):
                continue
            if batch := self._queues[lane].take_batch():
                self._running[lane] = self._ports.effects.start_task(self._process_batch(lane, batch))
                # The lane moves to the queue's end, so no lane starves.
                self._queues[lane] = self._queues.pop(lane)
                free -= is_platform_lane(lane)

    def _may_start(self, lane: Lane) -> bool:
        return self._ports.lease.may_start and lane not in self._running and self._is_served(lane)

    def _find_queue(self, lane: Lane, action: Action) -> LaneQueue:
        if lane not in self._queues:
            self._queues[lane] = LaneQueue(self._choose_batch_size(lane, action))
        return self._queues[lane]

    def _choose_batch_size(self, lane: Lane, action: Action) -> int:
        match lane:
            case "record":
                return RECORD_BATCH
            case _ if is_job_lane(lane):
                return 1
            case _:
                return self._ports.providers[cast("str", action.cluster)].capabilities.batch

    async def _wait_for_lane(self) -> None:
        timer = self._ports.effects.start_task(self._ports.effects.sleep(_CHECK_INTERVAL_S))
        await asyncio.wait({*self._running.values(), timer}, return_when=asyncio.FIRST_COMPLETED)
        timer.cancel()
        for lane in [lane for lane, task in self._running.items() if task.done()]:
            self._running.pop(lane).result()

    async def _process_batch(self, lane: Lane, batch: list[Action]) -> None:
        if lane != RECORD and not await self._write_entries([Intent(id=action.id) for action in batch]):
            return
        if self._is_stopping:
            return  # These actions were not called; recovery settles them as absent.
        self._ledger.report_start(batch, self._ports.effects.read_clock())
        ended = [
            (action, outcome, moved)
            for action, outcome, moved in await self._collect_outcomes(lane, batch)
            if not self._is_unfinished(outcome)
        ]
        lost = {
            outcome.id: self._graph.fail_action(outcome.id)
            for _, outcome, _ in ended
            if isinstance(outcome, FailedAction)
        }
        entries = [entry for action, outcome, _ in ended for entry in build_result_entries(action, outcome, lost)]
        is_written = await self._write_entries(entries)
        if not is_written:
            self._ledger.unwritten += entries
        for action, outcome, moved in ended:
            match outcome:
                case CompletedAction():
                    if is_written:
                        self._graph.finish_action(action.id)
                        self._ledger.record_done(action, outcome, moved, self._ports.effects.read_clock())
                case FailedAction():
                    self._ledger.add_failure(action, outcome, lost[action.id])
                    if is_written:
                        self._ledger.report_failure(action, outcome)
                case _:
                    assert_never(outcome)

    async def _collect_outcomes(self, lane: Lane, batch: list[Action]) -> list[tuple[Action, Outcome, JobResult]]:
        try:
            return await self._execute(lane, batch)
        except StoppedError as error:
            self._ledger.unanswered += [action.id for action in batch if not is_job_lane(lane)]
            return [(action, FailedAction(action.id, error), JobResult()) for action in batch]

    async def _execute(self, lane: Lane, batch: list[Action]) -> list[tuple[Action, Outcome, JobResult]]:
        effects, lease = self._ports.effects, self._ports.lease
        match lane:
            case "record":
                return [(action, CompletedAction(action.id), JobResult()) for action in batch]
            case _ if is_job_lane(lane):
                job = cast("DataAction", batch[0])
                outcome, moved = await effects.run_blocking(
                    partial(run_job, job, self._ports.jobs, lease, self._ledger.report_event)
                )
                return [(job, outcome, moved)]
            case _:
                provider = self._ports.providers[cast("str", batch[0].cluster)]
                outcomes = await effects.run_blocking(
                    partial(apply_batch, provider, cast("list[ControlAction]", batch), lease)
                )
                return [(action, outcome, JobResult()) for action, outcome in zip(batch, outcomes, strict=True)]

    def _is_unfinished(self, outcome: Outcome) -> bool:
        match outcome:
            case FailedAction(error=LeaseError()):
                return True
            case FailedAction(error=IncompleteError()):
                return self._is_stopping
            case _:
                return False

    async def _write_entries(self, entries: Sequence[Entry]) -> bool:
        try:
            await self._ports.lease.write(entries)
        except ReconcilerError as error:
            self._stop_by_error(error)
            return False
        return True

    def _check_lease(self) -> None:
        if self._ended_by is None:
            try:
                self._ports.lease.check()
            except LeaseError as error:
                self._stop_by_error(error)

    async def _checkpoint(self) -> None:
        if self._ended_by is not None or not self._ledger.is_changed:
            return
        try:
            await self._ports.lease.checkpoint(self._ledger.record)
        except RetryableError:
            return
        except ReconcilerError as error:
            self._stop_by_error(error)

    def _stop_by_error(self, error: ReconcilerError) -> None:
        if self._ended_by is not None:
            return
        self._ended_by = error
        self.stop()
        if isinstance(error, LeaseError):
            self._ledger.report_event(LeaseLost(error.message))


_COMMIT_INTERVAL_S: Final = 60.0


class RunLease:
    """The run's lease, with the run's journal and checkpoints."""

    def __init__(self, lease: Lease, journal: Journal, effects: Effects) -> None:
        self._lease = lease
        self._journal = journal
        self._effects = effects
        self._committed_at = effects.read_clock()
        self._committed: Record | None = None

    @property
    def may_start(self) -> bool:
        """Whether the lease outlives the longest call, so a new one may start."""
        return self._lease.may_start

    def check(self) -> None:
        """Raise `LeaseError` if the lease is lost."""
        self._lease.check()

    async def write(self, entries: Sequence[Entry]) -> None:
        """Write journal entries."""
        await self._journal.append(entries)
        if not self._lease.may_start:  # The write took so long that a call could outlive the lease.
            await self._lease.renew()

    async def checkpoint(self, record: Record) -> None:
        """Commit a changed record if the last commit is at least a minute old."""
        if self._effects.read_clock() - self._committed_at < _COMMIT_INTERVAL_S:
            return
        if record == self._committed:
            return
        committed = dict(record)
        await self._lease.commit(committed)
        self._committed, self._committed_at = committed, self._effects.read_clock()
