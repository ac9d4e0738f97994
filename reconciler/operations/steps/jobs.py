"""Run data actions with one Spark session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar, assert_never

from reconciler.applying.engine import choose_lane, is_job_lane
from reconciler.applying.events import JobExecution, Progress
from reconciler.applying.ports import DataAction, JobResult
from reconciler.errors import BrokenInvariantError, IncompleteError, MissingRecordsError, UserError
from reconciler.lifecycles import UNMOUNT
from reconciler.objectstore.base import create_nonce
from reconciler.operations.steps.link_pass import FinalSync
from reconciler.operations.steps.mirror_copy import Copier, record_refused_copy
from reconciler.operations.steps.mount_jobs import (
    CopyTotals,
    Mount,
    MountPorts,
    Relocation,
    Unmount,
    check_copy_equal,
    check_renumbered_copy,
    run_migration_phase,
)
from reconciler.operations.steps.transitions import CONTINUE_HINT, CatchUp, TransitionDriver, drive_transition
from reconciler.planning.actions import Action, Estimate, RunJob, Transition
from reconciler.providers.protocol import Costly, Provider, require_job_links
from reconciler.resources.address import Address, cluster_of, full_name_of
from reconciler.resources.mount import Mounting
from reconciler.resources.workspace import IN_PROCESS, SparkSpec
from reconciler.runtime.retry import skip_check

if TYPE_CHECKING:
    from reconciler.jobs.session import RunningSpark
    from reconciler.jobs.stage import Engine
    from reconciler.operations.steps.invocation import Invocation
    from reconciler.resources.mirrors import ObservedMirror


_STOP_WAIT_S: Final = 0.3

_EXECUTOR_WARNING_S: Final = 15

W = TypeVar("W", bound="Costly")
R = TypeVar("R")

# ruff: noqa: PLC0415


class SparkJobs:
    """Runs a command's jobs. The first job starts Spark; the end of the block stops it."""

    def __init__(self, providers: Mapping[str, Provider], spark: SparkSpec, invocation: Invocation) -> None:
        self._providers = providers
        self._spec = spark
        self._environ = invocation.environ
        self._warn = invocation.warn
        self._is_over = threading.Event()
        self._spark: RunningSpark | None = None
        self._starting = threading.Lock()
        self._is_stopped = False
        self._start_results: SimpleQueue[RunningSpark | Exception | None] = SimpleQueue()
        """Spark, an error, or `None` if stopped before."""
        self._to_cancel: SimpleQueue[RunningSpark | None] = SimpleQueue()
        """Sessions to cancel; `None` ends the thread."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        spark, self._spark = self._spark, None
        self._is_over.set()
        if spark is not None:
            self._to_cancel.put(None)
            self._stop_spark(spark)

    def _stop_spark(self, spark: RunningSpark) -> None:
        if not self._is_stopped:
            spark.stop()
            return
        ending = threading.Thread(target=spark.stop, name="spark-end", daemon=True)
        ending.start()
        ending.join(_STOP_WAIT_S)

    def check(self, actions: Iterable[Action]) -> None:
        """Reject actions whose jobs lack Spark, Java or libraries."""
        actions = tuple(actions)
        if any(is_job_lane(choose_lane(action)) for action in actions):
            try:
                self.build_engine()
            except ImportError as error:
                raise MissingRecordsError.from_import_error(error) or error from error
        copying = (action for action in actions if isinstance(action, RunJob) and not action.is_migration)
        if any(self._is_for_spark(action.estimate) for action in copying):
            from reconciler.jobs.session import check_ready

            check_ready(self._spec, environ=self._environ)

    def _is_for_spark(self, estimate: Estimate) -> bool:
        is_empty = estimate.bytes == 0 and estimate.engine != ""
        return estimate.bytes >= self._spec.in_process_limit and not is_empty

    def run(
        self, action: DataAction, progress: Callable[[Progress], None], may_go_on: Callable[[], None] = skip_check
    ) -> JobResult:
        """Run a job or transition."""
        engine = self.build_engine()

        def report(current: Progress) -> None:
            progress(replace(current, ran=self.get_execution(engine)))

        def report_start() -> None:
            if self._spark is None:
                estimate = action.estimate
                progress(Progress(action.id, 0, estimate.records, 0, estimate.bytes, 0.0, phase="starting Spark"))

        moved = self._run_action(replace(engine, prepare_spark=report_start), action, report, may_go_on)
        return replace(moved, ran=self.get_execution(engine))

    def _run_action(
        self, engine: Engine, action: DataAction, progress: Callable[[Progress], None], may_go_on: Callable[[], None]
    ) -> JobResult:
        means = MountPorts(self._get_provider(action.address), engine, progress, may_go_on)
        match action:
            case Transition(after=Mounting() as mounting):
                kind = Unmount if action.machine == UNMOUNT.name else Mount
                return kind(means, action, mounting).run()
            case Transition():
                return self._run_transition(engine, action, progress, may_go_on)
            case RunJob(job="mirror"):
                return self._run_mirror(engine, action, progress)
            case RunJob(job="catch-up"):
                return self._catch_up_mirror(engine, action, progress)
            case RunJob(job="move"):
                return Relocation(means, action).fill_topic()
            case RunJob(job="switch-groups"):
                return Relocation(means, action).switch_groups()
            case RunJob(job="mount" | "unmount"):
                return run_migration_phase(means, action)
            case RunJob(job=other):
                raise BrokenInvariantError(f"there is no job {other!r}", hint="Please report this, with the plan.")
            case _:
                assert_never(action)

    def build_engine(self) -> Engine:
        """Return an engine for one job."""
        from reconciler.jobs.stage import Engine

        return Engine(lambda: self.get_session().session, lambda: self._is_stopped, self._spec.in_process_limit)

    def get_execution(self, engine: Engine) -> JobExecution:
        """Return where an engine's tasks ran so far."""
        used = engine.used
        if used.spark_tasks:
            return JobExecution(self._spec.name, used.spark_tasks, used.starting_s)
        return JobExecution(IN_PROCESS if used.in_process else "")

    def _run_transition(
        self, engine: Engine, action: Transition, progress: Callable[[Progress], None], may_go_on: Callable[[], None]
    ) -> JobResult:
        copying = CopyTotals(self.build_copier(engine), action.id, progress)
        driven = drive_transition(self.build_driver(copying.copy_mirror, may_go_on), action)
        return JobResult(copying.records, copying.bytes, driven.topic_id)

    def _catch_up_mirror(self, engine: Engine, job: RunJob, progress: Callable[[Progress], None]) -> JobResult:
        copying = CopyTotals(self.build_copier(engine), job.id, progress)
        timeout_ms = job.parameters.get("timeout_ms")
        CatchUp(self._providers, copying.copy_mirror, lambda: self._is_stopped).run(
            cluster_of(job.sink) or "", full_name_of(job.sink), timeout_ms if isinstance(timeout_ms, int) else None
        )
        return JobResult(copying.records, copying.bytes)

    def build_driver(
        self,
        copy: Callable[[ObservedMirror, Mapping[int, int] | None], object] | None = None,
        may_go_on: Callable[[], None] = skip_check,
    ) -> TransitionDriver:
        """Return the driver of transitions over two clusters."""

        def check_stop() -> None:
            if self._is_stopped:
                raise IncompleteError("stopped before it had ended", hint=CONTINUE_HINT)
            may_go_on()

        return TransitionDriver(
            self._providers, copy or self.build_copier().copy, FinalSync(self._providers), create_nonce, check_stop
        )

    def _run_mirror(self, engine: Engine, job: RunJob, progress: Callable[[Progress], None]) -> JobResult:
        name, source, sink = job.id, job.source, job.sink
        above, below = self._get_provider(source), self._get_provider(sink)
        from reconciler.records.log import TransactionalSink

        into = below.open_sink(sink)
        before = {number: reached.end for number, reached in into.read_positions().items()}
        copying = CopyTotals(self.build_copier(engine), name, progress)
        links = require_job_links(below)
        mirror = links.read_mirror(full_name_of(sink))
        try:
            copying.copy_mirror(mirror)
        except UserError as error:
            record_refused_copy(links, mirror, error)
            raise
        if copying.offsets and isinstance(into, TransactionalSink):
            check_renumbered_copy(name, (above.open_log(source), below.open_log(sink)), into, engine)
        elif copying.offsets:
            check_copy_equal(name, above.open_log(source), below.open_log(sink), engine, since=before)
        return JobResult(copying.records, copying.bytes)

    @cached_property
    def shared_engine(self) -> Engine:
        """Engine of all maintenance, which counts as one job."""
        return self.build_engine()

    def count_tasks(self) -> tuple[int, int]:
        """Return the numbers of maintenance tasks in Spark and in this process."""
        return self.shared_engine.used.spark_tasks, self.shared_engine.used.in_process

    def get_execution_since(self, before: tuple[int, int]) -> JobExecution:
        """Return where maintenance ran since `before`, a result of `count_tasks`."""
        spark, local = (now - then for now, then in zip(self.count_tasks(), before, strict=True))
        return JobExecution(self._spec.name, spark) if spark else JobExecution(IN_PROCESS if local else "")

    def build_copier(self, engine: Engine | None = None) -> Copier:
        """Return a copier of mirrors, by default with the shared engine."""
        return Copier(self._providers, engine or self.shared_engine)

    def run_distributed(self, work: Sequence[W], do: Callable[[Sequence[W]], Iterable[R]]) -> Iterator[Sequence[R]]:
        """Run parts of a maintenance job, and yield results in rounds."""
        from reconciler.embedded.maintenance.chores import run_chores_here

        engine = self.shared_engine
        stored_bytes = sum(item.bytes for item in work)
        if engine.needs_spark(stored_bytes):
            # Starting Spark reports a missing PySpark before the import fails.
            engine.start_spark(stored_bytes)
            from reconciler.jobs.compaction import run_in_spark

            yield from run_in_spark(engine, work, do)
        else:
            engine.used.count_tasks(in_process=len(work))
            yield from run_chores_here(work, do)

    def stop(self) -> None:
        """Stop the current job. Thread-safe and signal-safe."""
        # Signal handlers must not use locks, events or threads.
        self._is_stopped = True
        self._start_results.put(None)
        spark = self._spark
        if spark is not None:
            self._to_cancel.put(spark)

    @property
    def is_stopped(self) -> bool:
        """Whether a stop was requested."""
        return self._is_stopped

    def get_session(self) -> RunningSpark:
        """Return Spark, started on first use. Raises `IncompleteError` after a stop."""
        with self._starting:
            if self._spark is None:
                self._spark = self._start_spark()
                # Cancelling calls a socket, which is too slow for a signal handler.
                threading.Thread(target=self._cancel_on_stop, name="cancel", daemon=True).start()
                if not self._spark.has_executors:
                    threading.Thread(
                        target=self._warn_without_executors, args=(self._spark,), name="executors", daemon=True
                    ).start()
            return self._spark

    def _cancel_on_stop(self) -> None:
        while (spark := self._to_cancel.get()) is not None:
            spark.cancel()

    def _warn_without_executors(self, spark: RunningSpark) -> None:
        if self._is_over.wait(_EXECUTOR_WARNING_S):
            return
        with suppress(Exception):
            if not spark.has_executors:
                self._warn(
                    f"Spark at {self._spec.master} has given no executor for {_EXECUTOR_WARNING_S} s, and the job "
                    "waits for one. Its workers may be down, busy, or smaller than spec.spark.conf asks for"
                )

    def _start_spark(self) -> RunningSpark:
        from reconciler.jobs.session import start_session

        def start() -> None:
            try:
                self._start_results.put(start_session(self._spec, environ=self._environ))
            except Exception as error:  # noqa: BLE001 - raised where it is waited for
                self._start_results.put(error)

        # A stop does not wait for Spark's start, which cannot be cancelled: the JVM ends with this process's stdin.
        news: RunningSpark | Exception | None = None
        # Another thread may have taken the only message of an earlier stop.
        if not self._is_stopped:
            threading.Thread(target=start, name="spark", daemon=True).start()
            news = self._start_results.get()
        match news:
            case None:
                raise IncompleteError("stopped before Spark had started", hint=CONTINUE_HINT)
            case Exception() as error:
                raise error
            case spark:
                return spark

    def _get_provider(self, address: Address) -> Provider:
        return self._providers[cluster_of(address) or ""]
