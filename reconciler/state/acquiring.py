"""Take the lease: create the lockfile, take a free lease, wait for a held one, take over an expired one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from reconciler.errors import InterruptedRunError, LeaseError, LostRaceError, RetryableError, UserError
from reconciler.noting import note
from reconciler.objectstore.nonces import nonce
from reconciler.state.lease import Lease
from reconciler.state.lockfile import KEY, LeaseEntry, Lockfile, Owner, Read, read_lockfile
from reconciler.state.runs import read_run
from reconciler.state.snapshots import history
from reconciler.state.terms import Terms
from reconciler.state.watching import Watch

if TYPE_CHECKING:
    from reconciler.effects import Effects
    from reconciler.objectstore.base import ObjectStore

_LOGGER: Final = logging.getLogger("reconciler.lease")
_SLICE_S = 0.5
"""A wait is cut into pieces this long, so that a request to stop is heard."""
_NOTICE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who wants the lease, and for what."""

    owner: Owner
    run: str
    who: str
    lineage: str
    """The state's identity, used only where this makes the first lockfile."""
    ci_url: str | None = None
    terms: Terms = field(default_factory=Terms)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What one who waits can be told: who holds the lease, since when, and what they are doing."""

    run: str
    who: str
    since: str
    ci_url: str | None
    doing: str
    waited_s: float
    timeout_s: float

    def __str__(self) -> str:
        """Say it in one line."""
        where = f" ({self.ci_url})" if self.ci_url else ""
        held = f"the lease is held by {self.who}{where} since {self.since}: {self.doing}"
        return f"{held}; run {self.run}; waiting up to {self.timeout_s:.0f} s, {self.waited_s:.0f} s so far"


def _tell_nobody(_waiting: Waiting) -> None:
    return


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for a lease that someone else holds, whom to tell, and whether to stop waiting."""

    lock_timeout_s: float = 600.0
    tell: Callable[[Waiting], None] = _tell_nobody
    is_stopped: Callable[[], bool] = _never


async def acquire(store: ObjectStore, effects: Effects, claim: Claim, patience: Patience | None = None) -> Lease:
    """Return the lease, renewed from here on, once it is free or its holder has shown no life for all of it.

    Raises:
        LeaseError: Someone else held it all the time.
        UserError: The state is lost, damaged, somebody else's, or its store does not honour conditions.
        InterruptedRunError: Asked to stop while waiting.
    """
    return await _Acquiring(store, effects, claim, patience or Patience()).run()


