"""Reading the state without a lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.state.snapshots import Snapshot, read_snapshot
from reconciler.workflow.looking.bursts import burst

if TYPE_CHECKING:
    from reconciler.workflow.beginning.opening import Site


def read_state(site: Site) -> Snapshot | None:
    """Return what we last applied and own; `None` where nothing ever was. Writes nothing.

    Raises:
        UserError: The state is another workspace's, lost or damaged.
    """
    with burst():
        return read_snapshot(site.state, owner=site.owner)
