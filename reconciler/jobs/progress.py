"""Progress of a job, and errors of Spark in our words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from reconciler import errors
from reconciler.errors import ReconcilerError, RetryableError, UserError


@dataclass(frozen=True, slots=True)
class JobProgress:
    """What is done of what there is to do; totals are estimates. Bytes are stored bytes."""

    records: int
    records_total: int
    bytes: int
    bytes_total: int
    seconds: float
    """Since the job began to move records."""
    ends: Mapping[int, int] = field(default_factory=dict)
    """Where each partition that gained last now ends."""
    partitions_done: int = 0
    """How many partitions have all that they are to get."""
    partitions: int = 0
    """How many there are; 0 where the job does not go by partitions."""

    @property
    def seconds_left(self) -> float | None:
        """How long it will take at this rate; `None` until a rate is known.

        Stored bytes are estimates; where every record is there, they say nothing any more.
        """
        if 0 < self.records_total <= self.records:
            return 0.0
        if self.bytes == 0 or self.bytes_total == 0:
            return None
        return max(0.0, self.seconds * (self.bytes_total - self.bytes) / self.bytes)


Report: TypeAlias = Callable[[JobProgress], None]


def unseen(progress: JobProgress) -> None:
    """Report to nobody."""


# What Spark says when something fails, in our words.


_NOISE: Final = re.compile(
    r"^(WARNING|Using Spark|Setting default|To adjust|\s+at |Picked up |[\d/]+ [\d:]+ (WARN|INFO) )|^\s*$"
)
_OURS: Final = re.compile(r"\breconciler\.errors\.(\w+Error): (.+)")
_ERROR: Final = re.compile(r"(?:Exception|Error)\b[^:\n]*: *(.+)")


def refused(what: str, error: Exception, *, said: str = "") -> ReconcilerError:
    """Return the error for a Spark that does not start; `said` is what its JVM printed."""
    hint = "Correct spec.spark in reconciler.yaml (master, remote, conf), or the Spark it names."
    why = _reason(said) or _reason(str(error)) or type(error).__name__
    return UserError(f"{what}: {why}", hint=hint)


def failed(what: str, error: Exception) -> ReconcilerError:
    """Return the error for a job that failed in Spark; the cause gives its hint where it is an error of ours."""
    said = str(error)
    if ours := _OURS.findall(said):
        name, words = ours[-1]
        message, _, hint = words.rstrip(".").partition(". ")
        kind = getattr(errors, name, UserError)
        found = RetryableError if issubclass(kind, RetryableError) else UserError
        return found(f"{what} failed: {message}", hint=f"{hint}.")
    hint = "Run the same command again: it goes on from what is there. Should it fail again, look at Spark's own log."
    return RetryableError(f"{what} failed in Spark: {_reason(said)}", hint=hint)


def _reason(text: str) -> str:
    """Return the line that says why: the last of the causes, else the first that says anything."""
    lines = [line.strip() for line in text.splitlines() if not _NOISE.search(line)]
    causes = [found[1] for line in lines if (found := _ERROR.search(line))]
    chosen = causes[-1] if causes else (lines[0] if lines else "")
    return chosen.rstrip(".")
