"""Copy logs into mirrors or into other topics of the same platform.

Tasks stage ranges under new names, and the driver publishes each round by compare-and-swap. So parallel jobs publish
nothing twice. Flows share rounds, but an error ends only its flow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final, cast

from reconciler.archives.entries import STALE_REWRITE_MS
from reconciler.errors import IncompleteError, LostRaceError, ReconcilerError, UserError
from reconciler.jobs.flows import (
    CopyResult,
    Flow,
    FlowRun,
    PartitionProgress,
    Piece,
    is_always_wanted,
    iter_rounds,
    join_first_pieces,
    join_pieces,
)
from reconciler.jobs.ordered import compute_digest_in, verify_renumbered
from reconciler.jobs.progress import Report, ignore_progress
from reconciler.jobs.rekey import copy_by_key
from reconciler.jobs.stage import Engine, Tasks
from reconciler.records.log import (
    CopyProgress,
    OffsetRange,
    RekeySink,
    StagedRecords,
    StagedSink,
    TopicLog,
    TransactionalSink,
)
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.threads import map_in_parallel

# Each pass copies the next range of every partition, so all partitions advance.


_MAX_SHARES: Final = 6
"""Number of pieces that share the budget of a round."""


class CommitFlowRun(FlowRun):
    """A flow into a `TransactionalSink`."""

    _lost_race: LostRaceError | None = None
    _skipped: frozenset[int] = frozenset()

    @property
    def ends(self) -> tuple[TopicLog, TransactionalSink]:
        """The log that tasks read, and the sink that they write."""
        return self.flow.source, cast("TransactionalSink", self._sink)

    def plan_pieces(self, budget_bytes: int) -> list[Piece]:
        """Return the next piece of each partition; none if the copy is no longer wanted."""
        if not self.flow.is_wanted():
            self._is_halted = True
            return []
        share = budget_bytes // max(1, min(len(self._missing), _MAX_SHARES))
        pieces = [
            join_first_pieces(self._plan_pieces(partition, offsets), share)
            for partition, offsets in self._missing.items()
        ]
        self._add_expected(pieces)
        return pieces

    def publish(self, staged: Sequence[Any]) -> None:
        """Count records that tasks have committed."""
        ends: dict[int, OffsetRange] = {}
        for one in staged:
            had = self._gained.get(one.partition, PartitionProgress())
            ends[one.partition] = OffsetRange(had.end, one.through)
            self._gained[one.partition] = replace(
                had,
                records=had.records + one.records,
                bytes=had.bytes + one.stored_bytes,
                offsets=had.offsets + max(0, one.through - had.end),
                end=max(had.end, one.through),
            )
        self._report_progress(ends)

    def skip_partition(self, partition: int, error: LostRaceError) -> None:
        """Skip a partition until the flow ends, because another process copies it."""
        self._skipped |= {partition}
        self._lost_race = self._lost_race or error

    def update_missing_ranges(self) -> None:
        """Recompute missing ranges, without skipped partitions."""
        self._check_progress()
        reached = self._read_both_ends()
        self._set_missing(reached)
        self._missing = {number: offsets for number, offsets in self._missing.items() if number not in self._skipped}

    def finish(self) -> None:
        """Mark the sink complete. Raise `LostRaceError` if skipped partitions are incomplete."""
        if self._lost_race is not None and self.error is None and not self._is_halted:
            self._set_missing(self._read_both_ends())
            if self._missing:
                raise self._lost_race
        super().finish()

    @property
    def _is_complete(self) -> bool:
        return not self._missing


def copy_and_commit(
    source: TopicLog, sink: TransactionalSink, pieces: Iterator[Piece]
) -> Iterator[tuple[int, CopyProgress | LostRaceError]]:
    """Copy ranges and yield each commit, or the error if another process copies the partition."""
    for piece in pieces:
        try:
            for copied in sink.copy_range(piece.partition, source, piece.offsets):
                yield piece.partition, copied
        except LostRaceError as error:
            yield piece.partition, error


_WORDS: Final = "reconciler: mirror"


@dataclass(frozen=True, slots=True)
class FlowOutcome:
    """Result of a flow. `error` says why the flow is incomplete."""

    copy: CopyResult
    error: ReconcilerError | None = None


def copy_log(
    engine: Engine,
    source: TopicLog,
    sink: StagedSink | TransactionalSink,
    *,
    until: Mapping[int, int] | None = None,
    is_wanted: Callable[[], bool] = is_always_wanted,
    progress: Report = ignore_progress,
) -> CopyResult:
    """Copy the records that `sink` lacks up to the source's current end, and mark the copy complete.

    With `until`, copy up to these offsets and mark nothing. Stop early if `is_wanted` returns false.

    Raises:
        UserError: The sink is not a copy of the source, or an executor cannot reach one of them.
        IncompleteError: The copy was stopped; published records stay.
        RetryableError: Spark failed, or another process keeps copying.
    """
    flow = Flow(source, sink, None, until, is_wanted, progress)
    (outcome,) = copy_flows([flow], engine)
    if outcome.error is not None:
        raise outcome.error
    return outcome.copy


def copy_flows(flows: Sequence[Flow], engine: Engine) -> list[FlowOutcome]:
    """Copy several flows in parallel, each like `copy_log`."""
    return _CopyJob([_start_flow(number, flow, engine.clock) for number, flow in enumerate(flows)], engine).run()


def _start_flow(number: int, flow: Flow, clock: Callable[[], float]) -> FlowRun:
    kind = CommitFlowRun if isinstance(flow.sink, TransactionalSink) else FlowRun
    return kind(number, flow, clock)


@dataclass(frozen=True, slots=True)
class _FlowPiece:
    flow: int
    piece: Piece

    @property
    def cost(self) -> int:
        return self.piece.cost


@dataclass(frozen=True, slots=True)
class _TaskResult:
    flow: int
    staged: StagedRecords | CopyProgress | None
    error: ReconcilerError | None = None
    lost: int | None = None


_STALE_S: Final = STALE_REWRITE_MS / 1000
"""Seconds after which staged records are copied again, because a sweep may have deleted their objects."""


class _CopyJob:
    def __init__(self, flows: list[FlowRun], engine: Engine) -> None:
        self._flows, self._engine = flows, engine
        self._tasks = Tasks(engine)

    def run(self) -> list[FlowOutcome]:
        self._run_for_flows(lambda flow: flow.read_both_ends(), self._flows)
        while active := [flow for flow in self._flows if flow.is_open]:
            self._run_pass(active)
        self._run_for_flows(lambda flow: flow.finish(), self._flows)
        return [FlowOutcome(flow.build_result(), flow.error) for flow in self._flows]

    def _run_for_flows(self, do: Callable[[FlowRun], object], flows: Iterable[FlowRun]) -> None:
        def try_flow(flow: FlowRun) -> None:
            try:
                do(flow)
            except ReconcilerError as error:
                flow.fail(error)

        open_flows = [flow for flow in flows if flow.error is None]
        if len(open_flows) == 1:
            try_flow(open_flows[0])
        else:
            for _ in map_in_parallel(try_flow, open_flows, name="flows"):
                pass

    def _run_pass(self, active: Sequence[FlowRun]) -> None:
        pieces_by_flow: dict[int, list[Piece]] = {}

        def plan_flow(flow: FlowRun) -> None:
            pieces_by_flow[flow.number] = flow.plan_pieces(self._tasks.budget.cost)

        self._run_for_flows(plan_flow, active)
        work = [_FlowPiece(number, piece) for number in sorted(pieces_by_flow) for piece in pieces_by_flow[number]]
        try:
            if work:
                self._run_rounds(work)
        except ReconcilerError as error:
            for flow in active:
                flow.fail_unless_complete(error)
        self._run_for_flows(lambda flow: flow.update_missing_ranges(), active)

    def _run_rounds(self, work: Sequence[_FlowPiece]) -> None:
        with self._tasks.choose_engine(sum(one.piece.stored_bytes for one in work), _WORDS):
            for taken in iter_rounds(work, self._tasks.budget):
                began = self._engine.clock()
                self._run_round(taken)
                self._tasks.budget.adapt(taken, self._engine.clock() - began, cores=self._tasks.cores)

    def _run_round(self, taken: Sequence[_FlowPiece]) -> None:
        if self._engine.is_stopped():
            raise _stopped_error()
        flows = [self._flows[number] for number in dict.fromkeys(one.flow for one in taken)]
        self._run_for_flows(lambda flow: flow.reread_source(), flows)
        began = self._engine.clock()
        staged = self._run_tasks([one for one in taken if self._flows[one.flow].is_open])
        is_stale = self._engine.clock() - began > _STALE_S
        got: dict[int, list[Any]] = {flow.number: [] for flow in flows}
        for one in staged:
            if one.staged is not None:
                got[one.flow].append(one.staged)
        # If a task failed, the records of other tasks are published nevertheless.
        publishing = [flow for flow in flows if got[flow.number] and (isinstance(flow, CommitFlowRun) or not is_stale)]
        self._run_for_flows(lambda flow: flow.publish(got[flow.number]), publishing)
        for one in staged:
            self._assign_error(one)
        for flow in self._flows:
            flow.is_fresh = False

    def _assign_error(self, one: _TaskResult) -> None:
        flow = self._flows[one.flow]
        match one.error:
            case None:
                pass
            case LostRaceError() as error if one.lost is not None and isinstance(flow, CommitFlowRun):
                flow.skip_partition(one.lost, error)
            case error:
                flow.fail(error)

    def _run_tasks(self, work: Sequence[_FlowPiece]) -> list[_TaskResult]:
        if not work:
            return []
        ends = {one.flow: self._flows[one.flow].ends for one in work}
        do = partial(_copy_task, ends, is_shared=self._tasks.is_in_process)
        staged, error = self._tasks.run(work, do, what="copying records")
        # If the job was stopped, the next round raises the error.
        if error is not None and not isinstance(error, IncompleteError):
            raise error
        return staged


def _copy_task(
    ends: Mapping[int, tuple[TopicLog, StagedSink | TransactionalSink]], task: Sequence[_FlowPiece], *, is_shared: bool
) -> Iterator[_TaskResult]:
    for number, work in groupby(task, key=lambda one: one.flow):
        source, sink = ends[number]
        try:
            if not is_shared:
                source.check_shared()
                sink.check_shared()
            pieces = join_pieces(one.piece for one in work)
            if isinstance(sink, TransactionalSink):
                for partition, done in copy_and_commit(source, sink, pieces):
                    if isinstance(done, LostRaceError):
                        yield _TaskResult(number, None, done, partition)
                    else:
                        yield _TaskResult(number, done)
            else:
                for piece in pieces:
                    yield _TaskResult(number, sink.stage_copy(piece.partition, source, piece.offsets))
        except ReconcilerError as error:
            yield _TaskResult(number, None, error)


def _stopped_error() -> IncompleteError:
    return IncompleteError("the copy was stopped; the records copied so far stay", hint="`apply` continues it.")


@dataclass(frozen=True)
class TopicCopyJob:
    """A topic to copy into another topic of the same platform."""

    name: str
    source: TopicLog
    sink: TransactionalSink | RekeySink
    """A `RekeySink` partitions records by key. Other sinks keep partitions."""
    copy: TopicLog
    engine: Engine
    progress: Report = ignore_progress


def fill_topic(job: TopicCopyJob) -> CopyResult:
    """Copy up to the source's current end and compare. Raise `UserError` for a difference."""
    copied = _copy_until(job, {number: bounds.stable for number, bounds in job.source.read_bounds().items()})
    _compare_copy(job)
    return copied


