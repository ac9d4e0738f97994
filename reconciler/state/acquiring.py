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
from reconciler.state.lockfile import KEY, LeaseEntry, Lockfile, Owner, Read, check_kept, read_lockfile
from reconciler.state.notices import Notice, TookOver, Waiting, doing_of
from reconciler.state.outdated import check_current
from reconciler.state.terms import Terms
from reconciler.state.watching import Watch

if TYPE_CHECKING:
    from reconciler.effects import Effects
    from reconciler.objectstore.base import ObjectStore

_LOGGER: Final = logging.getLogger("reconciler.lease")
_SLICE_S = 0.5
"""A wait is cut into pieces this long, so that a request to stop is heard."""
_NOTICE_S = 30.0
_ATTEMPTS = 3
"""How often a store may fail to answer whether the lease was taken."""


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


def tell_nobody(_notice: Notice) -> None:
    """Wait without a word."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for a lease that someone else holds, whom to tell, and whether to stop waiting."""

    lock_timeout_s: float = 600.0
    tell: Callable[[Notice], None] = tell_nobody
    is_stopped: Callable[[], bool] = _never


async def acquire(store: ObjectStore, effects: Effects, claim: Claim, patience: Patience | None = None) -> Lease:
    """Return the lease, renewed from here on, once it is free or its holder has shown no life for all of it.

    Raises:
        LeaseError: Someone else held it all the time.
        UserError: The state is lost, damaged, somebody else's, or its store does not honour conditions.
        InterruptedRunError: Asked to stop while waiting.
    """
    return await _Acquiring(store, effects, claim, patience or Patience()).run()


@dataclass(frozen=True, slots=True)
class _Sent:
    """A write of ours: when it was sent, and what it was to replace."""

    at: float
    expected: Read | None


class _Acquiring:
    """One attempt to get the lease, with what it has seen so far."""

    def __init__(self, store: ObjectStore, effects: Effects, claim: Claim, patience: Patience) -> None:
        self.store = store
        self.effects = effects
        self.claim = claim
        self.patience = patience
        self.watch = Watch()
        self.began = effects.now()
        self.told_at: float | None = None
        self.has_seen = False
        self.silent_s = 0.0
        self.unanswered: dict[str, _Sent] = {}
        """What we wrote, by nonce, where nobody said whether it is written: it may land yet."""

    async def run(self) -> Lease:
        while True:
            asked = self.effects.now()
            found = await self.effects.call(lambda: read_lockfile(self.store, owner=self.claim.owner))
            if found is None:
                lease = await self._create()
            elif found.lockfile.nonce in self.unanswered:
                lease = await self._adopt(found)
            elif self._is_for_the_taking(found.lockfile, asked):
                await self.effects.call(partial(check_current, self.store, found.lockfile))
                lease = await self._take(self._next(found.lockfile), expected=found)
            else:
                lease = None
                await self._wait(found.lockfile)
            if lease is not None:
                return lease
            self.has_seen = self.has_seen or found is not None

    def _is_for_the_taking(self, lockfile: Lockfile, asked: float) -> bool:
        if lockfile.lease.status == "free":
            return True
        self.silent_s = self.watch.idle_s(lockfile, asked=asked, answered=self.effects.now())
        return self.silent_s >= lockfile.lease.lease_s

    async def _create(self) -> Lease | None:
        """Make the first lockfile of an empty place; never one that vanished under our eyes."""
        check_kept(self.store, has_seen=self.has_seen)
        return await self._take(await self._first(), expected=None)

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
            await self._go_unanswered(ours, _Sent(sent, expected), trouble)
            return None
        return self._held_now(Lease(self.store, self.effects, Read(ours, taken), sent=sent), expected)

    async def _go_unanswered(self, ours: Lockfile, sent: _Sent, trouble: RetryableError) -> None:
        """Let what nobody answered be looked for: it may be there, come late, or never; whichever is there is ours."""
        self.unanswered[ours.nonce] = sent
        note(_LOGGER, "unanswered", epoch=ours.lease.epoch, attempt=len(self.unanswered))
        if len(self.unanswered) > 1:
            await self._pause(_SLICE_S)
        if len(self.unanswered) == _ATTEMPTS and not await self._is_there():
            raise trouble

    async def _is_there(self) -> bool:
        found = await self.effects.call(lambda: read_lockfile(self.store))
        return found is not None and found.lockfile.nonce in self.unanswered

    async def _adopt(self, found: Read) -> Lease:
        """Take up our own write whose answer was lost. Reading it is no proof of still holding it: renew once."""
        sent = self.unanswered[found.lockfile.nonce]
        lease = Lease(self.store, self.effects, found, sent=sent.at)
        await lease.renew()
        return self._held_now(lease, sent.expected)

    def _held_now(self, lease: Lease, before: Read | None) -> Lease:
        """Tell whose lease it was, and renew it from here on."""
        told = None if before is None else before.lockfile.lease
        if told is not None and told.status == "held":
            lease.taken_from = told.run
            self.patience.tell(TookOver(told.run or "", told.who or "someone", self.silent_s))
            note(_LOGGER, "took over", run=told.run, who=told.who, silent_s=round(self.silent_s, 3))
        epoch = lease.lockfile.lease.epoch
        note(_LOGGER, "acquired", epoch=epoch, run=self.claim.run, taken_from=lease.taken_from)
        lease.start_renewing()
        return lease

    async def _wait(self, lockfile: Lockfile) -> None:
        waited = self.effects.now() - self.began
        if waited >= self.patience.lock_timeout_s:
            raise await self._held(lockfile)
        if self.told_at is None or waited - self.told_at >= _NOTICE_S:
            self.told_at = waited
            self.patience.tell(await self._waiting(lockfile, waited))
        await self._pause(min(Terms(lockfile.lease.lease_s).poll_s, self.patience.lock_timeout_s - waited))

    async def _pause(self, left: float) -> None:
        while left > 0:
            if self.patience.is_stopped():
                raise InterruptedRunError("stopped while waiting for the lease", hint="Nothing was changed.")
            piece = min(left, _SLICE_S)
            await self.effects.sleep(piece)
            left -= piece

    async def _waiting(self, lockfile: Lockfile, waited: float) -> Waiting:
        lease = lockfile.lease
        doing = await self.effects.call(lambda: doing_of(self.store, lockfile))
        who, since = lease.who or "someone", lease.since or "an unknown time"
        return Waiting(lease.run or "", who, since, lease.ci_url, doing, waited, self.patience.lock_timeout_s)

    async def _held(self, lockfile: Lockfile) -> LeaseError:
        waiting = replace(await self._waiting(lockfile, 0.0), waited_s=self.patience.lock_timeout_s)
        return LeaseError(
            f"the lease is held by {waiting.who} since {waiting.since}: {waiting.doing}; run {waiting.run}",
            hint="Wait for it (--lock-timeout). If that run is dead, free it at once with: "
            f"reconciler state unlock {waiting.run}",
        )
