"""Progress of jobs, and translation of Spark errors."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

from reconciler import errors
from reconciler.errors import ReconcilerError, RetryableError, UserError
from reconciler.runtime.dataclass import dataclass, field


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Progress of a job. Totals are estimates. Bytes are stored bytes."""

    records: int
    records_total: int
    bytes: int
    bytes_total: int
    seconds: float
    ends: Mapping[int, int] = field(default_factory=dict)
    partitions_done: int = 0
    partitions: int = 0

    @property
    def seconds_left(self) -> float | None:
        """Estimated remaining seconds; `None` if the rate is unknown."""
        if 0 < self.records_total <= self.records:
            return 0.0
        if self.bytes == 0 or self.bytes_total == 0:
            return None
        return max(0.0, self.seconds * (self.bytes_total - self.bytes) / self.bytes)


Report: TypeAlias = Callable[[JobProgress], None]


def ignore_progress(progress: JobProgress) -> None:
    """Do nothing: a report for callers without a display."""


@contextmanager
def shorten_worker_errors() -> Iterator[None]:
    """Make Spark's Python workers report a `ReconcilerError` without traceback."""
    try:
        yield
    except ReconcilerError:
        if "pyspark.worker_util" in sys.modules:  # This process is a Python worker of Spark, and ends with the error.
            os.environ.update(SPARK_HIDE_TRACEBACK="1")  # noqa: TID251 - PySpark reads it
        raise


_NOISE: Final = re.compile(
    r"^(WARNING|Using Spark|Setting default|To adjust|\s+at |Picked up |[\d/]+ [\d:]+ (WARN|INFO) )|^\s*$"
)
_OUR_ERROR: Final = re.compile(r"\breconciler\.errors\.(\w+Error): (.+)")
_ERROR: Final = re.compile(r"(?:Exception|Error)\b[^:\n]*: *(.+)")


def translate_start_error(what: str, error: Exception, *, output: str = "") -> ReconcilerError:
    """Return the error for a failed start of Spark. `output` is from Spark's JVM."""
    hint = "Correct spec.spark in reconciler.yaml (master, remote, conf), or the Spark it names."
    why = _extract_reason(output) or _extract_reason(str(error)) or type(error).__name__
    return UserError(f"{what}: {why}", hint=hint)


def translate_job_error(what: str, error: Exception) -> ReconcilerError:
    """Return the error for a failed job, with the hint of a `ReconcilerError` that caused the failure."""
    text = str(error)
    if ours := _OUR_ERROR.findall(text):
        name, words = ours[-1]
        message, _, hint = words.rstrip(".").partition(". ")
        kind = getattr(errors, name, UserError)
        kind_of_error = RetryableError if issubclass(kind, RetryableError) else UserError
        return kind_of_error(f"{what} failed: {message}", hint=f"{hint}.")
    hint = "Run the same command again: it continues. If it fails again, read Spark's own log."
    return RetryableError(f"{what} failed in Spark: {_extract_reason(text)}", hint=hint)


def _extract_reason(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if not _NOISE.search(line)]
    causes = [match[1] for line in lines if (match := _ERROR.search(line))]
    chosen = causes[-1] if causes else (lines[0] if lines else "")
    return chosen.rstrip(".")
