"""What a pass of `run` did: every mirror, every job of every cluster, and what the exit code says of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reconciler.errors import IncompleteError, PartialError, ReconcilerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconciler.jobs.flows import Gained
    from reconciler.providers.keeping import Upkept
    from reconciler.resources.address import Address

_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Synced:
    """One mirror that was brought to its source's end, or the error that kept it from there."""

    address: Address
    records: int
    bytes: int
    seconds: float
    error: ReconcilerError | None = None
    partitions: Mapping[int, Gained] = field(default_factory=dict)
    """What those that were looked at got, and how far they are behind; the others have all that their source has."""

    @property
    def lag(self) -> int:
        """How many offsets it is behind, as last seen."""
        return sum(gained.lag for gained in self.partitions.values())

    @property
    def errors(self) -> tuple[ReconcilerError, ...]:
        """Return its error, as jobs have theirs."""
        return () if self.error is None else (self.error,)

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return self.address


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """One job on one cluster, or a look without which none can be done.

    `upkept` is what it did, `None` where nothing could be done; then there is an error.
    """

    job: str
    cluster: str
    seconds: float
    upkept: Upkept | None
    error: ReconcilerError | None = None

    @property
    def errors(self) -> tuple[ReconcilerError, ...]:
        """Return what failed, some of it where it is much."""
        found = () if self.upkept is None else self.upkept.errors
        return found if self.error is None else (*found, self.error)

    @property
    def failed(self) -> int:
        """Return how much failed."""
        return (0 if self.upkept is None else self.upkept.failed) + (self.error is not None)

    @property
    def name(self) -> str:
        """What it is called in messages, and in the events of its progress."""
        return f"{self.job}:{self.cluster}" if self.cluster else self.job


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Everything one pass did."""

    synced: tuple[Synced, ...]
    jobs: tuple[JobOutcome, ...]
    seconds: float
    is_stopped: bool = False
    """Whether somebody asked it to end before it was through."""
    left: Mapping[str, int] = field(default_factory=dict)
    """How many mirrors are in states in which nothing is copied, by state."""

    @property
    def outcomes(self) -> Sequence[Synced | JobOutcome]:
        """Return all of it, mirrors first."""
        return (*self.synced, *self.jobs)

    @property
    def verdict(self) -> ReconcilerError | None:
        """Return what the exit code says: all of it was done where there is none."""
        failed = [one for one in self.outcomes if one.errors]
        if self.is_stopped or any(isinstance(error, IncompleteError) for one in failed for error in one.errors):
            return IncompleteError("stopped: not everything was done", hint="Run it again.")
        if not failed:
            return None
        names = ", ".join(one.name for one in failed[:_NAMED]) + (" …" if failed[_NAMED:] else "")
        what = f"{len(failed)} of {len(self.outcomes)} failed: {names}"
        return PartialError(what, hint="Mend why, as told for each of them, then run it again.")
