"""How far the state went since a plan was made on it, and which run took it there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.state.runs import read_run

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.state.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class StateAdvance:
    """The state is another than a plan was approved on; of the last run what its `run.json` says, if it is there."""

    approved: int
    now: int
    run: str | None = None
    command: str | None = None
    who: str | None = None
    started: str | None = None

    def __str__(self) -> str:
        """Say it in one sentence."""
        by = f", last by run {self.run}" if self.run else ""
        what = f" ({', '.join(part for part in (self.command, self.who, self.started) if part)})" if self.who else ""
        return f"the state went from #{self.approved} to #{self.now} since the plan was approved{by}{what}"


def advance_since(approved: tuple[int, str], snapshot: Snapshot, store: ObjectStore) -> StateAdvance | None:
    """Return how far the state went from the serial and sha256 that were approved; `None` where it is the same."""
    serial, _ = approved
    if approved == (snapshot.serial, snapshot.sha256):
        return None
    run = read_run(store, snapshot.run) if snapshot.run else None
    if run is None:
        return StateAdvance(serial, snapshot.serial, snapshot.run or None)
    return StateAdvance(serial, snapshot.serial, run.run, run.command, run.who, run.started)
