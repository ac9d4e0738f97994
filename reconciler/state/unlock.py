"""`state unlock`: free a lease whose holder is dead. The same takeover as any other, never a delete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import InterruptedRunError, LeaseError, LostRaceError
from reconciler.state.lockfile import KEY, Lockfile, OpenRun, Owner, Read, read_lockfile
from reconciler.state.terms import Terms
from reconciler.state.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.effects import Effects
    from reconciler.objectstore.base import ObjectStore


@dataclass(frozen=True, slots=True)
class Unlocked:
    """What was found and done. `open_run`: the run that had begun and not closed; the next apply converges it."""

    was_free: bool
    run: str | None = None
    who: str | None = None
    epoch: int = 0
    open_run: OpenRun | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlocking:
    """Whose state, and which run is known to be dead (`None`: judge by watching one whole lease)."""

    owner: Owner | None = None
    run: str | None = None
    is_stopped: Callable[[], bool] = lambda: False


async def unlock(store: ObjectStore, effects: Effects, wanted: Unlocking) -> Unlocked:
    """Free the lease: at once where the dead run was named, else after seeing no sign of life for a whole lease.

    Raises:
        LeaseError: It moved, or another run holds it: nothing was changed.
    """
    watch = Watch()
    first: Lockfile | None = None
    while True:
        asked = effects.now()
        found = await effects.call(lambda: read_lockfile(store, owner=wanted.owner))
        if found is None:
            return Unlocked(was_free=True)
        lockfile = found.lockfile
        if lockfile.lease.status == "free":
            return Unlocked(was_free=True, epoch=lockfile.lease.epoch, open_run=lockfile.open_run)
        if first is not None and lockfile.nonce != first.nonce:
            raise _alive(lockfile)
        first = lockfile
        idle = watch.idle_s(lockfile, asked=asked, answered=effects.now())
        if _is_dead(lockfile, wanted.run, idle):
            return await _free(store, effects, found)
        if wanted.is_stopped():
            raise InterruptedRunError("stopped while watching the lease", hint="Nothing was changed.")
        await effects.sleep(min(Terms(lockfile.lease.lease_s).poll_s, 0.5))


def _is_dead(lockfile: Lockfile, run: str | None, idle_s: float) -> bool:
    if run is None:
        return idle_s >= lockfile.lease.lease_s
    if run != lockfile.lease.run:
        message = f"the lease is not held by run {run} but by {lockfile.lease.who}, run {lockfile.lease.run}"
        raise LeaseError(message, hint=f"If that one is dead: reconciler state unlock {lockfile.lease.run}")
    return True


async def _free(store: ObjectStore, effects: Effects, found: Read) -> Unlocked:
    """Swap in a free lease under the next epoch: the old holder's next write is refused."""
    lease = found.lockfile.lease
    raised = found.lockfile.model_copy(update={"lease": lease.model_copy(update={"epoch": lease.epoch + 1})})
    freed = raised.freed().with_beat()
    try:
        await effects.call(lambda: store.swap(KEY, freed.to_bytes(), expected=found.version))
    except LostRaceError as error:
        current = await effects.call(lambda: read_lockfile(store))
        raise _alive(found.lockfile if current is None else current.lockfile) from error
    return Unlocked(
        was_free=False, run=lease.run, who=lease.who, epoch=freed.lease.epoch, open_run=found.lockfile.open_run
    )


def _alive(lockfile: Lockfile) -> LeaseError:
    lease = lockfile.lease
    return LeaseError(
        f"the lease moved while it was watched: {lease.who}, run {lease.run}, is alive",
        hint=f"Wait for it. If you are sure it is dead: reconciler state unlock {lease.run}",
    )
