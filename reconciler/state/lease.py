"""The lease: take it, renew it, commit under it, take it over.

One writer: beats, checkpoints, the open run and the release pass through one lock and build on the last version, so a
checkpoint is a beat too. Deadlines count from when the last confirmed write was sent.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from reconciler.errors import InterruptedRunError, LeaseError, LostRaceError, ReconcilerError, RetryableError, UserError
from reconciler.objectstore.base import ObjectStore, nonce
from reconciler.runtime.effects import Effects, note
from reconciler.runtime.text import counted, ended_sentence
from reconciler.state.journal import RunFile, check_current, insist, read_run, write_run
from reconciler.state.lockfile import (
    KEY,
    LeaseEntry,
    Lockfile,
    OpenRun,
    Owner,
    Read,
    StatePointer,
    Terms,
    check_kept,
    read_lockfile,
)
from reconciler.state.snapshots import Snapshot, encode, snapshot_of

if TYPE_CHECKING:
    from reconciler.resources.inventory import Record


# What the holder of a lease makes of the lockfile, each by one swap, and what it says when it holds it no more.


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


_LOGGER: Final = logging.getLogger("reconciler.lease")
_ATTEMPTS: Final = 5
_SOON_S: Final = 0.1
"""A renewal that is due as soon as this is written now: a sleep may end a rounding before its time."""


class Lease:
    """A lease this process holds. `acquire` makes it; it ends by `close`, `release`, or by being lost."""

    def __init__(self, store: ObjectStore, effects: Effects, taken: Read, *, sent: float) -> None:
        """Hold what was taken by a write sent at `sent`."""
        self._store = store
        self._effects = effects
        self._current = taken
        self._sent = sent
        self._writing = threading.Lock()
        self._committing = threading.Lock()  # held around `_writing`: beats go on between
        self._lost: LeaseError | None = None
        self._trouble: str | None = None
        self._end_renewing: Callable[[], None] | None = None
        self.terms = Terms(taken.lockfile.lease.lease_s)
        self.taken_from: str | None = None
        """The run whose lease had expired and was taken over."""

    # -- what it says

    @property
    def lockfile(self) -> Lockfile:
        """What we wrote last."""
        return self._current.lockfile

    @property
    def run(self) -> str:
        """The run that holds it."""
        return self.lockfile.lease.run or ""

    @property
    def store(self) -> ObjectStore:
        """The store of the state."""
        return self._store

    @property
    def may_start(self) -> bool:
        """Tell whether it is young enough to start something new; if not, wait for a renewal or for `check` to fail."""
        return self._age() < self.terms.may_start_s

    def check(self) -> None:
        """Do nothing while it is surely ours.

        Raises:
            LeaseError: It was given back, taken over, or could not be renewed for too long: write nothing more.
        """
        if self._is_free:
            raise LeaseError("the lease was freed", hint="What was still under way is found by the next run.")
        if self._lost is None and self._age() >= self.terms.give_up_s:
            why = f" ({self._trouble})" if self._trouble else ""
            note(_LOGGER, "lost", epoch=self.lockfile.lease.epoch, age_s=round(self._age(), 3))
            self._lost = LeaseError(
                f"the lease could not be renewed for {self._age():.0f} s{why}",
                hint="Nothing more was written. What was done is found by the next run: reconciler apply",
            )
        if self._lost is not None:
            raise self._lost

    # -- what it does

    def start_renewing(self) -> None:
        """Renew from a thread and a client of its own, until the lease ends."""
        self._end_renewing = self._effects.apart(self._renew_forever)

    async def snapshot(self) -> Snapshot:
        """Return the state as it is under this lease."""
        return await self._effects.call(lambda: snapshot_of(self._store, self.lockfile))

    async def begin(self, run: RunFile, commit: str | None = None) -> None:
        """Write `run.json`, then open the run of the files of `commit`; nothing may be done before this returns."""

        def write() -> int:
            self.check()
            write_run(self._store, run)
            opened = OpenRun(run=run.run, plan_digest=run.plan_digest)
            changes = {"open_run": opened, **({"commit": commit} if commit else {})}
            return self._write(self._store, lambda lockfile: lockfile.model_copy(update=changes))

        await insist(self._effects, write)

    async def keep_commit(self, commit: str | None) -> None:
        """Write the commit of files that were applied and changed nothing; `None` keeps the one there is."""
        if commit not in {None, self.lockfile.commit}:
            await insist(
                self._effects,
                lambda: self._write(self._store, lambda lockfile: lockfile.model_copy(update={"commit": commit})),
            )

    async def renew(self) -> None:
        """Write one beat."""
        await insist(self._effects, lambda: self._write(self._store, unchanged))

    async def commit(self, record: Record, *, settles: str | None = None) -> int:
        """Make `record` the state and return its serial; the lease goes on. `record` must not change meanwhile.

        `settles`: the run left open whose work `record` takes in.
        """
        return await self._effects.call(lambda: self._commit(record, unchanged, settles))

    async def end_run(self, record: Record | None, *, settles: str | None = None) -> int:
        """Close the open run and go on holding the lease: make `record` the state (`None`: it did not change)."""
        return await insist(self._effects, lambda: self._end(record, without_run, settles))

    async def close(self, record: Record | None, *, keeps_run: bool = False) -> int:
        """End the run: make `record` the state (`None`: it did not change), free the lease, in one swap.

        With `keeps_run` the run stays open: something of it is left, or in doubt.

        Raises:
            LeaseError: It was lost: nothing of this was written.
            MendFirstError: The disk is full, or credentials have expired: the lease is free once it has expired.
        """
        finish = freed if keeps_run else closed
        try:
            return await insist(self._effects, lambda: self._end(record, finish))
        finally:
            self._stop_renewing()

    async def release(self) -> None:
        """Free the lease of a run that did nothing; a lease that is lost or free already stays as it is."""
        if self._lost is None:
            await self.close(None, keeps_run=True)
        self._stop_renewing()

    async def __aenter__(self) -> Self:
        """Hold it for a block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Free it at the end of the block, whatever happened; the block's own error is the one that counts."""
        if error is None:
            await self.release()
            return
        try:
            if self._lost is None:  # tried once: what went wrong may be that nothing can be written
                await self._effects.call(lambda: self._end(None, freed))
        except ReconcilerError as trouble:
            error.add_note(f"The lease could not be freed either: {trouble}")
            if isinstance(error, ReconcilerError):
                error.hint = f"{ended_sentence(error.hint)} {self._left_held()}"
        finally:
            self._stop_renewing()

    # -- beneath

    def _left_held(self) -> str:
        return (
            f"The lease could not be given back: it is free {self.terms.lease_s:.0f} s from now, or at once with: "
            f"reconciler state unlock {self.run}"
        )

    @property
    def _is_free(self) -> bool:
        return self._current.lockfile.lease.status == "free"

    def _age(self) -> float:
        return self._effects.now() - self._sent

    def _stop_renewing(self) -> None:
        if self._end_renewing is not None:
            self._end_renewing()
            self._end_renewing = None

    async def _renew_forever(self, effects: Effects) -> None:
        store = copy(self._store)  # a client of its own, which nothing done through ours can hold up
        pause = self.terms.renew_s
        while True:
            await effects.sleep(pause)
            if (left := self.terms.renew_s - self._age()) > _SOON_S:
                pause = left  # a checkpoint was a beat
                continue
            try:
                await effects.call(lambda: self._write(store, unchanged))
            except LeaseError:
                return
            except ReconcilerError as error:
                self._trouble = str(error)
                note(_LOGGER, "not renewed", epoch=self.lockfile.lease.epoch, trouble=type(error).__name__)
                pause = self.terms.renew_s / 3
            else:
                pause = self.terms.renew_s

    def _commit(self, record: Record, finish: Callable[[Lockfile], Lockfile], settles: str | None = None) -> int:
        """Write the next snapshot, then swap the lockfile to it; both anew where an own lost write turns up."""
        with self._alone(self._committing):
            for _ in range(_ATTEMPTS):
                base = self.lockfile
                self.check()
                pointer, body = encode(base, self.run, record, settles=settles)
                keep_snapshot(self._store, pointer.key, body)
                with suppress(MovedError):
                    return self._write(self._store, partial(pointing, base, pointer, finish))
        raise self._unsettled()

    def _end(self, record: Record | None, finish: Callable[[Lockfile], Lockfile], settles: str | None = None) -> int:
        if record is None or self._is_free:
            return self._write(self._store, finish)
        return self._commit(record, finish, settles)

    def _write(self, store: ObjectStore, change: Callable[[Lockfile], Lockfile]) -> int:
        """Swap in what `change` makes of the last version; return the serial that holds then.

        Raises:
            LeaseError: Someone else's write is there, or the deadline has passed.
        """
        with self._alone(self._writing):
            for _ in range(_ATTEMPTS):
                if self._is_free:
                    return self.lockfile.serial
                self.check()
                after = change(self._current.lockfile).with_beat()
                sent = self._effects.now()
                try:
                    version = store.swap(KEY, after.to_bytes(), expected=self._current.version)
                except LostRaceError:
                    self._current = self._still_ours(store, after)
                else:
                    self._current, self._sent, self._trouble = Read(after, version), sent, None
                    told = after.lease
                    note(_LOGGER, "written", status=told.status, epoch=told.epoch, beat=told.beat, serial=after.serial)
                    return after.serial
        raise self._unsettled()

    @contextmanager
    def _alone(self, lock: threading.Lock) -> Iterator[None]:
        """Be the only one in this process who does it; what hangs is waited for as long as the lease lasts."""
        while not lock.acquire(timeout=max(0.0, self.terms.give_up_s - self._age())):
            self.check()
        try:
            yield
        finally:
            lock.release()

    def _still_ours(self, store: ObjectStore, after: Lockfile) -> Read:
        """Return what we wrote, found instead of the answer: nobody else writes under our epoch.

        Raises:
            LeaseError: Someone took over, or the lockfile is gone.
        """
        try:
            found = read_lockfile(store)
        except UserError as error:
            self._lost = LeaseError(f"the lease is lost: {error.message}", hint=error.hint)
            raise self._lost from error
        before = self._current.lockfile
        if found is not None and found.lockfile.lease.epoch == before.lease.epoch:
            return found
        # Our closing write may have landed, and someone have taken the free lease since: then our state is theirs.
        is_safe = found is not None and after.state in (before.state, found.lockfile.state)
        if found is not None and is_safe and after.lease.status == "free":
            return Read(after, found.version)
        note(_LOGGER, "lost", epoch=before.lease.epoch, to_epoch=found.lockfile.lease.epoch if found else None)
        self._lost = lost_to(found, store.url)
        raise self._lost

    def _unsettled(self) -> RetryableError:
        return RetryableError(
            f"{self._store.url}/{KEY} changed under every attempt to write it", hint="Check the store, then run again."
        )