def finish_topic(job: TopicCopyJob, ends: Mapping[int, int]) -> CopyResult:
    """Copy the rest up to `ends`, when no one writes, and compare. Raise `UserError` for a difference."""
    copied = _copy_until(job, ends)
    _compare_copy(job)
    return copied


def _copy_until(job: TopicCopyJob, ends: Mapping[int, int]) -> CopyResult:
    if isinstance(job.sink, RekeySink):
        return copy_by_key(job.engine, job.source, job.sink, until=ends, progress=job.progress)
    return copy_log(job.engine, job.source, job.sink, until=ends, progress=job.progress)


def _compare_copy(job: TopicCopyJob) -> None:
    if job.engine.is_stopped():
        raise IncompleteError(
            "stopped before all records were compared", hint="Run the same command again: it continues."
        )
    wrong = (
        _describe_digest_difference(job, job.sink)
        if isinstance(job.sink, RekeySink)
        else _describe_differing(job, job.sink)
    )
    if wrong:
        message = f"{job.name}: the copy differs from it in {wrong}"
        hint = (
            "Nothing was deleted. A producer may have written to the new topic: delete the new topic, and apply again."
        )
        raise UserError(message, hint=hint)


def _describe_differing(job: TopicCopyJob, sink: TransactionalSink) -> str:
    spans = sink.find_spans(job.source.read_bounds())
    wrong = [part.partition for part in verify_renumbered(job.engine, job.copy, job.source, spans).differing]
    return f"partitions {', '.join(map(str, wrong))}" if wrong else ""


def _describe_digest_difference(job: TopicCopyJob, sink: RekeySink) -> str:
    whole = {
        number: OffsetRange(bounds.start, bounds.stable)
        for number, bounds in job.copy.read_bounds().items()
        if bounds.start < bounds.stable
    }
    digest, written = compute_digest_in(job.engine, job.copy, whole), sink.read_written_digest()
    if (digest.records, digest.total) == (written.records, written.total):
        return ""
    return f"its records: {written.records:,} were written, and {digest.records:,} are there, or others"
