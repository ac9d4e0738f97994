"""What is recorded, read without a lock: the state, and what a run that has not closed has done since.

Whoever only looks sees what the next apply will have settled before it plans: what the journal says is done, and what
was in doubt and is found on the clusters. Nothing is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.planning.settle import settle
from reconciler.state.entries import ActionEnded
from reconciler.state.openrun import read_open_run
from reconciler.state.snapshots import read_snapshot
from reconciler.workflow.looking.bursts import burst
from reconciler.workflow.looking.openruns import open_run_notice, unreadable_notice

if TYPE_CHECKING:
    from reconciler.planning.actions import Action
    from reconciler.resources.inventory import Record
    from reconciler.state.openrun import Unfinished
    from reconciler.state.snapshots import Snapshot
    from reconciler.workflow.beginning.opening import Site
    from reconciler.workflow.looking.observing import Seen


@dataclass(frozen=True, slots=True)
class Remembered:
    """The state as it is, and the run that has begun and not closed."""

    snapshot: Snapshot | None = None
    unfinished: Unfinished | None = None
    in_doubt: tuple[Action, ...] = field(default=())
    """What that run had begun and not ended."""
    unreadable: UserError | None = None
    """Why nobody can tell what an open run did: something of its files is missing or damaged."""

    @property
    def has_open_run(self) -> bool:
        """Tell whether a run has begun and not closed, be its files readable or not."""
        lockfile = self.snapshot.lockfile if self.snapshot else None
        return lockfile is not None and lockfile.open_run is not None

    @property
    def record(self) -> Record:
        """What we last applied and own, as far as it is written."""
        if self.unfinished is not None:
            return self.unfinished.folded().record
        return self.snapshot.record if self.snapshot else {}

    def settled(self, seen: Seen) -> Record:
        """Return the record after what was in doubt and is found done where clusters were read."""
        if self.unfinished is None:
            return self.record
        ended = []
        for action in self.in_doubt:
            platform = seen.capabilities.get(action.cluster or "")
            if platform is not None:
                found = settle(action, seen.inventory, platform.configs)
                if found.verdict == "done":
                    ended.append(
                        ActionEnded(id=action.id, incarnation=found.incarnation, physical_name=found.physical_name)
                    )
        return self.unfinished.folded(further=ended).record


def remember(site: Site) -> Remembered:
    """Return what is recorded, and warn of a run that is open: two reads, and those of its files. Writes nothing.

    Raises:
        UserError: The state is another workspace's, lost or damaged.
    """
    with burst():
        snapshot = read_snapshot(site.state, owner=site.owner)
        lockfile = snapshot.lockfile if snapshot is not None else None
        if lockfile is None:
            return Remembered(snapshot)
        try:
            unfinished = read_open_run(site.state, lockfile)
        except UserError as error:
            site.invocation.warn(unreadable_notice(lockfile, error))
            return Remembered(snapshot, unreadable=error)
        notice = open_run_notice(site.state, lockfile, unfinished)
    if notice is not None:
        site.invocation.warn(notice)
    return Remembered(snapshot, unfinished, unfinished.folded().in_doubt if unfinished else ())
