"""Run work as Spark stages, or in threads where it is small.

The tasks read and write on their own; records never enter the JVM. `spark.range(0, n, 1, n).mapInArrow(…)` gives one
task to each piece of work, without a shuffle, over Spark Connect too.
"""

from __future__ import annotations

import logging
import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from reconciler.errors import IncompleteError, ReconcilerError, RetryableError
from reconciler.jobs.flows import MIB, Budget, Costly, rounds, tasks_of
from reconciler.jobs.progress import failed
from reconciler.runtime.effects import ms_since, note, now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession


W = TypeVar("W")
R = TypeVar("R")

_LOGGER: Final = logging.getLogger("reconciler.jobs")

JOB_GROUP: Final = "reconciler"
"""What every stage of ours belongs to, so that it can be cancelled."""
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
                outcomes = [pickle.dumps(outcome) for outcome in attempt(do, tasks[index])]
                yield pa.RecordBatch.from_arrays([pa.array(outcomes, pa.binary())], schema=_OUTCOME)

    ranges = session.range(0, len(tasks), 1, len(tasks))
    began = now()
    try:
        rows = ranges.mapInArrow(in_task, "outcome binary").collect()
    except Exception as trouble:
        note(_LOGGER, "stage", what=what, tasks=len(tasks), trouble=type(trouble).__name__, ms=ms_since(began))
        raise failed(what, trouble) from trouble
    # What is unpickled was pickled by `in_task`, in a session that is ours.
    found = [pickle.loads(row.outcome) for row in rows]  # noqa: S301
    done, error = told_apart(found)
    note(_LOGGER, "stage", what=what, tasks=len(tasks), refused=error is not None, ms=ms_since(began))
    return done, error


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

LITTLE_BYTES: Final = 64 * MIB
"""What is copied without Spark: a fraction of a second here, where a JVM takes seconds to start."""
_AT_ONCE: Final = 16
"""Threads: they wait for stores and disks."""


@dataclass(slots=True)
class Tasks:
    """How a job runs its tasks. `session` starts Spark, or returns it where it runs; little work never asks."""

    session: Callable[[], SparkSession]
    is_stopped: Callable[[], bool] = lambda: False
    little_bytes: int = LITTLE_BYTES
    budget: Budget = field(default_factory=lambda: Budget(_own_cores()))
    """How much a round may cost."""
    _spark: SparkSession | None = None
    _cores: Cores | None = None

    @property
    def is_here(self) -> bool:
        """Whether tasks run in this process."""
        return self._spark is None

    @property
    def cores(self) -> int:
        """How many tasks run side by side."""
        return _own_cores() if self._cores is None else self._cores.now

    @contextmanager
    def over(self, stored_bytes: int, words: str) -> Iterator[None]:
        """Be ready for work on so many bytes; in Spark's own UI it is called `words`."""
        if self._spark is None and stored_bytes <= self.little_bytes:
            yield
            return
        if self._spark is None:
            self._spark = self.session()
            self._cores = Cores(self._spark)
            self.budget = Budget(self._cores.now)
        with described(self._spark, words):
            yield

    def run(
        self, work: Sequence[T], do: Callable[[Sequence[T]], Iterable[R]], *, what: str
    ) -> tuple[list[R], ReconcilerError | None]:
        """Do work, several pieces a task; return what came of it, and the first error where there was one.

        Raises:
            RetryableError: Spark gave up.
        """
        if self._spark is not None:
            return run_stage(self._spark, tasks_of(work, self.cores), do, what=what)

        def in_thread(piece: T) -> list[R | Refused]:
            return [] if self.is_stopped() else list(attempt(do, (piece,)))

        if len(work) == 1:
            return told_apart(in_thread(work[0]))
        with ThreadPoolExecutor(min(_AT_ONCE, len(work)), thread_name_prefix="copy") as threads:
            return told_apart(outcome for found in threads.map(in_thread, work) for outcome in found)


def _own_cores() -> int:
    return os.cpu_count() or 1


# Work on many partitions in few stages: dealt out to tasks by what it costs, its results handed back in rounds.


C = TypeVar("C", bound=Costly)


def spread(
    session: SparkSession,
    work: Sequence[C],
    do: Callable[[Sequence[C]], Iterable[R]],
    *,
    is_stopped: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[list[R]]:
    """Do work in Spark and yield what came of each round, to be made durable before the next begins.

    Thousands of small pieces are one stage: a task gets as many as are worth it. `do` and the work are pickled.

    Raises:
        IncompleteError: It was stopped; what was yielded stands.
        ReconcilerError: A task was refused, or Spark gave up.
    """
    cores = Cores(session)
    budget = Budget(cores.now)
    with described(session, "reconciler: upkeep"):
        for taken in rounds(work, budget):
            if is_stopped():
                raise _stopped()
            began = clock()
            try:
                found, error = run_stage(session, tasks_of(taken, cores.now), do, what="upkeep")
            except RetryableError as failure:
                # A cancelled stage looks like a failed one.
                raise (_stopped() if is_stopped() else failure) from failure
            yield found
            if error is not None:
                raise error
            budget.learn(taken, clock() - began, cores=cores.now)


def _stopped() -> IncompleteError:
    return IncompleteError("upkeep was stopped; what is published stays", hint="The next run continues it.")
