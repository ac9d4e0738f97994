"""The lease of a state: acquire, renew, commit, take over.

Every write of the lockfile renews the lease. Deadlines count from the sending of the last confirmed write.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from reconciler.errors import InterruptedRunError, LeaseError, LostRaceError, ReconcilerError, RetryableError, UserError
from reconciler.objectstore.base import ObjectStore, create_nonce
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.effects import Effects, log_debug
from reconciler.runtime.text import end_sentence, pluralize, shorten_run_id
from reconciler.state.journal import RunFile, check_lockfile_current, read_run, retry_until_answered, write_run
from reconciler.state.lockfile import (
    KEY,
    LeaseEntry,
    LeaseTerms,
    Lockfile,
    OpenRun,
    Owner,
    StatePointer,
    StoredLockfile,
    check_not_vanished,
    read_lockfile,
)
from reconciler.state.snapshots import Snapshot, encode_snapshot, read_snapshot_of

if TYPE_CHECKING:
    from reconciler.resources.inventory import Record


class LockfileMovedError(Exception):
    """An earlier write changed the state, so the prepared snapshot does not follow it."""


def keep_unchanged(lockfile: Lockfile) -> Lockfile:
    """Return the lockfile unchanged, for a renewal."""
    return lockfile


def close_run(lockfile: Lockfile) -> Lockfile:
    """Return a copy without the open run."""
    return lockfile.model_copy(update={"open_run": None})


def with_free_lease(lockfile: Lockfile) -> Lockfile:
    """Return a copy with a free lease; an open run stays open."""
    return lockfile.with_free_lease()


def close_run_and_lease(lockfile: Lockfile) -> Lockfile:
    """Return a copy with a free lease and without the open run."""
    return close_run(lockfile).with_free_lease()


def set_pointer(
    base: Lockfile, pointer: StatePointer, finish: Callable[[Lockfile], Lockfile], current: Lockfile
) -> Lockfile:
    """Point to a snapshot that follows `base`. Raises `LockfileMovedError` if the state of `current` differs."""
    if current.state != base.state:
        raise LockfileMovedError
    return finish(current).model_copy(update={"state": pointer, "serial": base.serial + 1})


def store_snapshot(store: ObjectStore, key: str, body: bytes) -> None:
    """Write a snapshot. The key contains its digest, so other content there is damaged and is replaced."""
    try:
        store.swap(key, body, expected=None)
    except LostRaceError:
        stored = store.get(key)
        store.swap(key, body, expected=None if stored is None else stored.version)


def lost_lease_error(current: StoredLockfile | None, url: str) -> LeaseError:
    """Build the error for a lease taken over, or without a lockfile."""
    if current is None:
        return LeaseError(
            f"{url}/{KEY} was deleted while this run held its lease",
            hint="Restore it from a backup or the bucket's versions.",
        )
    lease = current.lockfile.lease
    who = (
        f"{lease.who}, run {shorten_run_id(lease.run)}" if lease.status == "held" else "someone who has finished since"
    )
    return LeaseError(
        f"the lease was taken over by {who} (epoch {lease.epoch})",
        hint="Nothing more was written. Check the result of that run, then run the command again.",
    )


_LOGGER: Final = logging.getLogger("reconciler.lease")
_ATTEMPTS: Final = 5
_SOON_S: Final = 0.1
"""A renewal due within these seconds runs at once, because a sleep may end early."""


class Lease:
    """A lease held by this process, from `acquire` until `close`, `release` or its loss."""

    def __init__(self, store: ObjectStore, effects: Effects, taken: StoredLockfile, *, sent: float) -> None:
        self._store = store
        self._effects = effects
        self._current = taken
        self._sent = sent
        self._writing = threading.Lock()
        self._committing = threading.Lock()  # Take this lock before `_writing`, which renewals take, too.
        self._lost: LeaseError | None = None
        self._trouble: str | None = None
        self._end_renewing: Callable[[], None] | None = None
        self.terms = LeaseTerms(taken.lockfile.lease.lease_s)
        self.taken_from: str | None = None

    @property
    def lockfile(self) -> Lockfile:
        """The lockfile last written."""
        return self._current.lockfile

    @property
    def run(self) -> str:
        """The run that holds the lease."""
        return self.lockfile.lease.run or ""

    @property
    def store(self) -> ObjectStore:
        """The store of the state."""
        return self._store

    @property
    def may_start(self) -> bool:
        """Whether the last renewal is recent enough to start an action."""
        return self._read_age() < self.terms.may_start_s

    def check(self) -> None:
        """Raise `LeaseError` if the lease was freed, taken over, or not renewed in time."""
        if self._is_free:
            raise LeaseError("the lease was freed", hint="The next run finds what was still in progress.")
        if self._lost is None and self._read_age() >= self.terms.give_up_s:
            why = f" ({self._trouble})" if self._trouble else ""
            log_debug(_LOGGER, "lost", epoch=self.lockfile.lease.epoch, age_s=round(self._read_age(), 3))
            self._lost = LeaseError(
                f"the lease could not be renewed for {self._read_age():.0f} s{why}",
                hint="Nothing more was written. The next run finds out what was done: reconciler apply",
            )
        if self._lost is not None:
            raise self._lost

    def start_renewing(self) -> None:
        """Renew the lease on a separate thread until its end."""
        self._end_renewing = self._effects.run_on_thread(self._renew_forever)

    async def read_snapshot(self) -> Snapshot:
        """Read the current state."""
        return await self._effects.run_blocking(lambda: read_snapshot_of(self._store, self.lockfile))

    async def open_run(self, run: RunFile, commit: str | None = None) -> None:
        """Write `run.json`, then record the run as open. Await this before any action."""

        def write() -> int:
            self.check()
            write_run(self._store, run)
            opened = OpenRun(run=run.run, plan_digest=run.plan_digest)
            changes = {"open_run": opened, **({"commit": commit} if commit else {})}
            return self._write(self._store, lambda lockfile: lockfile.model_copy(update=changes))

        await retry_until_answered(self._effects, write)

    async def store_commit(self, commit: str | None) -> None:
        """Store the git commit of an apply that changed nothing; `None` keeps the stored one."""
        if commit not in {None, self.lockfile.commit}:
            await retry_until_answered(
                self._effects,
                lambda: self._write(self._store, lambda lockfile: lockfile.model_copy(update={"commit": commit})),
            )

    async def renew(self) -> None:
        """Renew the lease once."""
        await retry_until_answered(self._effects, lambda: self._write(self._store, keep_unchanged))

    async def commit(self, record: Record, *, settles: str | None = None) -> int:
        """Commit `record`, which must not change meanwhile; return the serial.

        `settles` is the earlier run whose results `record` includes.
        """
        return await self._effects.run_blocking(lambda: self._commit(record, keep_unchanged, settles))

    async def end_run(self, record: Record | None, *, settles: str | None = None) -> int:
        """Commit `record`, close the open run, and keep the lease; return the serial. `None` keeps the state."""
        return await retry_until_answered(self._effects, lambda: self._finish(record, close_run, settles))

    async def close(self, record: Record | None, *, keeps_run: bool = False) -> int:
        """Commit `record`, close the run and free the lease in one swap; return the serial. `None` keeps the state.

        `keeps_run` leaves the run open, because actions remain.

        Raises:
            LeaseError: The lease was lost; nothing was written.
            MendFirstError: The disk is full, or credentials have expired; the lease will expire.
        """
        finish = with_free_lease if keeps_run else close_run_and_lease
        try:
            return await retry_until_answered(self._effects, lambda: self._finish(record, finish))
        finally:
            self._stop_renewing()

    async def release(self) -> None:
        """Free the lease without a commit, unless it is lost or free."""
        if self._lost is None:
            await self.close(None, keeps_run=True)
        self._stop_renewing()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.release()
            return
        try:
            if self._lost is None:  # One attempt frees the lease, because the store may reject all writes.
                await self._effects.run_blocking(lambda: self._finish(None, with_free_lease))
        except ReconcilerError as trouble:
            error.add_note(f"The lease could not be freed either: {trouble}")
            if isinstance(error, ReconcilerError):
                error.hint = f"{end_sentence(error.hint)} {self._not_freed_hint()}"
        finally:
            self._stop_renewing()

    def _not_freed_hint(self) -> str:
        return (
            f"The lease could not be released: it expires {self.terms.lease_s:.0f} s from now, or at once with: "
            f"reconciler state unlock {shorten_run_id(self.run)}"
        )

    @property
    def _is_free(self) -> bool:
        return self._current.lockfile.lease.status == "free"

    def _read_age(self) -> float:
        return self._effects.read_clock() - self._sent

    def _stop_renewing(self) -> None:
        if self._end_renewing is not None:
            self._end_renewing()
            self._end_renewing = None

    async def _renew_forever(self, effects: Effects) -> None:
        store = copy(self._store)  # Renewals use a client of their own, which other requests cannot block.
        pause = self.terms.renew_s
        while True:
            await effects.sleep(pause)
            if (left := self.terms.renew_s - self._read_age()) > _SOON_S:
                pause = left
                continue
            try:
                await effects.run_blocking(lambda: self._write(store, keep_unchanged))
            except LeaseError:
                return
            except ReconcilerError as error:
                self._trouble = str(error)
                log_debug(_LOGGER, "not renewed", epoch=self.lockfile.lease.epoch, trouble=type(error).__name__)
                pause = self.terms.renew_s / 3
            else:
                pause = self.terms.renew_s

    def _commit(self, record: Record, finish: Callable[[Lockfile], Lockfile], settles: str | None = None) -> int:
        with self._hold_lock(self._committing):
            for _ in range(_ATTEMPTS):
                base = self.lockfile
                self.check()
                pointer, body = encode_snapshot(base, self.run, record, settles=settles)
                store_snapshot(self._store, pointer.key, body)
                with suppress(LockfileMovedError):
                    return self._write(self._store, partial(set_pointer, base, pointer, finish))
        raise self._contention_error()

    def _finish(self, record: Record | None, finish: Callable[[Lockfile], Lockfile], settles: str | None = None) -> int:
        if record is None or self._is_free:
            return self._write(self._store, finish)
        return self._commit(record, finish, settles)

    def _write(self, store: ObjectStore, change: Callable[[Lockfile], Lockfile]) -> int:
        with self._hold_lock(self._writing):
            for _ in range(_ATTEMPTS):
                if self._is_free:
                    return self.lockfile.serial
                self.check()
                after = change(self._current.lockfile).with_beat()
                sent = self._effects.read_clock()
                try:
                    version = store.swap(KEY, after.to_bytes(), expected=self._current.version)
                except LostRaceError:
                    self._current = self._find_own_write(store, after)
                else:
                    self._current, self._sent, self._trouble = StoredLockfile(after, version), sent, None
                    lease = after.lease
                    log_debug(
                        _LOGGER, "written", status=lease.status, epoch=lease.epoch, beat=lease.beat, serial=after.serial
                    )
                    return after.serial
        raise self._contention_error()

    @contextmanager
    def _hold_lock(self, lock: threading.Lock) -> Iterator[None]:
        while not lock.acquire(timeout=max(0.0, self.terms.give_up_s - self._read_age())):
            self.check()
        try:
            yield
        finally:
            lock.release()

    def _find_own_write(self, store: ObjectStore, after: Lockfile) -> StoredLockfile:
        """Return this process's write: no other process writes with its epoch."""
        try:
            current = read_lockfile(store)
        except UserError as error:
            self._lost = LeaseError(f"the lease is lost: {error.message}", hint=error.hint)
            raise self._lost from error
        before = self._current.lockfile
        if current is not None and current.lockfile.lease.epoch == before.lease.epoch:
            return current
        # The store may have applied the final write before another process took the free lease.
        is_safe = current is not None and after.state in (before.state, current.lockfile.state)
        if current is not None and is_safe and after.lease.status == "free":
            return StoredLockfile(after, current.version)
        log_debug(_LOGGER, "lost", epoch=before.lease.epoch, to_epoch=current.lockfile.lease.epoch if current else None)
        self._lost = lost_lease_error(current, store.url)
        raise self._lost

    def _contention_error(self) -> RetryableError:
        return RetryableError(
            f"{self._store.url}/{KEY} changed under every attempt to write it", hint="Check the store, then run again."
        )


