"""`state unlock`: free a lease whose holder is dead. The same takeover as any other, never a delete."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from reconciler.errors import InterruptedRunError, LeaseError, LostRaceError, UserError
from reconciler.objectstore.nonces import nonce
from reconciler.state.journal import take_over
from reconciler.state.lease import Lease
from reconciler.state.lockfile import KEY, Lockfile, OpenRun, Owner, Read, read_lockfile
from reconciler.state.openrun import read_open_run
from reconciler.state.terms import Terms
from reconciler.state.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.effects import Effects
    from reconciler.objectstore.base import ObjectStore


@dataclass(frozen=True, slots=True)
class Doubt:
    """What the open run left: the next apply settles it. `unreadable`: why that cannot be told."""

    run: str
    in_doubt: tuple[str, ...] = ()
    """Ids of actions that were begun, and not known to have ended."""
    left: tuple[str, ...] = ()
    """Ids of actions that were never begun."""
    unreadable: UserError | None = None


@dataclass(frozen=True, slots=True)
class Unlocked:
    """What was found and done. `open_run`: the run that had begun and not closed; it stays so."""

    was_free: bool
    run: str | None = None
    who: str | None = None
    epoch: int = 0
    open_run: OpenRun | None = None
    doubt: Doubt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlocking:
    """Whose state, which run is known to be dead (`None`: judge by watching one whole lease), and who says so."""

    owner: Owner | None = None
    run: str | None = None
    by_run: str = "unlock"
    """The run as which the lease is taken, for a moment."""
    who: str = "state unlock"
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
            doubt = await effects.call(partial(_doubt, store, lockfile))
            return Unlocked(was_free=True, epoch=lockfile.lease.epoch, open_run=lockfile.open_run, doubt=doubt)
        if wanted.run is None and first is not None and lockfile.nonce != first.nonce:
            raise _alive(lockfile)
        first = lockfile
        idle = watch.idle_s(lockfile, asked=asked, answered=effects.now())
        if _is_dead(lockfile, wanted.run, idle):
            lease = await _take(store, effects, found, wanted)
            if lease is not None:
                return await _free(lease, effects, lockfile)
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


async def _take(store: ObjectStore, effects: Effects, found: Read, wanted: Unlocking) -> Lease | None:
    """Take the lease under the next epoch: the old holder's next write is refused. `None`: it was faster."""
    held = found.lockfile.lease.model_copy(
        update={
            "epoch": found.lockfile.lease.epoch + 1,
            "beat": 0,
            "run": wanted.by_run,
            "holder": nonce(),
            "who": wanted.who,
            "ci_url": None,
            "since": effects.utc().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
    )
    ours = found.lockfile.model_copy(update={"lease": held, "nonce": nonce()})
    sent = effects.now()
    try:
        version = await effects.call(lambda: store.swap(KEY, ours.to_bytes(), expected=found.version))
    except LostRaceError as error:
        if wanted.run is not None:
            return None  # a beat of the run that was named, unless the next look says otherwise
        current = await effects.call(lambda: read_lockfile(store))
        raise _alive(found.lockfile if current is None else current.lockfile) from error
    return Lease(store, effects, Read(ours, version), sent=sent)


async def _free(lease: Lease, effects: Effects, before: Lockfile) -> Unlocked:
    """Write into the open run's journal that it was taken over, so that its next intent is refused, and let go."""
    async with lease:
        if before.open_run is not None:
            with suppress(UserError):  # of a journal that cannot be read, `doubt` says so
                await take_over(lease, effects, before.open_run.run)
        doubt = await effects.call(lambda: _doubt(lease.store, before))
    return Unlocked(
        was_free=False,
        run=before.lease.run,
        who=before.lease.who,
        epoch=lease.lockfile.lease.epoch,
        open_run=before.open_run,
        doubt=doubt,
    )


def _doubt(store: ObjectStore, lockfile: Lockfile) -> Doubt | None:
    if lockfile.open_run is None:
        return None
    run = lockfile.open_run.run
    try:
        opened = read_open_run(store, lockfile)
    except UserError as error:
        return Doubt(run, unreadable=error)
    if opened is None:
        return None
    stands = opened.folded()
    return Doubt(run, tuple(each.id for each in stands.in_doubt), tuple(each.id for each in stands.left))


def _alive(lockfile: Lockfile) -> LeaseError:
    lease = lockfile.lease
    return LeaseError(
        f"the lease moved while it was watched: {lease.who}, run {lease.run}, is alive",
        hint=f"Wait for it. If you are sure it is dead: reconciler state unlock {lease.run}",
    )
