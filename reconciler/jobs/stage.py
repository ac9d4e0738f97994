"""Run work as Spark stages, or in threads where it is small.

The tasks read and write on their own; records never enter the JVM. `spark.range(0, n, 1, n).mapInArrow(…)` gives one
task to each piece of work, without a shuffle, over Spark Connect too.
"""

from __future__ import annotations

import logging
import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import pyarrow as pa

from reconciler.errors import IncompleteError, MissingSparkError, ReconcilerError, RetryableError
from reconciler.jobs.flows import Budget, Costly, rounds, tasks_of
from reconciler.jobs.progress import failed
from reconciler.resources.workspace import IN_PROCESS_BELOW
from reconciler.runtime.effects import ms_since, note, now
from reconciler.runtime.text import bytes_text
from reconciler.runtime.threads import seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


W = TypeVar("W")
R = TypeVar("R")

_LOGGER: Final = logging.getLogger("reconciler.jobs")

JOB_GROUP: Final = "reconciler"
"""What every stage of ours belongs to, so that it can be cancelled."""
OUTCOME: Final = "outcome binary"
_OUTCOME: Final = pa.schema([pa.field("outcome", pa.binary(), nullable=False)])


@dataclass(frozen=True, slots=True)
class Refused:
    """An error of ours on its way back: Spark would hand on only its text."""

    error: ReconcilerError


def run_stage(
    session: SparkSession, work: Sequence[W], do: Callable[[W], Iterable[R]], *, what: str
) -> tuple[list[R], ReconcilerError | None]:
    """Do every piece of work in a task of its own; return what came of it, and the first error where there was one.

    `do` and the work are pickled. A task that raises an error of ours ends with it and is not tried again.

    Raises:
        RetryableError: Spark gave up.
    """
    tasks = tuple(work)

    def in_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield outcomes_of(attempt(do, tasks[index]))

    ranges = session.range(0, len(tasks), 1, len(tasks))
    began = now()
    try:
        rows = ranges.mapInArrow(in_task, OUTCOME).collect()
    except Exception as trouble:
        note(_LOGGER, "stage", what=what, tasks=len(tasks), trouble=type(trouble).__name__, ms=ms_since(began))
        raise failed(what, trouble) from trouble
    done, error = told_apart(outcomes_in(rows))
    note(_LOGGER, "stage", what=what, tasks=len(tasks), refused=error is not None, ms=ms_since(began))
    return done, error


def outcomes_of(outcomes: Iterable[object]) -> pa.RecordBatch:
    """Return what came of a task as rows that Spark brings to the driver."""
    return pa.RecordBatch.from_arrays([pa.array(map(pickle.dumps, outcomes), pa.binary())], schema=_OUTCOME)


def outcomes_in(rows: Iterable[Any]) -> list[Any]:
    """Return what came of tasks, from those rows."""
    # What is unpickled was pickled by `outcomes_of`, in a session that is ours.
    return [pickle.loads(row.outcome) for row in rows]  # noqa: S301


def told_apart(outcomes: Iterable[R | Refused]) -> tuple[list[R], ReconcilerError | None]:
    """Return what came of tasks, and the first error where there was one."""
    done: list[R] = []
    error: ReconcilerError | None = None
    for outcome in outcomes:
        if isinstance(outcome, Refused):
            error = error or outcome.error
        else:
            done.append(outcome)
    return done, error


def attempt(do: Callable[[W], Iterable[R]], task: W) -> Iterator[R | Refused]:
    """Yield what comes of a task, an error of ours as the last."""
    try:
        yield from do(task)
    except ReconcilerError as error:
        yield Refused(error)


class Cores:
    """How many tasks run side by side; executors come and go while a job runs."""

    def __init__(self, session: SparkSession) -> None:
        """Ask when asked."""
        self._session = session
        self._counted: int | None = None

    @property
    def now(self) -> int:
        """Return the number at this moment."""
        if not _is_remote(self._session):
            return int(self._session.sparkContext.defaultParallelism)
        if self._counted is None:
            # A Connect server does not tell; a range without a number of parts gets one a core.
            self._counted = int(self._session.range(0, 1 << 16).mapInArrow(_once, "seen long").count())
        return self._counted


def _once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"seen": [sum(batch.num_rows for batch in batches)]})


@contextmanager
def described(session: SparkSession, words: str) -> Iterator[None]:
    """Say in Spark's own UI what the stages of this block are for."""
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


# Where the tasks of a copy run: in threads of this process while there is little to do, else in Spark.
#
# Starting a JVM takes longer than copying what is little. Where parts are copied as they are, the kernel or the store
# moves the bytes, and threads wait as well as executors do.


T = TypeVar("T", bound="Costly")

_AT_ONCE: Final = 16
"""Threads: they wait for stores and disks."""


