"""Run work as Spark stages, or in threads if the work is small.

`spark.range(0, n, 1, n).mapInArrow(…)` runs one task per piece of work without a shuffle, also with Spark Connect.
"""

from __future__ import annotations

import logging
import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import pyarrow as pa

from reconciler.errors import IncompleteError, MissingSparkError, ReconcilerError, RetryableError
from reconciler.jobs.flows import Budget, Costly, deal_to_tasks, iter_rounds
from reconciler.jobs.progress import translate_job_error
from reconciler.resources.workspace import IN_PROCESS_BELOW
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.effects import compute_elapsed_ms, log_debug, now
from reconciler.runtime.text import format_bytes
from reconciler.runtime.threads import read_monotonic_s

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


W = TypeVar("W")
R = TypeVar("R")

_LOGGER: Final = logging.getLogger("reconciler.jobs")

JOB_GROUP: Final = "reconciler"
OUTCOME: Final = "outcome binary"
_OUTCOME: Final = pa.schema([pa.field("outcome", pa.binary(), nullable=False)])


@dataclass(frozen=True, slots=True)
class TaskError:
    """A task's `ReconcilerError` as a result. If it were raised, Spark would pass on only its text."""

    error: ReconcilerError


def run_stage(
    session: SparkSession, work: Sequence[W], do: Callable[[W], Iterable[R]], *, what: str
) -> tuple[list[R], ReconcilerError | None]:
    """Run each piece of work in a Spark task; return the results and the first `ReconcilerError`."""
    tasks = tuple(work)

    def in_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield pack_outcomes(run_task(do, tasks[index]))

    ranges = session.range(0, len(tasks), 1, len(tasks))
    began = now()
    try:
        rows = ranges.mapInArrow(in_task, OUTCOME).collect()
    except Exception as trouble:
        log_debug(
            _LOGGER, "stage", what=what, tasks=len(tasks), trouble=type(trouble).__name__, ms=compute_elapsed_ms(began)
        )
        raise translate_job_error(what, trouble) from trouble
    done, error = split_outcomes(unpack_outcomes(rows))
    log_debug(_LOGGER, "stage", what=what, tasks=len(tasks), refused=error is not None, ms=compute_elapsed_ms(began))
    return done, error


def pack_outcomes(outcomes: Iterable[object]) -> pa.RecordBatch:
    """Pickle a task's outcomes into rows for the driver."""
    return pa.RecordBatch.from_arrays([pa.array(map(pickle.dumps, outcomes), pa.binary())], schema=_OUTCOME)


def unpack_outcomes(rows: Iterable[Any]) -> list[Any]:
    """Unpickle rows that `pack_outcomes` built."""
    return [pickle.loads(row.outcome) for row in rows]  # noqa: S301


def split_outcomes(outcomes: Iterable[R | TaskError]) -> tuple[list[R], ReconcilerError | None]:
    """Return the results and the first error, or `None`."""
    done: list[R] = []
    error: ReconcilerError | None = None
    for outcome in outcomes:
        if isinstance(outcome, TaskError):
            error = error or outcome.error
        else:
            done.append(outcome)
    return done, error


def run_task(do: Callable[[W], Iterable[R]], task: W) -> Iterator[R | TaskError]:
    """Yield a task's results, and last the `ReconcilerError` that the task raised."""
    try:
        yield from do(task)
    except ReconcilerError as error:
        yield TaskError(error)


class Cores:
    """Number of tasks that Spark can run in parallel, which changes with the executors."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._known_cores: int | None = None

    @property
    def parallel_tasks(self) -> int:
        """Return the current number of tasks."""
        if not _is_remote(self._session):
            return int(self._session.sparkContext.defaultParallelism)
        if self._known_cores is None:
            # A Spark Connect server does not report its cores, but splits a range into one partition per core.
            self._known_cores = int(self._session.range(0, 1 << 16).mapInArrow(_count_rows, "seen long").count())
        return self._known_cores


def _count_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"seen": [sum(batch.num_rows for batch in batches)]})


@contextmanager
def describe_stages(session: SparkSession, words: str) -> Iterator[None]:
    """Describe the stages of the `with` block in Spark's UI."""
    if _is_remote(session):
        yield
        return
    context: Any = session.sparkContext
    context.setJobGroup(JOB_GROUP, words, interruptOnCancel=True)
    try:
        yield
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)


def _is_remote(session: Any) -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect")


# Starting a JVM takes longer than a small copy, so small work runs in threads.


T = TypeVar("T", bound="Costly")

_MAX_THREADS: Final = 16


@dataclass(slots=True)
class EngineUse:
    """Counts tasks in Spark and in this process. Thread-safe."""

    spark_tasks: int = 0
    in_process: int = 0
    starting_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def count_tasks(self, *, spark_tasks: int = 0, in_process: int = 0) -> None:
        """Count tasks before they run."""
        with self._lock:
            self.spark_tasks += spark_tasks
            self.in_process += in_process