@dataclass(frozen=True, slots=True)
class LeaseWait:
    """Holder of a lease, and seconds that the caller has waited."""

    run: str
    who: str
    since: str
    ci_url: str | None
    doing: str
    waited_s: float
    timeout_s: float

    def __str__(self) -> str:
        where = f" ({self.ci_url})" if self.ci_url else ""
        held = f"the lease is held by {self.who}{where} since {self.since}: {self.doing}"
        waits = f"waiting up to {self.timeout_s:.0f} s, {self.waited_s:.0f} s so far"
        return f"{held}; run {shorten_run_id(self.run)}; {waits}"


@dataclass(frozen=True, slots=True)
class TakeoverNotice:
    """Run whose lease was taken over, and seconds since its last write."""

    run: str
    who: str
    silent_s: float

    def __str__(self) -> str:
        return f"took over the lease of run {shorten_run_id(self.run)} of {self.who}, silent for {self.silent_s:.0f} s"


Notice: TypeAlias = LeaseWait | TakeoverNotice


def describe_activity(store: ObjectStore, lockfile: Lockfile) -> str:
    """Describe the progress of a lease's holder, from its run's files."""
    opened, run = lockfile.open_run, lockfile.lease.run
    if opened is None:
        return "planning"
    if opened.run != run:
        return f"settling run {shorten_run_id(opened.run)}, which was left open"
    known = read_run(store, opened.run)
    if known is None:
        return "applying"
    return f"{known.command}, {pluralize(len(known.actions), 'action')}"