# What one who wants the lease is told: who holds it, since when and for what; whose it was.


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


@dataclass(frozen=True, slots=True)
class TookOver:
    """Whose lease was taken over, and for how long it had shown no life."""

    run: str
    who: str
    silent_s: float

    def __str__(self) -> str:
        """Say it in one line."""
        return f"took over the lease of run {self.run} of {self.who}, silent for {self.silent_s:.0f} s"


Notice: TypeAlias = Waiting | TookOver


def doing_of(store: ObjectStore, lockfile: Lockfile) -> str:
    """Say what the holder of a lease is doing, as far as it has written that down."""
    opened, run = lockfile.open_run, lockfile.lease.run
    if opened is None:
        return "planning"
    if opened.run != run:
        return f"settling run {opened.run}, which was left open"
    known = read_run(store, opened.run)
    if known is None:
        return "applying"
    return f"{known.command}, {counted(len(known.actions), 'action')}"


# Judge whether a lease has expired: by seeing no change for all of it, on one's own clock alone.


@dataclass(slots=True)
class Watch:
    """What one who waits has seen of a lease. Times are seconds of its own clock, never anyone else's."""

    nonce: str | None = None
    since: float = 0.0

    def idle_s(self, lockfile: Lockfile, *, asked: float, answered: float) -> float:
        """Return for how long the lockfile has surely not changed, given when it was asked for and arrived.

        It may have changed just before the first answer arrived, and was surely unchanged when last asked for.
        """
        if lockfile.nonce != self.nonce:
            self.nonce, self.since = lockfile.nonce, answered
        return max(0.0, asked - self.since)


# Take the lease: create the lockfile, take a free lease, wait for a held one, take over an expired one.


_SLICE_S = 0.5
"""A wait is cut into pieces this long, so that a request to stop is heard."""
_NOTICE_S = 30.0
_TAKE_ATTEMPTS = 3
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
        UserError: The state is lost, damaged, another's, or its store does not honour conditions.
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
        if len(self.unanswered) == _TAKE_ATTEMPTS and not await self._is_there():
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
