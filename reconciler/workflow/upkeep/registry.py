"""The jobs of `run`, in the order in which a pass does them."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from reconciler.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

MIRROR: Final = "mirror"
OF_CLUSTERS: Final = (
    "migrations",
    "deletions",
    "disablings",
    "recoveries",
    "rewrites",
    "transactions",
    "roll",
    "upload",
    "retention",
    "compact",
    "merge",
    "scrub",
    "sweep",
)
"""What a platform does to itself; one that has no such job leaves it out. What was just uploaded may leave at once,
and what was unmounted is deleted here."""
JOBS: Final = (MIRROR, *OF_CLUSTERS)


def chosen(only: Sequence[str]) -> tuple[str, ...]:
    """Return the jobs to do, in order; nothing named is all of them.

    Raises:
        UsageError: There is no such job.
    """
    for name in only:
        if name not in JOBS:
            near = get_close_matches(name, JOBS, n=1)
            meant = f"Did you mean {near[0]}? " if near else ""
            raise UsageError(f"there is no job {name!r}", hint=f"{meant}Jobs: {', '.join(JOBS)}.")
    return tuple(name for name in JOBS if not only or name in only)