@dataclass(slots=True)
class LeaseWatch:
    """Measures how long a lease has not changed."""

    nonce: str | None = None
    since: float = 0.0

    def measure_idle_s(self, lockfile: Lockfile, *, sent: float, answered: float) -> float:
        """Return the minimum seconds without a change. `sent` and `answered` are the times of the read."""
        if lockfile.nonce != self.nonce:
            self.nonce, self.since = lockfile.nonce, answered
        return max(0.0, sent - self.since)


_SLICE_S = 0.5
"""Longest sleep in seconds between checks for a stop request."""
_NOTICE_S = 30.0
_TAKE_ATTEMPTS = 3
"""`acquire` fails after this many attempts without a response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A process that requests a lease."""

    owner: Owner
    run: str
    who: str
    lineage: str
    """Lineage for the first lockfile."""
    ci_url: str | None = None
    terms: LeaseTerms = field(default_factory=LeaseTerms)


def ignore_notice(_notice: Notice) -> None:
    """Do nothing."""


def _never_stopped() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePatience:
    """Time limit for a held lease, callback for notices, and check for a stop request."""

    lock_timeout_s: float = 600.0
    tell: Callable[[Notice], None] = ignore_notice
    is_stopped: Callable[[], bool] = _never_stopped


async def acquire(store: ObjectStore, effects: Effects, claim: Claim, patience: LeasePatience | None = None) -> Lease:
    """Take the lease once it is free or has not changed for its full duration, and start renewals.

    Raises:
        LeaseError: Another run held the lease until the time limit.
        UserError: The state is lost or damaged, has another owner, or its store ignores conditional writes.
        InterruptedRunError: A stop was requested.
    """
    return await _Acquisition(store, effects, claim, patience or LeasePatience()).run()


