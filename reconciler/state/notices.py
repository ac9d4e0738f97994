"""What one who wants the lease is told: who holds it, since when and for what; whose it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from reconciler.state.runs import read_run

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.state.lockfile import Lockfile


@dataclass(frozen=True, slots=True)
class Waiting:
    """What one who waits can be told: who holds the lease, since when, and what they are doing."""

    run: str
    who: str
    since: str
    ci_url: str | None
    doing: str
    waited_s: float
    timeout_s: float

    def __str__(self) -> str:
        """Say it in one line."""
        where = f" ({self.ci_url})" if self.ci_url else ""
        held = f"the lease is held by {self.who}{where} since {self.since}: {self.doing}"
        return f"{held}; run {self.run}; waiting up to {self.timeout_s:.0f} s, {self.waited_s:.0f} s so far"


@dataclass(frozen=True, slots=True)
class TookOver:
    """Whose lease was taken over, and for how long it had shown no life."""

    run: str
    who: str
    silent_s: float

    def __str__(self) -> str:
        """Say it in one line."""
        return f"took over the lease of run {self.run} of {self.who}, silent for {self.silent_s:.0f} s"


Notice: TypeAlias = Waiting | TookOver


def doing_of(store: ObjectStore, lockfile: Lockfile) -> str:
    """Say what the holder of a lease is doing, as far as it has written that down."""
    opened, run = lockfile.open_run, lockfile.lease.run
    if opened is None:
        return "planning"
    if opened.run != run:
        return f"settling run {opened.run}, which was left open"
    known = read_run(store, opened.run)
    if known is None:
        return "applying"
    count = len(known.actions)
    return f"{known.command}, {count:,} action{'' if count == 1 else 's'}"