class _Acquiring:
    """One attempt to get the lease, with what it has seen so far."""

    def __init__(self, store: ObjectStore, effects: Effects, claim: Claim, patience: Patience) -> None:
        self.store = store
        self.effects = effects
        self.claim = claim
        self.patience = patience
        self.watch = Watch()
        self.began = effects.now()
        self.told: tuple[str | None, float] = (None, 0.0)

    async def run(self) -> Lease:
        while True:
            asked = self.effects.now()
            found = await self.effects.call(lambda: read_lockfile(self.store, owner=self.claim.owner))
            if found is None:
                lease = await self._take(await self._first(), expected=None)
            elif self._is_for_the_taking(found.lockfile, asked):
                await self.effects.call(partial(_check_not_restored, self.store, found.lockfile))
                lease = await self._take(self._next(found.lockfile), expected=found)
            else:
                lease = None
                await self._wait(found.lockfile)
            if lease is not None:
                return lease

    def _is_for_the_taking(self, lockfile: Lockfile, asked: float) -> bool:
        if lockfile.lease.status == "free":
            return True
        return self.watch.idle_s(lockfile, asked=asked, answered=self.effects.now()) >= lockfile.lease.lease_s

    async def _first(self) -> Lockfile:
        problems = await self.effects.call(self.store.probe)
        if problems:
            raise UserError(
                f"{self.store.url} cannot keep a state: {'; '.join(problems)}",
                hint="Name another place in `spec.state`: a local disk, or a bucket with conditional writes.",
            )
        owner = self.claim.owner
        return Lockfile(
            lineage=self.claim.lineage,
            workspace=owner.workspace,
            environment=owner.environment,
            serial=0,
            state=None,
            lease=self._entry(epoch=1),
            open_run=None,
            nonce=nonce(),
        )

    def _next(self, lockfile: Lockfile) -> Lockfile:
        return lockfile.model_copy(update={"lease": self._entry(epoch=lockfile.lease.epoch + 1), "nonce": nonce()})

    def _entry(self, *, epoch: int) -> LeaseEntry:
        return LeaseEntry(
            epoch=epoch,
            status="held",
            beat=0,
            lease_s=self.claim.terms.lease_s,
            run=self.claim.run,
            holder=nonce(),
            who=self.claim.who,
            ci_url=self.claim.ci_url,
            since=self.effects.utc().strftime("%Y-%m-%dT%H:%M:%SZ"),
        )

    async def _take(self, ours: Lockfile, *, expected: Read | None) -> Lease | None:
        """Write ourselves in; `None` where someone else was faster."""
        sent = self.effects.now()
        version = None if expected is None else expected.version
        try:
            taken = await self.effects.call(lambda: self.store.swap(KEY, ours.to_bytes(), expected=version))
        except LostRaceError:
            note(_LOGGER, "race lost", epoch=ours.lease.epoch)
            return None
        except RetryableError as trouble:
            lease = await self._adopt(ours, sent, trouble)
        else:
            lease = Lease(self.store, self.effects, Read(ours, taken), sent=sent)
        if expected is not None and expected.lockfile.lease.status == "held":
            lease.taken_from = expected.lockfile.lease.run
        note(_LOGGER, "acquired", epoch=ours.lease.epoch, run=self.claim.run, taken_from=lease.taken_from)
        lease.start_renewing()
        return lease

    async def _adopt(self, ours: Lockfile, sent: float, trouble: RetryableError) -> Lease:
        """Find our own write after its answer was lost. Reading it is no proof of still holding it: renew once."""
        found = await self.effects.call(lambda: read_lockfile(self.store))
        if found is None or found.lockfile.nonce != ours.nonce:
            raise trouble
        lease = Lease(self.store, self.effects, found, sent=sent)
        await lease.renew()
        return lease

    async def _wait(self, lockfile: Lockfile) -> None:
        waited = self.effects.now() - self.began
        if waited >= self.patience.lock_timeout_s:
            raise await self._held(lockfile)
        run, told_at = self.told
        if run != lockfile.lease.run or waited - told_at >= _NOTICE_S:
            self.told = (lockfile.lease.run, waited)
            self.patience.tell(await self._waiting(lockfile, waited))
        left = min(Terms(lockfile.lease.lease_s).poll_s, self.patience.lock_timeout_s - waited)
        while left > 0:
            if self.patience.is_stopped():
                raise InterruptedRunError("stopped while waiting for the lease", hint="Nothing was changed.")
            piece = min(left, _SLICE_S)
            await self.effects.sleep(piece)
            left -= piece

    async def _waiting(self, lockfile: Lockfile, waited: float) -> Waiting:
        lease = lockfile.lease
        opened = lockfile.open_run
        has_begun = opened is not None and opened.run == lease.run
        known = await self.effects.call(lambda: read_run(self.store, lease.run or "")) if has_begun else None
        doing = f"{known.command}, {len(known.actions)} actions" if known else "planning"
        who, since = lease.who or "someone", lease.since or "an unknown time"
        return Waiting(lease.run or "", who, since, lease.ci_url, doing, waited, self.patience.lock_timeout_s)

    async def _held(self, lockfile: Lockfile) -> LeaseError:
        waiting = replace(await self._waiting(lockfile, 0.0), waited_s=self.patience.lock_timeout_s)
        return LeaseError(
            f"the lease is held by {waiting.who} since {waiting.since}: {waiting.doing}; run {waiting.run}",
            hint="Wait for it (--lock-timeout). If that run is dead, free it at once with: "
            f"reconciler state unlock {waiting.run}",
        )


def _check_not_restored(store: ObjectStore, lockfile: Lockfile) -> None:
    """A snapshot two or more serials ahead was committed: the lockfile is an old copy that was put back."""
    rows = history(store)
    if rows and rows[0].serial >= lockfile.serial + 2:
        raise UserError(
            f"{store.url}/{KEY} says state #{lockfile.serial}, but {rows[0].key} was written: it is an old copy",
            hint="Restore the newest version of it: an old one would forget what was applied since.",
        )