@dataclass(frozen=True, slots=True)
class Engine:
    """Where a job runs and how it stops. `session` returns the Spark session, and starts Spark if necessary."""

    session: Callable[[], SparkSession]
    is_stopped: Callable[[], bool] = lambda: False
    below: int = IN_PROCESS_BELOW
    """Work on fewer stored bytes runs in threads of this process."""
    clock: Callable[[], float] = read_monotonic_s
    used: EngineUse = field(default_factory=EngineUse)
    prepare_spark: Callable[[], None] = lambda: None
    """Called before `session`."""

    def needs_spark(self, stored_bytes: int) -> bool:
        """Return whether work on this number of stored bytes runs in Spark."""
        return stored_bytes >= self.below

    def start_spark(self, stored_bytes: int) -> SparkSession:
        """Return the Spark session. `stored_bytes` only appears in an error.

        Raises:
            MissingSparkError: Java or Spark is missing.
            IncompleteError: The job was stopped.
        """
        began = self.clock()
        try:
            self.prepare_spark()
            started = self.session()
            self.used.starting_s += self.clock() - began
            return started  # noqa: TRY300
        except MissingSparkError as error:
            if not self.below:
                raise
            message = (
                f"{format_bytes(stored_bytes)} must be read, and jobs of {format_bytes(self.below)} or more run on "
                f"Spark (spec.spark.inProcessBelow). {error.message}"
            )
            raise MissingSparkError(message, hint=error.hint) from error


@dataclass(slots=True)
class Tasks:
    """Runs a job's tasks in threads, and from the first large pass on in Spark."""

    engine: Engine
    budget: Budget = field(default_factory=lambda: Budget(_count_own_cores()))
    _spark: SparkSession | None = None
    _cores: Cores | None = None

    @property
    def is_in_process(self) -> bool:
        """Whether tasks run in this process."""
        return self._spark is None

    @property
    def session(self) -> SparkSession | None:
        """Spark session; `None` if tasks run in this process."""
        return self._spark

    @property
    def cores(self) -> int:
        """Number of parallel tasks."""
        return _count_own_cores() if self._cores is None else self._cores.parallel_tasks

    @contextmanager
    def choose_engine(self, stored_bytes: int, words: str) -> Iterator[None]:
        """Choose threads or Spark by a number of bytes. `words` describe the work in Spark's UI."""
        if self._spark is None and not self.engine.needs_spark(stored_bytes):
            yield
            return
        if self._spark is None:
            self._spark = self.engine.start_spark(stored_bytes)
            self._cores = Cores(self._spark)
            self.budget = Budget(self._cores.parallel_tasks)
        with describe_stages(self._spark, words):
            yield

    def run(
        self, work: Sequence[T], do: Callable[[Sequence[T]], Iterable[R]], *, what: str
    ) -> tuple[list[R], ReconcilerError | None]:
        """Run work, several pieces per task; return the results and the first error."""
        used = self.engine.used
        if not work:
            return [], None
        if self._spark is not None:
            tasks = deal_to_tasks(work, self.cores)
            used.count_tasks(spark_tasks=len(tasks))
            try:
                return run_stage(self._spark, tasks, do, what=what)
            except RetryableError:
                if self.engine.is_stopped():  # Spark raises the same error for a cancelled and a failed stage.
                    return [], stopped_work_error(what)
                raise
        used.count_tasks(in_process=len(work))

        def in_thread(piece: T) -> list[R | TaskError]:
            return [TaskError(stopped_work_error(what))] if self.engine.is_stopped() else list(run_task(do, (piece,)))

        if len(work) == 1:
            return split_outcomes(in_thread(work[0]))
        with ThreadPoolExecutor(min(_MAX_THREADS, len(work)), thread_name_prefix="copy") as threads:
            return split_outcomes(outcome for outcomes in threads.map(in_thread, work) for outcome in outcomes)


def stopped_work_error(what: str) -> IncompleteError:
    """Return the error for stopped work."""
    hint = "Run the same command again: it continues."
    return IncompleteError(f"{what} was stopped before it finished", hint=hint)


def _count_own_cores() -> int:
    return os.cpu_count() or 1


class StoredWork(Costly, Protocol):
    """Work that reads a number of stored bytes."""

    @property
    def bytes(self) -> int:
        """Number of stored bytes to read."""
        ...


C = TypeVar("C", bound=StoredWork)


def run_rounds_in_spark(
    engine: Engine, work: Sequence[C], do: Callable[[Sequence[C]], Iterable[R]]
) -> Iterator[list[R]]:
    """Run work in Spark and yield each round's results, which the caller stores before the next round.

    Raises:
        IncompleteError: The work was stopped; yielded results are valid.
    """
    tasks = Tasks(engine)
    with tasks.choose_engine(sum(piece.bytes for piece in work), "reconciler: maintenance"):
        for taken in iter_rounds(work, tasks.budget):
            if engine.is_stopped():
                raise stopped_maintenance_error()
            began = engine.clock()
            results, error = tasks.run(taken, do, what="upkeep")
            yield results
            if error is not None:
                raise error
            tasks.budget.adapt(taken, engine.clock() - began, cores=tasks.cores)


def stopped_maintenance_error() -> IncompleteError:
    """Return the error for stopped maintenance."""
    return IncompleteError("maintenance was stopped; the work done so far stays", hint="The next run continues it.")
