"""Tell a lockfile that was put back from a backup: by what was committed since, as far as a LIST of states shows it.

Looking further costs nothing where no later snapshot lies beside it. One of the next serial alone proves nothing: it
may be of a run that died before it could commit it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.state.journal import read_journal
from reconciler.state.lockfile import KEY, read_lockfile
from reconciler.state.runs import read_end, read_run
from reconciler.state.snapshots import history, run_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.objectstore.base import ObjectStore
    from reconciler.state.lockfile import Lockfile
    from reconciler.state.snapshots import SnapshotRow


def find_outdated(store: ObjectStore, lockfile: Lockfile, rows: Sequence[SnapshotRow] | None = None) -> str | None:
    """Say that a lockfile is an old copy, in a sentence; `None` where nothing proves it. One LIST, unless `rows` is it.

    `lockfile` was read before the LIST: where it has changed since, it was our look that was old.
    """
    why = why_outdated(store, lockfile, history(store) if rows is None else rows)
    if why is None:
        return None
    again = read_lockfile(store)
    if again is None or again.lockfile.nonce != lockfile.nonce:
        return None
    return f"{store.url}/{KEY} says state #{lockfile.serial}, but {why}: it is an old copy"


def check_current(store: ObjectStore, lockfile: Lockfile, rows: Sequence[SnapshotRow] | None = None) -> None:
    """Refuse to go on from an old copy. Raises UserError: it is one."""
    outdated = find_outdated(store, lockfile, rows)
    if outdated is not None:
        raise UserError(
            outdated,
            hint="An old one would forget what was applied since. Restore the newest version of it, or make it anew "
            "from what is beside it: reconciler state repair",
        )


def why_outdated(store: ObjectStore, lockfile: Lockfile, rows: Sequence[SnapshotRow]) -> str | None:
    """Return what proves that a lockfile is an old copy; `rows` are the snapshots, the newest first."""
    if rows and rows[0].serial >= lockfile.serial + 2:
        return f"{rows[0].key} was written"
    found = (_committed(store, lockfile, row) for row in rows if row.serial == lockfile.serial + 1)
    return next((why for why in found if why is not None), None)


def _committed(store: ObjectStore, lockfile: Lockfile, row: SnapshotRow) -> str | None:
    """Return what proves that the next snapshot was committed, and not only written."""
    run = run_of(store, row)
    if run is None:
        return None
    end, file = read_end(store, run), read_run(store, run)
    if end is not None and end.serial >= row.serial:
        return f"run {run} ended with #{end.serial}"
    epoch = file.epoch if file is not None else _settled_under(store, lockfile)
    if epoch > lockfile.lease.epoch:
        return f"run {run} had the lease under epoch {epoch}, and it knows of {lockfile.lease.epoch}"
    return None


def _settled_under(store: ObjectStore, lockfile: Lockfile) -> int:
    """Return the epoch under which the open run was written last: who only settled it left no file of its own."""
    if lockfile.open_run is None:
        return 0
    try:
        return max((page.epoch for page in read_journal(store, lockfile.open_run.run).pages), default=0)
    except UserError:
        return 0  # what a journal that cannot be read means, whoever goes on with it says
