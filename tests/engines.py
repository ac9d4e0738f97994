"""Where the jobs of tests run: in this process, however much there is to do, or in Spark, however little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconciler.jobs.stage import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def no_spark() -> Any:
    raise AssertionError("Spark was asked for")


def here(**options: Any) -> Engine:
    """Return the engine of jobs that run in this process."""
    return Engine(no_spark, **{"below": 1 << 40, **options})


def on(session: SparkSession, **options: Any) -> Engine:
    """Return the engine of jobs that run in Spark."""
    return Engine(lambda: session, **{"below": 0, **options})
