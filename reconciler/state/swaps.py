"""What the holder of a lease makes of the lockfile, each by one swap, and what it says when it holds it no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import LeaseError, LostRaceError
from reconciler.state.lockfile import KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.objectstore.base import ObjectStore
    from reconciler.state.lockfile import Lockfile, Read, StatePointer


class MovedError(Exception):
    """An own write whose answer was lost had landed: what was prepared no longer follows it."""


def unchanged(lockfile: Lockfile) -> Lockfile:
    """Beat, and change nothing."""
    return lockfile


def without_run(lockfile: Lockfile) -> Lockfile:
    """Close the open run."""
    return lockfile.model_copy(update={"open_run": None})


def freed(lockfile: Lockfile) -> Lockfile:
    """Free the lease; an open run stays open."""
    return lockfile.freed()


def closed(lockfile: Lockfile) -> Lockfile:
    """Close the open run and free the lease."""
    return without_run(lockfile).freed()


def pointing(
    base: Lockfile, pointer: StatePointer, finish: Callable[[Lockfile], Lockfile], found: Lockfile
) -> Lockfile:
    """Point `found` at a snapshot that was prepared to follow `base`.

    Raises:
        MovedError: It no longer follows.
    """
    if found.state != base.state:
        raise MovedError
    return finish(found).model_copy(update={"state": pointer, "serial": base.serial + 1})


def keep_snapshot(store: ObjectStore, key: str, body: bytes) -> None:
    """Write a snapshot, which is named after its content: finding it there already is as good.

    What is there and is not what its name says was cut off, or damaged. It is replaced: no state names it.
    """
    try:
        store.swap(key, body, expected=None)
    except LostRaceError:
        there = store.get(key)
        store.swap(key, body, expected=None if there is None else there.version)


def lost_to(found: Read | None, url: str) -> LeaseError:
    """Say who took the lease, or that the lockfile is gone."""
    if found is None:
        return LeaseError(
            f"{url}/{KEY} is gone while we held its lease", hint="Restore it from a backup or the bucket's versions."
        )
    lease = found.lockfile.lease
    who = f"{lease.who}, run {lease.run}" if lease.status == "held" else "someone who has finished since"
    return LeaseError(
        f"the lease was taken over by {who} (epoch {lease.epoch})",
        hint="Nothing more was written. Look at their run, then run the command again.",
    )
