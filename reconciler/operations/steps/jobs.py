"""Data actions: bring source and sink together in one Spark session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar, assert_never

from reconciler.applying.engine import is_job, lane_of
from reconciler.applying.events import Progress, Ran
from reconciler.applying.ports import DataAction, Moved
from reconciler.errors import BrokenInvariantError, IncompleteError, MissingRecordsError, UserError
from reconciler.lifecycles import UNMOUNT
from reconciler.objectstore.base import nonce
from reconciler.operations.steps.link_pass import FinalSync
from reconciler.operations.steps.mirror_copy import Copier, note_refused
from reconciler.operations.steps.mount_jobs import (
    CopyTotals,
    Mount,
    MountPorts,
    Relocation,
    Unmount,
    check_equal,
    check_renumbered,
    migrate_by_hand,
)
from reconciler.operations.steps.transitions import SAME_AGAIN, CatchingUp, Driver, drive
from reconciler.planning.actions import Action, Estimate, RunJob, Transition
from reconciler.providers.protocol import Costly, Provider, links_by_jobs
from reconciler.resources.address import Address, cluster_of, full_name_of
from reconciler.resources.mount import Mounting
from reconciler.resources.workspace import IN_PROCESS, SparkSpec
from reconciler.runtime.retry import go_on

if TYPE_CHECKING:
    from reconciler.jobs.session import RunningSpark
    from reconciler.jobs.stage import Engine
    from reconciler.operations.steps.invocation import Invocation
    from reconciler.resources.mirrors import MirrorSeen


_HURRIED_S: Final = 0.3
"""Whoever was asked to stop waits this long for Spark to end; its JVM ends with this process, when its input does."""

_NO_EXECUTOR_S: Final = 15
"""So long is waited for an executor before a warning."""

W = TypeVar("W", bound="Costly")
R = TypeVar("R")

# Spark and Arrow are heavy: a command without data actions never imports them.
# ruff: noqa: PLC0415


class SparkJobs:
    """The jobs of one command. Spark starts with the first of them and ends with the block."""

    def __init__(self, providers: Mapping[str, Provider], spark: SparkSpec, invocation: Invocation) -> None:
        self._providers = providers
        self._spec = spark
        self._environ = invocation.environ
        self._warn = invocation.warn
        self._is_over = threading.Event()
        self._spark: RunningSpark | None = None
        self._starting = threading.Lock()
        self._is_stopped = False
        self._news: SimpleQueue[RunningSpark | Exception | None] = SimpleQueue()
        """What became of a start: Spark, why not, or `None` where it was stopped first."""
        self._asked: SimpleQueue[RunningSpark | None] = SimpleQueue()
        """What is to cancel all it does; `None` ends the thread that lets it."""

    def __enter__(self) -> Self:
        """Start nothing yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End Spark, if it was started."""
        spark, self._spark = self._spark, None
        self._is_over.set()
        if spark is not None:
            self._asked.put(None)
            self._end(spark)

    def _end(self, spark: RunningSpark) -> None:
        if not self._is_stopped:
            spark.stop()
            return
        ending = threading.Thread(target=spark.stop, name="spark-end", daemon=True)
        ending.start()
        ending.join(_HURRIED_S)

    def check(self, actions: Iterable[Action]) -> None:
        """Return if the jobs among `actions` find what they need here, so that nothing is begun in vain.

        Raises:
            MissingSparkError: A job will start Spark, and Java or Spark are not there.
            MissingRecordsError: The libraries that read and write records are not there.
        """
        actions = tuple(actions)
        if any(is_job(lane_of(action)) for action in actions):
            try:
                self.engine()
            except ImportError as error:
                raise MissingRecordsError.of(error) or error from error
        # What is expected to be little and turns out to be much fails by itself, and says so (`Engine.spark`).
        copying = (action for action in actions if isinstance(action, RunJob) and not action.is_migration)
        if any(self._is_for_spark(action.estimate) for action in copying):
            from reconciler.jobs.session import check_ready

            check_ready(self._spec, environ=self._environ)

    def _is_for_spark(self, estimate: Estimate) -> bool:
        """Tell whether a job will start Spark; one that was measured and has nothing to copy does not."""
        is_empty = estimate.bytes == 0 and estimate.engine != ""
        return estimate.bytes >= self._spec.below and not is_empty

    def run(
        self, action: DataAction, progress: Callable[[Progress], None], may_go_on: Callable[[], None] = go_on
    ) -> Moved:
        """Do a job, or drive a transition over two clusters to its end, and return what was moved.

        Raises:
            UserError: Java or Spark are not there, the copy differs from its source, or the transition is not legal.
            RetryableError: A mirror does not catch up, or one of the clusters does not answer.
            IncompleteError: It was stopped, or a transition is under way and cannot go on now.
        """
        engine = self.engine()

        def told(found: Progress) -> None:
            progress(replace(found, ran=self.ran(engine)))

        moved = self._moved(engine, action, told, may_go_on)
        return replace(moved, ran=self.ran(engine))

    def _moved(
        self, engine: Engine, action: DataAction, progress: Callable[[Progress], None], may_go_on: Callable[[], None]
    ) -> Moved:
        match action:
            case Transition(after=Mounting() as mounting):
                return self._mounting(engine, action, mounting, progress, may_go_on)
            case Transition():
                return self._transition(engine, action, progress, may_go_on)
            case RunJob(job="mirror"):
                return self._mirror(engine, action, progress)
            case RunJob(job="catch-up"):
                return self._catch_up(engine, action, progress)
            case RunJob(job="move"):
                return self._relocation(engine, action, progress, may_go_on).fill()
            case RunJob(job="switch-groups"):
                return self._relocation(engine, action, progress, may_go_on).switch_groups()
            case RunJob(job="mount" | "unmount"):
                means = MountPorts(self._provider(action.address), engine, progress, may_go_on)
                return migrate_by_hand(means, action)
            case RunJob(job=other):
                raise BrokenInvariantError(f"there is no job {other!r}", hint="Please report this, with the plan.")
            case _:
                assert_never(action)

    def engine(self) -> Engine:
        """Return where one job of this command runs."""
        from reconciler.jobs.stage import Engine

        return Engine(lambda: self.session().session, lambda: self._is_stopped, self._spec.below)

    def ran(self, engine: Engine) -> Ran:
        """Return where the tasks of a job ran so far."""
        used = engine.used
        if used.spark_tasks:
            return Ran(self._spec.name, used.spark_tasks, used.starting_s)
        return Ran(IN_PROCESS if used.in_process else "")

    def _transition(
        self,
        engine: Engine,
        action: Transition,
        progress: Callable[[Progress], None],
        may_go_on: Callable[[], None],
    ) -> Moved:
        copying = CopyTotals(self.copier(engine), action.id, progress)
        found = drive(self.driver(copying.copy, may_go_on), action)
        return Moved(copying.records, copying.bytes, found.topic_id)

    def _mounting(
        self,
        engine: Engine,
        action: Transition,
        mounting: Mounting,
        progress: Callable[[Progress], None],
        may_go_on: Callable[[], None],
    ) -> Moved:
        """Mount or unmount a topic of a platform that cannot do it itself."""
        means = MountPorts(self._provider(action.address), engine, progress, may_go_on)
        kind = Unmount if action.machine == UNMOUNT.name else Mount
        return kind(means, action, mounting).run()

    def _relocation(
        self, engine: Engine, job: RunJob, progress: Callable[[Progress], None], may_go_on: Callable[[], None]
    ) -> Relocation:
        return Relocation(self._provider(job.sink), job, engine, progress, may_go_on)

    def _catch_up(self, engine: Engine, job: RunJob, progress: Callable[[Progress], None]) -> Moved:
        copying = CopyTotals(self.copier(engine), job.id, progress)
        timeout_ms = job.parameters.get("timeout_ms")
        CatchingUp(self._providers, copying.copy, lambda: self._is_stopped).run(
            cluster_of(job.sink) or "", full_name_of(job.sink), timeout_ms if isinstance(timeout_ms, int) else None
        )
        return Moved(copying.records, copying.bytes)

    def driver(
        self,
        copy: Callable[[MirrorSeen, Mapping[int, int] | None], object] | None = None,
        may_go_on: Callable[[], None] = go_on,
    ) -> Driver:
        """Return what drives the transitions of mirrors that need both clusters."""

        def go() -> None:
            if self._is_stopped:
                raise IncompleteError("stopped before it had ended", hint=SAME_AGAIN)
            may_go_on()

        return Driver(self._providers, copy or self.copier().copy, FinalSync(self._providers), nonce, go)

    def _mirror(self, engine: Engine, job: RunJob, progress: Callable[[Progress], None]) -> Moved:
        """Bring a mirror to the end that its source has now; what was copied is verified."""
        name, source, sink = job.id, job.source, job.sink
        above, below = self._provider(source), self._provider(sink)
        from reconciler.records.log import TransactionalSink

        into = below.sink(sink)
        before = {number: reached.end for number, reached in into.reached().items()}
        copying = CopyTotals(self.copier(engine), name, progress)
        links = links_by_jobs(below)
        found = links.mirror(full_name_of(sink))
        try:
            copying.copy(found)
        except UserError as error:
            note_refused(links, found, error)
            raise
        if copying.offsets and isinstance(into, TransactionalSink):
            check_renumbered(name, (above.log(source), below.log(sink)), into, engine)
        elif copying.offsets:
            check_equal(name, above.log(source), below.log(sink), engine, since=before)
        return Moved(copying.records, copying.bytes)

    @cached_property
    def shared(self) -> Engine:
        """Where upkeep runs: all of it is one job."""
        return self.engine()

    def tasks(self) -> tuple[int, int]:
        """Return how many tasks of upkeep ran so far: in Spark, and in this process."""
        return self.shared.used.spark_tasks, self.shared.used.in_process

    def ran_since(self, before: tuple[int, int]) -> Ran:
        """Return where upkeep ran since `tasks` said so many."""
        spark, here = (now - then for now, then in zip(self.tasks(), before, strict=True))
        return Ran(self._spec.name, spark) if spark else Ran(IN_PROCESS if here else "")

    def copier(self, engine: Engine | None = None) -> Copier:
        """Return what copies mirrors."""
        return Copier(self._providers, engine or self.shared)

    def spread(self, work: Sequence[W], do: Callable[[Sequence[W]], Iterable[R]]) -> Iterator[Sequence[R]]:
        """Do pieces of upkeep and yield what came of them in rounds.

        Raises:
            MissingSparkError: Java or Spark are not there.
            IncompleteError: It was stopped.
        """
        from reconciler.embedded.maintenance.chores import do_here

        engine = self.shared
        stored_bytes = sum(each.bytes for each in work)
        if engine.starts_spark(stored_bytes):
            engine.spark(stored_bytes)  # first: without PySpark, the import would fail
            from reconciler.jobs.compaction import spread

            yield from spread(engine, work, do)
        else:
            engine.used.count(in_process=len(work))
            yield from do_here(work, do)

    def stop(self) -> None:
        """Let the running job end soon. Safe from any thread and from a signal handler."""
        # Only what a handler may do while whom it interrupts does the same: no lock, no event, no new thread.
        self._is_stopped = True
        self._news.put(None)
        spark = self._spark
        if spark is not None:
            self._asked.put(spark)

    @property
    def is_stopped(self) -> bool:
        """Tell whether somebody asked them to end."""
        return self._is_stopped

    def session(self) -> RunningSpark:
        """Return Spark, started by the first who asks.

        Raises:
            UserError: Java or Spark are not there.
            IncompleteError: It was stopped.
        """
        with self._starting:
            if self._spark is None:
                self._spark = self._started()
                # Asking the JVM is a call over a socket: not one to wait for in a signal handler.
                threading.Thread(target=self._cancel, name="cancel", daemon=True).start()
                if not self._spark.has_executors:
                    threading.Thread(target=self._watch, args=(self._spark,), name="executors", daemon=True).start()
            return self._spark

    def _cancel(self) -> None:
        while (spark := self._asked.get()) is not None:
            spark.cancel()

    def _watch(self, spark: RunningSpark) -> None:
        """Say it where Spark runs nothing: it waits for executors as long as it takes, without a word."""
        if self._is_over.wait(_NO_EXECUTOR_S):
            return
        with suppress(Exception):  # It may end while it is asked: then nobody waits for it.
            if not spark.has_executors:
                self._warn(
                    f"Spark at {self._spec.master} has given no executor for {_NO_EXECUTOR_S} s, and the job waits "
                    "for one. Its workers may be gone, busy, or smaller than spec.spark.conf asks for"
                )

    def _started(self) -> RunningSpark:
        from reconciler.jobs.session import start_session

        def start() -> None:
            try:
                self._news.put(start_session(self._spec, environ=self._environ))
            except Exception as error:  # noqa: BLE001 - raised where it is waited for
                self._news.put(error)

        # A start takes seconds and cannot be called off; whoever stops does not wait for it. A JVM that comes up after
        # that ends with this process, when its standard input does.
        news: RunningSpark | Exception | None = None
        if not self._is_stopped:  # Of several that wait for Spark, only the first hears that it was stopped.
            threading.Thread(target=start, name="spark", daemon=True).start()
            news = self._news.get()
        match news:
            case None:
                raise IncompleteError("stopped before Spark had started", hint=SAME_AGAIN)
            case Exception() as error:
                raise error
            case spark:
                return spark

    def _provider(self, address: Address) -> Provider:
        return self._providers[cluster_of(address) or ""]
