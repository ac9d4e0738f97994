"""Notes for whoever looks at a run from outside: what was asked, how long it took, who won a race.

Each layer has a logger of its name and notes facts: numbers, keys, names. Never contents, never secrets. Where nobody
listens (`--verbose`) a note costs one comparison.
"""

from __future__ import annotations

import logging
from time import perf_counter

__all__ = ["is_noted", "ms_since", "note", "now"]

now = perf_counter


def is_noted(logger: logging.Logger) -> bool:
    """Tell whether anybody listens."""
    return logger.isEnabledFor(logging.DEBUG)


def note(logger: logging.Logger, message: str, /, **facts: object) -> None:
    """Note that something happened, and the facts of it."""
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug(message, extra={"facts": facts})


def ms_since(began: float) -> float:
    """Return how many ms have passed since a reading of `now`."""
    return round((perf_counter() - began) * 1000, 3)
