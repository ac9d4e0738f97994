"""What Spark says when something fails, in our words."""

from __future__ import annotations

import re
from typing import Final

from reconciler.errors import ReconcilerError, RetryableError, UserError

_NOISE: Final = re.compile(r"^(WARNING|Using Spark|Setting default|To adjust|\s+at |Picked up )|^\s*$")
_ERROR: Final = re.compile(r"(?:Exception|Error)\b[^:\n]*: *(.+)")


def refused(what: str, error: Exception, *, said: str = "") -> ReconcilerError:
    """Return the error for a Spark that does not start; `said` is what its JVM printed."""
    hint = "Mend spec.spark in reconciler.yaml (master, remote, conf), or the Spark it names."
    return UserError(f"{what}: {_reason(said) or _reason(str(error))}", hint=hint)


def failed(what: str, error: Exception) -> ReconcilerError:
    """Return the error for a job that Spark gave up."""
    hint = "Run the same command again: it goes on from what is there. Should it fail again, look at Spark's own log."
    return RetryableError(f"{what} failed in Spark: {_reason(str(error))}", hint=hint)


def _reason(text: str) -> str:
    """Return the line that says why: the last of the causes, else the first that says anything."""
    lines = [line.strip() for line in text.splitlines() if not _NOISE.search(line)]
    causes = [found[1] for line in lines if (found := _ERROR.search(line))]
    chosen = causes[-1] if causes else (lines[0] if lines else "")
    return chosen.rstrip(".")
