"""What an interrupted run had begun and not ended: nobody may call that drift before it is settled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.state.lockfile import KEY
from reconciler.workflow.drifting.finding import Found, fingerprint_of
from reconciler.workflow.looking.openruns import unreadable_notice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.address import Address
    from reconciler.state.lockfile import Lockfile
    from reconciler.workflow.looking.remembering import Remembered


def doubts(store: ObjectStore, remembered: Remembered, is_looked_at: Callable[[Address], bool]) -> tuple[Found, ...]:
    """Return what is in doubt; nothing while its run goes on, for what it does next cannot be told from outside."""
    unfinished, snapshot = remembered.unfinished, remembered.snapshot
    lockfile = snapshot.lockfile if snapshot is not None else None
    if unfinished is None or lockfile is None or is_renewed(store, lockfile):
        return ()
    file = unfinished.file
    return tuple(
        Found(
            "in doubt",
            action.address,
            f"run {file.run} of {file.who} began to {action.verb} it, and whether it did is not written",
            fingerprint_of("in doubt", action.address, [file.run, action.id]),
        )
        for action in remembered.in_doubt
        if is_looked_at(action.address)
    )


def unreadable(store: ObjectStore, remembered: Remembered) -> UserError | None:
    """Return that nobody can tell what an open run did; nothing while it goes on, for its files are on their way."""
    lockfile = remembered.snapshot.lockfile if remembered.snapshot is not None else None
    why = remembered.unreadable
    if why is None or lockfile is None or is_renewed(store, lockfile):
        return None
    return UserError(unreadable_notice(lockfile, why), hint=why.hint)


def without_doubtful(findings: Sequence[Found], doubtful: Sequence[Found]) -> tuple[Found, ...]:
    """Return all findings, those in doubt first: what differs at their addresses may be what that run did."""
    addresses = {found.address for found in doubtful}
    return (*doubtful, *(found for found in findings if found.address not in addresses))


def is_renewed(store: ObjectStore, lockfile: Lockfile) -> bool:
    """Tell whether a lease is held by somebody who was there within its length, by the store's own clock.

    A guess for people: whoever wants the lease watches it for as long as it lasts.
    """
    lease = lockfile.lease
    if lease.status != "held":
        return False
    row = next((listed for listed in store.list(KEY) if listed.key == KEY), None)
    return row is not None and store.clock_ms() - row.modified_ms <= lease.lease_s * 1000
