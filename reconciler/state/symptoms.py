"""What is wrong with a lockfile, or with what it names: found by reading, and nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import LeaseError, NewerFormatError, UserError
from reconciler.state.lockfile import KEY, Lockfile, Owner, check_owner, parse_lockfile
from reconciler.state.openrun import read_open_run
from reconciler.state.outdated import why_outdated
from reconciler.state.snapshots import snapshot_of

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.state.remains import Remains


@dataclass(frozen=True, slots=True)
class Symptoms:
    """What is wrong, each in a sentence; nothing where all is well."""

    problems: tuple[str, ...] = ()
    lockfile: Lockfile | None = None
    """As it is, where it can be read."""
    is_current: bool = False
    """Whether what it says of the lease is so: it is no old copy."""

    def check_unheld(self) -> None:
        """Go on where nobody holds the lease.

        Raises:
            LeaseError: Somebody does, and the lockfile is no old copy.
        """
        lease = self.lockfile.lease if self.lockfile is not None and self.is_current else None
        if lease is not None and lease.status == "held":
            raise LeaseError(
                f"{lease.who} holds the lease since {lease.since}, run {lease.run}; {self.problems[0]}",
                hint=f"Nothing was changed. If that run is dead: reconciler state unlock {lease.run}",
            )


def find_symptoms(store: ObjectStore, remains: Remains, owner: Owner) -> Symptoms:
    """Return what is wrong with a state.

    Raises:
        UserError: It is somebody else's, or of a newer version.
    """
    if remains.is_nothing:
        return Symptoms()
    if remains.stored is None:
        return Symptoms((f"{store.url}/{KEY} is gone, and what lies beside it is not",))
    try:
        lockfile = parse_lockfile(remains.stored, store.url).lockfile
    except NewerFormatError:
        raise
    except UserError as error:
        return Symptoms((error.message,))
    check_owner(Owner(lockfile.workspace, lockfile.environment), owner, store.url)
    old = _age_of(store, lockfile, remains)
    if old is not None:
        return Symptoms((f"{store.url}/{KEY} is an old copy: {old}",), lockfile)
    return Symptoms(_broken(store, lockfile), lockfile, is_current=True)


def _age_of(store: ObjectStore, lockfile: Lockfile, remains: Remains) -> str | None:
    """Return what proves that a lockfile is one that was put back."""
    why = why_outdated(store, lockfile, remains.snapshots)
    if why is not None:
        return f"it says state #{lockfile.serial}, and {why}"
    if remains.run_epoch > lockfile.lease.epoch:
        return f"its epoch is {lockfile.lease.epoch}, and run {remains.runs[0].run} wrote under {remains.run_epoch}"
    return None


def _broken(store: ObjectStore, lockfile: Lockfile) -> tuple[str, ...]:
    """Return what is wrong with what a lockfile names."""
    problems: list[str] = []
    for look in (snapshot_of, read_open_run):
        try:
            look(store, lockfile)
        except NewerFormatError:
            raise
        except UserError as error:
            problems.append(error.message)
    return tuple(problems)