@dataclass(slots=True)
class Used:
    """Where tasks ran so far. Safe to share between threads."""

    spark_tasks: int = 0
    here: int = 0
    """Tasks that ran in threads of this process."""
    starting_s: float = 0.0
    """How long was waited for Spark to start."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def count(self, *, spark_tasks: int = 0, here: int = 0) -> None:
        """Add tasks that are about to run."""
        with self._lock:
            self.spark_tasks += spark_tasks
            self.here += here


@dataclass(frozen=True, slots=True)
class Engine:
    """Where one job runs, who may stop it, and what has run. `session` starts Spark, or returns it where it runs."""

    session: Callable[[], SparkSession]
    is_stopped: Callable[[], bool] = lambda: False
    below: int = IN_PROCESS_BELOW
    """Stored bytes. Less than that is done in threads of this process, without Spark; of 0, all runs in Spark."""
    clock: Callable[[], float] = seconds
    used: Used = field(default_factory=Used)

    def starts_spark(self, stored_bytes: int) -> bool:
        """Tell whether work on so many bytes runs in Spark."""
        return stored_bytes >= self.below

    def spark(self, stored_bytes: int) -> SparkSession:
        """Return Spark for work on so many bytes.

        Raises:
            MissingSparkError: Java or Spark are not there; says how many bytes made them necessary.
            IncompleteError: It was stopped.
        """
        began = self.clock()
        try:
            found = self.session()
            self.used.starting_s += self.clock() - began
            return found  # noqa: TRY300 - what follows is about errors
        except MissingSparkError as error:
            if not self.below:
                raise
            message = (
                f"{bytes_text(stored_bytes)} are to be read, and {bytes_text(self.below)} or more run on Spark "
                f"(spec.spark.inProcessBelow). {error.message}"
            )
            raise MissingSparkError(message, hint=error.hint) from error


@dataclass(slots=True)
class Tasks:
    """How a job runs its tasks: in threads of this process, and in Spark from the first pass that is large enough."""

    engine: Engine
    budget: Budget = field(default_factory=lambda: Budget(_own_cores()))
    """How much a round may cost."""
    _spark: SparkSession | None = None
    _cores: Cores | None = None

    @property
    def is_here(self) -> bool:
        """Whether tasks run in this process."""
        return self._spark is None

    @property
    def session(self) -> SparkSession | None:
        """Return Spark; `None`: tasks run in this process."""
        return self._spark

    @property
    def cores(self) -> int:
        """How many tasks run side by side."""
        return _own_cores() if self._cores is None else self._cores.now

    @contextmanager
    def over(self, stored_bytes: int, words: str) -> Iterator[None]:
        """Be ready for work on so many bytes; in Spark's own UI it is called `words`."""
        if self._spark is None and not self.engine.starts_spark(stored_bytes):
            yield
            return
        if self._spark is None:
            self._spark = self.engine.spark(stored_bytes)
            self._cores = Cores(self._spark)
            self.budget = Budget(self._cores.now)
        with described(self._spark, words):
            yield

    def run(
        self, work: Sequence[T], do: Callable[[Sequence[T]], Iterable[R]], *, what: str
    ) -> tuple[list[R], ReconcilerError | None]:
        """Do work, several pieces a task; return what came of it, and the first error where there was one.

        What is left out because it was stopped is an error, too.

        Raises:
            RetryableError: Spark gave up.
        """
        used = self.engine.used
        if not work:
            return [], None
        if self._spark is not None:
            tasks = tasks_of(work, self.cores)
            used.count(spark_tasks=len(tasks))
            try:
                return run_stage(self._spark, tasks, do, what=what)
            except RetryableError:
                if self.engine.is_stopped():  # A cancelled stage looks like a failed one.
                    return [], left_out(what)
                raise
        used.count(here=len(work))

        def in_thread(piece: T) -> list[R | Refused]:
            return [Refused(left_out(what))] if self.engine.is_stopped() else list(attempt(do, (piece,)))

        if len(work) == 1:
            return told_apart(in_thread(work[0]))
        with ThreadPoolExecutor(min(_AT_ONCE, len(work)), thread_name_prefix="copy") as threads:
            return told_apart(outcome for found in threads.map(in_thread, work) for outcome in found)


def left_out(what: str) -> IncompleteError:
    """Return the error of work that was stopped."""
    hint = "Run the same command again: it goes on from what is there."
    return IncompleteError(f"{what} was stopped before its end", hint=hint)


def _own_cores() -> int:
    return os.cpu_count() or 1


# Work on many partitions in few stages: dealt out to tasks by what it costs, its results handed back in rounds.


class Stored(Costly, Protocol):
    """A piece of work that says how many stored bytes it reads."""

    @property
    def bytes(self) -> int:
        """Return them."""
        ...


C = TypeVar("C", bound=Stored)


def spread(engine: Engine, work: Sequence[C], do: Callable[[Sequence[C]], Iterable[R]]) -> Iterator[list[R]]:
    """Do work in Spark and yield what came of each round, to be made durable before the next begins.

    Thousands of small pieces are one stage: a task gets as many as are worth it. `do` and the work are pickled.

    Raises:
        IncompleteError: It was stopped; what was yielded stands.
        ReconcilerError: A task was refused, or Spark gave up.
    """
    tasks = Tasks(engine)
    with tasks.over(sum(each.bytes for each in work), "reconciler: upkeep"):
        for taken in rounds(work, tasks.budget):
            if engine.is_stopped():
                raise stopped()
            began = engine.clock()
            found, error = tasks.run(taken, do, what="upkeep")
            yield found
            if error is not None:
                raise error
            tasks.budget.learn(taken, engine.clock() - began, cores=tasks.cores)


def stopped() -> IncompleteError:
    """Return the error of upkeep that was asked to end."""
    return IncompleteError("upkeep was stopped; what is published stays", hint="The next run continues it.")
