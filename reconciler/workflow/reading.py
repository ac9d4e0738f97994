"""Reading the state without a lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.state.lockfile import Owner
from reconciler.state.snapshots import Snapshot, read_snapshot

if TYPE_CHECKING:
    from reconciler.workflow.opening import Work


def owner_of(work: Work) -> Owner:
    """Return whose state it must be."""
    return Owner(work.loaded.workspace.metadata.name, work.select.environment)


def read_state(work: Work) -> Snapshot | None:
    """Return what we last applied and own; `None` where nothing ever was. Writes nothing.

    Raises:
        UserError: The state is another workspace's, lost or damaged.
    """
    return read_snapshot(work.state, owner=owner_of(work))
