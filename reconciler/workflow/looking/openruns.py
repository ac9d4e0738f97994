"""A run that has begun and not closed, told to whoever only looks: whose it is, since when, how much is in doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from reconciler.state.notices import doing_of
from reconciler.workflow.counting import counted

if TYPE_CHECKING:
    from reconciler.errors import UserError
    from reconciler.objectstore.base import ObjectStore
    from reconciler.state.lockfile import LeaseEntry, Lockfile
    from reconciler.state.openrun import Unfinished


def open_run_notice(store: ObjectStore, lockfile: Lockfile, unfinished: Unfinished | None) -> str | None:
    """Return a line about a run that is under way or was left open; `None` where none is."""
    if lockfile.lease.status == "held":
        return _under_way(store, lockfile, lockfile.lease)
    return _left_open(unfinished) if unfinished is not None else None


def unreadable_notice(lockfile: Lockfile, why: UserError) -> str:
    """Return a line about an open run whose files cannot be read."""
    opened = lockfile.open_run.run if lockfile.open_run is not None else ""
    return f"run {opened} was left open, and what it did cannot be told: {why}"


def _under_way(store: ObjectStore, lockfile: Lockfile, lease: LeaseEntry) -> str:
    told = f"{lease.who} holds the lease since {lease.since}: {doing_of(store, lockfile)}; run {lease.run}"
    return f"{told}. What it does next may change what you see"


def _left_open(found: Unfinished) -> str:
    file = found.file
    return f"run {file.run} of {file.who}, begun {file.started}, {_parted(found)}. {_what_next(found)}"


def _parted(found: Unfinished) -> str:
    """Say how it came to be open; doubt only where there is some."""
    stands = found.folded()
    doubt = f"{counted(len(stands.in_doubt), 'action', 'actions')} in doubt" if stands.in_doubt else ""
    left = f"{counted(len(stands.left), 'action', 'actions')} not begun" if stands.left else ""
    told = ", ".join(each for each in (doubt, left) if each) or "nothing of it is left"
    match found.parting:
        case "stopped":
            return f"was stopped: {told}"
        case "detached":
            return f"left what follows to others: {told}"
        case None:
            return f"was left open: {told}"
        case _:
            assert_never(found.parting)


def _what_next(found: Unfinished) -> str:
    """Say what goes on from there: only a plan of files can be finished."""
    if found.file.options is None:
        return f"`reconciler apply` settles it; then `{found.file.command}` can be given again"
    return "`reconciler apply` settles it and goes on from the files, `reconciler apply --resume` finishes its plan"
