"""A run that has begun and not closed, told to whoever only looks: whose it is, since when, how much is in doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import ReconcilerError
from reconciler.state.notices import doing_of
from reconciler.state.openrun import read_open_run
from reconciler.workflow.verdicts import counted

if TYPE_CHECKING:
    from reconciler.state.lockfile import LeaseEntry, Lockfile
    from reconciler.state.snapshots import Snapshot
    from reconciler.workflow.opening import Site


def warn_about_open_run(site: Site, snapshot: Snapshot | None) -> None:
    """Say in a line that a run is under way, or was left open; where none is, nothing is read for that."""
    lockfile = snapshot.lockfile if snapshot is not None else None
    if lockfile is None:
        return
    if lockfile.lease.status == "held":
        site.invocation.warn(_under_way(site, lockfile, lockfile.lease))
    elif lockfile.open_run is not None:
        site.invocation.warn(_left_open(site, lockfile))


def _under_way(site: Site, lockfile: Lockfile, lease: LeaseEntry) -> str:
    told = f"{lease.who} holds the lease since {lease.since}: {doing_of(site.state, lockfile)}; run {lease.run}"
    return f"{told}. What it does next may change what you see"


def _left_open(site: Site, lockfile: Lockfile) -> str:
    opened = lockfile.open_run.run if lockfile.open_run is not None else ""
    try:
        found = read_open_run(site.state, lockfile)
    except ReconcilerError as error:
        return f"run {opened} was left open, and what it did cannot be told: {error}"
    if found is None:
        return f"run {opened} has closed meanwhile"
    folded, file = found.folded(), found.file
    doubt = counted(len(folded.in_doubt), "action", "actions")
    return (
        f"run {file.run} of {file.who}, begun {file.started}, was left open: {doubt} in doubt, {len(folded.left)} not "
        "begun. `reconciler apply` settles it and goes on from the files, `reconciler apply --resume` finishes its plan"
    )
