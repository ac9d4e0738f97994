"""Work on many partitions in few stages: dealt out to tasks by what it costs, its results handed back in rounds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from reconciler.errors import IncompleteError, RetryableError
from reconciler.jobs.ranges import Budget, Costly, rounds, tasks_of
from reconciler.jobs.stage import Cores, described, run_stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

W = TypeVar("W", bound=Costly)
R = TypeVar("R")


def spread(
    session: SparkSession,
    work: Sequence[W],
    do: Callable[[Sequence[W]], Iterable[R]],
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
    return IncompleteError("upkeep was stopped; what is published stays", hint="The next run goes on with it.")
