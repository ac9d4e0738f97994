"""Where the tasks of a copy run: in threads of this process while there is little to do, else in Spark.

Starting a JVM takes longer than copying what is little. Where parts are copied as they are, the kernel or the store
moves the bytes, and threads wait as well as executors do.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from reconciler.jobs.ranges import MIB, Budget, tasks_of
from reconciler.jobs.stage import Cores, Refused, attempt, described, run_stage, told_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from reconciler.errors import ReconcilerError
    from reconciler.jobs.ranges import Costly

W = TypeVar("W", bound="Costly")
R = TypeVar("R")

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
        self, work: Sequence[W], do: Callable[[Sequence[W]], Iterable[R]], *, what: str
    ) -> tuple[list[R], ReconcilerError | None]:
        """Do work, several pieces a task; return what came of it, and the first error where there was one.

        Raises:
            RetryableError: Spark gave up.
        """
        if self._spark is not None:
            return run_stage(self._spark, tasks_of(work, self.cores), do, what=what)

        def in_thread(piece: W) -> list[R | Refused]:
            return [] if self.is_stopped() else list(attempt(do, (piece,)))

        if len(work) == 1:
            return told_apart(in_thread(work[0]))
        with ThreadPoolExecutor(min(_AT_ONCE, len(work)), thread_name_prefix="copy") as threads:
            return told_apart(outcome for found in threads.map(in_thread, work) for outcome in found)


def _own_cores() -> int:
    return os.cpu_count() or 1