@dataclass(frozen=True, slots=True)
class _SentWrite:
    at: float
    expected: StoredLockfile | None


class _Acquisition:
    def __init__(self, store: ObjectStore, effects: Effects, claim: Claim, patience: LeasePatience) -> None:
        self.store = store
        self.effects = effects
        self.claim = claim
        self.patience = patience
        self.watch = LeaseWatch()
        self.began = effects.read_clock()
        self.notified_at: float | None = None
        self.has_seen = False
        self.silent_s = 0.0
        self.unanswered: dict[str, _SentWrite] = {}
        """Our writes of unknown outcome, by nonce; they may still land."""

    async def run(self) -> Lease:
        while True:
            sent = self.effects.read_clock()
            current = await self.effects.run_blocking(lambda: read_lockfile(self.store, owner=self.claim.owner))
            if current is None:
                lease = await self._create()
            elif current.lockfile.nonce in self.unanswered:
                lease = await self._adopt_write(current)
            elif self._is_takeable(current.lockfile, sent):
                await self.effects.run_blocking(partial(check_lockfile_current, self.store, current.lockfile))
                lease = await self._try_to_take(self._build_next_lockfile(current.lockfile), expected=current)
            else:
                lease = None
                await self._wait(current.lockfile)
            if lease is not None:
                return lease
            self.has_seen = self.has_seen or current is not None

    def _is_takeable(self, lockfile: Lockfile, sent: float) -> bool:
        if lockfile.lease.status == "free":
            return True
        self.silent_s = self.watch.measure_idle_s(lockfile, sent=sent, answered=self.effects.read_clock())
        return self.silent_s >= lockfile.lease.lease_s

    async def _create(self) -> Lease | None:
        """Create the first lockfile, unless an existing one disappeared meanwhile."""
        check_not_vanished(self.store, has_seen=self.has_seen)
        return await self._try_to_take(await self._build_first_lockfile(), expected=None)

    async def _build_first_lockfile(self) -> Lockfile:
        problems = await self.effects.run_blocking(self.store.find_violated_conditions)
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
            lease=self._build_entry(epoch=1),
            open_run=None,
            nonce=create_nonce(),
        )

    def _build_next_lockfile(self, lockfile: Lockfile) -> Lockfile:
        return lockfile.model_copy(
            update={"lease": self._build_entry(epoch=lockfile.lease.epoch + 1), "nonce": create_nonce()}
        )

    def _build_entry(self, *, epoch: int) -> LeaseEntry:
        return LeaseEntry(
            epoch=epoch,
            status="held",
            beat=0,
            lease_s=self.claim.terms.lease_s,
            run=self.claim.run,
            holder=create_nonce(),
            who=self.claim.who,
            ci_url=self.claim.ci_url,
            since=self.effects.read_utc_time().strftime("%Y-%m-%dT%H:%M:%SZ"),
        )

    async def _try_to_take(self, ours: Lockfile, *, expected: StoredLockfile | None) -> Lease | None:
        sent = self.effects.read_clock()
        version = None if expected is None else expected.version
        try:
            taken = await self.effects.run_blocking(lambda: self.store.swap(KEY, ours.to_bytes(), expected=version))
        except LostRaceError:
            log_debug(_LOGGER, "race lost", epoch=ours.lease.epoch)
            return None
        except RetryableError as trouble:
            await self._watch_unanswered(ours, _SentWrite(sent, expected), trouble)
            return None
        return self._start_lease(Lease(self.store, self.effects, StoredLockfile(ours, taken), sent=sent), expected)

    async def _watch_unanswered(self, ours: Lockfile, sent: _SentWrite, trouble: RetryableError) -> None:
        self.unanswered[ours.nonce] = sent
        log_debug(_LOGGER, "unanswered", epoch=ours.lease.epoch, attempt=len(self.unanswered))
        if len(self.unanswered) > 1:
            await self._pause(_SLICE_S)
        if len(self.unanswered) == _TAKE_ATTEMPTS and not await self._is_stored():
            raise trouble

    async def _is_stored(self) -> bool:
        current = await self.effects.run_blocking(lambda: read_lockfile(self.store))
        return current is not None and current.lockfile.nonce in self.unanswered

    async def _adopt_write(self, own_write: StoredLockfile) -> Lease:
        """Renew once: the stored write does not prove that the lease is still held."""
        sent = self.unanswered[own_write.lockfile.nonce]
        lease = Lease(self.store, self.effects, own_write, sent=sent.at)
        await lease.renew()
        return self._start_lease(lease, sent.expected)

    def _start_lease(self, lease: Lease, before: StoredLockfile | None) -> Lease:
        previous = None if before is None else before.lockfile.lease
        if previous is not None and previous.status == "held":
            lease.taken_from = previous.run
            self.patience.tell(TakeoverNotice(previous.run or "", previous.who or "someone", self.silent_s))
            log_debug(_LOGGER, "took over", run=previous.run, who=previous.who, silent_s=round(self.silent_s, 3))
        epoch = lease.lockfile.lease.epoch
        log_debug(_LOGGER, "acquired", epoch=epoch, run=self.claim.run, taken_from=lease.taken_from)
        lease.start_renewing()
        return lease

    async def _wait(self, lockfile: Lockfile) -> None:
        waited = self.effects.read_clock() - self.began
        if waited >= self.patience.lock_timeout_s:
            raise await self._held_error(lockfile)
        if self.notified_at is None or waited - self.notified_at >= _NOTICE_S:
            self.notified_at = waited
            self.patience.tell(await self._describe_wait(lockfile, waited))
        await self._pause(min(LeaseTerms(lockfile.lease.lease_s).poll_s, self.patience.lock_timeout_s - waited))

    async def _pause(self, left: float) -> None:
        while left > 0:
            if self.patience.is_stopped():
                raise InterruptedRunError("stopped while waiting for the lease", hint="Nothing was changed.")
            piece = min(left, _SLICE_S)
            await self.effects.sleep(piece)
            left -= piece

    async def _describe_wait(self, lockfile: Lockfile, waited: float) -> LeaseWait:
        lease = lockfile.lease
        doing = await self.effects.run_blocking(lambda: describe_activity(self.store, lockfile))
        who, since = lease.who or "someone", lease.since or "an unknown time"
        return LeaseWait(lease.run or "", who, since, lease.ci_url, doing, waited, self.patience.lock_timeout_s)

    async def _held_error(self, lockfile: Lockfile) -> LeaseError:
        waiting = replace(await self._describe_wait(lockfile, 0.0), waited_s=self.patience.lock_timeout_s)
        return LeaseError(
            f"the lease is held by {waiting.who} since {waiting.since}: {waiting.doing}; "
            f"run {shorten_run_id(waiting.run)}",
            hint="Wait for it (--lock-timeout). If that run is dead, free it at once with: "
            f"reconciler state unlock {shorten_run_id(waiting.run)}",
        )
