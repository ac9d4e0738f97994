"""A state that was put back from a backup, told to whoever only looks: they take no lease, which would refuse it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.state.outdated import find_outdated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.state.lockfile import Lockfile
    from reconciler.state.snapshots import SnapshotRow
    from reconciler.workflow.beginning.opening import Site


def warn_of_outdated(site: Site, lockfile: Lockfile | None, rows: Sequence[SnapshotRow] | None = None) -> None:
    """Warn where the lockfile is surely an old copy. One LIST, unless `rows` is what it returned."""
    outdated = find_outdated(site.state, lockfile, rows) if lockfile is not None else None
    if outdated is not None:
        site.invocation.warn(f"{outdated}. What was applied since is not known here; mend it: reconciler state repair")
