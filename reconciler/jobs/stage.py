"""One Spark stage over work that is described by small objects: each task does some and returns small objects.

The tasks read and write on their own; records never enter the JVM. `spark.range(0, n, 1, n).mapInArrow(…)` gives one
task to each piece of work, without a shuffle, over Spark Connect too.
"""

from __future__ import annotations

import logging
import pickle
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from reconciler.errors import ReconcilerError
from reconciler.jobs.faults import failed
from reconciler.noting import ms_since, note, now

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
