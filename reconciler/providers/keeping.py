"""Upkeep of a platform: what a pass is given, and what it says it did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from reconciler.errors import ReconcilerError
from reconciler.resources.address import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


W = TypeVar("W", bound="Costly")
R = TypeVar("R")


class Costly(Protocol):
    """A piece of work that says about how much it costs, in bytes."""

    @property
    def cost(self) -> int:
        """Return it."""
        ...


class Spread(Protocol):
    """Does much work on executors and yields what came of it in rounds: it takes seconds to begin."""

    def __call__(self, work: Sequence[W], do: Callable[[Sequence[W]], Iterable[R]]) -> Iterator[Sequence[R]]:
        """Do all of it; `do` and the work are pickled, and what is asked for in between is published by the caller.

        Raises:
            ReconcilerError: It cannot go on; what was yielded stands.
        """
        ...


@dataclass(frozen=True, slots=True)
class Means:
    """What upkeep of a cluster is given beside the cluster."""

    spread: Spread
    is_wanted: Callable[[Address], bool]
    """Which topics and mirrors it may touch."""
    is_stopped: Callable[[], bool]
    is_asked: bool = True
    """Whether somebody waits for it; otherwise what is expensive to look for is looked for now and then."""
    is_named: bool = False
    """Whether somebody named the jobs to do: what is due once a day is done at once."""


@dataclass(frozen=True, slots=True)
class Upkept:
    """What one job of upkeep did on one cluster. `done` counts `unit`s: partitions, topics, transactions, objects."""

    unit: str
    done: int = 0
    records: int = 0
    """Removed, or written anew where the job removes nothing; `bytes` likewise, stored bytes."""
    bytes: int = 0
    failed: int = 0
    errors: tuple[ReconcilerError, ...] = ()
    """Some of what failed; the rest was done."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What it did with object storage, by the names of `vitals.COUNTED`."""
    levels: Mapping[str, float] = field(default_factory=dict)
    """What holds after it, by the names of `vitals.LEVELS`."""
